//! What this end fills in where a client or a server cannot, as far as the operator allows it.
//!
//! What is filled in is labelled: in the negotiation with its limits, in what a server is given, and in
//! the result that a client gets in the end.

mod form;
mod roots;
mod sampling;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abp_json::Writer;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

pub use form::PreparedAnswers;
pub use sampling::{
    Sample, SampleMessage, SamplePart, SampleRequest, SampleRole, SampleStop, Sampler,
    SamplingRules,
};

use super::json;
use crate::capabilities::{ClientCapabilities, ClientFlag};
use crate::meta::{EMULATED, META};
use crate::method::Method;
use crate::negotiate::{Emulation, Routing};
use crate::serve::{McpAnswer, lock};

/// What may be filled in. Nothing is unless it is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Emulations {
    /// Servers sample from a model behind this end.
    pub sampling: Option<SamplingRules>,
    /// Servers are told of these directories. Sessions may have [their own](super::McpScope::with_roots).
    pub roots: Option<Vec<PathBuf>>,
    /// Forms are filled in.
    pub elicitation: Option<PreparedAnswers>,
    /// Lists are looked at as often as this, while somebody wants to be told of changes.
    pub list_changed: Option<Duration>,
    /// Resources are looked at, while somebody subscribes to them.
    pub subscribe: Option<SubscribeRules>,
}

/// How resources are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscribeRules {
    /// How often.
    pub interval: Duration,
    /// How many of them, for all clients together.
    pub max_resources: usize,
}

impl Emulations {
    /// What is passed on, and what is filled in with which limits.
    #[must_use]
    pub fn routing(&self) -> Routing {
        let seconds = |interval: Duration| interval.as_secs_f64();
        let filled = [
            self.sampling
                .as_ref()
                .map(|rules| (Emulation::Sampling, rules.limits())),
            self.roots
                .as_ref()
                .map(|_| (Emulation::Roots, "changes are not told".to_owned())),
            self.elicitation
                .as_ref()
                .map(|answers| (Emulation::Elicitation, answers.limits())),
            self.list_changed.map(|interval| {
                let limits = format!("every {} s while somebody listens", seconds(interval));
                (Emulation::ListChanged, limits)
            }),
            self.subscribe.map(|rules| {
                let (interval, most) = (seconds(rules.interval), rules.max_resources);
                let limits = format!("every {interval} s, at most {most} resources");
                (Emulation::Subscribe, limits)
            }),
        ];
        Routing {
            emulations: filled.into_iter().flatten().collect::<BTreeMap<_, _>>(),
            ..Routing::default()
        }
    }
}

/// What all clients of a gateway have filled in.
pub(super) struct Emulator {
    pub(super) rules: Emulations,
    pub(super) routing: Routing,
    sampler: Option<Sampler>,
    /// How many more resources may be looked at.
    pub(super) room: Arc<Semaphore>,
}

impl Emulator {
    /// What nobody can do is not filled in.
    pub(super) fn new(mut rules: Emulations, sampler: Option<Sampler>) -> Self {
        if sampler.is_none() {
            rules.sampling = None;
        }
        let most = rules.subscribe.map_or(0, |rules| rules.max_resources);
        Self {
            routing: rules.routing(),
            rules,
            sampler,
            room: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
        }
    }
}

/// A question to a client that this end may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Question {
    Sampling,
    Roots,
    Form,
}

impl Question {
    const ALL: [Self; 3] = [Self::Sampling, Self::Roots, Self::Form];

    const fn flag(self) -> ClientFlag {
        match self {
            Self::Sampling => ClientFlag::Sampling,
            Self::Roots => ClientFlag::Roots,
            Self::Form => ClientFlag::ElicitationForm,
        }
    }

    const fn emulation(self) -> Emulation {
        match self {
            Self::Sampling => Emulation::Sampling,
            Self::Roots => Emulation::Roots,
            Self::Form => Emulation::Elicitation,
        }
    }

    fn of(method: Method, params: Option<&str>) -> Option<Self> {
        match method {
            Method::CreateMessage => Some(Self::Sampling),
            Method::RootsList => Some(Self::Roots),
            // Nobody but a person goes to an address.
            Method::Elicit => {
                let mode = json::member(params, "mode");
                (mode.as_deref() != Some("url")).then_some(Self::Form)
            }
            _ => None,
        }
    }
}

/// What is filled in for one client.
pub(super) struct Filling {
    emulator: Arc<Emulator>,
    /// What the client cannot be asked and this end answers.
    questions: BTreeSet<Question>,
    roots: Vec<PathBuf>,
    /// What servers are told that they can ask for.
    pub(super) declared: ClientCapabilities,
}

impl Filling {
    pub(super) fn new(
        emulator: Arc<Emulator>,
        client: &ClientCapabilities,
        roots: Option<&[PathBuf]>,
    ) -> Self {
        let routing = &emulator.routing;
        let is_filled = |question: &Question| {
            let is_allowed = routing.emulations.contains_key(&question.emulation());
            is_allowed && !client.declares(question.flag())
        };
        let questions: BTreeSet<_> = Question::ALL.into_iter().filter(is_filled).collect();
        let native = client.flags().intersection(&routing.client_flags).copied();
        let filled = questions.iter().map(|question| question.flag());
        // Alone it would mean forms; each mode brings it along.
        let flags = native
            .chain(filled)
            .filter(|flag| *flag != ClientFlag::Elicitation);
        Self {
            declared: ClientCapabilities::of(flags),
            roots: roots
                .or(emulator.rules.roots.as_deref())
                .unwrap_or_default()
                .to_vec(),
            questions,
            emulator,
        }
    }

    /// Which question this end answers instead of the client.
    pub(super) fn question(&self, method: Method, params: Option<&str>) -> Option<Question> {
        Question::of(method, params).filter(|question| self.questions.contains(question))
    }

    /// Answers a question of a server.
    pub(super) async fn answer(
        &self,
        question: Question,
        server: &str,
        params: Option<&str>,
        used: &Used,
    ) -> McpAnswer {
        used.note(question.emulation());
        let rules = &self.emulator.rules;
        match question {
            Question::Roots => McpAnswer::Result(roots::result(&self.roots)),
            Question::Form => match &rules.elicitation {
                Some(answers) => McpAnswer::Result(answers.fill_in(server, params)),
                None => McpAnswer::internal("no answer is prepared"),
            },
            Question::Sampling => match (&rules.sampling, &self.emulator.sampler) {
                (Some(rules), Some(sampler)) => {
                    sampling::answer(rules, sampler, params, used).await
                }
                _ => McpAnswer::internal("there is no model"),
            },
        }
    }

    pub(super) fn emulator(&self) -> &Arc<Emulator> {
        &self.emulator
    }
}

/// What was filled in during one request.
#[derive(Default)]
pub(super) struct Used {
    emulations: Mutex<BTreeSet<Emulation>>,
    samples: AtomicU32,
    answering: Mutex<Vec<AbortHandle>>,
}

impl Used {
    pub(super) fn note(&self, emulation: Emulation) {
        lock(&self.emulations).insert(emulation);
    }

    /// What was filled in so far, for the client to bring back: how often a model was asked, and the
    /// names of emulations.
    pub(super) fn carried(&self) -> (u32, Vec<&'static str>) {
        let names = lock(&self.emulations)
            .iter()
            .map(|one| one.as_str())
            .collect();
        (self.samples.load(Ordering::Relaxed), names)
    }

    /// What was filled in before the client came back.
    pub(super) fn resumed(samples: u32, names: &[String]) -> Self {
        let known = Emulation::ALL.into_iter();
        let emulations = known.filter(|one| names.iter().any(|name| name == one.as_str()));
        Self {
            emulations: Mutex::new(emulations.collect()),
            samples: AtomicU32::new(samples),
            answering: Mutex::default(),
        }
    }

    /// Counts one more question to a model; whether there may be one.
    fn take_sample(&self, most: u32) -> bool {
        self.samples.fetch_add(1, Ordering::Relaxed) < most
    }

    /// Something is being answered for as long as the request goes on.
    pub(super) fn answering(&self, task: AbortHandle) {
        let mut answering = lock(&self.answering);
        answering.retain(|one| !one.is_finished());
        answering.push(task);
    }

    /// Nobody waits for answers any more.
    pub(super) fn stop(&self) {
        for task in lock(&self.answering).drain(..) {
            task.abort();
        }
    }

    /// A result with the names of what was filled in for it.
    pub(super) fn label(&self, result: String) -> String {
        let names = lock(&self.emulations).clone();
        labelled(result, names)
    }
}

/// A result that says what was filled in for it.
pub(super) fn labelled(result: String, emulations: impl IntoIterator<Item = Emulation>) -> String {
    let mut names = emulations.into_iter().peekable();
    if names.peek().is_none() {
        return result;
    }
    let mut out = Writer::default();
    out.begin_array();
    for name in names {
        out.string(name.as_str());
    }
    out.end_array();
    let names = out.into_text();
    let labelled = json::read(Some(&result), |object| {
        json::with_meta(object, EMULATED, &names)
    });
    labelled.unwrap_or(result)
}

/// Begins an object with the `_meta` that says how an answer came about.
fn begin_labelled(out: &mut Writer, emulation: Emulation, ignored: &[&str]) {
    out.begin_object();
    out.key(META);
    out.begin_object();
    out.key(EMULATED);
    out.begin_object();
    out.key("by");
    out.string(emulation.as_str());
    if !ignored.is_empty() {
        out.key("ignored");
        out.begin_array();
        for member in ignored {
            out.string(member);
        }
        out.end_array();
    }
    out.end_object();
    out.end_object();
}
