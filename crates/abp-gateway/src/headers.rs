//! Which headers go where. What is not on a list goes nowhere.

use std::borrow::Cow;

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

use abp_core::{EmulationReport, ExecutionMode};
use abp_translate::{FidelityLevel, LossCount};

/// What of a caller's headers goes to an upstream of the same dialect.
pub static FORWARDED: [HeaderName; 7] = [
    ACCEPT,
    HeaderName::from_static("anthropic-beta"),
    HeaderName::from_static("anthropic-version"),
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("openai-beta"),
    TRACE_PARENT,
    TRACE_STATE,
];

pub(crate) const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACE_STATE: HeaderName = HeaderName::from_static("tracestate");

/// What of a caller's headers goes to an upstream of another dialect.
static ALWAYS_FORWARDED: [HeaderName; 2] = [TRACE_PARENT, TRACE_STATE];

/// Room for what comes back and for what is added to it.
const USUAL_HEADERS: usize = 16;

/// What of an upstream's headers goes to the caller.
const RETURNED: [&str; 6] = [
    "content-type",
    "openai-processing-ms",
    "openai-version",
    "request-id",
    "retry-after",
    "x-request-id",
];

/// And whatever starts like this.
const RETURNED_FAMILIES: [&str; 3] = ["anthropic-ratelimit-", "x-ratelimit-", "x-should-retry"];

/// Which headers are looked at and go no further.
pub const CONSUMED: [&str; 9] = [
    "authorization",
    "x-abp-on-loss",
    "x-affinity",
    "x-api-key",
    "x-goog-api-key",
    "x-session-affinity",
    "session_id",
    "host",
    "origin",
];

/// What of a caller's headers goes along.
pub(crate) fn forwarded(headers: &HeaderMap, same_dialect: bool) -> HeaderMap {
    let names: &[HeaderName] = if same_dialect {
        &FORWARDED
    } else {
        &ALWAYS_FORWARDED
    };
    let mut kept = HeaderMap::new();
    for name in names {
        for value in headers.get_all(name) {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// What of an upstream's headers goes to a caller; `translated` where the body is another one.
pub(crate) fn returned(headers: &HeaderMap, translated: bool) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(USUAL_HEADERS);
    for (name, value) in headers {
        let listed = RETURNED.contains(&name.as_str())
            || RETURNED_FAMILIES
                .iter()
                .any(|family| name.as_str().starts_with(family));
        let of_body = *name == CONTENT_TYPE;
        if listed && !(translated && of_body) {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// The headers by which clients say which conversation a request belongs to.
static SESSION: [HeaderName; 3] = [
    HeaderName::from_static("x-session-affinity"),
    HeaderName::from_static("x-affinity"),
    HeaderName::from_static("session_id"),
];

/// What tells one conversation from others.
pub(crate) fn session(headers: &HeaderMap) -> Option<&str> {
    SESSION
        .iter()
        .find_map(|name| headers.get(name)?.to_str().ok())
}

pub(crate) const ERROR: HeaderName = HeaderName::from_static("x-abp-error");
pub(crate) const RUN_ID: HeaderName = HeaderName::from_static("x-abp-run-id");
pub(crate) const BACKEND: HeaderName = HeaderName::from_static("x-abp-backend");
pub(crate) const MODE: HeaderName = HeaderName::from_static("x-abp-mode");
const FIDELITY: HeaderName = HeaderName::from_static("x-abp-fidelity");
const EMULATED: HeaderName = HeaderName::from_static("x-abp-emulated");

/// How true an exchange was, as the headers tell it.
pub(crate) struct Truth<'t> {
    pub(crate) run_id: Uuid,
    pub(crate) backend: &'t str,
    pub(crate) mode: ExecutionMode,
    pub(crate) fidelity: FidelityLevel,
    pub(crate) losses: LossCount,
    pub(crate) emulated: &'t [String],
}

impl Truth<'_> {
    /// Tells it.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        let mode = match self.mode {
            ExecutionMode::Passthrough => "passthrough",
            ExecutionMode::Mapped => "mapped",
        };
        let mut text = Uuid::encode_buffer();
        insert(
            headers,
            RUN_ID,
            self.run_id.as_hyphenated().encode_lower(&mut text),
        );
        insert(headers, BACKEND, self.backend);
        headers.insert(MODE, HeaderValue::from_static(mode));
        insert(headers, FIDELITY, &fidelity(self.fidelity, self.losses));
        if !self.emulated.is_empty() {
            insert(headers, EMULATED, &self.emulated.join(","));
        }
    }
}

/// How true an exchange was: `lossless`, or how much was lost and how much of that is meaning.
fn fidelity(level: FidelityLevel, losses: LossCount) -> Cow<'static, str> {
    let word = match level {
        FidelityLevel::Lossless => return "lossless".into(),
        FidelityLevel::LossyLabeled => "lossy",
        FidelityLevel::Unsupported => "unsupported",
    };
    format!("{word};n={};meaning={}", losses.total(), losses.meaning).into()
}

/// The header as a line at the end of a stream, when it is known what became of the answer.
pub(crate) fn late_fidelity(level: FidelityLevel, losses: LossCount) -> String {
    format!("{FIDELITY}: {}", fidelity(level, losses))
}

/// What was emulated, by name.
pub(crate) fn emulated(report: &EmulationReport) -> Vec<String> {
    let applied = report.applied.iter();
    applied
        .map(|entry| entry.capability.as_str().to_owned())
        .collect()
}

/// When to come again, in whole seconds and at least one.
pub(crate) fn retry_after(headers: &mut HeaderMap, wait: std::time::Duration) {
    let seconds = wait.as_millis().div_ceil(1000).max(1);
    insert(headers, RETRY_AFTER, &seconds.to_string());
}

/// Sets a header; a value that no header can carry is left out.
pub(crate) fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
