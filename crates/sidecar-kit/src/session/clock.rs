//! The clocks of a session.

use std::time::Duration;

use super::{Due, Reaction};

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// From the start to hello.
    pub hello: Duration,
    /// Between pings.
    pub ping_interval: Duration,
    /// From a ping to its answer.
    pub pong: Duration,
    /// How many pings in a row may go without an answer.
    pub max_missed_pongs: u32,
    /// Between events. Answers to pings do not count: a sidecar may live and yet be stuck.
    pub progress: Duration,
    /// The whole run.
    pub run: Option<Duration>,
    /// Writing one message to the sidecar.
    pub write: Duration,
    /// Ending after a cancel.
    pub cancel: Grace,
    /// Exiting after the end of the run.
    pub exit: Grace,
    /// How many bytes that are no messages may come before hello.
    pub noise_limit: usize,
}

/// How long a process may take to end by itself, and then after it was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// Until it is asked to (SIGTERM).
    pub before_term: Duration,
    /// From there until it is killed.
    pub before_kill: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            hello: Duration::from_secs(10),
            ping_interval: Duration::from_secs(30),
            pong: Duration::from_secs(10),
            max_missed_pongs: 3,
            progress: Duration::from_secs(15 * 60),
            run: None,
            write: Duration::from_secs(10),
            cancel: Grace {
                before_term: Duration::from_secs(1),
                before_kill: Duration::from_millis(500),
            },
            exit: Grace {
                before_term: Duration::from_secs(2),
                before_kill: Duration::from_secs(3),
            },
            noise_limit: 64 * 1024,
        }
    }
}

/// The end of a process, by force where it must be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    term_at: Duration,
    kill_at: Duration,
    terminated: bool,
}

impl Ending {
    pub(super) fn new(grace: Grace, now: Duration) -> Self {
        let term_at = now + grace.before_term;
        Self {
            term_at,
            kill_at: term_at + grace.before_kill,
            terminated: false,
        }
    }

    pub(super) fn due(&mut self, now: Duration) -> Option<Due> {
        if now >= self.kill_at {
            return Some(Due::Kill);
        }
        if !self.terminated && now >= self.term_at {
            self.terminated = true;
            return Some(Due::Terminate);
        }
        None
    }

    pub(super) fn next_due(&self) -> Duration {
        if self.terminated {
            self.kill_at
        } else {
            self.term_at
        }
    }
}

/// Pings and their answers.
#[derive(Debug)]
pub(super) struct Heartbeat {
    next_ping: Duration,
    /// Until when the last ping may be answered; `None` once it was, or the time is over.
    pending_until: Option<Duration>,
    sent: u64,
    missed: u32,
}

pub(super) enum Beat {
    Ping(u64),
    Stopped { missed: u32 },
}

impl Heartbeat {
    pub(super) fn new(timing: &Timing, sent: u64, now: Duration) -> Self {
        Self {
            next_ping: now + timing.ping_interval,
            pending_until: None,
            sent,
            missed: 0,
        }
    }

    pub(super) fn beat(&mut self, timing: &Timing, now: Duration) -> Option<Beat> {
        if self.pending_until.is_some_and(|until| now >= until) {
            self.pending_until = None;
            self.missed += 1;
            if self.missed >= timing.max_missed_pongs {
                let missed = self.missed;
                return Some(Beat::Stopped { missed });
            }
        }
        if now < self.next_ping {
            return None;
        }
        self.next_ping = now + timing.ping_interval;
        self.sent += 1;
        self.pending_until.get_or_insert(now + timing.pong);
        Some(Beat::Ping(self.sent))
    }

    /// A late answer is a sign of life, too; an answer to no ping is not.
    pub(super) fn answer(&mut self, seq: u64) -> Reaction {
        if seq == 0 || seq > self.sent {
            return Reaction::Warn;
        }
        self.missed = 0;
        self.pending_until = None;
        Reaction::Nothing
    }

    pub(super) fn next(&self) -> Duration {
        self.pending_until
            .map_or(self.next_ping, |until| until.min(self.next_ping))
    }

    pub(super) fn postpone(&mut self, by: Duration) {
        self.next_ping += by;
        if let Some(until) = &mut self.pending_until {
            *until += by;
        }
    }
}
