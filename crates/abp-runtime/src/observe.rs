//! Judging what a backend with tools of its own says it did.
//!
//! Such actions have happened already, or are beyond the host's reach: the policy is advisory then,
//! and a breach ends the run.

use std::path::Path;

use abp_core::AgentEventKind;

use crate::gate::{Action, Gate, Ruling};
use crate::stage::Stage;

/// The tool that commands count as.
const COMMAND_TOOL: &str = "Bash";
/// The tool that changes of files count as.
const WRITE_TOOL: &str = "Write";

/// Judges an event; `None` where it is no action.
pub(crate) async fn observed_action(
    gate: &mut Gate,
    stage: &Stage,
    kind: &AgentEventKind,
) -> Option<Ruling<()>> {
    match kind {
        AgentEventKind::ToolCall {
            tool_name,
            tool_use_id,
            ..
        } => Some(gate.tool(Action {
            tool_name,
            tool_use_id: tool_use_id.as_deref(),
            target: None,
        })),
        AgentEventKind::CommandExecuted { command, .. } => Some(gate.tool(Action {
            tool_name: COMMAND_TOOL,
            tool_use_id: None,
            target: Some(command),
        })),
        AgentEventKind::FileChanged { path, .. } => Some(changed_file(gate, stage, path).await),
        _ => None,
    }
}

async fn changed_file(gate: &mut Gate, stage: &Stage, path: &str) -> Ruling<()> {
    let action = Action {
        tool_name: WRITE_TOOL,
        tool_use_id: None,
        target: Some(path),
    };
    // Agents name files by absolute path too.
    let relative = Path::new(path)
        .strip_prefix(stage.root())
        .map_or(path, |rest| rest.to_str().unwrap_or(path));
    let relative = relative.to_owned();
    match stage
        .with(move |workspace| workspace.resolve(&relative))
        .await
    {
        Ok(resolved) => {
            let Ruling { events, result } = gate.write(action, &resolved);
            Ruling {
                events,
                result: result.map(|_| ()),
            }
        }
        Err(error) => Ruling {
            events: Vec::new(),
            result: Err(error.to_string()),
        },
    }
}
