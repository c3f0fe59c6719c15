//! The states of a run.

use serde::{Deserialize, Serialize};

/// How far a run is. The last four are final: a run that is in one of them has its receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Accepted and durable; no process carries it out.
    Queued,
    /// A process carries it out and holds its lease.
    Running,
    /// A process holds its lease and waits for a person's answer.
    AwaitingApproval,
    /// Ended: all of the work is done.
    Complete,
    /// Ended: some of the work is done.
    Partial,
    /// Ended: the work failed.
    Failed,
    /// Ended because somebody said so.
    Cancelled,
}

impl RunState {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Running,
        Self::AwaitingApproval,
        Self::Complete,
        Self::Partial,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Its name, as the store writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::AwaitingApproval => "awaiting_approval",
            Self::Complete => "complete",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether the run has ended.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Queued | Self::Running | Self::AwaitingApproval => false,
            Self::Complete | Self::Partial | Self::Failed | Self::Cancelled => true,
        }
    }
}

impl std::fmt::Display for RunState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
