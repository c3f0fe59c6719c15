//! What a model can do, written down in groups.

use abp_core::{Capability, CapabilityManifest, SupportLevel};

/// Capabilities that models have together.
pub type CapabilityGroups = &'static [&'static [Capability]];

/// A manifest of what a model simply has, and of what it has under a condition.
#[must_use]
pub fn manifest_of(
    has: CapabilityGroups,
    limited: CapabilityGroups,
    reason: &str,
) -> CapabilityManifest {
    let restricted = SupportLevel::Restricted {
        reason: reason.to_owned(),
    };
    let level = |groups: CapabilityGroups, level: SupportLevel| {
        let all = groups.iter().copied().flatten();
        all.map(move |one| (one.clone(), level.clone()))
    };
    level(limited, restricted)
        .chain(level(has, SupportLevel::Native))
        .collect()
}
