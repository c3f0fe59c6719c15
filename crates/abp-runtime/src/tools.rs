//! The host's own tools, each use judged by the gate first.

use std::path::PathBuf;

use abp_backend_core::{ToolError, ToolInvocation, ToolOutput};
use abp_core::AgentEventKind;
use abp_workspace::WriteKind;
use serde_json::{Value, json};

use crate::gate::{Action, Gate, Ruling};
use crate::stage::Stage;

/// The largest file a tool reads.
const MAX_READ_BYTES: u64 = 16 * 1024 * 1024;

/// What came of a tool: the events that tell of it, in order, and the answer to the backend.
#[derive(Debug)]
pub(crate) struct ToolRun {
    pub(crate) events: Vec<AgentEventKind>,
    pub(crate) answer: Result<ToolOutput, ToolError>,
}

/// Uses a tool on behalf of the backend; `call` numbers the calls of the run.
pub(crate) async fn use_tool(
    gate: &mut Gate,
    stage: &Stage,
    call: u64,
    invocation: ToolInvocation,
) -> ToolRun {
    let (name, input) = describe(&invocation);
    let id = format!("abp-{call}");
    let mut events = vec![AgentEventKind::ToolCall {
        tool_name: name.to_owned(),
        tool_use_id: Some(id.clone()),
        parent_tool_use_id: None,
        input,
    }];
    let answer = perform(gate, stage, name, &id, invocation, &mut events).await;
    let (output, is_error) = match &answer {
        Ok((_, output)) => (output.clone(), false),
        Err(error) => (json!({ "error": error.to_string() }), true),
    };
    let changed = match &answer {
        Ok((ToolOutput::Done, output)) => file_changed(output),
        Ok(_) | Err(_) => None,
    };
    events.extend(changed);
    events.push(AgentEventKind::ToolResult {
        tool_name: name.to_owned(),
        tool_use_id: Some(id),
        output,
        is_error,
    });
    ToolRun {
        events,
        answer: answer.map(|(output, _)| output),
    }
}

async fn perform(
    gate: &mut Gate,
    stage: &Stage,
    name: &str,
    id: &str,
    invocation: ToolInvocation,
    events: &mut Vec<AgentEventKind>,
) -> Result<(ToolOutput, Value), ToolError> {
    let target = match &invocation {
        ToolInvocation::ReadFile { path } | ToolInvocation::WriteFile { path, .. } => {
            Some(path.clone())
        }
        ToolInvocation::ListFiles => None,
    };
    let action = Action {
        tool_name: name,
        tool_use_id: Some(id),
        target: target.as_deref(),
    };
    settle(gate.tool(action), events)?;
    match invocation {
        ToolInvocation::ListFiles => {
            let files = stage
                .with(abp_workspace::PreparedWorkspace::list)
                .await
                .map_err(|error| failed(&error))?;
            let count = files.len();
            Ok((ToolOutput::Files(files), json!({ "files": count })))
        }
        ToolInvocation::ReadFile { path } => {
            let resolved = resolve(stage, &path).await?;
            let approved = settle(gate.read(action, &resolved), events)?;
            let content = stage
                .with(move |workspace| workspace.read(&approved, MAX_READ_BYTES))
                .await
                .map_err(|error| failed(&error))?;
            let bytes = content.len();
            Ok((
                ToolOutput::Content(content),
                json!({ "path": path, "bytes": bytes }),
            ))
        }
        ToolInvocation::WriteFile { path, content } => {
            let resolved = resolve(stage, &path).await?;
            let approved = settle(gate.write(action, &resolved), events)?;
            let bytes = content.len();
            let kind = stage
                .with(move |workspace| workspace.write(&approved, &content))
                .await
                .map_err(|error| failed(&error))?;
            let what = match kind {
                WriteKind::Created => "created",
                WriteKind::Replaced => "replaced",
            };
            let shown = resolved.to_string_lossy();
            Ok((
                ToolOutput::Done,
                json!({ "path": shown, "bytes": bytes, "change": what }),
            ))
        }
    }
}

/// Keeps the events of a ruling and turns a denial into the backend's error.
fn settle<T>(ruling: Ruling<T>, events: &mut Vec<AgentEventKind>) -> Result<T, ToolError> {
    events.extend(ruling.events);
    ruling.result.map_err(ToolError::Denied)
}

/// A path that leaves the workspace is denied like any other forbidden path.
async fn resolve(stage: &Stage, path: &str) -> Result<PathBuf, ToolError> {
    let path = path.to_owned();
    stage
        .with(move |workspace| workspace.resolve(&path))
        .await
        .map_err(|error| ToolError::Denied(error.to_string()))
}

fn failed(error: &abp_error::AbpError) -> ToolError {
    let cause = error
        .cause_chain()
        .map(|cause| format!(": {cause}"))
        .unwrap_or_default();
    ToolError::Failed(format!("{error}{cause}"))
}

fn describe(invocation: &ToolInvocation) -> (&'static str, Value) {
    match invocation {
        ToolInvocation::ListFiles => ("Glob", json!({ "pattern": "**" })),
        ToolInvocation::ReadFile { path } => ("Read", json!({ "path": path })),
        ToolInvocation::WriteFile { path, content } => {
            ("Write", json!({ "path": path, "bytes": content.len() }))
        }
    }
}

fn file_changed(output: &Value) -> Option<AgentEventKind> {
    let path = output.get("path")?.as_str()?.to_owned();
    let summary = format!(
        "{} ({} bytes)",
        output.get("change")?.as_str()?,
        output.get("bytes")?
    );
    Some(AgentEventKind::FileChanged { path, summary })
}
