//! Judging what a backend with tools of its own says it did.
//!
//! Such actions have happened already, or are beyond the host's reach: the policy is advisory then,
//! and a breach ends the run.

use std::path::{Path, PathBuf};

use abp_core::AgentEventKind;

use crate::gate::{Action, Gate};
use crate::record::Recorder;
use crate::stage::Stage;

/// The tool that commands count as.
const COMMAND_TOOL: &str = "Bash";
/// The tool that changes of files count as.
const WRITE_TOOL: &str = "Write";

/// An action that an event tells of.
#[derive(Debug)]
pub(crate) enum Observed {
    /// The use of a tool.
    Tool {
        name: String,
        id: Option<String>,
        target: Option<String>,
    },
    /// The change of a file.
    Change { path: String },
}

impl Observed {
    /// The action of an event, where it is one.
    pub(crate) fn of(kind: &AgentEventKind) -> Option<Self> {
        match kind {
            AgentEventKind::ToolCall {
                tool_name,
                tool_use_id,
                ..
            } => Some(Self::Tool {
                name: tool_name.clone(),
                id: tool_use_id.clone(),
                target: None,
            }),
            AgentEventKind::CommandExecuted { command, .. } => Some(Self::Tool {
                name: COMMAND_TOOL.to_owned(),
                id: None,
                target: Some(command.clone()),
            }),
            AgentEventKind::FileChanged { path, .. } => Some(Self::Change { path: path.clone() }),
            _ => None,
        }
    }

    /// Judges the action.
    ///
    /// # Errors
    /// Says why it was not allowed.
    pub(crate) async fn judge(
        &self,
        gate: &mut Gate,
        recorder: &mut Recorder,
        stage: &Stage,
    ) -> Result<(), String> {
        match self {
            Self::Tool { name, id, target } => {
                let action = Action {
                    tool_name: name,
                    tool_use_id: id.as_deref(),
                    target: target.as_deref(),
                };
                gate.tool(action, recorder).await
            }
            Self::Change { path } => {
                let action = Action {
                    tool_name: WRITE_TOOL,
                    tool_use_id: None,
                    target: Some(path),
                };
                let resolved = resolve(stage, path).await?;
                gate.write(action, &resolved, recorder).await.map(drop)
            }
        }
    }
}

/// Agents name files by absolute path too.
async fn resolve(stage: &Stage, path: &str) -> Result<PathBuf, String> {
    let inside = Path::new(path).strip_prefix(stage.root()).ok();
    let relative = inside.and_then(Path::to_str).unwrap_or(path).to_owned();
    let resolved = stage
        .with(move |workspace| workspace.resolve(&relative))
        .await;
    resolved.map_err(|error| error.to_string())
}
