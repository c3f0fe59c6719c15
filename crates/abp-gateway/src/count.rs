//! Counting the tokens of a request, whoever has to do it.

use std::sync::Arc;

use abp_core::{ExecutionMode, Outcome};
use abp_dialect::{Dialect, WireFamily};
use abp_error::{AbpError, ErrorCode};
use abp_json::{Limits, Tape, Writer};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::Refusal;
use crate::ask::{Answer, AnswerBody, Ask};
use crate::gateway::Shared;
use crate::route::Choice;
use crate::scan::Scan;
use crate::tally::{BYTES_PER_TOKEN, Tally};
use crate::whole::tell;

impl Shared {
    /// Counts tokens: by the upstream in its own dialect where the caller speaks it, by the upstream in
    /// a translated request where it can count, and by estimate, which is labelled, where it cannot.
    pub(crate) async fn count_tokens(
        self: &Arc<Self>,
        ask: &Ask,
        scan: &Scan,
        choices: &[Arc<Choice>],
        mut tally: Box<Tally>,
    ) -> Result<Answer, Refusal> {
        let Some(first) = choices.first() else {
            tally.close(Outcome::Failed, Some(ErrorCode::BackendModelNotFound));
            return Err(Refusal::new(ErrorCode::BackendModelNotFound, "no upstream"));
        };
        if first.is_native(ask.dialect) {
            // Others would have to be asked in another form.
            let native = choices
                .iter()
                .filter(|choice| choice.is_native(ask.dialect));
            let native: Vec<_> = native.cloned().collect();
            return match self.dispatch(ask, scan, &native, &mut tally).await {
                Ok(sent) => self.whole(ask, scan, sent, tally).await,
                Err(problem) => {
                    tally.close(Outcome::Failed, Some(problem.error.code()));
                    Err(problem)
                }
            };
        }
        let counted = match self.counted(ask, scan, first, &mut tally).await {
            Ok(counted) => counted,
            Err(problem) => {
                tally.close(Outcome::Failed, Some(problem.error.code()));
                return Err(problem);
            }
        };
        let count = counted.unwrap_or_else(|| {
            tally.emulated(vec!["token_count".to_owned()]);
            ask.body.len() as u64 / BYTES_PER_TOKEN
        });
        tally.record.upstream = first.member.name().to_owned();
        tally.record.upstream_dialect = first.dialect.as_str().to_owned();
        tally.record.mode = ExecutionMode::Mapped;
        tally.record.status = StatusCode::OK.as_u16();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        tell(&tally, first.member.name(), &mut headers);
        let body = Bytes::from(written(ask.dialect, count));
        tally.delivered(&body);
        tally.close(Outcome::Complete, None);
        Ok(Answer {
            status: StatusCode::OK,
            headers,
            body: AnswerBody::Whole(body),
        })
    }

    /// The count of an upstream that is asked in its own dialect; `None` where it cannot count.
    async fn counted(
        &self,
        ask: &Ask,
        scan: &Scan,
        choice: &Choice,
        tally: &mut Tally,
    ) -> Result<Option<u64>, Refusal> {
        if choice.dialect.family() == WireFamily::Chat {
            return Ok(None);
        }
        let asked = Ask {
            body: unwrapped(&ask.body).unwrap_or_else(|| ask.body.clone()),
            ..ask.clone()
        };
        let planned = self
            .planner
            .plan(&asked, choice, &abp_translate::Recovered::default())?;
        let Some(body) = request(choice, &planned.body) else {
            return Ok(None);
        };
        let counting = Ask {
            dialect: choice.dialect,
            body: Bytes::from(body),
            query: None,
            ..asked
        };
        // The request is now the vendor's own; only its name for the model is still to be kept.
        let native = Arc::new(choice.native());
        let sent = self.dispatch(&counting, scan, &[native], tally).await?;
        let status = sent.reply.status;
        let received = sent
            .reply
            .body
            .collect(1 << 20)
            .await
            .map_err(AbpError::from)?;
        tally.translates();
        tally.received(&received);
        if !status.is_success() {
            let message = format!("upstream {} answers {status}", choice.member.name());
            return Err(Refusal::new(crate::whole::failure(status), message));
        }
        Ok(read(choice.dialect, &received))
    }
}

/// What Gemini's callers may wrap around the request to be counted.
fn unwrapped(body: &Bytes) -> Option<Bytes> {
    let tape = Tape::parse(body, &Limits::default()).ok()?;
    let inner = tape.root().get("generateContentRequest")?;
    Some(body.slice(inner.span()))
}

/// A request as its vendor counts it. Vendors refuse what does not belong to counting.
fn request(choice: &Choice, body: &[u8]) -> Option<String> {
    let tape = Tape::parse(body, &Limits::default()).ok()?;
    let mut out = Writer::with_capacity(body.len() + 64);
    out.begin_object();
    let copy = |out: &mut Writer, left_out: &[&str]| {
        for (key, value) in tape.root().entries() {
            let Some(name) = key.as_str() else { continue };
            if !left_out.contains(&name.as_ref()) {
                out.key(&name);
                out.raw(value.raw());
            }
        }
    };
    match choice.dialect.family() {
        WireFamily::Messages => {
            const COUNTED_NOT: [&str; 8] = [
                "max_tokens",
                "metadata",
                "service_tier",
                "stop_sequences",
                "stream",
                "temperature",
                "top_k",
                "top_p",
            ];
            copy(&mut out, &COUNTED_NOT);
        }
        WireFamily::Responses => {
            copy(
                &mut out,
                &[
                    "max_output_tokens",
                    "store",
                    "stream",
                    "temperature",
                    "top_p",
                ],
            );
        }
        WireFamily::GenerateContent => {
            out.key("generateContentRequest");
            out.begin_object();
            out.key("model");
            out.string(&format!("models/{}", choice.model));
            copy(&mut out, &[]);
            out.end_object();
        }
        _ => return None,
    }
    out.end_object();
    Some(out.into_text())
}

fn read(dialect: Dialect, answer: &[u8]) -> Option<u64> {
    let tape = Tape::parse(answer, &Limits::default()).ok()?;
    let name = match dialect.family() {
        WireFamily::GenerateContent => "totalTokens",
        _ => "input_tokens",
    };
    tape.root().get(name)?.as_u64()
}

fn written(dialect: Dialect, count: u64) -> String {
    match dialect.family() {
        WireFamily::GenerateContent => format!(r#"{{"totalTokens":{count}}}"#),
        WireFamily::Responses => {
            format!(r#"{{"object":"response.input_tokens","input_tokens":{count}}}"#)
        }
        _ => format!(r#"{{"input_tokens":{count}}}"#),
    }
}
