//! Sending a request: to one upstream after the other, until one begins to answer.
//!
//! A request is sent again only before anything of an answer was given to the caller, and only within
//! a budget, so that a vendor in trouble does not get all its traffic twice.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use abp_backend_core::{
    Backoff, ModelCall, ModelOperation, ModelReply, UpstreamError, is_retryable, retry_after,
};
use abp_core::ir::RawJson;
use abp_core::{EmulationReport, ExecutionMode};
use abp_dialect::{Exchange, WireFamily};
use abp_emulation::{EmulationEngine, PostProcessor};
use abp_error::{AbpError, ErrorCode};
use abp_plan::{Asked, ExchangePlan, ExchangeTarget, PlanError, plan_exchange, plan_repair};
use abp_translate::{KnownLedgers, Ledger, Recovered};
use bytes::Bytes;
use http::StatusCode;
use sha2::{Digest as _, Sha256};

use crate::admission::full;
use crate::apart::{apart, is_large};
use crate::ask::Ask;
use crate::gateway::Shared;
use crate::health::{Asking, Closed, Ended};
use crate::pool::Share;
use crate::route::Choice;
use crate::scan::Scan;
use crate::tally::{Tally, now};
use crate::{Refusal, headers};

/// A vendor that asks for more patience than this is not waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// A plan that owns what it sends.
pub(crate) struct Planned {
    pub(crate) mode: ExecutionMode,
    pub(crate) body: Bytes,
    /// Of the body, where it is not the caller's.
    pub(crate) sha256: Option<[u8; 32]>,
    pub(crate) exchange: Exchange,
    pub(crate) ledger: Ledger,
    pub(crate) emulation: EmulationReport,
    pub(crate) post: PostProcessor,
}

/// An upstream that began to answer.
pub(crate) struct Sent {
    pub(crate) choice: Arc<Choice>,
    pub(crate) planned: Planned,
    pub(crate) reply: ModelReply,
    /// Its place among the upstream's requests; given up when the answer ends, or another is tried.
    pub(crate) slot: Option<Share>,
}

impl Shared {
    /// Sends a request to the best upstream that takes it.
    pub(crate) async fn dispatch(
        &self,
        ask: &Ask,
        scan: &Scan,
        choices: &[Arc<Choice>],
        tally: &mut Tally,
    ) -> Result<Box<Sent>, Refusal> {
        let mut attempts = Attempts::default();
        let rounds = choices
            .iter()
            .cycle()
            .take(choices.len().max(self.settings.max_attempts));
        for choice in rounds {
            if attempts.exhausted || attempts.made >= self.settings.max_attempts {
                break;
            }
            let pause = match attempts.pause(ask, choice) {
                Ok(pause) => pause,
                Err(Some(problem)) => {
                    attempts.failed(choice, Failure::Refused(problem));
                    continue;
                }
                Err(None) => continue,
            };
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            match self.attempt(ask, scan, choice, tally, &mut attempts).await {
                Ok(sent) => return Ok(sent),
                Err(failure) => attempts.failed(choice, failure),
            }
            // Room was reserved for one answer, and there may be one that nobody heard.
            attempts.exhausted |= tally.has_spent();
        }
        let sent = attempts.outcome()?;
        // Others may have been tried after the one that is told of.
        tally.directed(&sent.choice, &sent.planned);
        tally.answers(sent.reply.status.as_u16());
        Ok(sent)
    }

    /// Lets a request through, counted among all requests or among those that are sent again.
    fn admit(&self, ask: &Ask, choice: &Choice, attempts: &mut Attempts) -> Result<(), Refusal> {
        let principal = ask.principal();
        if attempts.made == 0 {
            principal.retries().request();
        } else if !principal.retries().try_retry() {
            attempts.exhausted = true;
            let message = "too many requests have to be sent again";
            return Err(Refusal::new(ErrorCode::Overloaded, message));
        }
        let health = &choice.member.health;
        let allowed = health.allow(asking(ask, choice), Instant::now());
        allowed.map_err(|closed| left_alone(choice, closed))
    }

    async fn attempt(
        &self,
        ask: &Ask,
        scan: &Scan,
        choice: &Arc<Choice>,
        tally: &mut Tally,
        attempts: &mut Attempts,
    ) -> Result<Box<Sent>, Failure> {
        let name = choice.member.name();
        let slot = choice.member.slots.take(ask.principal(), 1, None);
        let slot = slot.map_err(|problem| {
            Failure::Refused(full(problem, &format!("requests to upstream {name}")))
        })?;
        let mut planned = self
            .plan(ask, choice)
            .await
            .map_err(|error| Failure::Refused(error.into()))?;
        planned.expect(scan, tally);
        self.admit(ask, choice, attempts)
            .map_err(Failure::Refused)?;
        attempts.made += 1;
        tally.directed(choice, &planned);
        tally.sent();
        let mut call = call(ask, scan, choice, &planned);
        tally.mark_trace(&mut call.headers);
        let sent = choice.member.upstream.send(call).await;
        self.judge(ask, choice, sent, planned, slot, tally)
    }

    /// What an upstream's answer, or its failure to give one, means for it and for us.
    fn judge(
        &self,
        ask: &Ask,
        choice: &Arc<Choice>,
        sent: Result<ModelReply, UpstreamError>,
        planned: Planned,
        slot: Share,
        tally: &mut Tally,
    ) -> Result<Box<Sent>, Failure> {
        let name = choice.member.name();
        let ended = |how| {
            let (health, now) = (&choice.member.health, Instant::now());
            health.ended(asking(ask, choice), how, now);
        };
        match sent {
            Err(error) => {
                ended(Ended::NoAnswer(&error));
                let told = AbpError::new(error.code(), format!("upstream {name}: {error}"));
                if !error.is_of_vendor() {
                    return Err(Failure::Refused(told.into()));
                }
                tracing::warn!(target: "abp.gateway", upstream = name, %error, "no answer");
                if error.may_have_been_heard() {
                    tally.unheard();
                }
                Err(Failure::NoAnswer(told.into()))
            }
            Ok(reply) => {
                tally.answered(reply.status.as_u16());
                let wait = retry_after(&reply.headers, SystemTime::now());
                let sent = Box::new(Sent {
                    choice: Arc::clone(choice),
                    planned,
                    reply,
                    slot: Some(slot),
                });
                if !is_retryable(sent.reply.status) {
                    ended(Ended::Well);
                    return Ok(sent);
                }
                ended(match sent.reply.status {
                    StatusCode::TOO_MANY_REQUESTS => Ended::Limited(wait),
                    _ => Ended::Unwell(wait),
                });
                Err(Failure::Unwell(sent, wait))
            }
        }
    }

    /// Plans a request again, after an answer that cannot be used.
    pub(crate) async fn plan_again(
        &self,
        ask: &Ask,
        choice: &Choice,
        answer: &str,
        problem: &str,
    ) -> Result<Planned, AbpError> {
        let recovered = self.recovered(ask, choice).await?;
        self.planner.with_target(ask, choice, |asked, target| {
            let engine = &self.planner.engine;
            plan_repair(asked, target, &recovered, engine, answer, problem)
        })
    }

    async fn plan(&self, ask: &Ask, choice: &Arc<Choice>) -> Result<Planned, AbpError> {
        if choice.is_native(ask.dialect) {
            return Ok(Planned::native(ask));
        }
        let recovered = self.recovered(ask, choice).await?;
        if !is_large(&ask.body) {
            return self.planner.plan(ask, choice, &recovered);
        }
        let (ask, choice, planner) = (ask.clone(), choice.clone(), self.planner.clone());
        apart(move || planner.plan(&ask, &choice, &recovered)).await?
    }
}

/// A planned request as an upstream takes it.
pub(crate) fn call(ask: &Ask, scan: &Scan, choice: &Choice, planned: &Planned) -> ModelCall {
    ModelCall {
        dialect: choice.dialect,
        operation: match ask.operation {
            ModelOperation::Generate { .. } => ModelOperation::Generate {
                stream: scan.stream,
            },
            ref other => other.clone(),
        },
        model: choice.model.clone(),
        query: query(ask, scan, choice),
        headers: headers::forwarded(&ask.headers, choice.dialect == ask.dialect),
        body: planned.body.clone(),
    }
}

/// The query that goes along: the caller's own to its own vendor, otherwise what asks for events.
fn query(ask: &Ask, scan: &Scan, choice: &Choice) -> Option<String> {
    let gemini = choice.dialect.family() == WireFamily::GenerateContent;
    if choice.is_native(ask.dialect) {
        ask.query.clone()
    } else {
        (gemini && scan.stream).then(|| "alt=sse".to_owned())
    }
}

/// What requests are planned with.
#[derive(Debug, Clone)]
pub(crate) struct Planner {
    engine: EmulationEngine,
    /// Ledgers of earlier exchanges.
    pub(crate) known: Arc<KnownLedgers>,
}

impl Planner {
    pub(crate) fn new(engine: EmulationEngine) -> Self {
        Self {
            engine,
            known: Arc::default(),
        }
    }

    /// Plans a request for an upstream.
    pub(crate) fn plan(
        &self,
        ask: &Ask,
        choice: &Choice,
        recovered: &Recovered,
    ) -> Result<Planned, AbpError> {
        self.with_target(ask, choice, |asked, target| {
            plan_exchange(asked, target, recovered, &self.engine)
        })
    }

    fn with_target(
        &self,
        ask: &Ask,
        choice: &Choice,
        plan: impl for<'r> FnOnce(Asked<'r>, ExchangeTarget<'_>) -> Result<ExchangePlan<'r>, PlanError>,
    ) -> Result<Planned, AbpError> {
        let target = ExchangeTarget {
            upstream: choice.member.name(),
            dialect: choice.dialect,
            profile: &choice.profile,
            manifest: &choice.member.manifest(choice.dialect, &choice.model),
            known: &self.known,
        };
        let plan = plan(ask.asked(), target)?.into_parts();
        let body = match plan.body {
            Cow::Borrowed(_) => ask.body.clone(),
            Cow::Owned(bytes) => Bytes::from(bytes),
        };
        Ok(Planned {
            mode: plan.mode,
            sha256: match plan.mode {
                ExecutionMode::Passthrough => None,
                ExecutionMode::Mapped => Some(Sha256::digest(&body).into()),
            },
            body,
            exchange: plan.exchange,
            ledger: plan.ledger,
            emulation: plan.emulation,
            post: plan.post,
        })
    }
}

impl Planned {
    /// Notes what is known of the answer, for vendors that do not tell it. Passed on as it is, an answer
    /// says what it says.
    pub(crate) fn expect(&mut self, scan: &Scan, tally: &Tally) {
        if self.mode == ExecutionMode::Passthrough {
            return;
        }
        let expected = &mut self.exchange.expected;
        expected.id = Some(format!("abp_{}", tally.run_id().simple()));
        let seconds = now().as_unix_millis() / 1000;
        expected.created = u64::try_from(seconds).ok();
        expected.model = Some(scan.model.clone());
        if let Some(previous) = &scan.previous {
            let name = "previous_response_id".to_owned();
            let previous = serde_json::Value::from(previous.as_str());
            expected.echo.push((name, RawJson::from(&previous)));
        }
    }

    /// A request that goes to its own vendor as it is.
    fn native(ask: &Ask) -> Self {
        Self {
            mode: ExecutionMode::Passthrough,
            body: ask.body.clone(),
            sha256: None,
            exchange: Exchange::default(),
            ledger: Ledger::default(),
            emulation: EmulationReport::default(),
            post: PostProcessor::default(),
        }
    }
}

/// Why an attempt came to nothing.
enum Failure {
    /// Nothing was sent.
    Refused(Refusal),
    /// Nothing came.
    NoAnswer(Refusal),
    /// The vendor says that it cannot, for now.
    Unwell(Box<Sent>, Option<Duration>),
}

/// The side of a request that an upstream's health goes by.
fn asking<'a>(ask: &Ask, choice: &'a Choice) -> Asking<'a> {
    Asking {
        key: ask.principal().number,
        model: &choice.model,
    }
}

/// An upstream that is not asked now.
fn left_alone(choice: &Choice, closed: Closed) -> Refusal {
    let (name, model) = (choice.member.name(), &choice.model);
    let message = match closed.code {
        ErrorCode::BackendRateLimited => {
            format!("upstream {name} limits the model {model} and asks for a pause")
        }
        _ => format!("upstream {name} is left alone for a while"),
    };
    Refusal::new(closed.code, message).retry_after(closed.rest)
}

/// What was tried so far.
#[derive(Default)]
struct Attempts {
    made: usize,
    exhausted: bool,
    /// Who was asked already, and for how long each wants to be left alone: nothing for those who have
    /// no other answer.
    asked: Vec<(Arc<Choice>, Option<Duration>)>,
    /// What there is to tell the caller if nothing better comes: the vendor's own words before ours,
    /// ours about what was sent before what was not.
    best: Option<Failure>,
}

impl Attempts {
    /// How long to wait before an upstream is asked: not at all, unless it was asked already. Where it is
    /// not to be asked, the reason, if that is news.
    fn pause(&self, ask: &Ask, choice: &Arc<Choice>) -> Result<Duration, Option<Refusal>> {
        let mut asked = self.asked.iter().rev();
        let before = asked.find(|(before, _)| Arc::ptr_eq(before, choice));
        let pause = match before.map(|(_, wait)| wait) {
            None => Duration::ZERO,
            Some(None) => return Err(None),
            Some(Some(wait)) if *wait > LONGEST_WAIT => return Err(None),
            Some(Some(wait)) => {
                let random = uuid::Uuid::now_v7().as_u64_pair().1;
                let made = u32::try_from(self.made).unwrap_or(u32::MAX);
                let backoff = Backoff::default().wait(made.saturating_sub(1), random);
                // A little longer: what it asked for has to be over.
                backoff.max(*wait + Duration::from_millis(1))
            }
        };
        let then = Instant::now() + pause;
        match choice.member.health.closed(asking(ask, choice), then) {
            Some(closed) => {
                let rest = closed.rest + pause;
                Err(Some(left_alone(choice, Closed { rest, ..closed })))
            }
            None => Ok(pause),
        }
    }

    fn failed(&mut self, choice: &Arc<Choice>, mut failure: Failure) {
        let wait = match &mut failure {
            Failure::Unwell(sent, wait) => {
                sent.slot = None;
                Some(wait.unwrap_or_default())
            }
            Failure::NoAnswer(_) => Some(Duration::ZERO),
            Failure::Refused(_) => None,
        };
        self.asked.push((Arc::clone(choice), wait));
        let rank = |failure: &Failure| match failure {
            Failure::Refused(_) => 0,
            Failure::NoAnswer(_) => 1,
            Failure::Unwell(..) => 2,
        };
        if self
            .best
            .as_ref()
            .is_none_or(|best| rank(&failure) >= rank(best))
        {
            self.best = Some(failure);
        }
    }

    fn outcome(self) -> Result<Box<Sent>, Refusal> {
        match self.best {
            Some(Failure::Unwell(sent, _)) => Ok(sent),
            Some(Failure::Refused(problem) | Failure::NoAnswer(problem)) => Err(problem),
            None => Err(Refusal::new(
                ErrorCode::BackendModelNotFound,
                "no upstream serves the model",
            )),
        }
    }
}
