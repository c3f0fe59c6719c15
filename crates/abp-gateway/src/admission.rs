//! Letting requests in, before anything of their bodies is read.
//!
//! Every request of a key passes here, whatever it is for: it is counted against the key's rate, it takes
//! a place among all requests, and its body takes room in memory as it is announced or arrives. What it
//! took is given back when the request ends.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use abp_error::ErrorCode;

use crate::lock::lock;
use crate::pool::{NoRoom, Pool, Share};
use crate::{Principal, Refusal};

/// The part of a body that takes room at once where its length is not announced.
const STEP: u64 = 64 << 10;

/// A request that was let in. There is no other way to ask a gateway for anything.
#[derive(Debug)]
pub struct Admission {
    principal: Arc<Principal>,
    /// Until the exchange takes it over, which may outlast the request's body.
    place: Mutex<Option<Share>>,
    body: Share,
}

/// The place of a request among all requests, given back when it is dropped.
#[derive(Debug)]
pub struct RequestPlace {
    _share: Share,
}

/// The pools that all requests share.
#[derive(Debug)]
pub(crate) struct Pools {
    places: Arc<Pool>,
    bodies: Arc<Pool>,
}

impl Pools {
    pub(crate) fn new(max_concurrent: usize, max_body_bytes: u64) -> Self {
        Self {
            places: Pool::new(max_concurrent as u64),
            bodies: Pool::new(max_body_bytes),
        }
    }

    /// Lets a request in.
    pub(crate) fn admit(&self, principal: &Arc<Principal>) -> Result<Admission, Refusal> {
        principal.count_request(Instant::now())?;
        let place = self.places.take(principal, 1, principal.max_concurrent);
        let place = place.map_err(|problem| full(problem, "requests"))?;
        let body = self.bodies.take(principal, 0, None);
        let body = body.map_err(|problem| full(problem, "bytes of request bodies"))?;
        Ok(Admission {
            principal: Arc::clone(principal),
            place: Mutex::new(Some(place)),
            body,
        })
    }
}

impl Admission {
    /// The caller.
    #[must_use]
    pub fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    /// Takes room for a body of this length in all, a step ahead where it grows.
    ///
    /// # Errors
    /// Refuses where the key, or all keys together, hold as much as they may.
    pub fn hold_body(&mut self, length: u64) -> Result<(), Refusal> {
        let held = self.body.amount();
        if length <= held {
            return Ok(());
        }
        let more = match held {
            0 => length,
            held => (length - held).max(STEP),
        };
        let grown = self.body.grow(more, None);
        grown.map_err(|problem| full(problem, "bytes of request bodies"))
    }

    /// The place, for an answer that outlasts the request.
    #[must_use]
    pub fn place(&self) -> Option<RequestPlace> {
        let share = lock(&self.place).take();
        share.map(|share| RequestPlace { _share: share })
    }
}

/// The refusal of a request for which a pool has no room. The caller's own doing is a 429, anything else
/// is not for it to change.
pub(crate) fn full(problem: NoRoom, what: &str) -> Refusal {
    let (code, message) = match problem {
        NoRoom::OfKey => (
            ErrorCode::RateLimitExceeded,
            format!("the key has as many {what} under way as it may have"),
        ),
        NoRoom::OfAll => (
            ErrorCode::Overloaded,
            format!("there are as many {what} under way as are taken at once"),
        ),
    };
    Refusal::new(code, message).retry_after(Duration::from_secs(1))
}
