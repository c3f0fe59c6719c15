//! A negotiation result in words.

use abp_core::{Capability, CapabilityManifest, NegotiationResult};
use serde::{Deserialize, Serialize};

use crate::negotiate::{SupportLevel, check_capability};

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

/// Produce a human-readable report from a negotiation result.
#[must_use]
pub fn generate_report(result: &NegotiationResult) -> CompatibilityReport {
    report_with(result, |_| SupportLevel::Emulated {
        strategy: "adapter".to_owned(),
    })
}

/// Like [`generate_report`], with the manifest at hand: restrictions are named with their reason.
#[must_use]
pub fn generate_report_for(
    result: &NegotiationResult,
    manifest: &CapabilityManifest,
) -> CompatibilityReport {
    report_with(result, |capability| check_capability(manifest, capability))
}

fn report_with(
    result: &NegotiationResult,
    level_of_emulatable: impl Fn(&Capability) -> SupportLevel,
) -> CompatibilityReport {
    let (native, emulated, unsupported) = (
        result.native.len(),
        result.emulatable.len(),
        result.unsupported.len(),
    );
    let compatible = result.is_compatible();
    let verdict = if compatible {
        "fully compatible"
    } else {
        "incompatible"
    };
    let name = |capability: &Capability| format!("{capability:?}");
    let details = result
        .native
        .iter()
        .map(|capability| (name(capability), SupportLevel::Native))
        .chain(
            result
                .emulatable
                .iter()
                .map(|capability| (name(capability), level_of_emulatable(capability))),
        )
        .chain(
            result
                .unsupported
                .iter()
                .map(|capability| (name(capability), SupportLevel::Unsupported)),
        )
        .collect();
    CompatibilityReport {
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
