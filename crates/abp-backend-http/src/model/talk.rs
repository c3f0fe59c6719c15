//! Talking to a model: the request with its context, the answer as events, and once more where the
//! answer does not hold what was promised.

use std::time::Duration;

use abp_backend_core::{Emission, ModelBody, ModelReply, RunContext, Upstream};
use abp_core::AgentEventKind;
use abp_dialect::Exchange;
use abp_error::{AbpError, ErrorCode};
use abp_plan::{ContextFile, Payload};
use http::HeaderName;

use super::account::{Account, AnswerHash};
use super::answer::{AnswerContext, AnswerReader, ReadAnswer, read_whole};
use super::{Interrupted, broken, emit, emit_all, failure, files, request};
use crate::upstream::{is_event_stream, media_type};

/// The longest answer that is taken where it does not come as a stream.
const MAX_WHOLE_ANSWER: usize = 64 << 20;

/// How long and how far an answer that came to its own end is read on, to know that it arrived whole.
const DRAIN_TIME: Duration = Duration::from_secs(2);
const DRAIN_BYTES: usize = 64 << 10;

/// One run's talk with an upstream.
pub(super) struct Talk<'t> {
    pub(super) upstream: &'t dyn Upstream,
    pub(super) context: &'t RunContext,
    pub(super) account: &'t mut Account,
    /// The place of the run in a trace, for the vendor.
    pub(super) traceparent: Option<&'t str>,
}

/// An answer that does not hold what was promised.
struct UnusableAnswer {
    code: ErrorCode,
    problem: String,
}

impl Talk<'_> {
    /// Asks, tells what is answered, and asks once more where the answer cannot be used.
    ///
    /// # Errors
    /// Fails where the vendor fails, and where the second answer cannot be used either.
    pub(super) async fn carry_out(&mut self) -> Result<(), Interrupted> {
        let plan = self.context.plan();
        let files = files::read(self.context).await?;
        let payload = plan.request_with(&files).map_err(AbpError::from)?;
        let text = self.ask(&payload).await?;
        match self.check(&text) {
            Ok(()) => Ok(()),
            Err(unusable) => self.repair(&files, &text, unusable).await,
        }
    }

    /// Checks an answer, for what was emulated and for the schema that the vendor was to hold it to:
    /// whichever broke it, the caller gets no answer of another form.
    fn check(&self, text: &str) -> Result<(), UnusableAnswer> {
        let plan = self.context.plan();
        plan.post().check(text).map_err(|problem| UnusableAnswer {
            code: ErrorCode::CapabilityEmulationFailed,
            problem: problem.to_string(),
        })?;
        plan.check_native_output(text)
            .map_err(|problem| UnusableAnswer {
                code: ErrorCode::BackendBrokenAnswer,
                problem: format!(
                    "the vendor was to hold the answer to the output schema, and {problem}"
                ),
            })
    }

    /// Shows the model what is wrong with its answer, and takes the next one if it holds.
    async fn repair(
        &mut self,
        files: &[ContextFile],
        text: &str,
        unusable: UnusableAnswer,
    ) -> Result<(), Interrupted> {
        let UnusableAnswer { code, problem } = unusable;
        let plan = self.context.plan();
        if self.context.order().config.max_turns == Some(1) {
            let message = format!("{problem}; the run has no turn left to ask again");
            return Err(AbpError::new(code, message).into());
        }
        let message = format!("{problem}; the model is asked once more");
        emit(self.context, vec![AgentEventKind::Warning { message }]).await?;
        let again = plan.repair_request(files, text, &problem);
        let again = again.map_err(AbpError::from)?;
        let text = self.ask(&again).await?;
        let checked = self.check(&text).map_err(|unusable| {
            let message = format!("{}, also when asked again", unusable.problem);
            AbpError::new(unusable.code, message)
        });
        Ok(checked?)
    }

    /// One exchange. Returns what was said in words.
    async fn ask(&mut self, payload: &Payload) -> Result<String, Interrupted> {
        let (order, model) = (self.context.order(), self.context.plan().model());
        let descriptor = self.upstream.descriptor();
        let mut call = request::call(order, model, payload, descriptor)?;
        if let Some(traceparent) = self.traceparent.and_then(|text| text.parse().ok()) {
            let name = HeaderName::from_static("traceparent");
            call.headers.insert(name, traceparent);
        }
        let asked = AnswerContext {
            dialect: call.dialect,
            exchange: match payload {
                Payload::Lowered { exchange, .. } => (**exchange).clone(),
                _ => Exchange::default(),
            },
            request: call.body.clone(),
        };
        self.account.begin(&descriptor.name, &call.body);
        let reply = self.upstream.send(call).await?;
        self.account.answered(reply.status.as_u16());
        if !reply.status.is_success() {
            return Err(self.failed(&asked, reply).await.into());
        }
        let answer = if is_event_stream(&reply.headers) {
            self.follow(&asked, reply).await?
        } else {
            self.collect(&asked, reply).await?
        };
        self.account.named_model(answer.model.as_deref());
        let (mut kinds, exts): (Vec<_>, Vec<_>) = answer
            .events
            .into_iter()
            .map(|event| (event.kind, event.ext))
            .unzip();
        self.account.add_up(&mut kinds);
        let events = kinds.into_iter().zip(exts).map(|(kind, ext)| {
            let ext = ext.or_else(|| self.account.usage_ext(&kind));
            Emission { kind, ext }
        });
        let events = events.collect();
        emit_all(self.context, events).await?;
        Ok(answer.text.unwrap_or_default())
    }

    /// The error that the vendor answers with.
    async fn failed(&mut self, asked: &AnswerContext, reply: ModelReply) -> AbpError {
        let body = reply.body.collect(failure::MAX_ERROR_BODY).await.ok();
        if let Some(body) = &body {
            let mut hash = AnswerHash::default();
            hash.update(body);
            self.account.arrived(hash);
        }
        let body = body.unwrap_or_default();
        failure::of_reply(asked.dialect, reply.status, &reply.headers, &body)
    }

    /// Reads an answer that comes in one piece.
    async fn collect(
        &mut self,
        asked: &AnswerContext,
        reply: ModelReply,
    ) -> Result<ReadAnswer, Interrupted> {
        let kind = media_type(&reply.headers).unwrap_or("nothing");
        if !kind.eq_ignore_ascii_case("application/json") {
            let message = format!("the vendor answers with {kind:?} instead of events or JSON");
            return Err(broken(message).into());
        }
        let body = reply.body.collect(MAX_WHOLE_ANSWER).await?;
        let mut hash = AnswerHash::default();
        hash.update(&body);
        self.account.arrived(hash);
        Ok(read_whole(asked, &body, self.account.usage())?)
    }

    /// Tells a stream as it comes, and at its end what it was as a whole.
    async fn follow(
        &mut self,
        asked: &AnswerContext,
        reply: ModelReply,
    ) -> Result<ReadAnswer, Interrupted> {
        let mut reader = AnswerReader::new(asked)?;
        let followed = self.tell_pieces(&mut reader, reply.body).await;
        self.account.named_model(reader.model());
        match followed {
            Ok(()) => Ok(reader.conclude()?),
            Err(interrupted) => {
                // What was used until then was used.
                let mut used: Vec<_> = reader.usage_so_far().into_iter().collect();
                self.account.add_up(&mut used);
                let used = used.into_iter().map(|kind| {
                    let ext = self.account.usage_ext(&kind);
                    Emission { kind, ext }
                });
                let used = used.collect();
                emit_all(self.context, used).await?;
                Err(interrupted)
            }
        }
    }

    async fn tell_pieces(
        &mut self,
        reader: &mut AnswerReader,
        mut body: ModelBody,
    ) -> Result<(), Interrupted> {
        let mut hash = AnswerHash::default();
        let mut has_ended = false;
        while !reader.is_over() {
            let mut events = Vec::new();
            let read = match body.next().await {
                Some(part) => {
                    let part = part?;
                    hash.update(&part);
                    reader.push(&part, self.account.usage(), &mut events)
                }
                None => {
                    has_ended = true;
                    reader.end(self.account.usage(), &mut events)
                }
            };
            emit(self.context, events).await?;
            read?;
        }
        if has_ended || drained(&mut body, &mut hash).await {
            self.account.arrived(hash);
        }
        Ok(())
    }
}

/// Reads on after the end of an answer. Whether the bytes came to their own end, too, and soon.
async fn drained(body: &mut ModelBody, hash: &mut AnswerHash) -> bool {
    let rest = async {
        let mut bytes = 0;
        while let Some(part) = body.next().await {
            let Ok(part) = part else {
                return false;
            };
            bytes += part.len();
            if bytes > DRAIN_BYTES {
                return false;
            }
            hash.update(&part);
        }
        true
    };
    tokio::time::timeout(DRAIN_TIME, rest)
        .await
        .unwrap_or(false)
}
