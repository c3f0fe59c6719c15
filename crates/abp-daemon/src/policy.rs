//! What an agent may do where nobody says.

use abp_core::{PolicyProfile, WorkspaceMode};

/// Secrets stay unread and repositories unharmed. In place, changes need approval as well: on a copy
/// they are proposals that somebody still has to apply.
#[must_use]
pub fn usual_policy(mode: WorkspaceMode) -> PolicyProfile {
    let list = |patterns: &[&str]| patterns.iter().map(|&pattern| pattern.to_owned()).collect();
    PolicyProfile {
        disallowed_tools: list(&["KillBash", "NotebookEdit", "mcp__*__*"]),
        deny_read: list(&[
            "**/.env",
            "**/.env.*",
            "**/.git/**",
            "**/id_rsa",
            "**/id_ed25519",
        ]),
        deny_write: list(&["**/.git/**"]),
        require_approval_for: match mode {
            WorkspaceMode::Staged => Vec::new(),
            WorkspaceMode::PassThrough => list(&["Bash", "Write", "Edit"]),
        },
        ..PolicyProfile::default()
    }
}
