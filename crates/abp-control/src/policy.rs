//! The default protections of runs, and how profiles are joined.

use abp_core::{PolicyProfile, WorkOrder, WorkspaceMode};

/// The default protections: secrets stay unread and repositories unharmed. In place, changes need approval
/// as well, because nothing else stands between them and the source. Tools of MCP servers are for orders
/// that ask for the operator's.
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

/// Two profiles at once: everything that either denies is denied, and a tool or host has to be allowed by
/// the second where it lists any, otherwise by the first.
pub(crate) fn joined(first: PolicyProfile, second: PolicyProfile) -> PolicyProfile {
    let both = |mut first: Vec<String>, second: Vec<String>| {
        let new: Vec<_> = second
            .into_iter()
            .filter(|pattern| !first.contains(pattern))
            .collect();
        first.extend(new);
        first
    };
    let narrower = |first: Vec<String>, second: Vec<String>| match second.is_empty() {
        true => first,
        false => second,
    };
    PolicyProfile {
        allowed_tools: narrower(first.allowed_tools, second.allowed_tools),
        disallowed_tools: both(first.disallowed_tools, second.disallowed_tools),
        deny_read: both(first.deny_read, second.deny_read),
        deny_write: both(first.deny_write, second.deny_write),
        allow_network: narrower(first.allow_network, second.allow_network),
        deny_network: both(first.deny_network, second.deny_network),
        require_approval_for: both(first.require_approval_for, second.require_approval_for),
    }
}
