//! One request to a model's API: carried as it is, or negotiated, emulated and written in another
//! dialect.

use std::borrow::Cow;
use std::sync::Arc;

use abp_capability::{infer, negotiate};
use abp_core::ir::{IrConversation, Leaf, Origin};
use abp_core::{
    CapabilityManifest, EmulationReport, EnforcementLevel, ExecutionMode, NegotiationResult,
};
use abp_dialect::{Dialect, Exchange, TargetProfile};
use abp_emulation::{EmulationEngine, PostProcessor};
use abp_json::Limits;
use abp_policy::Holders;
use abp_projection::{Demands, Evaluation};
use abp_translate::{
    KnownLedgers, Ledger, Options, Recovered, TranslateError, needed_reasoning, read_request,
    recover, translate_request_with,
};

use crate::PlanError;
use crate::lower::{judge, tell_of_stops};
use crate::output::{ask_again, schema_in, tell_schema};
use crate::plan::OnLoss;

/// A request as it came.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'r> {
    /// Its dialect.
    pub dialect: Dialect,
    /// Its body.
    pub request: &'r [u8],
    /// Whether the answer is to be streamed. Some dialects say so in the address, not in the body.
    pub stream: bool,
    /// What to do where something would be lost.
    pub on_loss: OnLoss,
}

/// The model's API it is to go to.
#[derive(Debug, Clone, Copy)]
pub struct ExchangeTarget<'t> {
    /// Its name.
    pub upstream: &'t str,
    /// The dialect it is asked in.
    pub dialect: Dialect,
    /// What is known of it; its model where that is another one than the caller named.
    pub profile: &'t TargetProfile,
    /// What it can do.
    pub manifest: &'t CapabilityManifest,
    /// Ledgers of earlier exchanges.
    pub known: &'t Arc<KnownLedgers>,
}

/// A request ready to be sent, and everything its answer's translation has to know.
#[derive(Debug)]
pub struct ExchangePlan<'r> {
    mode: ExecutionMode,
    body: Cow<'r, [u8]>,
    ledger: Ledger,
    exchange: Exchange,
    negotiation: NegotiationResult,
    emulation: EmulationReport,
    post: PostProcessor,
}

/// Plans an exchange. Where caller and upstream speak the same dialect, and nothing has to be changed,
/// the request is carried as it is and not looked into.
///
/// # Errors
/// Fails, before anything is sent, where the request cannot be read, the upstream cannot do what it
/// asks for, or more would be lost than the caller allows.
pub fn plan_exchange<'r>(
    asked: Asked<'r>,
    target: ExchangeTarget<'_>,
    recovered: &Recovered,
    engine: &EmulationEngine,
) -> Result<ExchangePlan<'r>, PlanError> {
    plan_with(asked, target, recovered, engine, |_| {})
}

/// Plans the same exchange again, after an answer that does not hold what was emulated: the model is
/// shown its answer and what is wrong with it.
///
/// # Errors
/// As [`plan_exchange`].
pub fn plan_repair<'r>(
    asked: Asked<'r>,
    target: ExchangeTarget<'_>,
    recovered: &Recovered,
    engine: &EmulationEngine,
    answer: &str,
    problem: &str,
) -> Result<ExchangePlan<'r>, PlanError> {
    plan_with(asked, target, recovered, engine, |conversation| {
        ask_again(conversation, answer, problem);
    })
}

fn plan_with<'r>(
    asked: Asked<'r>,
    target: ExchangeTarget<'_>,
    recovered: &Recovered,
    engine: &EmulationEngine,
    change: impl FnOnce(&mut IrConversation),
) -> Result<ExchangePlan<'r>, PlanError> {
    if asked.dialect == target.dialect && target.profile.keeps_requests() {
        return Ok(ExchangePlan::passthrough(asked.request));
    }
    let mut decided = None;
    let options = Options {
        profile: target.profile.clone(),
        cut_stops: true,
        known: Some(Arc::clone(target.known)),
        ..Options::default()
    };
    let (from, to) = (asked.dialect, target.dialect);
    let prepare = |conversation: &mut IrConversation| {
        // A renamed model alone changes nothing else: the request stays the vendor's own.
        if from != to {
            if asked.stream && conversation.settings.stream.is_none() {
                let origin = Origin::Made("stream_in_route");
                conversation.settings.stream = Some(Leaf::new(true, origin));
            }
            recover(conversation, to, recovered);
            decided = Some(decide(conversation, target, engine));
            change(conversation);
        }
    };
    let done = translate_request_with(asked.request, from, to, &options, prepare);
    let done = done.map_err(|error| lossy(target.upstream, error))?;
    let mut decided = decided.transpose()?.unwrap_or_default();
    tell_of_stops(&done.exchange, &mut decided.emulation);
    judge(asked.on_loss, target.upstream, &done.ledger)?;
    Ok(ExchangePlan {
        mode: ExecutionMode::Mapped,
        body: Cow::Owned(done.output.into_bytes()),
        ledger: done.ledger,
        exchange: done.exchange,
        negotiation: decided.negotiation,
        emulation: decided.emulation,
        post: decided.post,
    })
}

/// The calls in a request whose reasoning has to be found again before it is planned.
///
/// # Errors
/// Fails where the request cannot be read.
pub fn reasoning_to_find(asked: Asked<'_>, to: Dialect) -> Result<Vec<String>, PlanError> {
    let conversation = read_request(asked.request, asked.dialect, &Limits::default())
        .map_err(|error| lossy("", error))?;
    Ok(needed_reasoning(&conversation, to))
}

/// What was negotiated and emulated.
#[derive(Default)]
struct Decided {
    negotiation: NegotiationResult,
    emulation: EmulationReport,
    post: PostProcessor,
}

fn decide(
    conversation: &mut IrConversation,
    target: ExchangeTarget<'_>,
    engine: &EmulationEngine,
) -> Result<Decided, PlanError> {
    let demands = Demands {
        requirements: infer(conversation),
        min_enforcement: EnforcementLevel::None,
        lists: Vec::new(),
        may_emulate: true,
        model: None,
        request: None,
    };
    let evaluation = Evaluation::new(&demands, target.manifest, &Holders::NONE, engine);
    if !evaluation.is_eligible() {
        return Err(PlanError::NotConfirmed {
            backend: target.upstream.to_owned(),
            refusals: evaluation.refusals(),
        });
    }
    let schema = schema_in(conversation);
    let emulation = engine.apply(&evaluation.required_emulations(), conversation);
    let post = PostProcessor::new(&emulation, schema.as_ref())?;
    if let Some(schema) = schema.filter(|_| !post.is_empty()) {
        tell_schema(conversation, &schema);
    }
    Ok(Decided {
        negotiation: negotiate(target.manifest, &demands.requirements),
        post,
        emulation,
    })
}

fn lossy(upstream: &str, error: TranslateError) -> PlanError {
    PlanError::Lossy {
        backend: upstream.to_owned(),
        problem: error.to_string(),
        code: abp_error::AbpError::from(error).code(),
    }
}

impl<'r> ExchangePlan<'r> {
    fn passthrough(request: &'r [u8]) -> Self {
        Self {
            mode: ExecutionMode::Passthrough,
            body: Cow::Borrowed(request),
            ledger: Ledger::default(),
            exchange: Exchange::default(),
            negotiation: NegotiationResult::default(),
            emulation: EmulationReport::default(),
            post: PostProcessor::default(),
        }
    }

    /// Its parts, to be sent.
    #[must_use]
    pub fn into_parts(self) -> ExchangeParts<'r> {
        let Self {
            mode,
            body,
            ledger,
            exchange,
            negotiation,
            emulation,
            post,
        } = self;
        ExchangeParts {
            mode,
            body,
            ledger,
            exchange,
            negotiation,
            emulation,
            post,
        }
    }
}

/// The parts of a plan.
#[derive(Debug)]
pub struct ExchangeParts<'r> {
    /// Whether the request is carried as it is or translated.
    pub mode: ExecutionMode,
    /// What is sent; borrowed where it is what came.
    pub body: Cow<'r, [u8]>,
    /// What became of every part of the request.
    pub ledger: Ledger,
    /// What the translation of the answer has to undo.
    pub exchange: Exchange,
    /// How the upstream's capabilities meet what the request needs.
    pub negotiation: NegotiationResult,
    /// What ABP makes up for.
    pub emulation: EmulationReport,
    /// What is to be done with the answer.
    pub post: PostProcessor,
}
