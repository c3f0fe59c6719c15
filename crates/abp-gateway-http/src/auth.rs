//! Who asks: the key, wherever a vendor's client sends it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use abp_error::ErrorCode;
use abp_gateway::{CallerKeys, Principal, Refusal, current_time};
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, HeaderName};

/// How many wrong keys a peer may send before it has to wait.
const PATIENCE: u32 = 20;
/// How long it then waits, and after how long wrong keys are forgotten.
const REST: Duration = Duration::from_secs(30);
/// What stands before a key that is shown as a subprotocol.
const KEY_PROTOCOL: &str = "abp.key.";
/// How many peers are remembered.
const MAX_PEERS: usize = 1024;

/// Remembers who sent wrong keys.
#[derive(Debug, Default)]
pub(crate) struct Doorkeeper {
    /// Somebody did; otherwise nothing has to be looked up.
    suspicious: AtomicBool,
    peers: Mutex<HashMap<IpAddr, (u32, Instant)>>,
}

impl Doorkeeper {
    /// The principal of a request whose key is known.
    pub(crate) fn known(
        keys: &CallerKeys,
        headers: &HeaderMap,
        query_key: Option<&str>,
    ) -> Option<Arc<Principal>> {
        let key = credential(headers).or(query_key)?;
        keys.find(key.as_bytes(), current_time()).ok()
    }

    /// Finds out who asks. A key in the query is taken only where a vendor's clients put it there.
    pub(crate) fn admit(
        &self,
        keys: &CallerKeys,
        headers: &HeaderMap,
        query_key: Option<&str>,
        peer: IpAddr,
    ) -> Result<Arc<Principal>, Refusal> {
        let Some(key) = credential(headers).or(query_key) else {
            return Err(Refusal::new(ErrorCode::Unauthenticated, "there is no key"));
        };
        // All callers of this machine, or behind one proxy, are the same peer: who has a key is let in,
        // whatever others send.
        let wrong = match keys.find(key.as_bytes(), current_time()) {
            Ok(principal) => return Ok(principal),
            Err(wrong) => wrong,
        };
        self.check(peer)?;
        self.count_wrong(peer);
        Err(wrong)
    }

    /// Refuses a peer that sent too many wrong keys.
    pub(crate) fn check(&self, peer: IpAddr) -> Result<(), Refusal> {
        let Some(wait) = self.must_wait(peer, Instant::now()) else {
            return Ok(());
        };
        let message = "too many wrong keys came from this address";
        Err(Refusal::new(ErrorCode::RateLimitExceeded, message).retry_after(wait))
    }

    /// Remembers that a peer sent a wrong key.
    pub(crate) fn count_wrong(&self, peer: IpAddr) {
        self.wrong(peer, Instant::now());
    }

    fn must_wait(&self, peer: IpAddr, now: Instant) -> Option<Duration> {
        if !self.suspicious.load(Ordering::Relaxed) {
            return None;
        }
        let peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, since) = peers.get(&peer)?;
        let passed = now.saturating_duration_since(*since);
        (*count >= PATIENCE && passed < REST).then(|| REST.saturating_sub(passed))
    }

    fn wrong(&self, peer: IpAddr, now: Instant) {
        self.suspicious.store(true, Ordering::Relaxed);
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if peers.len() >= MAX_PEERS && !peers.contains_key(&peer) {
            peers.retain(|_, (_, since)| now.saturating_duration_since(*since) < REST);
            if peers.len() >= MAX_PEERS {
                return;
            }
        }
        let (count, since) = peers.entry(peer).or_insert((0, now));
        if now.saturating_duration_since(*since) >= REST {
            (*count, *since) = (0, now);
        }
        *count = count.saturating_add(1);
    }
}

/// The key in the headers.
fn credential(headers: &HeaderMap) -> Option<&str> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok();
    let bearer = text(AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    bearer
        .or_else(|| text(HeaderName::from_static("x-api-key")))
        .or_else(|| text(HeaderName::from_static("x-goog-api-key")))
}

/// The key that a browser shows among the subprotocols of a WebSocket.
pub(crate) fn protocol_key(headers: &HeaderMap) -> Option<&str> {
    let offers = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let offers = offers.filter_map(|value| value.to_str().ok());
    offers
        .flat_map(|offers| offers.split(','))
        .find_map(|offer| offer.trim().strip_prefix(KEY_PROTOCOL))
}

/// Splits a query into the key in it and the rest, which is what may be seen.
pub(crate) fn split_query(query: Option<&str>) -> (Option<String>, Option<String>) {
    let Some(query) = query else {
        return (None, None);
    };
    let mut key = None;
    let rest: Vec<&str> = query
        .split('&')
        .filter(|pair| match pair.split_once('=') {
            Some(("key", value)) => {
                key = Some(value.to_owned());
                false
            }
            _ => !pair.is_empty(),
        })
        .collect();
    let rest = rest.join("&");
    (key, (!rest.is_empty()).then_some(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_never_stays_in_the_query() {
        let cases = [
            ("key=abc", Some("abc"), None),
            ("alt=sse&key=abc", Some("abc"), Some("alt=sse")),
            ("key=a&alt=sse&key=b", Some("b"), Some("alt=sse")),
            ("beta=true", None, Some("beta=true")),
            ("keys=1&&", None, Some("keys=1")),
        ];
        for (query, key, rest) in cases {
            let found = split_query(Some(query));
            let expected = (key.map(str::to_owned), rest.map(str::to_owned));
            assert_eq!(found, expected, "{query}");
        }
    }

    /// A14: wrong keys are counted for a bounded number of peers, and slow the peer down.
    #[test]
    fn a14_wrong_keys_are_waited_for() {
        let door = Doorkeeper::default();
        let keys = CallerKeys::default();
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", http::HeaderValue::from_static("wrong"));
        let peer = IpAddr::from([127, 0, 0, 1]);
        let codes: Vec<_> = (0..30)
            .map(|_| {
                door.admit(&keys, &headers, None, peer)
                    .expect_err("wrong")
                    .error
                    .code()
            })
            .collect();
        assert!(
            codes[..20]
                .iter()
                .all(|code| *code == ErrorCode::Unauthenticated)
        );
        assert!(
            codes[20..]
                .iter()
                .all(|code| *code == ErrorCode::RateLimitExceeded)
        );
        for number in 0..5000_u32 {
            let peer = IpAddr::from(number.to_be_bytes());
            assert!(door.admit(&keys, &headers, None, peer).is_err());
        }
        assert!(door.peers.lock().expect("peers").len() <= MAX_PEERS);
    }
}
