//! Answers that come piece by piece, and are given on piece by piece.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use abp_backend_core::{ModelBody, UpstreamError};
use abp_core::ir::IrError;
use abp_core::{ExecutionMode, Outcome};
use abp_dialect::sse::{SseDecoder, SseEncoder, SseEvent, SseForm, SseLimits};
use abp_dialect::{Dialect, WireFamily};
use abp_emulation::PostProcessor;
use abp_error::{AbpError, ErrorCode};
use abp_json::{Limits, Tape};
use abp_translate::{
    ByteTranslator, Options, StreamSummary, StreamWatch, TextCheck, kept_reasoning,
    write_interruption,
};
use bytes::Bytes;
use futures_core::Stream;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};

use crate::Refusal;
use crate::ask::{Answer, AnswerBody, Ask};
use crate::dispatch::Sent;
use crate::gateway::Shared;
use crate::headers;
use crate::keep::{Keeper, wants_reasoning};
use crate::ledgers::ANSWER;
use crate::pool::Share;
use crate::refusal;
use crate::scan::Scan;
use crate::tally::Tally;
use crate::unfinished::Unfinished;
use crate::whole::tell;

/// The caller cannot be told any more that something broke, except by breaking off.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the answer broke off")]
pub struct BrokenOff;

/// How long the rest of a stream is read after its caller left, and how much of it, where a budget needs
/// the count at its end.
const REST_TIME: Duration = Duration::from_secs(30);
const REST_BYTES: usize = 4 << 20;

/// An answer under way. Dropping it ends the exchange with the upstream: at once, or after a bounded rest
/// of the answer where its count is needed for a budget.
#[derive(Debug)]
pub struct AnswerStream(Option<Live>);

/// A stream between its upstream and its caller.
#[derive(Debug)]
struct Live {
    source: ModelBody,
    way: Way,
    upstream: String,
    caller: Dialect,
    tally: Option<Box<Tally>>,
    /// Fires when the caller has heard nothing for a while.
    silence: Option<(Pin<Box<Sleep>>, Duration)>,
    last_sign: Instant,
    /// Until there is something to keep, and for answers of which something is.
    keeper: Option<Keeper>,
    form: SseForm,
    over: bool,
    _slot: Option<Share>,
}

/// How bytes become bytes.
#[derive(Debug)]
enum Way {
    /// As they are, watched.
    Native {
        watch: Box<StreamWatch>,
        unfinished: Unfinished,
    },
    /// Translated, with the space for what is written.
    Mapped {
        translator: Box<ByteTranslator>,
        capacity: usize,
    },
}

impl Shared {
    /// Gives the caller an answer that comes as a stream.
    pub(crate) fn streamed(
        self: &Arc<Self>,
        ask: &Ask,
        scan: &Scan,
        sent: Box<Sent>,
        mut tally: Box<Tally>,
    ) -> Result<Answer, Refusal> {
        let Sent {
            choice,
            planned,
            reply,
            slot,
        } = *sent;
        let translated = planned.mode == ExecutionMode::Mapped;
        let mut headers = headers::returned(&reply.headers, translated);
        let form = form(ask);
        let mut silence = None;
        let mut keeper = Some(Keeper::new(self, ask, scan, &choice));
        let way = if translated {
            let kind = match form {
                SseForm::Events => "text/event-stream; charset=utf-8",
                SseForm::JsonArray => "application/json",
            };
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            let (from, to) = (choice.dialect, ask.dialect);
            let options = Options::default();
            let mut translator = ByteTranslator::new(from, to, &planned.exchange, form, &options)
                .map_err(AbpError::from)?;
            if from != to && wants_reasoning(from) {
                translator.events_mut().gather();
            }
            if !planned.post.is_empty() {
                translator.events_mut().check_text(text_check(planned.post));
            }
            let quiet = self.settings.keep_alive;
            silence = Some((Box::pin(tokio::time::sleep(quiet)), quiet));
            Way::Mapped {
                translator: Box::new(translator),
                capacity: 256,
            }
        } else {
            keeper = keeper.filter(Keeper::wants_answer);
            let watch = StreamWatch::new(choice.dialect).ok_or_else(|| {
                Refusal::new(ErrorCode::DialectUnknown, "the dialect is not known")
            })?;
            Way::Native {
                watch: Box::new(watch),
                unfinished: Unfinished::default(),
            }
        };
        tell(&tally, choice.member.name(), &mut headers);
        if translated {
            tally.translates();
        }
        let stream = Live {
            source: reply.body,
            way,
            upstream: choice.member.name().to_owned(),
            caller: ask.dialect,
            tally: Some(tally),
            silence,
            last_sign: Instant::now(),
            keeper,
            form,
            over: false,
            _slot: slot,
        };
        Ok(Answer {
            status: reply.status,
            headers,
            body: AnswerBody::Stream(Box::new(AnswerStream(Some(stream)))),
        })
    }
}

/// The form in which a caller wants a stream.
pub(crate) fn form(ask: &Ask) -> SseForm {
    let events = ask
        .query
        .as_deref()
        .is_some_and(|query| query.split('&').any(|pair| pair == "alt=sse"));
    if ask.dialect.family() == WireFamily::GenerateContent && !events {
        SseForm::JsonArray
    } else {
        SseForm::Events
    }
}

/// Whether what was emulated holds in a text. Once it was streamed it cannot be asked for again.
fn text_check(post: PostProcessor) -> TextCheck {
    Box::new(move |text| {
        let problem = post.check(text).err()?;
        let code = ErrorCode::CapabilityEmulationFailed;
        Some(refusal::ir(&AbpError::new(code, problem.to_string())))
    })
}

/// A failure of an upstream, as an error of the vendor.
fn told(upstream: &str, error: &UpstreamError) -> IrError {
    let message = format!("upstream {upstream}: {error}");
    refusal::ir(&AbpError::new(error.code(), message))
}

/// The answer in the event that ends a stream of Responses, where these bytes hold it.
fn final_answer(out: &[u8]) -> Option<String> {
    const ENDS: [&str; 2] = ["response.completed", "response.incomplete"];
    let text = std::str::from_utf8(out).ok()?;
    if !ENDS.iter().any(|end| text.contains(end)) {
        return None;
    }
    let mut decoder = SseDecoder::new(SseLimits::default());
    let mut events = decoder.feed(out);
    while let Ok(Some(event)) = events.next_event() {
        if let SseEvent::Message { name, data, .. } = event
            && name.is_some_and(|name| ENDS.contains(&name))
            && let Ok(tape) = Tape::parse_str(data, &Limits::default())
        {
            return Some(tape.root().get("response")?.raw().to_owned());
        }
    }
    None
}

/// What went wrong with a stream that has ended, if anything did.
fn code(summary: &StreamSummary) -> Option<ErrorCode> {
    match (summary.complete, &summary.error) {
        (true, None) => None,
        // The upstream ended well; what it said does not hold what was emulated.
        (true, Some(_)) => Some(ErrorCode::CapabilityEmulationFailed),
        (false, Some(_)) => Some(ErrorCode::BackendUnavailable),
        (false, None) => Some(ErrorCode::BackendBrokenAnswer),
    }
}

impl Live {
    /// Takes bytes of the upstream; what they are for the caller.
    fn take(&mut self, bytes: Bytes) -> Bytes {
        match &mut self.way {
            Way::Native { watch, unfinished } => {
                watch.push(&bytes);
                let passed = match self.form {
                    SseForm::Events => unfinished.pass(bytes),
                    SseForm::JsonArray => bytes,
                };
                if let Some(tally) = &mut self.tally
                    && !passed.is_empty()
                {
                    tally.passed_on(&passed);
                }
                // The caller may go on from the answer as soon as it has seen its end.
                if let Some(id) = &watch.summary().id
                    && let Some(keeper) = self.keeper.take()
                {
                    keeper.native(id);
                }
                passed
            }
            Way::Mapped {
                translator,
                capacity,
            } => {
                let mut out = Vec::with_capacity(*capacity);
                translator.push(&bytes, &mut out);
                *capacity = out.len().clamp(256, 64 * 1024);
                if let Some(tally) = &mut self.tally {
                    tally.received(&bytes);
                    tally.delivered(&out);
                }
                let summary = translator.events().summary();
                if summary.complete && summary.error.is_none() {
                    self.keep(&out);
                }
                Bytes::from(out)
            }
        }
    }

    /// Whether a translated stream has told of an error: nothing can follow, whatever still comes.
    fn cannot_go_on(&self) -> bool {
        match &self.way {
            Way::Native { .. } => false,
            Way::Mapped { translator, .. } => {
                let events = translator.events();
                events.is_over() && !events.summary().complete
            }
        }
    }

    /// The upstream's bytes have ended: what is left for the caller.
    fn end(&mut self) -> Result<Bytes, BrokenOff> {
        match &mut self.way {
            Way::Native { watch, unfinished } => {
                let summary = watch.finish();
                let code = code(&summary);
                if code == Some(ErrorCode::BackendBrokenAnswer) {
                    let error = UpstreamError::Broken("it has no end".to_owned());
                    return self.break_off(&error, &summary);
                }
                let rest = unfinished.rest();
                if let Some(tally) = &mut self.tally
                    && !rest.is_empty()
                {
                    tally.passed_on(&rest);
                }
                self.close(&[], &summary, code);
                Ok(rest)
            }
            Way::Mapped { translator, .. } => {
                let mut out = Vec::new();
                translator.finish(&mut out);
                let summary = translator.events().summary().clone();
                self.account(&mut out);
                self.close(&out, &summary, code(&summary));
                Ok(Bytes::from(out))
            }
        }
    }

    /// The upstream's bytes do not come any more: what the caller is told. Where the answer has come
    /// to its end, nothing is missing.
    fn fail(&mut self, error: &UpstreamError) -> Result<Bytes, BrokenOff> {
        if self.so_far().complete {
            return self.end();
        }
        tracing::warn!(target: "abp.gateway", upstream = self.upstream, %error, "an answer broke off");
        match &mut self.way {
            Way::Native { watch, .. } => {
                let summary = watch.finish();
                self.break_off(error, &summary)
            }
            Way::Mapped { translator, .. } => {
                let summary = translator.events().summary().clone();
                let mut out = Vec::new();
                translator.interrupt(told(&self.upstream, error), &mut out);
                self.account(&mut out);
                self.close(&out, &summary, Some(error.code()));
                Ok(Bytes::from(out))
            }
        }
    }

    fn break_off(
        &mut self,
        error: &UpstreamError,
        summary: &StreamSummary,
    ) -> Result<Bytes, BrokenOff> {
        let last = self.native_error(error, summary);
        let own = last.as_deref().unwrap_or_default();
        self.close(own, summary, Some(error.code()));
        last
    }

    /// An error after bytes that were not ours: as an event of its own, where events can follow.
    fn native_error(
        &self,
        error: &UpstreamError,
        so_far: &StreamSummary,
    ) -> Result<Bytes, BrokenOff> {
        let can_follow = match &self.way {
            Way::Native { unfinished, .. } => unfinished.is_between_events(),
            Way::Mapped { .. } => false,
        };
        if !can_follow || self.form == SseForm::JsonArray {
            return Err(BrokenOff);
        }
        let events = write_interruption(told(&self.upstream, error), so_far, self.caller);
        let mut out = Vec::new();
        let mut encoder = SseEncoder::new(SseForm::Events);
        for event in events.map_err(|_| BrokenOff)? {
            encoder.event(event.name.as_deref(), &event.data, &mut out);
        }
        Ok(Bytes::from(out))
    }

    /// Accounts for a translated answer that has ended, and says in its last line how true the exchange
    /// was: the headers were sent before that was known.
    fn account(&mut self, out: &mut Vec<u8>) {
        if let Way::Mapped { translator, .. } = &mut self.way
            && let Some(tally) = &mut self.tally
        {
            tally.account(translator.ledger(), ANSWER);
            let (fidelity, losses) = tally.fidelity();
            translator.comment(&headers::late_fidelity(fidelity, losses), out);
        }
    }

    /// Closes the exchange, with the last bytes of our own that the caller gets.
    fn close(&mut self, last: &[u8], summary: &StreamSummary, code: Option<ErrorCode>) {
        let Some(mut tally) = self.tally.take() else {
            return;
        };
        if !last.is_empty() {
            tally.delivered(last);
            if let Way::Native { unfinished, .. } = &mut self.way {
                tally.received(&unfinished.rest());
            }
        }
        tally.streamed(summary);
        match code {
            None => {
                self.keep(last);
                tally.close(Outcome::Complete, None);
            }
            Some(_) => tally.close(Outcome::Failed, code),
        }
    }

    /// Keeps what later requests will need of a complete answer, which ends with these bytes.
    fn keep(&mut self, last: &[u8]) {
        let Way::Mapped { translator, .. } = &mut self.way else {
            return;
        };
        let Some(keeper) = self.keeper.take() else {
            return;
        };
        let gathered = translator.events_mut().take_gathered();
        if let Some(Ok(answer)) = gathered.map(abp_translate::Accumulator::finish) {
            keeper.reasoning(kept_reasoning(&answer));
        }
        if keeper.wants_answer()
            && let Some(answer) = final_answer(last)
        {
            keeper.answer(&answer);
        }
    }

    /// A sign of life, where the caller has heard nothing for a while.
    fn sign_of_life(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        let Some((timer, quiet)) = &mut self.silence else {
            return Poll::Pending;
        };
        ready!(timer.as_mut().poll(context));
        let now = Instant::now();
        let due = self.last_sign + *quiet;
        // Setting the timer anew for every piece would cost more than looking at the clock here.
        let speak = now >= due;
        timer.as_mut().reset(if speak { now + *quiet } else { due });
        let Way::Mapped { translator, .. } = &mut self.way else {
            return Poll::Pending;
        };
        if !speak {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut out = Vec::new();
        translator.keep_alive(&mut out);
        Poll::Ready(Bytes::from(out))
    }

    fn give(&mut self, bytes: Bytes) -> Poll<Option<Result<Bytes, BrokenOff>>> {
        if self.silence.is_some() {
            self.last_sign = Instant::now();
        }
        Poll::Ready(Some(Ok(bytes)))
    }
}

impl Live {
    /// A caller that goes away is accounted for with what it got until then. Once it has the end of the
    /// answer, it has everything.
    fn leave(mut self) {
        let Some(mut tally) = self.tally.take() else {
            return;
        };
        let mut summary = match &mut self.way {
            Way::Native { watch, .. } => watch.summary().clone(),
            Way::Mapped { translator, .. } => {
                tally.account(translator.ledger(), ANSWER);
                translator.events().summary().clone()
            }
        };
        if let Way::Native { watch, .. } = &mut self.way {
            // The last counts are read only when somebody asks.
            let whole = watch.finish();
            summary.usage = whole.usage;
            summary.complete |= tally.has_left() && whole.complete;
        }
        tally.streamed(&summary);
        if !tally.has_left() && summary.complete && summary.error.is_none() {
            tally.close(Outcome::Complete, None);
        }
    }

    /// Whether a budget waits for a count that has not come yet.
    fn owes_a_count(&self) -> bool {
        let reserved = self.tally.as_ref().is_some_and(|tally| tally.is_reserved());
        let so_far = self.so_far();
        reserved && !self.over && !so_far.complete && so_far.error.is_none()
    }

    fn so_far(&self) -> &StreamSummary {
        match &self.way {
            Way::Native { watch, .. } => watch.summary(),
            Way::Mapped { translator, .. } => translator.events().summary(),
        }
    }

    /// Reads on for the count at the end, which nobody else reads.
    async fn read_rest(mut self) {
        if let Some(tally) = &mut self.tally {
            tally.left();
        }
        let reading = async {
            let mut room = REST_BYTES;
            while !self.so_far().complete {
                match self.source.next().await {
                    Some(Ok(bytes)) if bytes.len() <= room => {
                        room -= bytes.len();
                        self.count(&bytes);
                    }
                    Some(_) => return,
                    None => {
                        if let Way::Mapped { translator, .. } = &mut self.way {
                            translator.finish(&mut Vec::new());
                        }
                        return;
                    }
                }
            }
        };
        // What did not come in time is paid for as it was reserved.
        drop(tokio::time::timeout(REST_TIME, reading).await);
        self.leave();
    }

    fn count(&mut self, bytes: &[u8]) {
        if let Some(tally) = &mut self.tally {
            tally.received(bytes);
        }
        match &mut self.way {
            Way::Native { watch, .. } => watch.push(bytes),
            Way::Mapped { translator, .. } => translator.push(bytes, &mut Vec::new()),
        }
    }
}

impl Drop for AnswerStream {
    fn drop(&mut self) {
        let Some(live) = self.0.take() else {
            return;
        };
        let Some(tally) = live.tally.as_ref().filter(|_| live.owes_a_count()) else {
            return live.leave();
        };
        // An answer may be dropped outside of any task.
        let tasks = Handle::try_current().unwrap_or_else(|_| tally.tasks());
        tasks.spawn(live.read_rest());
    }
}

impl Stream for AnswerStream {
    type Item = Result<Bytes, BrokenOff>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match &mut self.0 {
            Some(live) => live.poll(context),
            None => Poll::Ready(None),
        }
    }
}

impl Live {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>> {
        let this = self;
        loop {
            if this.over {
                return Poll::Ready(None);
            }
            let last = match Pin::new(&mut this.source).poll_next(context) {
                Poll::Ready(Some(Ok(bytes))) => {
                    let out = this.take(bytes);
                    if this.cannot_go_on() {
                        this.end().map(|rest| [out, rest].concat().into())
                    } else if out.is_empty() {
                        continue;
                    } else {
                        return this.give(out);
                    }
                }
                Poll::Ready(Some(Err(error))) => this.fail(&error),
                Poll::Ready(None) => this.end(),
                Poll::Pending => {
                    let sign = ready!(this.sign_of_life(context));
                    if let Some(tally) = &mut this.tally {
                        tally.delivered(&sign);
                    }
                    return this.give(sign);
                }
            };
            this.over = true;
            return match last {
                Ok(bytes) if bytes.is_empty() => Poll::Ready(None),
                Ok(bytes) => Poll::Ready(Some(Ok(bytes))),
                Err(broken) => Poll::Ready(Some(Err(broken))),
            };
        }
    }
}
