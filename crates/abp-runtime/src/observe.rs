//! Judging what a backend with tools of its own says it does.
//!
//! Such actions have happened already, or are beyond the host's reach: the policy is advisory then, and a
//! breach ends the run. The name of a tool is judged, and so are the paths and hosts that its input names:
//! an agent that says it reads `.env` or fetches from a denied host has said enough.

mod targets;

use std::path::{Path, PathBuf};

use abp_backend_core::PermissionQuestion;
use abp_core::AgentEventKind;

use serde_json::Value;

use self::targets::{InputTargets, is_writing_tool};
use crate::gate::{Action, Gate};
use crate::record::Recorder;
use crate::stage::Stage;

/// The tool that commands count as.
const COMMAND_TOOL: &str = "Bash";
/// The tool that changes of files count as.
const WRITE_TOOL: &str = "Write";

/// The members of a tool's input that say best what it is about, in this order.
const SHOWN_ARGUMENTS: [&str; 6] = ["command", "cmd", "file_path", "path", "url", "query"];
/// The longest target that a person is shown.
const MAX_SHOWN_CHARS: usize = 200;

/// An action that an event tells of.
#[derive(Debug)]
pub(crate) enum Observed {
    /// The use of a tool.
    Tool {
        name: String,
        id: Option<String>,
        target: Option<String>,
        /// The paths and hosts that its input names.
        targets: InputTargets,
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
                input,
                ..
            } => Some(Self::Tool {
                name: tool_name.clone(),
                id: tool_use_id.clone(),
                target: None,
                targets: InputTargets::of(input),
            }),
            AgentEventKind::CommandExecuted { command, .. } => Some(Self::Tool {
                name: COMMAND_TOOL.to_owned(),
                id: None,
                target: Some(command.clone()),
                targets: InputTargets::of_text(command),
            }),
            AgentEventKind::FileChanged { path, .. } => Some(Self::Change { path: path.clone() }),
            _ => None,
        }
    }

    /// The action that a question is about.
    pub(crate) fn of_question(question: &PermissionQuestion, root: &Path) -> Self {
        Self::Tool {
            name: question.tool_name.clone(),
            id: Some(question.tool_use_id.clone()),
            target: shown_target(&question.input, root),
            targets: InputTargets::of(&question.input),
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
            Self::Tool {
                name,
                id,
                target,
                targets,
            } => {
                let action = Action {
                    tool_name: name,
                    tool_use_id: id.as_deref(),
                    target: target.as_deref(),
                };
                gate.tool(action, recorder).await?;
                judge_targets(action, targets, gate, recorder, stage).await
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

/// The part of a tool's input that a person is shown: its command, its address, or its path as the workspace
/// sees it.
fn shown_target(input: &Value, root: &Path) -> Option<String> {
    let members = input.as_object()?;
    let named = SHOWN_ARGUMENTS.iter().find_map(|name| members.get(*name));
    let text = named?.as_str()?;
    let inside = Path::new(text)
        .strip_prefix(root)
        .ok()
        .and_then(Path::to_str);
    Some(
        inside
            .unwrap_or(text)
            .chars()
            .take(MAX_SHOWN_CHARS)
            .collect(),
    )
}

async fn judge_targets(
    action: Action<'_>,
    targets: &InputTargets,
    gate: &mut Gate,
    recorder: &mut Recorder,
    stage: &Stage,
) -> Result<(), String> {
    let writes = is_writing_tool(action.tool_name);
    for path in &targets.paths {
        let Some(judged) = judged_path(stage, path).await else {
            continue;
        };
        let action = Action {
            target: Some(path),
            ..action
        };
        if writes {
            gate.write(action, &judged, recorder).await.map(drop)?;
        } else {
            gate.read(action, &judged, recorder).await.map(drop)?;
        }
    }
    for host in &targets.hosts {
        let action = Action {
            target: Some(host),
            ..action
        };
        gate.network(action, host, recorder).await?;
    }
    Ok(())
}

/// The path that rules are matched against: resolved inside the workspace; outside it the absolute path
/// without its root, so that `**/.env` matches there as well. Nothing for what is no path.
async fn judged_path(stage: &Stage, path: &str) -> Option<PathBuf> {
    if let Ok(resolved) = resolve(stage, path).await {
        return Some(resolved);
    }
    let outside = Path::new(path).strip_prefix("/").ok()?;
    let is_plain = |part| matches!(part, std::path::Component::Normal(_));
    let plain = outside.components().all(is_plain) && outside.components().next().is_some();
    plain.then(|| outside.components().collect())
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
