//! Reading events, and refusing names that could do harm wherever they are shown or stored.

use std::borrow::Cow;
use std::collections::BTreeMap;

use abp_core::{AgentEvent, AgentEventKind, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use sidecar_kit::PermissionRequest;

use crate::HostError;

/// The kinds that are the host's own statements, however incomplete a sidecar sends them.
const HOST_ONLY: [&str; 7] = [
    "run_started",
    "run_resumed",
    "run_completed",
    "permission_requested",
    "permission_resolved",
    "adapted",
    "network_connection",
];
/// The longest name or id.
const MAX_NAME: usize = 256;

/// The kinds that come by the thousands have a text and no names.
#[derive(Deserialize)]
struct TextEvent<'a> {
    ts: Timestamp,
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    ext: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
struct KindOnly<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
}

/// Reads an event.
///
/// # Errors
/// Says what is wrong with it.
pub(crate) fn read(json: &str) -> Result<AgentEvent, HostError> {
    if let Some(event) = read_text(json) {
        return Ok(event);
    }
    let host_only = |kind: &str| HostError::HostOnlyEvent {
        kind: kind.to_owned(),
    };
    let event: AgentEvent = serde_json::from_str(json).map_err(|error| {
        let claimed = serde_json::from_str::<KindOnly<'_>>(json);
        match claimed.map(|event| event.r#type) {
            Ok(kind) if HOST_ONLY.contains(&&*kind) => host_only(&kind),
            _ => HostError::InvalidEvent(error.to_string()),
        }
    })?;
    if event.kind.is_host_only() {
        return Err(host_only(event.kind.name()));
    }
    check_names(&event.kind)?;
    // Whose statement it is decides the host, not the peer.
    Ok(AgentEvent {
        origin: None,
        ..event
    })
}

/// Reads an event of a frequent kind in one pass; `None` where it is another one, or not valid.
fn read_text(json: &str) -> Option<AgentEvent> {
    let event: TextEvent<'_> = serde_json::from_str(json).ok()?;
    let text = event.text?;
    let kind = match event.r#type.as_ref() {
        "assistant_delta" => AgentEventKind::AssistantDelta { text },
        "assistant_message" => AgentEventKind::AssistantMessage { text },
        "thinking_delta" => AgentEventKind::ThinkingDelta { text },
        _ => return None,
    };
    let (ts, ext) = (event.ts, event.ext);
    Some(AgentEvent {
        ts,
        origin: None,
        kind,
        ext,
    })
}

/// Checks the names in a question.
///
/// # Errors
/// Says which name is not accepted.
pub(crate) fn check_question(request: &PermissionRequest) -> Result<(), HostError> {
    check("id", Some(&request.id))?;
    check("tool_name", Some(&request.tool_name))?;
    check("tool_use_id", request.tool_use_id.as_ref())
}

fn check_names(kind: &AgentEventKind) -> Result<(), HostError> {
    match kind {
        AgentEventKind::ToolCall {
            tool_name,
            tool_use_id,
            parent_tool_use_id,
            ..
        } => {
            check("tool_name", Some(tool_name))?;
            check("tool_use_id", tool_use_id.as_ref())?;
            check("parent_tool_use_id", parent_tool_use_id.as_ref())
        }
        AgentEventKind::ToolResult {
            tool_name,
            tool_use_id,
            ..
        } => {
            check("tool_name", Some(tool_name))?;
            check("tool_use_id", tool_use_id.as_ref())
        }
        AgentEventKind::SessionStarted { session_id } => check("session_id", Some(session_id)),
        AgentEventKind::ContentBlock { block_type, .. } => check("block_type", Some(block_type)),
        AgentEventKind::Opaque(opaque) => check("type", Some(&opaque.kind)),
        _ => Ok(()),
    }
}

fn check(member: &str, name: Option<&String>) -> Result<(), HostError> {
    let Some(name) = name else {
        return Ok(());
    };
    let problem = if name.len() > MAX_NAME {
        format!("{member} has {} bytes, more than {MAX_NAME}", name.len())
    } else if name.chars().any(char::is_control) {
        format!("{member} has a control character: {name:?}")
    } else {
        return Ok(());
    };
    Err(HostError::InvalidEvent(problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_way_reads_what_the_whole_way_reads() {
        for json in [
            r#"{"ts":"2026-01-01T00:00:00Z","type":"assistant_delta","text":"a\u00e9","later":[1]}"#,
            r#"{"text":"b","type":"assistant_message","ts":"2026-01-01T00:00:00.5Z","ext":{"k":1}}"#,
            r#"{"ts":"2026-01-01T00:00:00Z","type":"thinking_delta","text":"c","ext":null}"#,
        ] {
            let whole: AgentEvent = serde_json::from_str(json).unwrap();
            assert_eq!(read_text(json), Some(whole), "{json}");
        }
        for json in [
            r#"{"ts":"2026-01-01T00:00:00Z","type":"warning","text":"x","message":"m"}"#,
            r#"{"ts":"2026-01-01T00:00:00Z","type":"assistant_delta"}"#,
            r#"{"ts":"soon","type":"assistant_delta","text":"x"}"#,
        ] {
            assert_eq!(read_text(json), None, "{json}");
        }
    }
}
