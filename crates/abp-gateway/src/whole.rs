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
use crate::dispatch::Sent;
use crate::gateway::Shared;
use crate::headers::{self, Truth};
use crate::keep::Keeper;
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

impl Shared {
    /// Gives the caller an answer that came in one piece, or a vendor's error.
    pub(crate) async fn whole(
        self: &Arc<Self>,
        ask: &Ask,
        scan: &Scan,
        sent: Sent,
        mut tally: Tally,
    ) -> Result<Answer, Refusal> {
        let Sent {
            choice,
            planned,
            reply,
            slot,
        } = sent;
        let received = match collect(reply.body).await {
            Ok(received) => received,
            Err(error) => {
                let code = error.code();
                tally.close(Outcome::Failed, Some(code));
                let message = format!("upstream {}: {error}", choice.member.name());
                return Err(AbpError::new(code, message).into());
            }
        };
        drop(slot);
        let translated = planned.mode == ExecutionMode::Mapped;
        if translated {
            tally.translates();
            tally.received(&received);
        }
        let mut headers = headers::returned(&reply.headers, translated);
        let is_json = is_json(&reply.headers);
        let status = reply.status;
        let body = match (status.is_success(), translated) {
            (true, false) if is_json => {
                if let Some(usage) = usage_of(choice.dialect, &received, &Limits::default()) {
                    tally.used(&usage);
                }
                Ok(received)
            }
            (true, true) if is_json => {
                let mut seen = Seen::default();
                let options = Options::default();
                let look = |answer: &IrResponse| seen.look(answer);
                let (from, to) = (choice.dialect, ask.dialect);
                let exchange = &planned.exchange;
                translate_response_with(&received, from, to, exchange, &options, look)
                    .map_err(|error| unusable(choice.member.name(), &error))
                    .and_then(|done| {
                        tally.account(&done.ledger, "answer");
                        if let Some(usage) = &seen.usage {
                            tally.used(usage);
                        }
                        planned.post.check(&seen.text).map_err(|error| {
                            AbpError::new(ErrorCode::CapabilityEmulationFailed, error.to_string())
                        })?;
                        Ok(Bytes::from(done.output))
                    })
                    .inspect(|_| Keeper::new(self, ask, scan, &choice).reasoning(seen.kept))
            }
            (true, _) => Err(unusable(choice.member.name(), &"it is not JSON")),
            (false, false) => Ok(received),
            (false, true) => {
                let code = Some(status.as_u16());
                let (from, to) = (choice.dialect, ask.dialect);
                match translate_error(&received, from, to, code, &Options::default()) {
                    // The status stays the vendor's: it is what the caller's own retries go by.
                    Ok(done) => Ok(Bytes::from(done.output)),
                    Err(_) => Err(vendor_error(choice.member.name(), status)),
                }
            }
        };
        let body = match body {
            Ok(body) => body,
            Err(error) => {
                tally.close(Outcome::Failed, Some(error.code()));
                return Err(error.into());
            }
        };
        if translated {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Ok(self.finish(ask, scan, &choice, tally, status, headers, body))
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one answer")]
    fn finish(
        self: &Arc<Self>,
        ask: &Ask,
        scan: &Scan,
        choice: &crate::route::Choice,
        mut tally: Tally,
        status: StatusCode,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Answer {
        tell(&tally, choice.member.name(), &mut headers);
        match tally.record.mode {
            ExecutionMode::Passthrough => tally.passed_on(&body),
            ExecutionMode::Mapped => tally.delivered(&body),
        }
        if status.is_success() {
            Keeper::new(self, ask, scan, choice).whole(&body, tally.record.mode);
            tally.close(Outcome::Complete, None);
        } else {
            tally.close(Outcome::Failed, Some(failure(status)));
        }
        Answer {
            status,
            headers,
            body: AnswerBody::Whole(body),
        }
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

async fn collect(body: ModelBody) -> Result<Bytes, abp_backend_core::UpstreamError> {
    body.collect(LONGEST).await
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
        .is_some_and(|value| value.trim_start().to_ascii_lowercase().starts_with(kind))
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
fn vendor_error(upstream: &str, status: StatusCode) -> AbpError {
    AbpError::new(
        failure(status),
        format!("upstream {upstream} answers {status}"),
    )
}
