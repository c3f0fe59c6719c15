//! An agent that notes its task down in a file, if the policy allows it.

use std::path::Path;

use abp_core::{AgentEventKind, ArtifactRef, Capability, SupportLevel, UsageNormalized};
use abp_error::ErrorCode;
use abp_policy::PolicyEngine;
use abp_sidecar_proto::{Failure, Hello, Run, WorkReport, serve};
use serde_json::json;

const NOTES: &str = "NOTES.md";

fn main() -> std::io::Result<()> {
    let hello = Hello::new("rust-example")
        .version(env!("CARGO_PKG_VERSION"))
        .can(Capability::Streaming, SupportLevel::Native)
        .can(Capability::ToolWrite, SupportLevel::Native);
    serve(&hello, take_notes)
}

fn take_notes(run: &Run) -> Result<WorkReport, Failure> {
    let task = run.order().task.trim();
    let text = format!("I note down: {task}\n");
    run.emit(AgentEventKind::AssistantDelta { text })?;
    write(run, NOTES, &format!("# Notes\n\n{task}\n"))?;
    let usage = UsageNormalized {
        input_tokens: u64::try_from(task.split_whitespace().count()).ok(),
        output_tokens: Some(4),
        ..UsageNormalized::default()
    };
    run.emit(AgentEventKind::UsageUpdated {
        usage: usage.clone(),
    })?;
    Ok(WorkReport {
        usage,
        artifacts: vec![ArtifactRef {
            kind: "notes".to_owned(),
            path: NOTES.to_owned(),
        }],
        ..WorkReport::default()
    })
}

/// The order's policy is asked before anything is written.
fn write(run: &Run, path: &str, content: &str) -> Result<(), Failure> {
    let failed = |code, problem: String| Failure::failed(code, problem);
    let policy = PolicyEngine::new(&run.order().policy)
        .map_err(|error| failed(ErrorCode::PolicyInvalid, error.to_string()))?;
    if let Err(decision) = policy.approve_write(Path::new(path)) {
        return Err(failed(ErrorCode::PolicyDenied, decision.reason));
    }
    let tool_use_id = Some("write-1".to_owned());
    run.emit(AgentEventKind::ToolCall {
        tool_name: "Write".to_owned(),
        tool_use_id: tool_use_id.clone(),
        parent_tool_use_id: None,
        input: json!({ "path": path }),
    })?;
    std::fs::write(path, content)
        .map_err(|error| failed(ErrorCode::ExecutionToolFailed, error.to_string()))?;
    run.emit(AgentEventKind::ToolResult {
        tool_name: "Write".to_owned(),
        tool_use_id,
        output: json!({ "bytes": content.len() }),
        is_error: false,
    })?;
    run.emit(AgentEventKind::FileChanged {
        path: path.to_owned(),
        summary: "written".to_owned(),
    })
}
