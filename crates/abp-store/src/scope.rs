//! The scopes of API keys.

use serde::{Deserialize, Serialize};

/// Something that a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum KeyScope {
    /// Ask models through the gateway.
    #[serde(rename = "models")]
    Models,
    /// Look at its own runs.
    #[serde(rename = "runs:read")]
    RunsRead,
    /// Submit runs, and cancel its own.
    #[serde(rename = "runs:write")]
    RunsWrite,
    /// Decide about the changes of its own runs.
    #[serde(rename = "apply")]
    Apply,
    /// Answer the approvals of its own runs.
    #[serde(rename = "approve")]
    Approve,
    /// Upload workspaces.
    #[serde(rename = "upload")]
    Upload,
    /// Use `/v1/assist`.
    #[serde(rename = "assist")]
    Assist,
    /// Everything, for the runs and approvals of every principal.
    #[serde(rename = "admin")]
    Admin,
}

impl KeyScope {
    /// Every scope.
    pub const ALL: [Self; 8] = [
        Self::Models,
        Self::RunsRead,
        Self::RunsWrite,
        Self::Apply,
        Self::Approve,
        Self::Upload,
        Self::Assist,
        Self::Admin,
    ];

    /// The scopes of keys that were made before there were any, and of keys for which none is named.
    pub const USUAL: [Self; 2] = [Self::Models, Self::Assist];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Models => "models",
            Self::RunsRead => "runs:read",
            Self::RunsWrite => "runs:write",
            Self::Apply => "apply",
            Self::Approve => "approve",
            Self::Upload => "upload",
            Self::Assist => "assist",
            Self::Admin => "admin",
        }
    }

    /// The scope of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == name)
    }
}

impl std::fmt::Display for KeyScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
