//! Selecting events.

use std::fmt;
use std::sync::Arc;

use abp_core::{AgentEvent, AgentEventKind};

/// A condition on events.
#[derive(Clone)]
#[non_exhaustive]
pub enum Predicate {
    /// Events of this kind, by wire name.
    Kind(String),
    /// Events that concern this tool.
    Tool(String),
    /// Warnings, errors, failed tools and denials.
    Problem,
    /// Events that do not meet the condition.
    Not(Box<Self>),
    /// Events that meet all conditions; all events where there are none.
    All(Vec<Self>),
    /// Events that meet one of the conditions.
    Any(Vec<Self>),
    /// A condition of the caller's own.
    Custom(Arc<dyn Fn(&AgentEvent) -> bool + Send + Sync>),
}

impl Predicate {
    /// Events of any of these kinds.
    pub fn kinds<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self::Any(
            names
                .into_iter()
                .map(|name| Self::Kind(name.into()))
                .collect(),
        )
    }

    /// Whether the event meets the condition.
    #[must_use]
    pub fn matches(&self, event: &AgentEvent) -> bool {
        match self {
            Self::Kind(name) => event.kind.name() == name,
            Self::Tool(name) => tool_of(&event.kind) == Some(name),
            Self::Problem => is_problem(&event.kind),
            Self::Not(inner) => !inner.matches(event),
            Self::All(inner) => inner.iter().all(|predicate| predicate.matches(event)),
            Self::Any(inner) => inner.iter().any(|predicate| predicate.matches(event)),
            Self::Custom(condition) => condition(event),
        }
    }
}

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(name) => f.debug_tuple("Kind").field(name).finish(),
            Self::Tool(name) => f.debug_tuple("Tool").field(name).finish(),
            Self::Problem => f.write_str("Problem"),
            Self::Not(inner) => f.debug_tuple("Not").field(inner).finish(),
            Self::All(inner) => f.debug_tuple("All").field(inner).finish(),
            Self::Any(inner) => f.debug_tuple("Any").field(inner).finish(),
            Self::Custom(_) => f.write_str("Custom"),
        }
    }
}

fn tool_of(kind: &AgentEventKind) -> Option<&String> {
    match kind {
        AgentEventKind::ToolCall { tool_name, .. }
        | AgentEventKind::ToolResult { tool_name, .. }
        | AgentEventKind::PermissionRequested { tool_name, .. }
        | AgentEventKind::PermissionResolved { tool_name, .. } => Some(tool_name),
        _ => None,
    }
}

fn is_problem(kind: &AgentEventKind) -> bool {
    use abp_core::PermissionOutcome::Denied;
    matches!(
        kind,
        AgentEventKind::Warning { .. }
            | AgentEventKind::Error { .. }
            | AgentEventKind::ToolResult { is_error: true, .. }
            | AgentEventKind::PermissionResolved {
                outcome: Denied,
                ..
            }
    )
}
