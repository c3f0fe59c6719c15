//! Classifying capabilities against a manifest.

use abp_core::{
    Capability, CapabilityManifest, CapabilityRequirement, CapabilityRequirements,
    NegotiationResult, SupportLevel as ManifestLevel,
};
use serde::{Deserialize, Serialize};

/// The strategy named for what a backend emulates by itself.
pub(crate) const BACKEND_STRATEGY: &str = "adapter";

/// How a capability can be had, as a negotiation sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "level", rename_all = "snake_case")]
pub enum SupportLevel {
    /// The backend supports it natively.
    Native,
    /// It can be provided through an adapter, or with restrictions.
    Emulated {
        /// How.
        strategy: String,
    },
    /// It cannot be provided.
    Unsupported,
}

/// Classify a single capability against a manifest.
#[must_use]
pub fn check_capability(manifest: &CapabilityManifest, cap: &Capability) -> SupportLevel {
    match manifest.get(cap) {
        Some(ManifestLevel::Native) => SupportLevel::Native,
        Some(ManifestLevel::Emulated) => SupportLevel::Emulated {
            strategy: BACKEND_STRATEGY.to_owned(),
        },
        Some(ManifestLevel::Restricted { reason }) => SupportLevel::Emulated {
            strategy: format!("restricted: {reason}"),
        },
        Some(ManifestLevel::Unsupported) | None => SupportLevel::Unsupported,
    }
}

/// Negotiate all required capabilities against a manifest.
#[must_use]
pub fn negotiate(
    manifest: &CapabilityManifest,
    requirements: &CapabilityRequirements,
) -> NegotiationResult {
    let mut result = NegotiationResult::default();
    for CapabilityRequirement { capability, .. } in &requirements.required {
        let bucket = match check_capability(manifest, capability) {
            SupportLevel::Native => &mut result.native,
            SupportLevel::Emulated { .. } => &mut result.emulatable,
            SupportLevel::Unsupported => &mut result.unsupported,
        };
        if !bucket.contains(capability) {
            bucket.push(capability.clone());
        }
    }
    result
}
