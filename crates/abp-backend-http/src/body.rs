//! The body of an answer, as it comes from the connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use abp_backend_core::UpstreamError;
use bytes::Bytes;
use futures_core::Stream;

use crate::deadline::{Deadline, Wait};
use crate::pool::{Line, Pool};

/// The parts of an answer, each as it lies in the connection's buffer.
pub(crate) struct AnswerBody {
    /// `None` after the end. Dropping it before the end closes the connection.
    line: Option<Box<Line>>,
    pool: Arc<Pool>,
    deadline: Deadline,
    bound: Option<Bound>,
}

/// How much more is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    limit: usize,
    left: usize,
}

impl Bound {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, left: limit }
    }

    fn take(&mut self, length: usize) -> Result<(), UpstreamError> {
        let limit = self.limit;
        self.left = self
            .left
            .checked_sub(length)
            .ok_or(UpstreamError::TooLong { limit })?;
        Ok(())
    }
}

impl AnswerBody {
    pub(crate) fn new(
        line: Box<Line>,
        pool: Arc<Pool>,
        deadline: Deadline,
        bound: Option<Bound>,
    ) -> Self {
        Self {
            line: Some(line),
            pool,
            deadline,
            bound,
        }
    }

    /// The next part, counted; `None` at the end.
    fn poll_part(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, UpstreamError>> {
        let Some(line) = &mut self.line else {
            return Poll::Ready(Ok(None));
        };
        let Poll::Ready(part) = line.poll_part(context) else {
            self.deadline.wait_for(Wait::Part);
            return Poll::Ready(Err(ready!(self.deadline.poll(context))));
        };
        let part = part.map_err(|error| UpstreamError::Broken(error.to_string()))?;
        if let Some(part) = &part {
            self.deadline.came()?;
            if let Some(bound) = &mut self.bound {
                bound.take(part.len())?;
            }
        }
        Poll::Ready(Ok(part))
    }
}

impl Stream for AnswerBody {
    type Item = Result<Bytes, UpstreamError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let part = ready!(self.poll_part(context)).transpose();
        match part {
            Some(Ok(_)) => {}
            Some(Err(_)) => self.line = None,
            None => {
                if let Some(line) = self.line.take() {
                    self.pool.give_back(line);
                }
            }
        }
        Poll::Ready(part)
    }
}
