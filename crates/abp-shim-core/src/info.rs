//! What the gateway tells of an exchange.

use std::time::{Duration, SystemTime};

use abp_backend_core::retry_after;
use abp_core::ExecutionMode;
use abp_translate::FidelityLevel;
use http::{HeaderMap, StatusCode};
use uuid::Uuid;

/// What the gateway did for an answer. Everything is empty where none was on the way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AbpInfo {
    /// The exchange, under which its receipt is kept.
    pub run_id: Option<Uuid>,
    /// The upstream that answered.
    pub backend: Option<String>,
    /// Whether the documents passed as they are.
    pub mode: Option<ExecutionMode>,
    /// Whether everything arrived. Of a stream it is known of the request only, until it has ended.
    pub fidelity: Option<FidelityLevel>,
    /// How much did not.
    pub losses: u64,
    /// What was made up for.
    pub emulated: Vec<String>,
    /// The code of an error that is the gateway's own.
    pub error_code: Option<String>,
}

impl AbpInfo {
    fn of(headers: &HeaderMap) -> Self {
        let (fidelity, losses) = text(headers, "x-abp-fidelity").map_or((None, 0), fidelity);
        let emulated = text(headers, "x-abp-emulated").unwrap_or_default();
        Self {
            run_id: text(headers, "x-abp-run-id").and_then(|id| id.parse().ok()),
            backend: text(headers, "x-abp-backend").map(str::to_owned),
            mode: text(headers, "x-abp-mode").and_then(|mode| match mode {
                "passthrough" => Some(ExecutionMode::Passthrough),
                "mapped" => Some(ExecutionMode::Mapped),
                _ => None,
            }),
            fidelity,
            losses,
            emulated: emulated
                .split(',')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
            error_code: text(headers, "x-abp-error").map(str::to_owned),
        }
    }

    /// Takes a comment of a stream, by which the gateway tells what became of the answer. Where the bytes
    /// are the vendor's own, their comments say nothing about the gateway.
    pub(crate) fn hear(&mut self, comment: &str) {
        let told = comment.trim().strip_prefix("x-abp-fidelity:");
        if let Some(told) = told.filter(|_| self.mode == Some(ExecutionMode::Mapped)) {
            (self.fidelity, self.losses) = fidelity(told.trim());
        }
    }
}

/// Reads `lossless`, `lossy;n=2;meaning=1` or `unsupported;n=1;meaning=1`.
fn fidelity(value: &str) -> (Option<FidelityLevel>, u64) {
    let mut parts = value.split(';');
    let word = parts.next().unwrap_or_default();
    let count = parts.find_map(|part| part.strip_prefix("n="));
    let count = count.unwrap_or("0");
    let level = match word {
        "lossless" => Some(FidelityLevel::Lossless),
        "lossy" => Some(FidelityLevel::LossyLabeled),
        "unsupported" => Some(FidelityLevel::Unsupported),
        _ => None,
    };
    (level, count.parse().unwrap_or_default())
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// What is known of an answer before its body.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) abp: AbpInfo,
    pub(crate) request_id: Option<String>,
    pub(crate) retry_after: Option<Duration>,
}

impl Head {
    pub(crate) fn of(status: StatusCode, headers: &HeaderMap) -> Self {
        let request_id = ["x-request-id", "request-id"]
            .iter()
            .find_map(|name| text(headers, name));
        Self {
            status,
            abp: AbpInfo::of(headers),
            request_id: request_id.map(str::to_owned),
            retry_after: retry_after(headers, SystemTime::now()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fidelity_is_read_as_it_is_told() {
        let cases = [
            ("lossless", (Some(FidelityLevel::Lossless), 0)),
            ("lossy;n=12", (Some(FidelityLevel::LossyLabeled), 12)),
            (
                "lossy;n=12;meaning=3",
                (Some(FidelityLevel::LossyLabeled), 12),
            ),
            ("unsupported;n=1", (Some(FidelityLevel::Unsupported), 1)),
            ("perfect", (None, 0)),
        ];
        for (value, expected) in cases {
            assert_eq!(fidelity(value), expected, "{value}");
        }
    }

    #[test]
    fn only_the_gateways_own_comments_are_heard() {
        let told = " x-abp-fidelity: lossy;n=3";
        let cases = [
            (ExecutionMode::Mapped, told, 3),
            (ExecutionMode::Mapped, " keep-alive", 0),
            (ExecutionMode::Passthrough, told, 0),
        ];
        for (mode, comment, losses) in cases {
            let mut info = AbpInfo {
                mode: Some(mode),
                ..AbpInfo::default()
            };
            info.hear(comment);
            assert_eq!(info.losses, losses, "{mode:?} {comment}");
        }
    }
}
