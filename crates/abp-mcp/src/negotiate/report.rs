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
                Standing::Emulated { by } => SupportLevel::Emulated {
                    strategy: by.label().to_owned(),
                },
                Standing::Unsupported {
                    reason: Reason::NobodyDeclares,
                } => continue,
                Standing::Unsupported { .. } => SupportLevel::Unsupported,
            };
            details.push((outcome.flag.to_string(), level));
        }
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
}

/// The order of the report.
fn rank(level: &SupportLevel) -> usize {
    match level {
        SupportLevel::Native => 0,
        SupportLevel::Emulated { .. } => 1,
        SupportLevel::Unsupported => 2,
    }
}
