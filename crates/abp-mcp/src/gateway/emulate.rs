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
use sampling::Sampling;

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
    rules: Emulations,
    pub(super) routing: Routing,
    sampling: Option<Sampling>,
    /// How many more resources may be looked at.
    room: Arc<Semaphore>,
}

impl Emulator {
    /// What nobody can do is not filled in.
    pub(super) fn new(mut rules: Emulations, sampler: Option<Sampler>) -> Self {
        let sampling = rules.sampling.take().zip(sampler);
        rules.sampling = sampling.as_ref().map(|(rules, _)| rules.clone());
        let most = rules.subscribe.map_or(0, |rules| rules.max_resources);
        Self {
            routing: rules.routing(),
            rules,
            sampling: sampling.map(|(rules, sampler)| Sampling { rules, sampler }),
            room: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
        }
    }
}

/// What is filled in for one client.
pub(super) struct Filling {
    emulator: Arc<Emulator>,
    stand_ins: Vec<Arc<StandIn>>,
    /// What servers are told that they can ask for.
    pub(super) declared: ClientCapabilities,
}

/// What answers questions in the place of a client.
pub(super) enum StandIn {
    Model(Sampling),
    Roots(Vec<PathBuf>),
    Forms(PreparedAnswers),
}

impl Filling {
    /// Fills in what the client did not declare. A scope may have roots of its own.
    pub(super) fn new(
        emulator: Arc<Emulator>,
        client: &ClientCapabilities,
        own_roots: Option<&[PathBuf]>,
    ) -> Self {
        let rules = &emulator.rules;
        let roots = rules.roots.as_deref();
        let roots = roots.map(|configured| own_roots.unwrap_or(configured).to_vec());
        let allowed = [
            emulator.sampling.clone().map(StandIn::Model),
            roots.map(StandIn::Roots),
            rules.elicitation.clone().map(StandIn::Forms),
        ];
        let needed = allowed.into_iter().flatten();
        let needed = needed.filter(|one| !client.declares(one.flag()));
        let stand_ins: Vec<_> = needed.map(Arc::new).collect();
        let passed_on = &emulator.routing.client_flags;
        let native = client.flags().intersection(passed_on).copied();
        // Alone it would mean forms; each mode brings it along.
        let native = native.filter(|flag| *flag != ClientFlag::Elicitation);
        let filled = stand_ins.iter().map(|one| one.flag());
        Self {
            declared: ClientCapabilities::of(native.chain(filled)),
            stand_ins,
            emulator,
        }
    }

    /// What answers a question in the place of the client; `None` where the client does.
    pub(super) fn stand_in(&self, method: Method, params: Option<&str>) -> Option<Arc<StandIn>> {
        let mut stand_ins = self.stand_ins.iter();
        stand_ins.find(|one| one.answers(method, params)).cloned()
    }

    /// How often lists are looked at.
    pub(super) fn list_changed(&self) -> Option<Duration> {
        self.emulator.rules.list_changed
    }

    /// How resources are looked at, and how many more may be.
    pub(super) fn subscribe(&self) -> Option<(SubscribeRules, &Arc<Semaphore>)> {
        let rules = self.emulator.rules.subscribe?;
        Some((rules, &self.emulator.room))
    }
}

impl StandIn {
    const fn flag(&self) -> ClientFlag {
        match self {
            Self::Model(_) => ClientFlag::Sampling,
            Self::Roots(_) => ClientFlag::Roots,
            Self::Forms(_) => ClientFlag::ElicitationForm,
        }
    }

    const fn emulation(&self) -> Emulation {
        match self {
            Self::Model(_) => Emulation::Sampling,
            Self::Roots(_) => Emulation::Roots,
            Self::Forms(_) => Emulation::Elicitation,
        }
    }

    fn answers(&self, method: Method, params: Option<&str>) -> bool {
        match self {
            Self::Model(_) => method == Method::CreateMessage,
            Self::Roots(_) => method == Method::RootsList,
            // Nobody but a person goes to an address.
            Self::Forms(_) => {
                method == Method::Elicit && json::member(params, "mode").as_deref() != Some("url")
            }
        }
    }

    /// Answers a question of a server.
    pub(super) async fn answer(
        &self,
        server: &str,
        params: Option<&str>,
        used: &Used,
    ) -> McpAnswer {
        used.note(self.emulation());
        match self {
            Self::Model(sampling) => sampling.answer(params, used).await,
            Self::Roots(roots) => McpAnswer::Result(roots::result(roots)),
            Self::Forms(answers) => McpAnswer::Result(answers.fill_in(server, params)),
        }
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
    fn note(&self, emulation: Emulation) {
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
fn begin_labelled(out: &mut Writer, label: &str) {
    out.begin_object();
    out.key(META);
    out.begin_object();
    out.key(EMULATED);
    out.raw(label);
    out.end_object();
}

/// The label of an answer about which there is nothing more to say.
fn plain_label(emulation: Emulation) -> String {
    json::object(&[("by", emulation.as_str())])
}
