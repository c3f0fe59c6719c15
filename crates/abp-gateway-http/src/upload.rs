//! Bodies that are read while they arrive.

use std::time::{Duration, Instant};

use abp_error::ErrorCode;
use abp_gateway::Refusal;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

/// The slowest an upload may be, in bytes per second, once its first deadline has passed.
const MIN_RATE: u64 = 64 << 10;

/// The body of an upload, bounded in length and time.
#[derive(Debug)]
pub struct UploadBody {
    incoming: Incoming,
    limit: u64,
    received: u64,
    deadline: Duration,
    started: Instant,
}

impl UploadBody {
    /// A body of at most `limit` bytes.
    ///
    /// # Errors
    /// Refuses a body that announces more.
    pub(crate) fn new(incoming: Incoming, limit: u64, deadline: Duration) -> Result<Self, Refusal> {
        let body = Self {
            incoming,
            limit,
            received: 0,
            deadline,
            started: Instant::now(),
        };
        match body.incoming.size_hint().lower() > limit {
            true => Err(body.too_large()),
            false => Ok(body),
        }
    }

    /// The length that the head announced, where it did.
    #[must_use]
    pub fn announced(&self) -> Option<u64> {
        self.incoming.size_hint().exact()
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// Refuses a body that is too long or too slow, and one that breaks off.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            let allowed = self.deadline + Duration::from_secs(self.received / MIN_RATE);
            let left = allowed.saturating_sub(self.started.elapsed());
            let Ok(frame) = tokio::time::timeout(left, self.incoming.frame()).await else {
                let message = "the body did not arrive in time";
                return Err(Refusal::new(ErrorCode::RequestTimeout, message));
            };
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| {
                let message = format!("the body did not arrive: {error}");
                Refusal::new(ErrorCode::RequestTimeout, message)
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            self.received = self.received.saturating_add(data.len() as u64);
            if self.received > self.limit {
                return Err(self.too_large());
            }
            return Ok(Some(data));
        }
    }

    fn too_large(&self) -> Refusal {
        let message = format!("the body is longer than {} bytes", self.limit);
        Refusal::new(ErrorCode::RequestTooLarge, message)
    }
}
