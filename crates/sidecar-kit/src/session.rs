//! The protocol without any I/O: what may come when, and until when.
//!
//! Time enters as a value, counted from any fixed moment. The caller hands in what it received, asks
//! for what is due, and does what it is told.

mod clock;
#[cfg(test)]
mod tests;

use std::time::Duration;

use clock::{Beat, Ending, Heartbeat};
pub use clock::{Grace, Timing};

/// The state of the conversation with one sidecar.
#[derive(Debug)]
pub struct Session {
    phase: Phase,
    timing: Timing,
    /// Bytes of lines before hello that were no messages.
    noise: usize,
    /// How many pings were sent before the run.
    early_pings: u64,
    /// Since when what came cannot be handed on.
    held_since: Option<Duration>,
}

#[derive(Debug)]
enum Phase {
    AwaitHello { until: Duration },
    Ready,
    Running(Running),
    Closing(Ending),
    Closed,
}

#[derive(Debug)]
struct Running {
    id: String,
    heartbeat: Heartbeat,
    progress_until: Duration,
    run_until: Option<Duration>,
    /// Questions of the sidecar that were not answered yet. While there are any it waits for the host, and
    /// is not to blame for silence.
    open_questions: u64,
    /// Set once the run was cancelled.
    ending: Option<Ending>,
}

/// What came from the sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received<'a> {
    /// Hello.
    Hello,
    /// An event.
    Event {
        /// The run it names.
        ref_id: Option<&'a str>,
    },
    /// A question about a tool.
    Question {
        /// The run it names.
        ref_id: Option<&'a str>,
    },
    /// The end of the work.
    Final {
        /// The run it names.
        ref_id: Option<&'a str>,
    },
    /// The end of everything.
    Fatal {
        /// The run it names.
        ref_id: Option<&'a str>,
    },
    /// A sign of life that nobody asked for, or that answers nothing: `ping`.
    Ping {
        /// Comes back in the answer.
        seq: u64,
    },
    /// A sign of life.
    Pong {
        /// That of the ping.
        seq: u64,
    },
    /// A message that only hosts send: `run` or `cancel`.
    HostsOnly {
        /// The message's `t`.
        kind: &'static str,
    },
    /// A message this version does not know.
    Unknown,
    /// A line that is no message.
    Noise {
        /// Its length.
        bytes: usize,
    },
}

/// What is to be done with what came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// Hello is accepted: look at it.
    Greet,
    /// Hand the event on.
    Deliver,
    /// The run ended well: close the sidecar's input.
    Finish,
    /// The sidecar gave up: close its input.
    Fail,
    /// Answer the ping.
    Answer {
        /// With this number.
        seq: u64,
    },
    /// Nothing.
    Nothing,
    /// Nothing, but somebody should know.
    Warn,
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Send a ping.
    Ping {
        /// With this number.
        seq: u64,
    },
    /// Ask the process to end.
    Terminate,
    /// Kill the process and everything it started.
    Kill,
    /// Something did not come in time; the session is over.
    Expired(Expired),
}

/// What did not come in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Expired {
    /// Hello.
    #[error("no hello within {0:?}")]
    Hello(Duration),
    /// Answers to pings.
    #[error("{missed} pings in a row were not answered")]
    Pong {
        /// How many.
        missed: u32,
    },
    /// Events.
    #[error("no event for {0:?}")]
    Progress(Duration),
    /// The end of the run.
    #[error("the run took longer than {0:?}")]
    Run(Duration),
}

/// A breach of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The first message is not hello.
    #[error("the first message is {kind}, not hello")]
    NotHello {
        /// What it is.
        kind: &'static str,
    },
    /// Hello came twice.
    #[error("hello came twice")]
    SecondHello,
    /// A message about a run came before there was one.
    #[error("{kind} came before a run was given")]
    NoRun {
        /// The message.
        kind: &'static str,
    },
    /// A message names no run.
    #[error("{kind} has no ref_id")]
    MissingRefId {
        /// The message.
        kind: &'static str,
    },
    /// A message names another run.
    #[error("{kind} has the ref_id {got:?}, the run is {expected:?}")]
    WrongRefId {
        /// The message.
        kind: &'static str,
        /// The run it names.
        got: String,
        /// The run there is.
        expected: String,
    },
    /// A message came after the end of the run.
    #[error("{kind} came after the end of the run")]
    AfterEnd {
        /// The message.
        kind: &'static str,
    },
    /// A message came that only hosts send.
    #[error("{kind} is a message of hosts, not of sidecars")]
    HostsOnly {
        /// The message.
        kind: &'static str,
    },
    /// A line after hello is no message.
    #[error("a line after hello is not a message")]
    Noise,
    /// Too much came before hello.
    #[error("more than {limit} bytes came before hello")]
    TooMuchNoise {
        /// The limit.
        limit: usize,
    },
}

impl Received<'_> {
    /// The message's `t`, or what the line is.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Event { .. } => "event",
            Self::Question { .. } => "permission_request",
            Self::Final { .. } => "final",
            Self::Fatal { .. } => "fatal",
            Self::Ping { .. } => "ping",
            Self::Pong { .. } => "pong",
            Self::HostsOnly { kind } => kind,
            Self::Unknown => "an unknown message",
            Self::Noise { .. } => "noise",
        }
    }
}

impl Session {
    /// A session that waits for hello from `now` on.
    #[must_use]
    pub fn new(timing: Timing, now: Duration) -> Self {
        let until = now + timing.hello;
        Self {
            phase: Phase::AwaitHello { until },
            timing,
            noise: 0,
            early_pings: 0,
            held_since: None,
        }
    }

    /// Whether hello came and no run was given yet.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    /// Whether the run has ended and the process may still have to.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing(_))
    }

    /// Takes what came.
    ///
    /// # Errors
    /// Says which rule was broken; the session is over then.
    pub fn on_frame(
        &mut self,
        received: Received<'_>,
        now: Duration,
    ) -> Result<Reaction, Violation> {
        let kind = received.kind();
        let result = match (&mut self.phase, received) {
            (_, Received::Unknown) => Ok(Reaction::Warn),
            (_, Received::HostsOnly { kind }) => Err(Violation::HostsOnly { kind }),
            (Phase::AwaitHello { .. }, Received::Hello) => {
                self.phase = Phase::Ready;
                Ok(Reaction::Greet)
            }
            (Phase::AwaitHello { .. }, Received::Noise { bytes }) => self.tolerate(bytes),
            (Phase::AwaitHello { .. } | Phase::Ready, Received::Fatal { ref_id: None }) => {
                self.close(now);
                Ok(Reaction::Fail)
            }
            (
                Phase::AwaitHello { .. },
                Received::Event { .. }
                | Received::Question { .. }
                | Received::Final { .. }
                | Received::Fatal { .. }
                | Received::Ping { .. }
                | Received::Pong { .. },
            ) => Err(Violation::NotHello { kind }),
            (_, Received::Hello) => Err(Violation::SecondHello),
            (_, Received::Noise { .. }) => Err(Violation::Noise),
            (_, Received::Ping { seq }) => Ok(Reaction::Answer { seq }),
            (
                Phase::Ready,
                Received::Event { .. }
                | Received::Question { .. }
                | Received::Final { .. }
                | Received::Fatal { .. },
            ) => Err(Violation::NoRun { kind }),
            (Phase::Running(running), Received::Event { ref_id }) => {
                running.progress_until = now + self.timing.progress;
                running.check(kind, ref_id).map(|()| Reaction::Deliver)
            }
            (Phase::Running(running), Received::Question { ref_id }) => {
                running.open_questions += 1;
                running.check(kind, ref_id).map(|()| Reaction::Deliver)
            }
            (Phase::Running(running), Received::Final { ref_id }) => {
                let checked = running.check(kind, ref_id);
                self.close(now);
                checked.map(|()| Reaction::Finish)
            }
            (Phase::Running(running), Received::Fatal { ref_id }) => {
                let named = ref_id.map_or(Ok(()), |ref_id| running.check(kind, Some(ref_id)));
                self.close(now);
                named.map(|()| Reaction::Fail)
            }
            (Phase::Running(running), Received::Pong { seq }) => Ok(running.heartbeat.answer(seq)),
            (Phase::Ready | Phase::Closing(_) | Phase::Closed, Received::Pong { .. }) => {
                Ok(Reaction::Nothing)
            }
            (
                Phase::Closing(_) | Phase::Closed,
                Received::Event { .. }
                | Received::Question { .. }
                | Received::Final { .. }
                | Received::Fatal { .. },
            ) => Err(Violation::AfterEnd { kind }),
        };
        if result.is_err() {
            self.phase = Phase::Closed;
        }
        result
    }

    /// The number of a ping to send before the run; nobody waits for its answer.
    pub fn early_ping(&mut self) -> u64 {
        self.early_pings += 1;
        self.early_pings
    }

    /// Begins the run; `false` where the sidecar is not waiting for one.
    #[must_use]
    pub fn start(&mut self, id: &str, now: Duration) -> bool {
        if !self.is_ready() {
            return false;
        }
        self.phase = Phase::Running(Running {
            id: id.to_owned(),
            heartbeat: Heartbeat::new(&self.timing, self.early_pings, now),
            progress_until: now + self.timing.progress,
            run_until: self.timing.run.map(|limit| now + limit),
            open_questions: 0,
            ending: None,
        });
        true
    }

    /// Cancels the run; `false` where there is none, or it was cancelled before.
    #[must_use]
    pub fn cancel(&mut self, now: Duration) -> bool {
        match &mut self.phase {
            Phase::Running(running) if running.ending.is_none() => {
                running.ending = Some(Ending::new(self.timing.cancel, now));
                true
            }
            _ => false,
        }
    }

    /// Ends the session without a run: the sidecar is expected to exit.
    pub fn close(&mut self, now: Duration) {
        let ending = match &self.phase {
            // A cancelled run keeps the time it was given.
            Phase::Running(Running {
                ending: Some(ending),
                ..
            }) => *ending,
            _ => Ending::new(self.timing.exit, now),
        };
        self.phase = Phase::Closing(ending);
    }

    /// A question was answered; `false` where none is open.
    #[must_use]
    pub fn answer_question(&mut self, now: Duration) -> bool {
        match &mut self.phase {
            Phase::Running(running) if running.open_questions > 0 => {
                running.open_questions -= 1;
                running.progress_until = now + self.timing.progress;
                true
            }
            _ => false,
        }
    }

    /// What came cannot be handed on: the sidecar is not to blame for silence from now on.
    pub fn hold(&mut self, now: Duration) {
        self.held_since.get_or_insert(now);
    }

    /// What came was handed on.
    pub fn release(&mut self, now: Duration) {
        if let Some(since) = self.held_since.take()
            && let Phase::Running(running) = &mut self.phase
        {
            let held = now.saturating_sub(since);
            running.progress_until += held;
            running.heartbeat.postpone(held);
        }
    }

    /// The next thing that is due by now. To be asked until there is none.
    pub fn due(&mut self, now: Duration) -> Option<Due> {
        let timing = self.timing;
        let held = self.held_since.is_some();
        let due = match &mut self.phase {
            Phase::AwaitHello { until } => {
                (now >= *until).then_some(Due::Expired(Expired::Hello(timing.hello)))
            }
            Phase::Running(running) => running.due(&timing, now, held),
            Phase::Closing(ending) => ending.due(now),
            Phase::Ready | Phase::Closed => None,
        };
        if matches!(due, Some(Due::Kill | Due::Expired(_))) {
            self.phase = Phase::Closed;
        }
        due
    }

    /// When something will be due, if nothing comes before.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        match &self.phase {
            Phase::AwaitHello { until } => Some(*until),
            Phase::Running(running) => running.next_due(self.held_since.is_some()),
            Phase::Closing(ending) => Some(ending.next_due()),
            Phase::Ready | Phase::Closed => None,
        }
    }

    fn tolerate(&mut self, bytes: usize) -> Result<Reaction, Violation> {
        self.noise = self.noise.saturating_add(bytes);
        let limit = self.timing.noise_limit;
        if self.noise > limit {
            return Err(Violation::TooMuchNoise { limit });
        }
        Ok(Reaction::Warn)
    }
}

impl Running {
    fn check(&self, kind: &'static str, ref_id: Option<&str>) -> Result<(), Violation> {
        match ref_id {
            Some(ref_id) if ref_id == self.id => Ok(()),
            Some(ref_id) => Err(Violation::WrongRefId {
                kind,
                got: ref_id.chars().take(100).collect(),
                expected: self.id.clone(),
            }),
            None => Err(Violation::MissingRefId { kind }),
        }
    }

    fn due(&mut self, timing: &Timing, now: Duration, held: bool) -> Option<Due> {
        if let Some(limit) = timing
            .run
            .filter(|_| self.run_until.is_some_and(|until| now >= until))
        {
            return Some(Due::Expired(Expired::Run(limit)));
        }
        if let Some(ending) = &mut self.ending {
            return ending.due(now);
        }
        if held {
            return None;
        }
        if self.open_questions == 0 && now >= self.progress_until {
            return Some(Due::Expired(Expired::Progress(timing.progress)));
        }
        match self.heartbeat.beat(timing, now)? {
            Beat::Ping(seq) => Some(Due::Ping { seq }),
            Beat::Stopped { missed } => Some(Due::Expired(Expired::Pong { missed })),
        }
    }

    fn next_due(&self, held: bool) -> Option<Duration> {
        let progress = (self.open_questions == 0).then_some(self.progress_until);
        let usual = progress.into_iter().chain([self.heartbeat.next()]);
        let usual = usual.filter(|_| !held && self.ending.is_none());
        let ending = self.ending.as_ref().map(Ending::next_due);
        usual.chain(ending).chain(self.run_until).min()
    }
}
