//! One-time codes: a way for `abp ui` to open the console without a key on a command line.
//!
//! A caller with a key gets a random code that is good once and for a minute; whoever shows the code gets the
//! key. Codes live in memory only, by their hash, so a restart ends them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use abp_control::new_key;
use abp_error::ErrorCode;
use abp_gateway::{Refusal, current_time, key_hash};
use abp_store::KeyScope;
use http::{HeaderMap, Method, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};

use crate::api::{OneTimeCode, RedeemedKey};
use crate::call::{Call, json_reply};
use crate::face::Face;
use crate::query::NoQuery;
use crate::table::{HandlerFuture, RequestDoc, RouteRow, schema_of};

/// The time that a code is good.
const LIFETIME: Duration = Duration::from_secs(60);
/// The most codes that are good at once.
const MAX_CODES: usize = 64;
/// The header that shows a code.
const HEADER: &str = "x-abp-code";

pub(crate) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::raw(
            Method::POST,
            "/codes",
            KeyScope::RunsRead,
            "create_code",
            "Makes a code that stands for the caller's key, once and for 60 seconds.",
            create,
        )
        .takes(RequestDoc::Json(schema_of::<NoQuery>))
        .answers_json::<OneTimeCode>(StatusCode::CREATED, "the code"),
        RouteRow::raw(
            Method::POST,
            "/codes/redeem",
            KeyScope::RunsRead,
            "redeem_code",
            "Returns the key that a one-time code stands for, and forgets the code.",
            create,
        )
        .open(redeem)
        .takes_header(HEADER, "the code")
        .answers_json::<RedeemedKey>(StatusCode::OK, "the key"),
    ]
}

/// The codes that are good, by their hashes.
#[derive(Debug, Default)]
pub(crate) struct OneTimeCodes {
    good: Mutex<HashMap<[u8; 32], (SecretString, Instant)>>,
}

impl OneTimeCodes {
    /// Remembers a key under a code.
    fn add(&self, code: &SecretString, key: SecretString, now: Instant) -> Result<(), Refusal> {
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        good.retain(|_, (_, made)| now.saturating_duration_since(*made) < LIFETIME);
        if good.len() >= MAX_CODES {
            let message = "too many one-time codes are good; retry in 60 s";
            let refusal = Refusal::new(ErrorCode::RateLimitExceeded, message);
            return Err(refusal.retry_after(LIFETIME));
        }
        good.insert(key_hash(code.expose_secret().as_bytes()), (key, now));
        Ok(())
    }

    /// Returns the key of a code that is good, and forgets the code.
    fn take(&self, code: &str, now: Instant) -> Option<SecretString> {
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        let (key, made) = good.remove(&key_hash(code.as_bytes()))?;
        (now.saturating_duration_since(made) < LIFETIME).then_some(key)
    }
}

async fn create(call: Call) -> Result<abp_gateway_http::HttpReply, Refusal> {
    call.query::<NoQuery>()?;
    call.body::<NoQuery>()?;
    let shown = call.header("authorization")?;
    let key = shown
        .and_then(|shown| shown.split_once(' '))
        .map(|(_, key)| key.trim());
    let Some(key) = key else {
        let message = "a code is made for the key of an authorization header";
        return Err(Refusal::new(ErrorCode::ValidationFailed, message).at("authorization"));
    };
    let code = new_key()?;
    let key = SecretString::from(key.to_owned());
    call.face.codes().add(&code, key, Instant::now())?;
    let millis = u64::try_from(LIFETIME.as_millis()).unwrap_or(u64::MAX);
    let answer = OneTimeCode {
        code: code.expose_secret().to_owned(),
        expires_at: current_time().plus_millis(millis),
    };
    json_reply(StatusCode::CREATED, &answer)
}

fn redeem(face: Arc<Face>, headers: HeaderMap) -> HandlerFuture {
    Box::pin(async move {
        let code = headers.get(HEADER).and_then(|value| value.to_str().ok());
        let key = code.and_then(|code| face.codes().take(code, Instant::now()));
        let Some(key) = key else {
            let message = "the one-time code was used before, or is older than 60 seconds";
            return Err(Refusal::new(ErrorCode::Unauthenticated, message));
        };
        let key = key.expose_secret().to_owned();
        json_reply(StatusCode::OK, &RedeemedKey { key })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> SecretString {
        SecretString::from(text.to_owned())
    }

    #[test]
    fn a_code_is_good_once_and_for_a_minute() {
        let codes = OneTimeCodes::default();
        let start = Instant::now();
        let taken = |code: &str, after: u64| {
            let now = start + Duration::from_secs(after);
            let key = codes.take(code, now);
            key.map(|key| key.expose_secret().to_owned())
        };
        codes.add(&secret("one"), secret("key"), start).unwrap();
        codes.add(&secret("two"), secret("key"), start).unwrap();
        assert_eq!(taken("none", 1), None);
        assert_eq!(taken("one", 59).as_deref(), Some("key"));
        assert_eq!(taken("one", 59), None, "used before");
        assert_eq!(taken("two", 60), None, "too old");
    }

    #[test]
    fn the_number_of_codes_is_bounded_and_old_ones_make_room() {
        let codes = OneTimeCodes::default();
        let start = Instant::now();
        for number in 0..MAX_CODES {
            let code = secret(&number.to_string());
            codes.add(&code, secret("key"), start).unwrap();
        }
        assert!(codes.add(&secret("more"), secret("key"), start).is_err());
        let later = start + LIFETIME;
        codes.add(&secret("more"), secret("key"), later).unwrap();
    }
}
