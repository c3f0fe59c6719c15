//! A negotiation as the report that backends' negotiations get.

use abp_capability::{CompatibilityReport, SupportLevel};

use super::{Negotiation, Reason, Standing};

impl Negotiation {
    /// The report. What nobody declared is not in it, so it is compatible when nothing that somebody
    /// has is lost.
    #[must_use]
    pub fn report(&self) -> CompatibilityReport {
        let mut details = Vec::new();
        for outcome in &self.outcomes {
            let level = match &outcome.standing {
                Standing::Native => SupportLevel::Native,
                Standing::Emulated { by, limits } => SupportLevel::Emulated {
                    strategy: format!("{}: {limits}", by.label()),
                },
                Standing::Unsupported {
                    reason: Reason::NobodyDeclares,
                } => continue,
                Standing::Unsupported { .. } => SupportLevel::Unsupported,
            };
            details.push((outcome.flag.to_string(), level));
        }
        CompatibilityReport::of(details)
    }
}
