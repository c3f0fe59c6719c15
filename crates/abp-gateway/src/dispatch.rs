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
use tokio::sync::OwnedSemaphorePermit;

use crate::ask::Ask;
use crate::gateway::Shared;
use crate::route::Choice;
use crate::scan::Scan;
use crate::tally::{Tally, now};
use crate::{Refusal, headers};

/// A vendor that asks for more patience than this is not waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Work on more bytes than this is not done where other requests wait for it.
const LARGE: usize = 256 * 1024;

/// A plan that owns what it sends.
pub(crate) struct Planned {
    pub(crate) mode: ExecutionMode,
    pub(crate) body: Bytes,
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
    /// Its place among the upstream's requests; given up when the answer ends.
    pub(crate) slot: OwnedSemaphorePermit,
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
            if attempts.made >= self.settings.max_attempts {
                break;
            }
            let Some(wait) = self.may_try(choice, &mut attempts) else {
                continue;
            };
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            match self.attempt(ask, scan, choice, tally, &mut attempts).await {
                Ok(sent) => return Ok(sent),
                Err(failure) => attempts.failed(failure),
            }
            if attempts.is_final() {
                break;
            }
        }
        attempts.outcome()
    }

    /// Whether an upstream may be tried now, and after which pause.
    fn may_try(&self, choice: &Choice, attempts: &mut Attempts) -> Option<Duration> {
        let now = Instant::now();
        if let Err(rest) = choice.member.breaker().allow(now) {
            let message = format!(
                "upstream {} is left alone for a while",
                choice.member.name()
            );
            let problem = Refusal::new(ErrorCode::CircuitBreakerOpen, message).retry_after(rest);
            attempts.failed(Failure::Refused(problem));
            return None;
        }
        if attempts.made == 0 {
            self.retries().request();
            return Some(Duration::ZERO);
        }
        if !self.retries().try_retry() {
            attempts.exhausted = true;
            return None;
        }
        let random = uuid::Uuid::now_v7().as_u64_pair().1;
        let pause = Backoff::default().wait(attempts.made_u32().saturating_sub(1), random);
        Some(pause.max(attempts.asked_to_wait.take().unwrap_or_default()))
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
        let Ok(slot) = Arc::clone(&choice.member.slots).try_acquire_owned() else {
            let message = format!("upstream {name} has as many requests as it may have");
            let problem = Refusal::new(ErrorCode::Overloaded, message);
            return Err(Failure::Refused(
                problem.retry_after(Duration::from_secs(1)),
            ));
        };
        let mut planned = self
            .plan(ask, choice)
            .await
            .map_err(|error| Failure::Refused(error.into()))?;
        planned.expect(scan, tally);
        attempts.made += 1;
        let price = choice.member.rules.prices.as_ref();
        let price = price
            .and_then(|prices| prices.get(Some(&choice.model)))
            .copied();
        tally.sent(&planned.body, planned.mode, price);
        tally.enter(name);
        tally.record.upstream_dialect = choice.dialect.as_str().to_owned();
        tally.record.model_sent.clone_from(&choice.model);
        let call = call(ask, scan, choice, &planned);
        let sent = choice.member.upstream.send(call).await;
        self.judge(choice, sent, planned, slot, tally)
    }

    /// What an upstream's answer, or its failure to give one, means for it and for us.
    fn judge(
        &self,
        choice: &Arc<Choice>,
        sent: Result<ModelReply, UpstreamError>,
        planned: Planned,
        slot: OwnedSemaphorePermit,
        tally: &mut Tally,
    ) -> Result<Box<Sent>, Failure> {
        let now = Instant::now();
        let name = choice.member.name();
        match sent {
            Err(error) => {
                choice.member.breaker().failure(now, None);
                tracing::warn!(target: "abp.gateway", upstream = name, %error, "no answer");
                let error = AbpError::new(error.code(), format!("upstream {name}: {error}"));
                Err(Failure::NoAnswer(error.into()))
            }
            Ok(reply) => {
                tally.answered(reply.status.as_u16());
                let wait = retry_after(&reply.headers, SystemTime::now());
                let sent = Box::new(Sent {
                    choice: Arc::clone(choice),
                    planned,
                    reply,
                    slot,
                });
                if !is_retryable(sent.reply.status) {
                    choice.member.breaker().success(now);
                    return Ok(sent);
                }
                choice.member.breaker().failure(now, wait);
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
        if ask.body.len() <= LARGE {
            return self.planner.plan(ask, choice, &recovered);
        }
        let (ask, choice, planner) = (ask.clone(), choice.clone(), self.planner.clone());
        let work = move || planner.plan(&ask, &choice, &recovered);
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?
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
        Ok(Planned {
            mode: plan.mode,
            body: match plan.body {
                Cow::Borrowed(_) => ask.body.clone(),
                Cow::Owned(bytes) => Bytes::from(bytes),
            },
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

/// What was tried so far.
#[derive(Default)]
struct Attempts {
    made: usize,
    asked_to_wait: Option<Duration>,
    exhausted: bool,
    /// What there is to tell the caller if nothing better comes: the vendor's own words before ours,
    /// ours about what was sent before what was not.
    best: Option<Failure>,
}

impl Attempts {
    fn made_u32(&self) -> u32 {
        u32::try_from(self.made).unwrap_or(u32::MAX)
    }

    fn failed(&mut self, failure: Failure) {
        if let Failure::Unwell(_, wait) = &failure {
            self.asked_to_wait = *wait;
        }
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

    /// Whether trying again is of no use.
    fn is_final(&self) -> bool {
        self.exhausted || self.asked_to_wait.is_some_and(|wait| wait > LONGEST_WAIT)
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
