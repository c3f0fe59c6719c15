//! What an agent may do where nobody says.

use abp_core::{PolicyProfile, WorkOrder, WorkspaceMode};

/// Secrets stay unread and repositories unharmed. In place, changes need approval as well: on a copy
/// they are proposals that somebody still has to apply. Tools of MCP servers are for orders that ask for
/// the operator's.
#[must_use]
pub fn usual_policy(order: &WorkOrder) -> PolicyProfile {
    let list = |patterns: &[&str]| patterns.iter().map(|&pattern| pattern.to_owned()).collect();
    // What is no valid setting is refused later, by this policy or any other.
    let asks_for_mcp = matches!(order.config.mcp_ask(), Ok(Some(_)));
    PolicyProfile {
        disallowed_tools: match asks_for_mcp {
            true => list(&["KillBash", "NotebookEdit"]),
            false => list(&["KillBash", "NotebookEdit", "mcp__*__*"]),
        },
        deny_read: list(&[
            "**/.env",
            "**/.env.*",
            "**/.git/**",
            "**/id_rsa",
            "**/id_ed25519",
        ]),
        deny_write: list(&["**/.git/**"]),
        require_approval_for: match order.workspace.mode {
            WorkspaceMode::Staged => Vec::new(),
            WorkspaceMode::PassThrough => list(&["Bash", "Write", "Edit"]),
        },
        ..PolicyProfile::default()
    }
}
