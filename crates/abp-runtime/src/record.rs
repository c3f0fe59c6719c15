//! Recording events: stamped, redacted, admitted, digested, and handed to whoever follows.

use std::collections::BTreeMap;
use std::time::SystemTime;

use abp_backend_core::CancelSignal;
use abp_core::{AgentEvent, AgentEventKind, Timestamp, WorkOrder};
use abp_stream::{Pipeline, Redactor, Stage};
use serde_json::Value;
use tokio::time::Instant;

use crate::queue::EventSender;
use crate::trace::{Trace, TraceEnd, admit};

/// A clock that cannot run backwards: wall time at the start, monotonic time from there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunClock {
    started_at: Timestamp,
    started: Instant,
}

impl RunClock {
    fn start() -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            started_at: Timestamp::from_unix_millis(
                i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX),
            ),
            started: Instant::now(),
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
    trace: Trace,
    events: EventSender,
    end: End,
    answer: Answer,
}

/// The agent's last words: its last whole message, or what it streamed since.
#[derive(Debug, Default)]
struct Answer {
    text: String,
    streaming: bool,
}

impl Recorder {
    pub(crate) fn new(order: &WorkOrder, trace: Trace, events: EventSender, end: End) -> Self {
        let redactor = Redactor::for_environment(&order.config.env);
        Self {
            clock: RunClock::start(),
            pipeline: Pipeline::new().then(Stage::Redact(redactor.clone())),
            redactor,
            trace,
            events,
            end,
            answer: Answer::default(),
        }
    }

    /// Records an event. Waits while the reader has no room, but not beyond the run's own end.
    pub(crate) async fn record(
        &mut self,
        kind: AgentEventKind,
        ext: Option<BTreeMap<String, Value>>,
    ) {
        let ts = self.clock.now();
        let Some(event) = self.pipeline.apply(AgentEvent { ts, kind, ext }) else {
            return;
        };
        let event = admit(event);
        self.answer.observe(&event.kind);
        let (event, size) = match self.trace.record(&event) {
            Ok(size) => (event, size),
            Err(error) => {
                let message = format!(
                    "an event of kind {} cannot be recorded: {error}",
                    event.kind.name()
                );
                let warning = AgentEvent::new(ts, AgentEventKind::Warning { message });
                let size = self.trace.record(&warning).unwrap_or_default();
                (warning, size)
            }
        };
        let cost = tokio::select! {
            biased;
            cost = self.events.wait_for_room(size) => cost,
            () = self.end().reached() => 0,
        };
        self.events.send(event, cost);
    }

    /// When the run has to end.
    pub(crate) fn end(&self) -> End {
        self.end.clone()
    }

    /// The agent's last words.
    pub(crate) fn answer(&self) -> &str {
        &self.answer.text
    }

    /// The trace, and what takes secrets out of everything else.
    pub(crate) fn finish(self) -> (TraceEnd, Redactor) {
        (self.trace.finish(), self.redactor)
    }
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
