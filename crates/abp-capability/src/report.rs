//! A negotiation result in words.

use abp_core::{McpFlagLevel, McpNegotiationReport, NegotiationResult};
use serde::{Deserialize, Serialize};

use crate::negotiate::{BACKEND_STRATEGY, SupportLevel};

/// A human-readable summary of a negotiation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompatibilityReport {
    /// Whether nothing is unsupported.
    pub compatible: bool,
    /// How many are native.
    pub native_count: usize,
    /// How many are emulatable.
    pub emulated_count: usize,
    /// How many are unsupported.
    pub unsupported_count: usize,
    /// All of that in one line.
    pub summary: String,
    /// Each capability with its level, in the order native, emulatable, unsupported.
    pub details: Vec<(String, SupportLevel)>,
}

impl CompatibilityReport {
    /// The report of capabilities with their levels.
    #[must_use]
    pub fn of(mut details: Vec<(String, SupportLevel)>) -> Self {
        details.sort_by_key(|(_, level)| rank(level));
        let count = |wanted| {
            let of_rank = details.iter().filter(|(_, level)| rank(level) == wanted);
            of_rank.count()
        };
        let (native, emulated, unsupported) = (count(0), count(1), count(2));
        let compatible = unsupported == 0;
        let verdict = if compatible {
            "fully compatible"
        } else {
            "incompatible"
        };
        Self {
            compatible,
            native_count: native,
            emulated_count: emulated,
            unsupported_count: unsupported,
            summary: format!(
                "{native} native, {emulated} emulatable, {unsupported} unsupported — {verdict}"
            ),
            details,
        }
    }
}

/// The order of a report.
fn rank(level: &SupportLevel) -> u8 {
    match level {
        SupportLevel::Native => 0,
        SupportLevel::Emulated { .. } => 1,
        SupportLevel::Unsupported => 2,
    }
}

/// What an agent and its MCP servers agreed on, as a report.
#[must_use]
pub fn generate_mcp_report(negotiation: &McpNegotiationReport) -> CompatibilityReport {
    let details = negotiation.flags.iter().map(|flag| {
        let level = match flag.level {
            McpFlagLevel::Native => SupportLevel::Native,
            McpFlagLevel::Emulated => SupportLevel::Emulated {
                strategy: flag.reason.clone().unwrap_or_default(),
            },
            McpFlagLevel::Unsupported => SupportLevel::Unsupported,
        };
        (flag.flag.clone(), level)
    });
    CompatibilityReport::of(details.collect())
}

/// Produce a human-readable report from a negotiation result.
#[must_use]
pub fn generate_report(result: &NegotiationResult) -> CompatibilityReport {
    let emulated = SupportLevel::Emulated {
        strategy: BACKEND_STRATEGY.to_owned(),
    };
    let buckets = [
        (&result.native, SupportLevel::Native),
        (&result.emulatable, emulated),
        (&result.unsupported, SupportLevel::Unsupported),
    ];
    let details = buckets.into_iter().flat_map(|(capabilities, level)| {
        let named = capabilities.iter();
        named.map(move |capability| (format!("{capability:?}"), level.clone()))
    });
    CompatibilityReport::of(details.collect())
}
