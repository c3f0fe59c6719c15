//! The time-outs of one exchange, on one timer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use abp_backend_core::UpstreamError;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::Timeouts;

/// Longer than any exchange, and still a time that can be reckoned with.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);

/// What an exchange waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wait {
    /// The head of the answer, once the connection stands.
    Answer,
    /// The next part of the answer.
    Part,
}

/// Watches over the time that an exchange takes.
///
/// A stream has thousands of parts, so its timer is not touched by them: it is left to go off, and
/// only then set to when the current wait really ends.
#[derive(Debug)]
pub(crate) struct Deadline {
    timeouts: Timeouts,
    total: Instant,
    waiting: Option<(Wait, Instant)>,
    timer: Pin<Box<Sleep>>,
}

impl Deadline {
    pub(crate) fn start(timeouts: Timeouts) -> Self {
        let total = Instant::now() + timeouts.total.min(FAR);
        Self {
            timeouts,
            total,
            waiting: None,
            timer: Box::pin(sleep_until(total)),
        }
    }

    /// From now on this is waited for; nothing changes where something is already.
    pub(crate) fn wait_for(&mut self, wait: Wait) {
        if self.waiting.is_some() {
            return;
        }
        let ends = Instant::now() + self.limit(wait).min(FAR);
        self.waiting = Some((wait, ends));
        if ends < self.timer.deadline() {
            self.timer.as_mut().reset(ends);
        }
    }

    /// What was waited for has come.
    ///
    /// # Errors
    /// Fails where the whole took too long, which nobody notices who never has to wait.
    pub(crate) fn came(&mut self) -> Result<(), UpstreamError> {
        self.waiting = None;
        if self.timer.is_elapsed() && Instant::now() >= self.total {
            return Err(self.total_error());
        }
        Ok(())
    }

    /// Ready with the time-out that was reached.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<UpstreamError> {
        loop {
            ready!(self.timer.as_mut().poll(context));
            let now = Instant::now();
            if now >= self.total {
                return Poll::Ready(self.total_error());
            }
            let mut next = self.total;
            if let Some((wait, ends)) = self.waiting {
                if now >= ends {
                    return Poll::Ready(self.error(wait));
                }
                next = next.min(ends);
            }
            self.timer.as_mut().reset(next);
        }
    }

    fn limit(&self, wait: Wait) -> Duration {
        match wait {
            Wait::Answer => self.timeouts.first_byte,
            Wait::Part => self.timeouts.idle,
        }
    }

    fn error(&self, wait: Wait) -> UpstreamError {
        let limit_ms = milliseconds(self.limit(wait));
        match wait {
            Wait::Answer => UpstreamError::FirstByteTimeout { limit_ms },
            Wait::Part => UpstreamError::Stalled { limit_ms },
        }
    }

    fn total_error(&self) -> UpstreamError {
        UpstreamError::TotalTimeout {
            limit_ms: milliseconds(self.timeouts.total),
        }
    }
}

pub(crate) fn milliseconds(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
}
