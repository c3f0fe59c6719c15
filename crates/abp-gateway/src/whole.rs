//! Answers in one piece.

use std::sync::Arc;

use abp_backend_core::ModelBody;
use abp_core::ir::{IrContentBlock, IrResponse, IrUsage};
use abp_core::{ExecutionMode, Outcome};
use abp_error::{AbpError, ErrorCode};
use abp_json::Limits;
use abp_translate::{
    KeptReasoning, Options, kept_reasoning, translate_error, translate_response_with, usage_of,
};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::Refusal;
use crate::ask::{Answer, AnswerBody, Ask};
use crate::dispatch::{Planned, Sent, call};
use crate::gateway::Shared;
use crate::headers::{self, Truth};
use crate::keep::Keeper;
use crate::ledgers::ANSWER;
use crate::route::Choice;
use crate::scan::Scan;
use crate::tally::Tally;

/// The longest answer that is taken in one piece.
const LONGEST: usize = 256 << 20;

/// What is read off an answer while it is translated.
#[derive(Default)]
struct Seen {
    usage: Option<IrUsage>,
    kept: Vec<(String, KeptReasoning)>,
    text: String,
}

/// What the caller is given.
struct Given {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    /// What came, where it passes as it is but for the vendor's key.
    received: Option<Bytes>,
}

impl Shared {
    /// Gives the caller an answer that came in one piece, or a vendor's error.
    pub(crate) async fn whole(
        self: &Arc<Self>,
        ask: &Ask,
        scan: &Scan,
        sent: Box<Sent>,
        mut tally: Box<Tally>,
    ) -> Result<Answer, Refusal> {
        let choice = sent.choice.clone();
        let mode = sent.planned.mode;
        let keeper = Keeper::new(self, ask, scan, &choice);
        let Given {
            status,
            mut headers,
            body,
            received,
        } = match self.given(ask, scan, sent, &keeper, &mut tally).await {
            Ok(given) => given,
            Err(error) => {
                tally.close(Outcome::Failed, Some(error.code()));
                return Err(error.into());
            }
        };
        tell(&tally, choice.member.name(), &mut headers);
        match received {
            // What is given on is not what came.
            Some(received) => {
                tally.received(&received);
                tally.translates();
                tally.delivered(&body);
            }
            None if mode == ExecutionMode::Passthrough => tally.passed_on(&body),
            None => tally.delivered(&body),
        }
        if status.is_success() {
            keeper.whole(&body);
            tally.close(Outcome::Complete, None);
        } else {
            tally.close(Outcome::Failed, Some(failure(status)));
        }
        Ok(Answer {
            status,
            headers,
            body: AnswerBody::Whole(body),
        })
    }

    async fn given(
        &self,
        ask: &Ask,
        scan: &Scan,
        sent: Box<Sent>,
        keeper: &Keeper,
        tally: &mut Tally,
    ) -> Result<Given, AbpError> {
        let Sent {
            choice,
            planned,
            reply,
            slot,
        } = *sent;
        let name = choice.member.name();
        let came = collect(name, reply.body).await?;
        let status = reply.status;
        let received = if status.is_success() {
            came.clone()
        } else {
            choice.member.upstream.without_key(came.clone())
        };
        let is_json = is_json(&reply.headers);
        let translated = planned.mode == ExecutionMode::Mapped;
        let mut headers = headers::returned(&reply.headers, translated);
        if translated {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            tally.translates();
            tally.received(&came);
        }
        let changed = !translated && !status.is_success() && received != came;
        let body = match (status.is_success(), translated) {
            (true, _) if !is_json => return Err(unusable(name, &"it is not JSON")),
            (true, false) => {
                if let Some(usage) = usage_of(choice.dialect, &received, &Limits::default()) {
                    tally.used(&usage);
                }
                received
            }
            (true, true) => {
                let (mut output, mut seen) = self.read(ask, &choice, &planned, &received, tally)?;
                if let Err(problem) = planned.post.check(&seen.text) {
                    let problem = problem.to_string();
                    (output, seen) = self
                        .repaired(ask, scan, &choice, &seen.text, &problem, tally)
                        .await?;
                    planned.post.check(&seen.text).map_err(|error| {
                        AbpError::new(ErrorCode::CapabilityEmulationFailed, error.to_string())
                    })?;
                }
                keeper.reasoning(seen.kept);
                output
            }
            (false, false) => received,
            // The status stays the vendor's: it is what the caller's own retries go by.
            (false, true) => {
                let (from, to) = (choice.dialect, ask.dialect);
                let code = Some(status.as_u16());
                let done = translate_error(&received, from, to, code, &Options::default());
                Bytes::from(done.map_err(|_| vendor_error(name, status))?.output)
            }
        };
        drop(slot);
        Ok(Given {
            status,
            headers,
            body,
            received: changed.then_some(came),
        })
    }

    /// Asks once more for an answer that holds what was emulated. A caller with a budget is not made to
    /// pay for two requests where room was reserved for one.
    async fn repaired(
        &self,
        ask: &Ask,
        scan: &Scan,
        choice: &Choice,
        answer: &str,
        problem: &str,
        tally: &mut Tally,
    ) -> Result<(Bytes, Seen), AbpError> {
        let failed = |why: String| AbpError::new(ErrorCode::CapabilityEmulationFailed, why);
        if tally.is_reserved() {
            return Err(failed(problem.to_owned()));
        }
        let mut planned = self.plan_again(ask, choice, answer, problem).await?;
        planned.expect(scan, tally);
        tally.repairs(&planned.body);
        let mut call = call(ask, scan, choice, &planned);
        tally.mark_trace(&mut call.headers);
        let reply = choice.member.upstream.send(call).await?;
        if !reply.status.is_success() || !is_json(&reply.headers) {
            let why = format!(
                "{problem}; asked again, the upstream answers {}",
                reply.status
            );
            return Err(failed(why));
        }
        let received = collect(choice.member.name(), reply.body).await?;
        tally.received(&received);
        self.read(ask, choice, &planned, &received, tally)
    }

    /// Translates an answer, and reads off what matters besides.
    fn read(
        &self,
        ask: &Ask,
        choice: &Choice,
        planned: &Planned,
        received: &[u8],
        tally: &mut Tally,
    ) -> Result<(Bytes, Seen), AbpError> {
        let mut seen = Seen::default();
        let look = |answer: &IrResponse| seen.look(answer);
        let (from, to) = (choice.dialect, ask.dialect);
        let options = Options {
            known: Some(Arc::clone(&self.planner.known)),
            ..Options::default()
        };
        let done = translate_response_with(received, from, to, &planned.exchange, &options, look)
            .map_err(|error| unusable(choice.member.name(), &error))?;
        tally.account(done.ledger, ANSWER);
        if let Some(usage) = &seen.usage {
            tally.used(usage);
        }
        Ok((Bytes::from(done.output), seen))
    }
}

impl Seen {
    fn look(&mut self, answer: &IrResponse) {
        self.usage.clone_from(&answer.usage);
        self.kept = kept_reasoning(answer);
        let blocks = answer.choices.first().map(|choice| &choice.message.content);
        for block in blocks.into_iter().flatten() {
            if let IrContentBlock::Text { text, .. } = &block.body {
                self.text.push_str(text);
            }
        }
    }
}

pub(crate) async fn collect(upstream: &str, body: ModelBody) -> Result<Bytes, AbpError> {
    let collected = body.collect(LONGEST).await;
    collected.map_err(|error| AbpError::new(error.code(), format!("upstream {upstream}: {error}")))
}

/// Tells how true an exchange was.
pub(crate) fn tell(tally: &Tally, backend: &str, headers: &mut HeaderMap) {
    let (fidelity, losses) = tally.fidelity();
    let truth = Truth {
        run_id: tally.run_id(),
        backend,
        mode: tally.record.mode,
        fidelity,
        losses,
        emulated: &tally.record.emulated,
    };
    truth.tell(headers);
}

pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    starts_with(headers, "application/json")
}

pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    starts_with(headers, "text/event-stream")
}

fn starts_with(headers: &HeaderMap, kind: &str) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.trim_start().get(..kind.len()))
        .is_some_and(|start| start.eq_ignore_ascii_case(kind))
}

/// Whose fault a vendor's error is.
pub(crate) fn failure(status: StatusCode) -> ErrorCode {
    match status.as_u16() {
        401 | 403 => ErrorCode::BackendAuthFailed,
        404 => ErrorCode::BackendModelNotFound,
        413 => ErrorCode::BackendContextLength,
        429 => ErrorCode::BackendRateLimited,
        500.. => ErrorCode::BackendUnavailable,
        _ => ErrorCode::ValidationFailed,
    }
}

fn unusable(upstream: &str, problem: &impl std::fmt::Display) -> AbpError {
    let message = format!("the answer of upstream {upstream} cannot be used: {problem}");
    AbpError::new(ErrorCode::BackendBrokenAnswer, message)
}

/// An error whose body says nothing that can be read.
pub(crate) fn vendor_error(upstream: &str, status: StatusCode) -> AbpError {
    AbpError::new(
        failure(status),
        format!("upstream {upstream} answers {status}"),
    )
}
