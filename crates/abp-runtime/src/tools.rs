//! The host's own tools, each use judged by the gate first.

use std::path::PathBuf;

use abp_backend_core::{ToolError, ToolInvocation, ToolOutput};
use abp_core::AgentEventKind;
use abp_workspace::{PreparedWorkspace, WriteKind};
use serde_json::{Value, json};

use crate::gate::{Action, Gate};
use crate::record::Recorder;
use crate::stage::Stage;

/// The largest file a tool reads.
const MAX_READ_BYTES: u64 = 16 * 1024 * 1024;

/// The ids of a use of a tool.
pub(crate) struct ToolCallIds {
    /// The number of the use in its run.
    pub(crate) number: u64,
    /// The agent's own call that it is for.
    pub(crate) parent: Option<String>,
}

/// Uses a tool on behalf of the backend, and records it; `call` numbers the calls of the run.
///
/// # Errors
/// Says whether the use was denied or failed.
pub(crate) async fn use_tool(
    gate: &mut Gate,
    recorder: &mut Recorder,
    stage: &Stage,
    call: ToolCallIds,
    invocation: ToolInvocation,
) -> Result<ToolOutput, ToolError> {
    let (name, input) = describe(&invocation);
    let id = format!("abp-{}", call.number);
    let called = AgentEventKind::ToolCall {
        tool_name: name.to_owned(),
        tool_use_id: Some(id.clone()),
        parent_tool_use_id: call.parent,
        input,
    };
    recorder.record(called, None).await;
    let answer = perform(gate, recorder, stage, (name, &id), invocation).await;
    let (output, is_error) = match &answer {
        Ok((_, output)) => (output.clone(), false),
        Err(error) => (json!({ "error": error.to_string() }), true),
    };
    if let Ok((ToolOutput::Done, output)) = &answer
        && let Some(changed) = file_changed(output)
    {
        recorder.record(changed, None).await;
    }
    let result = AgentEventKind::ToolResult {
        tool_name: name.to_owned(),
        tool_use_id: Some(id),
        output,
        is_error,
    };
    recorder.record(result, None).await;
    answer.map(|(output, _)| output)
}

async fn perform(
    gate: &mut Gate,
    recorder: &mut Recorder,
    stage: &Stage,
    (tool_name, id): (&str, &str),
    invocation: ToolInvocation,
) -> Result<(ToolOutput, Value), ToolError> {
    let target = match &invocation {
        ToolInvocation::ReadFile { path } | ToolInvocation::WriteFile { path, .. } => {
            Some(path.clone())
        }
        ToolInvocation::ListFiles => None,
    };
    let action = Action {
        tool_name,
        tool_use_id: Some(id),
        target: target.as_deref(),
    };
    gate.tool(action, recorder)
        .await
        .map_err(ToolError::Denied)?;
    match invocation {
        ToolInvocation::ListFiles => {
            let files = stage
                .with(PreparedWorkspace::list)
                .await
                .map_err(|e| failed(&e))?;
            let count = files.len();
            Ok((ToolOutput::Files(files), json!({ "files": count })))
        }
        ToolInvocation::ReadFile { path } => {
            let resolved = resolve(stage, &path).await?;
            let approved = gate
                .read(action, &resolved, recorder)
                .await
                .map_err(ToolError::Denied)?;
            let read = stage.with(move |workspace| workspace.read(&approved, MAX_READ_BYTES));
            let content = read.await.map_err(|e| failed(&e))?;
            let bytes = content.len();
            Ok((
                ToolOutput::Content(content),
                json!({ "path": path, "bytes": bytes }),
            ))
        }
        ToolInvocation::WriteFile { path, content } => {
            let resolved = resolve(stage, &path).await?;
            let approved = gate
                .write(action, &resolved, recorder)
                .await
                .map_err(ToolError::Denied)?;
            let bytes = content.len();
            let write = stage.with(move |workspace| workspace.write(&approved, &content));
            let change = match write.await.map_err(|e| failed(&e))? {
                WriteKind::Created => "created",
                WriteKind::Replaced => "replaced",
            };
            let shown = resolved.to_string_lossy();
            Ok((
                ToolOutput::Done,
                json!({ "path": shown, "bytes": bytes, "change": change }),
            ))
        }
    }
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
