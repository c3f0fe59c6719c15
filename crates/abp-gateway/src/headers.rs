//! Which headers go where. What is not on a list goes nowhere.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

use abp_core::{EmulationReport, ExecutionMode};
use abp_translate::FidelityLevel;

/// What of a caller's headers goes to an upstream of the same dialect.
pub const FORWARDED: [&str; 7] = [
    "accept",
    "anthropic-beta",
    "anthropic-version",
    "idempotency-key",
    "openai-beta",
    "traceparent",
    "tracestate",
];

/// What of a caller's headers goes to an upstream of another dialect.
const ALWAYS_FORWARDED: [&str; 2] = ["traceparent", "tracestate"];

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
    let names: &[&str] = if same_dialect {
        &FORWARDED
    } else {
        &ALWAYS_FORWARDED
    };
    let mut kept = HeaderMap::new();
    for name in names {
        for value in headers.get_all(*name) {
            kept.append(HeaderName::from_static(name), value.clone());
        }
    }
    kept
}

/// What of an upstream's headers goes to a caller; `translated` where the body is another one.
pub(crate) fn returned(headers: &HeaderMap, translated: bool) -> HeaderMap {
    let mut kept = HeaderMap::new();
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

/// What tells one conversation from others.
pub(crate) fn session(headers: &HeaderMap) -> Option<&str> {
    ["x-session-affinity", "x-affinity", "session_id"]
        .iter()
        .find_map(|name| headers.get(*name)?.to_str().ok())
}

/// How true an exchange was, as the headers tell it.
pub(crate) struct Truth<'t> {
    pub(crate) run_id: Uuid,
    pub(crate) backend: &'t str,
    pub(crate) mode: ExecutionMode,
    pub(crate) fidelity: FidelityLevel,
    pub(crate) losses: usize,
    pub(crate) emulated: &'t [String],
}

impl Truth<'_> {
    /// Tells it.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        let mode = match self.mode {
            ExecutionMode::Passthrough => "passthrough",
            ExecutionMode::Mapped => "mapped",
        };
        let fidelity = match self.fidelity {
            FidelityLevel::Lossless => "lossless".to_owned(),
            FidelityLevel::LossyLabeled => format!("lossy;n={}", self.losses),
            FidelityLevel::Unsupported => format!("unsupported;n={}", self.losses),
        };
        insert(headers, "x-abp-run-id", &self.run_id.to_string());
        insert(headers, "x-abp-backend", self.backend);
        insert(headers, "x-abp-mode", mode);
        insert(headers, "x-abp-fidelity", &fidelity);
        if !self.emulated.is_empty() {
            insert(headers, "x-abp-emulated", &self.emulated.join(","));
        }
    }
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
    insert(headers, RETRY_AFTER.as_str(), &seconds.to_string());
}

/// Sets a header; a value that no header can carry is left out.
pub(crate) fn insert(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}
