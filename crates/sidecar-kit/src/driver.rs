//! The loop between a session and the streams: reads, writes, waits, and does what it is told.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::run::StoredItem;
use crate::session::{Due, Reaction, Received, Session, Timing};
use crate::stderr::Stderr;
use crate::writer::Writer;
use crate::{
    CancelToken, Connection, Decoded, Decoder, EventBatch, Fault, Frame, FrameError, HelloFrame,
    PermissionRequest, PermissionResponse, RunReport, Settings, decode,
};
use abp_sandbox::{ContainedProcess, Exit};

/// How long the launcher may take to end everything; it needs a few milliseconds.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// How many warnings are kept.
const MAX_WARNINGS: usize = 20;
/// How much of a line is shown.
const EXCERPT: usize = 120;

/// One sidecar under way.
pub(crate) struct Driver {
    session: Session,
    timing: Timing,
    decoder: Decoder,
    stdout: Box<dyn AsyncRead + Send + Unpin>,
    writer: Writer,
    process: Option<ContainedProcess>,
    stderr: Option<Stderr>,
    started: Instant,
    hello: Option<HelloFrame>,
    /// What came of it, as far as that is known.
    outcome: Option<Result<Value, Fault>>,
    exit: Option<Exit>,
    /// Whether more may come from its output.
    readable: bool,
    /// Set when nothing that may still come is of interest.
    broken: bool,
    cancelled: bool,
    warnings: Vec<String>,
    answered_pings: u64,
}

/// What a sidecar did, or what became due.
enum Event {
    Read(std::io::Result<usize>),
    Room,
    Abandoned,
    Due,
    Cancel(String),
    Answer(PermissionResponse),
    Blocked,
    Exit(Exit),
}

impl Driver {
    pub(crate) fn new(connection: Connection, settings: &Settings) -> Self {
        Self {
            session: Session::new(settings.timing, Duration::ZERO),
            timing: settings.timing,
            decoder: Decoder::new(settings.max_line),
            stdout: connection.stdout,
            writer: Writer::new(connection.stdin, settings.timing.write),
            process: connection.process,
            stderr: connection
                .stderr
                .map(|stream| Stderr::read(stream, &connection.secrets)),
            started: Instant::now(),
            hello: None,
            outcome: None,
            exit: None,
            readable: true,
            broken: false,
            cancelled: false,
            warnings: Vec::new(),
            answered_pings: 0,
        }
    }

    pub(crate) fn process(&self) -> Option<&ContainedProcess> {
        self.process.as_ref()
    }

    pub(crate) fn send(&self, frame: &Frame) {
        self.writer.send(frame);
    }

    pub(crate) fn hide(&self, secret: &str) {
        if let Some(stderr) = &self.stderr {
            stderr.hide(secret);
        }
    }

    pub(crate) fn ping(&mut self) {
        let seq = self.session.early_ping();
        self.writer.send(&Frame::Ping { seq });
    }

    /// Waits for hello.
    ///
    /// # Errors
    /// Says how the sidecar ended instead.
    pub(crate) async fn greet(mut self) -> Result<(Self, HelloFrame), Box<RunReport>> {
        while self.outcome.is_none() && !self.session.is_ready() {
            let event = self.next_event(None, true).await;
            // There is no run yet, so there are no events in it.
            drop(self.handle(event).await);
        }
        match self.hello.take() {
            Some(hello) if self.outcome.is_none() => Ok((self, hello)),
            _ => Err(Box::new(self.conclude().await)),
        }
    }

    /// Gives the sidecar its run and follows it to its end.
    pub(crate) async fn run(
        mut self,
        id: String,
        work_order: Value,
        events: mpsc::Sender<EventBatch>,
        cancel: CancelToken,
        mut answers: mpsc::UnboundedReceiver<PermissionResponse>,
    ) -> RunReport {
        if self.session.start(&id, self.now()) {
            self.writer.send(&Frame::Run {
                id: id.clone(),
                work_order,
            });
        }
        let mut pending = EventBatch::default();
        while !(pending.is_empty() && self.is_over()) {
            let may_read = pending.is_empty();
            let link = Link {
                events: &events,
                cancel: &cancel,
                answers: &mut answers,
                waiting: !may_read,
            };
            match self.next_event(Some(link), may_read).await {
                Event::Room => {
                    // There is room, as only we send.
                    drop(events.try_send(std::mem::take(&mut pending)));
                    self.session.release(self.now());
                }
                Event::Abandoned => {
                    pending = EventBatch::default();
                    self.fail(Fault::Abandoned);
                }
                Event::Cancel(reason) => self.cancel(&id, reason),
                Event::Answer(response) => self.answer(&id, response),
                event => {
                    let batch = self.handle(event).await;
                    if !batch.is_empty() {
                        pending = batch;
                        self.session.hold(self.now());
                    }
                }
            }
            if self.broken
                && let Some(process) = &mut self.process
            {
                // Whoever reads the events may still be slow; the sidecar need not wait for that.
                process.kill().await;
            }
        }
        self.conclude().await
    }

    /// Lets the sidecar go without a run.
    pub(crate) async fn close(mut self) -> RunReport {
        self.session.close(self.now());
        self.outcome = Some(Ok(Value::Null));
        self.writer.close();
        while !self.is_over() {
            let event = self.next_event(None, true).await;
            drop(self.handle(event).await);
        }
        self.conclude().await
    }

    async fn next_event(&mut self, link: Option<Link<'_>>, may_read: bool) -> Event {
        let due = self.session.next_due().map(|due| self.started + due);
        tokio::select! {
            biased;
            event = of_caller(link, self.cancelled) => event,
            () = self.writer.blocked() => Event::Blocked,
            exit = exited(&mut self.process), if self.exit.is_none() => Event::Exit(exit),
            () = until(due) => Event::Due,
            read = self.stdout.read_buf(self.decoder.buffer()), if self.readable && may_read => Event::Read(read),
        }
    }

    /// Does what an event asks for; returns the events of the run that came with it.
    async fn handle(&mut self, event: Event) -> EventBatch {
        match event {
            Event::Read(Ok(0) | Err(_)) => self.end_of_output(),
            Event::Read(Ok(_)) => return self.take_lines(),
            Event::Due => self.do_what_is_due().await,
            Event::Blocked => self.fail(Fault::InputBlocked(self.timing.write)),
            Event::Exit(exit) => self.exit = Some(exit),
            Event::Room | Event::Abandoned | Event::Cancel(_) | Event::Answer(_) => {}
        }
        EventBatch::default()
    }

    /// Whether nothing is left to wait for.
    fn is_over(&self) -> bool {
        self.broken || (!self.readable && (self.exit.is_some() || self.process.is_none()))
    }

    fn cancel(&mut self, id: &str, reason: String) {
        self.cancelled = true;
        if self.session.cancel(self.now()) {
            self.writer.send(&Frame::Cancel {
                ref_id: id.to_owned(),
                reason: Some(reason),
            });
        }
    }

    /// Sends an answer, unless the run or the question is over.
    fn answer(&mut self, id: &str, response: PermissionResponse) {
        if self.session.answer_question(self.now()) {
            self.writer.send(&Frame::PermissionResponse {
                ref_id: id.to_owned(),
                response,
            });
        }
    }

    async fn do_what_is_due(&mut self) {
        while let Some(due) = self.session.due(self.now()) {
            match due {
                Due::Ping { seq } => self.writer.send(&Frame::Ping { seq }),
                Due::Terminate => self.terminate().await,
                Due::Kill => {
                    self.outcome.get_or_insert(Err(Fault::Cancelled));
                    self.broken = true;
                }
                Due::Expired(expired) => self.fail(expired.into()),
            }
        }
    }

    async fn terminate(&mut self) {
        if self.exit.is_some() {
            return;
        }
        if !self.cancelled && matches!(self.outcome, Some(Ok(_))) {
            self.outcome = Some(Err(Fault::NoExit(self.timing.exit.before_term)));
        }
        match &mut self.process {
            Some(process) => process.terminate().await,
            // Nobody is there to be asked.
            None => self.broken = true,
        }
    }

    fn end_of_output(&mut self) {
        self.readable = false;
        if let Err(error) = self.decoder.finish() {
            self.fail(error.into());
        } else if self.outcome.is_none() {
            let cancelled = self.cancelled;
            self.outcome = Some(Err(if cancelled {
                Fault::Cancelled
            } else {
                Fault::Exited
            }));
            // It may only have closed its output: it gets the usual time to end.
            self.session.close(self.now());
        }
    }

    /// Ends everything. What went wrong first is what is told; a good end that is followed by a
    /// breach was none.
    fn fail(&mut self, fault: Fault) {
        if !matches!(self.outcome, Some(Err(_))) {
            self.outcome = Some(Err(fault));
        }
        self.broken = true;
        self.readable = false;
    }

    fn take_lines(&mut self) -> EventBatch {
        let now = self.now();
        let mut items = Vec::new();
        let lines = match self.decoder.take() {
            Ok(Some(lines)) => lines,
            Ok(None) => return EventBatch::default(),
            Err(error) => {
                self.fail(error.into());
                return EventBatch::default();
            }
        };
        for (number, line) in lines.iter() {
            match self.take_line(number, line, now) {
                Ok(Some(Taken::Event(event))) => {
                    items.push(StoredItem::Event(lines.range_of(event)));
                }
                Ok(Some(Taken::Question(request))) => items.push(StoredItem::Question(request)),
                Ok(None) => {}
                Err(fault) => {
                    self.fail(fault);
                    break;
                }
            }
        }
        if !self.broken
            && let Err(error) = self.decoder.take()
        {
            self.fail(error.into());
        }
        EventBatch::new(lines.into_text(), items)
    }

    /// Takes a line; returns what of it is to be handed on.
    fn take_line<'a>(
        &mut self,
        number: u64,
        line: &'a str,
        now: Duration,
    ) -> Result<Option<Taken<'a>>, Fault> {
        let mut session = |received: Received<'_>, detail: Option<String>| {
            let violated = |violation| Fault::Violation {
                line: number,
                violation,
                detail,
            };
            self.session.on_frame(received, now).map_err(violated)
        };
        match decode(line) {
            Ok(Decoded::Event(event)) => {
                let ref_id = event.ref_id.as_deref();
                session(Received::Event { ref_id }, None)?;
                Ok(Some(Taken::Event(event.payload)))
            }
            Ok(Decoded::Frame(frame)) => {
                let action = session(received(&frame), None)?;
                if let Frame::PermissionRequest { request, .. } = frame {
                    return Ok(Some(Taken::Question(request)));
                }
                self.act(action, frame);
                Ok(None)
            }
            Err(FrameError::NotAFrame { .. }) => {
                let shown: String = line.chars().take(EXCERPT).collect();
                session(Received::Noise { bytes: line.len() }, Some(shown.clone()))?;
                self.warn(format!(
                    "line {number} before hello is not a message: {shown:?}"
                ));
                Ok(None)
            }
            Err(error @ FrameError::Invalid { .. }) => Err(Fault::Frame {
                line: number,
                error,
            }),
        }
    }

    fn act(&mut self, action: Reaction, frame: Frame) {
        match (action, frame) {
            (Reaction::Greet, Frame::Hello(hello)) => self.hello = Some(hello),
            (Reaction::Finish, Frame::Final { receipt, .. }) => {
                self.outcome = Some(Ok(receipt));
                self.writer.close();
            }
            (
                Reaction::Fail,
                Frame::Fatal {
                    error, error_code, ..
                },
            ) => {
                self.outcome = Some(Err(Fault::Fatal { error, error_code }));
                self.writer.close();
            }
            (Reaction::Nothing, Frame::Pong { .. }) => self.answered_pings += 1,
            (Reaction::Answer { seq }, _) => self.writer.send(&Frame::Pong { seq }),
            (Reaction::Warn, Frame::Unknown(unknown)) => {
                let kind = unknown.get("t").cloned().unwrap_or_default();
                self.warn(format!("the message {kind} is not known and was ignored"));
            }
            (Reaction::Warn, frame) => self.warn(format!("ignored: {frame:?}")),
            _ => {}
        }
    }

    fn warn(&mut self, warning: String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(warning);
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Leaves nothing behind, and says how it ended.
    async fn conclude(mut self) -> RunReport {
        self.writer.close();
        let containment = self.process.as_ref().map(ContainedProcess::containment);
        if let (Some(process), None) = (&mut self.process, self.exit) {
            process.kill().await;
            let ended = tokio::time::timeout(KILL_PATIENCE, process.exited()).await;
            self.exit = Some(ended.unwrap_or(Exit::Unknown));
        }
        let stderr_tail = match &mut self.stderr {
            Some(stderr) => stderr.tail().await,
            None => String::new(),
        };
        RunReport {
            result: self.outcome.unwrap_or(Err(Fault::Exited)),
            exit: self.exit,
            stderr_tail,
            containment,
            warnings: self.warnings,
            answered_pings: self.answered_pings,
        }
    }
}

/// The part of a line that is handed on.
enum Taken<'a> {
    /// The payload of an event.
    Event(&'a str),
    Question(PermissionRequest),
}

/// The caller's side of a run.
struct Link<'a> {
    events: &'a mpsc::Sender<EventBatch>,
    cancel: &'a CancelToken,
    answers: &'a mut mpsc::UnboundedReceiver<PermissionResponse>,
    /// Whether there is something to hand on.
    waiting: bool,
}

/// Waits for what the caller of a run does.
async fn of_caller(link: Option<Link<'_>>, is_cancelled: bool) -> Event {
    let Some(Link {
        events,
        cancel,
        answers,
        waiting,
    }) = link
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        biased;
        reason = cancel.cancelled(), if !is_cancelled => Event::Cancel(reason),
        room = room(events, waiting) => if room { Event::Room } else { Event::Abandoned },
        Some(response) = answers.recv() => Event::Answer(response),
    }
}

/// Waits until there is room for what waits, or nobody is left to take it (`false`).
async fn room(events: &mpsc::Sender<EventBatch>, waiting: bool) -> bool {
    if waiting {
        return events.reserve().await.is_ok();
    }
    events.closed().await;
    false
}

async fn exited(process: &mut Option<ContainedProcess>) -> Exit {
    match process {
        Some(process) => process.exited().await,
        None => std::future::pending().await,
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn received(frame: &Frame) -> Received<'_> {
    match frame {
        Frame::Hello(_) => Received::Hello,
        Frame::Event { ref_id, .. } => Received::Event {
            ref_id: ref_id.as_deref(),
        },
        Frame::PermissionRequest { ref_id, .. } => Received::Question {
            ref_id: ref_id.as_deref(),
        },
        Frame::Final { ref_id, .. } => Received::Final {
            ref_id: ref_id.as_deref(),
        },
        Frame::Fatal { ref_id, .. } => Received::Fatal {
            ref_id: ref_id.as_deref(),
        },
        Frame::Ping { seq } => Received::Ping { seq: *seq },
        Frame::Pong { seq } => Received::Pong { seq: *seq },
        Frame::Run { .. } => Received::HostsOnly { kind: "run" },
        Frame::Cancel { .. } => Received::HostsOnly { kind: "cancel" },
        Frame::PermissionResponse { .. } => Received::HostsOnly {
            kind: "permission_response",
        },
        Frame::Unknown(_) => Received::Unknown,
    }
}
