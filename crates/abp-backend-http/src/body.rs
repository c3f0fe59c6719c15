//! The body of an answer, as it comes from the connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use abp_backend_core::UpstreamError;
use bytes::Bytes;
use futures_core::Stream;
use http_body::{Body as _, Frame};
use hyper::body::Incoming;

use crate::deadline::{Deadline, Wait};
use crate::pool::{Line, Pool};

/// The parts of an answer, each as it lies in the connection's buffer.
pub(crate) struct AnswerBody {
    /// `None` after the end. Dropping it before the end closes the connection.
    source: Option<Source>,
    pool: Arc<Pool>,
    deadline: Deadline,
    bound: Option<Bound>,
}

/// Where an answer comes from.
pub(crate) struct Source {
    pub(crate) incoming: Incoming,
    pub(crate) line: Box<Line>,
}

impl Source {
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self { incoming, line } = self;
        line.poll_through(context, |context| {
            Pin::new(&mut *incoming).poll_frame(context)
        })
    }
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
        source: Source,
        pool: Arc<Pool>,
        deadline: Deadline,
        bound: Option<Bound>,
    ) -> Self {
        Self {
            source: Some(source),
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
        let Some(source) = &mut self.source else {
            return Poll::Ready(Ok(None));
        };
        loop {
            let Poll::Ready(frame) = source.poll_frame(context) else {
                self.deadline.wait_for(Wait::Part);
                return Poll::Ready(Err(ready!(self.deadline.poll(context))));
            };
            let Some(frame) = frame else {
                return Poll::Ready(Ok(None));
            };
            let frame = frame.map_err(|error| UpstreamError::Broken(error.to_string()))?;
            self.deadline.came()?;
            // Trailers are of no use to anybody here.
            let Ok(part) = frame.into_data() else {
                continue;
            };
            if let Some(bound) = &mut self.bound {
                bound.take(part.len())?;
            }
            return Poll::Ready(Ok(Some(part)));
        }
    }
}

impl Stream for AnswerBody {
    type Item = Result<Bytes, UpstreamError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let part = ready!(self.poll_part(context)).transpose();
        match part {
            Some(Ok(_)) => {}
            Some(Err(_)) => self.source = None,
            None => {
                if let Some(source) = self.source.take() {
                    self.pool.give_back(source.line);
                }
            }
        }
        Poll::Ready(part)
    }
}
