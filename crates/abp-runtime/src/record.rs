//! Recording events: stamped, redacted, admitted, digested, and handed to whoever follows.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use abp_backend_core::CancelSignal;
use abp_core::{
    Adaptation, AgentEvent, AgentEventKind, EventOrigin, Timestamp, TraceDigest, WorkOrder,
};
use abp_error::AbpError;
use abp_stream::{PieceRedactor, Pipeline, Redactor, Stage};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tokio::time::Instant;

use crate::journal::Journal;
use crate::trace::{Trace, admit};
use crate::{Audience, RuntimeError};

/// What the wall clock says.
pub(crate) fn now() -> Timestamp {
    let since_epoch = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_unix_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// A clock that cannot run backwards: wall time at the start, monotonic time from there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunClock {
    started_at: Timestamp,
    started: Instant,
}

impl RunClock {
    fn start() -> Self {
        Self {
            started_at: now(),
            started: Instant::now(),
        }
    }

    /// The clock of a run that began at that time, in another process.
    fn since(started_at: Timestamp) -> Self {
        let passed = now()
            .as_unix_millis()
            .saturating_sub(started_at.as_unix_millis());
        let passed = Duration::from_millis(u64::try_from(passed).unwrap_or(0));
        // The clock of the machine may have started later.
        let started = Instant::now().checked_sub(passed);
        match started {
            Some(started) => Self {
                started_at,
                started,
            },
            None => Self::start(),
        }
    }

    pub(crate) fn started_at(&self) -> Timestamp {
        self.started_at
    }

    pub(crate) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn now(&self) -> Timestamp {
        self.started_at.plus_millis(self.elapsed_ms())
    }
}

/// When the run has to end: when somebody says so, or when its time is up.
#[derive(Debug, Clone)]
pub(crate) struct End {
    pub(crate) cancel: CancelSignal,
    pub(crate) deadline: Option<Instant>,
}

impl End {
    /// Waits until the run has to end.
    pub(crate) async fn reached(mut self) {
        let time_is_up = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.cancel.cancelled() => {}
            () = time_is_up => {}
        }
    }
}

/// Records the events of a run.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) clock: RunClock,
    redactor: Redactor,
    pipeline: Pipeline,
    /// The pieces of messages and of reasoning, each with the end that may be part of a secret.
    message_pieces: PieceRedactor,
    reasoning_pieces: PieceRedactor,
    trace: Trace,
    journal: Journal,
    end: End,
    audience: Audience,
    /// Kept only where somebody will look at it: it can be as long as the run.
    answer: Option<Answer>,
}

/// The agent's last words: its last whole message, or what it streamed since.
#[derive(Debug, Default)]
struct Answer {
    text: String,
    streaming: bool,
}

impl Recorder {
    pub(crate) fn new(
        order: &WorkOrder,
        secrets: &[SecretString],
        journal: Journal,
        end: End,
    ) -> Self {
        let secrets = secrets.iter().map(SecretString::expose_secret);
        let redactor = Redactor::for_environment(&order.config.env).and(secrets);
        Self {
            clock: RunClock::start(),
            pipeline: Pipeline::new().then(Stage::Redact(redactor.clone())),
            redactor,
            message_pieces: PieceRedactor::default(),
            reasoning_pieces: PieceRedactor::default(),
            trace: Trace::default(),
            journal,
            end,
            audience: Audience::new(order.client.clone()),
            answer: None,
        }
    }

    /// Takes an event of an earlier attempt into the trace. It is stored already.
    pub(crate) fn recall(&mut self, event: &AgentEvent) -> Result<(), RuntimeError> {
        if self.trace.is_empty() {
            self.clock = RunClock::since(event.ts);
        }
        let recorded = self.trace.record(event);
        recorded
            .map(drop)
            .map_err(|error| RuntimeError::Lost(error.to_string()))
    }

    /// Takes this out of everything that is recorded from now on.
    pub(crate) fn hide(&mut self, secret: &str) {
        self.redactor = std::mem::take(&mut self.redactor).and([secret]);
        self.pipeline = Pipeline::new().then(Stage::Redact(self.redactor.clone()));
    }

    /// Records an event of the host's own. Waits while too much waits for the store.
    pub(crate) async fn record(
        &mut self,
        kind: AgentEventKind,
        ext: Option<BTreeMap<String, Value>>,
    ) {
        self.gather(kind, ext, EventOrigin::Host).await;
        self.flush().await;
    }

    /// Hands on what was gathered.
    pub(crate) async fn flush(&mut self) {
        self.journal.flush().await;
    }

    /// Records an event of several: [`Self::flush`] hands them on together.
    ///
    /// Text that comes in pieces may split a secret, so the end of a piece that could be the beginning of
    /// one waits for the next piece. Events that belong to no text, such as counts, may come between two
    /// pieces; any other ends the text.
    pub(crate) async fn gather(
        &mut self,
        mut kind: AgentEventKind,
        ext: Option<BTreeMap<String, Value>>,
        origin: EventOrigin,
    ) {
        match &mut kind {
            AgentEventKind::AssistantDelta { text } => {
                *text = self.message_pieces.push(&self.redactor, text);
                if text.is_empty() && ext.is_none() {
                    return;
                }
            }
            AgentEventKind::ThinkingDelta { text } => {
                *text = self.reasoning_pieces.push(&self.redactor, text);
                if text.is_empty() && ext.is_none() {
                    return;
                }
            }
            AgentEventKind::UsageUpdated { .. }
            | AgentEventKind::Warning { .. }
            | AgentEventKind::Opaque(_) => {}
            _ => self.end_pieces().await,
        }
        self.admit(kind, ext, origin).await;
    }

    /// Records what was held back of texts in pieces: they are at their end.
    pub(crate) async fn end_pieces(&mut self) {
        let reasoning = self.reasoning_pieces.finish(&self.redactor);
        if !reasoning.is_empty() {
            let kind = AgentEventKind::ThinkingDelta { text: reasoning };
            self.admit(kind, None, EventOrigin::Backend).await;
        }
        let message = self.message_pieces.finish(&self.redactor);
        if !message.is_empty() {
            let kind = AgentEventKind::AssistantDelta { text: message };
            self.admit(kind, None, EventOrigin::Backend).await;
        }
    }

    async fn admit(
        &mut self,
        kind: AgentEventKind,
        ext: Option<BTreeMap<String, Value>>,
        origin: EventOrigin,
    ) {
        let ts = self.clock.now();
        let Some(event) = self.pipeline.apply(AgentEvent {
            ts,
            origin: Some(origin),
            kind,
            ext,
        }) else {
            return;
        };
        let event = admit(event);
        for told in self.audience.told_before(&event).await {
            let told = AgentEvent {
                origin: Some(EventOrigin::Host),
                ..told
            };
            self.append(told).await;
        }
        self.append(event).await;
    }

    async fn append(&mut self, event: AgentEvent) {
        let ts = event.ts;
        if let Some(answer) = &mut self.answer {
            answer.observe(&event.kind);
        }
        let recorded = self.trace.record(&event);
        let (event, seq, json) = match recorded {
            Ok((seq, json)) => (event, seq, json),
            Err(error) => {
                let message = format!(
                    "an event of kind {} cannot be recorded: {error}",
                    event.kind.name()
                );
                let warning = AgentEvent {
                    origin: Some(EventOrigin::Host),
                    ..AgentEvent::new(ts, AgentEventKind::Warning { message })
                };
                match self.trace.record(&warning) {
                    Ok((seq, json)) => (warning, seq, json),
                    // Our own words can always be recorded.
                    Err(_) => return,
                }
            }
        };
        self.journal.append(seq, event, json);
    }

    /// When the run has to end.
    pub(crate) fn end(&self) -> End {
        self.end.clone()
    }

    /// Keeps the agent's last words from now on.
    pub(crate) fn keep_answer(&mut self) {
        self.answer.get_or_insert_default();
    }

    /// The agent's last words, where they were kept.
    pub(crate) fn answer(&self) -> &str {
        self.answer.as_ref().map_or("", |answer| &answer.text)
    }

    /// Waits until the store failed.
    pub(crate) async fn failed(&self) -> AbpError {
        self.journal.failed().await
    }

    /// The trace, once all of it is durable, and what takes secrets out of everything else.
    pub(crate) async fn finish(self) -> Recorded {
        let problem = self.journal.close().await;
        let (embedded, digest) = self.trace.finish();
        Recorded {
            embedded,
            digest,
            problem,
            redactor: self.redactor,
            adaptations: self.audience.adaptations().to_vec(),
        }
    }
}

/// What was recorded.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) embedded: Vec<AgentEvent>,
    pub(crate) digest: TraceDigest,
    /// Why events are missing in the store, where they are.
    pub(crate) problem: Option<String>,
    pub(crate) redactor: Redactor,
    /// What was changed for the client.
    pub(crate) adaptations: Vec<Adaptation>,
}

impl Answer {
    fn observe(&mut self, kind: &AgentEventKind) {
        match kind {
            AgentEventKind::AssistantDelta { text } => {
                if !self.streaming {
                    self.text.clear();
                    self.streaming = true;
                }
                self.text.push_str(text);
            }
            AgentEventKind::AssistantMessage { text } => {
                self.streaming = false;
                self.text.clone_from(text);
            }
            _ => {}
        }
    }
}
