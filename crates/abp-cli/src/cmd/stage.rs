//! `abp diff`, `abp apply` and `abp discard`: deciding about the result of a run.

use abp_control::find_run;
use abp_core::verify_receipt_document;
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_runtime::workspace_error;
use abp_workspace::PreparedWorkspace;
use serde_json::json;
use uuid::Uuid;

use crate::args::{GlobalArgs, StageArgs};
use crate::cmd::runs::stored;
use crate::output::{GOOD, Output};
use crate::render;
use crate::session::{Session, block_on};

/// What is to become of the result.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Decision {
    Diff,
    Apply,
    Discard,
}

pub(crate) fn run(
    decision: Decision,
    args: &StageArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let plane = Session::open(global, &[], output)?.plane;
    let runtime = plane.runtime();
    let (run_id, baseline) = block_on(async {
        let store = runtime.store().await?;
        let run_id = find_run(store, &args.run).await?.run_id;
        let receipt = store.receipt(run_id).await.map_err(stored)?;
        Ok((
            run_id,
            receipt.and_then(|record| recorded_baseline(&record.document)),
        ))
    })?;
    let workspace = runtime
        .workspaces()
        .reopen(run_id)
        .map_err(|error| workspace_error(&error))?;
    // The record beside a stage finds damage, not forgery; the receipt finds both.
    if baseline.is_some_and(|recorded| recorded != workspace.baseline().sha256()) {
        let message = format!("the stage of run {run_id} is not the one its receipt describes");
        return Err(AbpError::new(ErrorCode::ReceiptHashMismatch, message));
    }
    match decision {
        Decision::Diff => diff(&workspace, output),
        Decision::Apply => apply(workspace, run_id, output),
        Decision::Discard => {
            workspace
                .remove()
                .map_err(|error| workspace_error(&error))?;
            tell("discarded", run_id, output)
        }
    }
}

/// What the workspace held at the start, by the receipt.
fn recorded_baseline(document: &[u8]) -> Option<String> {
    let receipt = verify_receipt_document(document).ok()?;
    receipt.workspace.map(|workspace| workspace.baseline_sha256)
}

fn diff(workspace: &PreparedWorkspace, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let changes = workspace
        .changes()
        .map_err(|error| workspace_error(&error))?;
    if output.is_json() {
        let summary = changes.summary();
        output.json(&json!({
            "status": changes.git_status(), "diff": changes.git_diff(), "summary": summary,
        }))?;
    } else if output.is_coloured() {
        render::diff(&changes.git_diff(), output);
    } else {
        // For `git apply`: byte for byte.
        output.write(&changes.git_diff());
    }
    Ok(ExitStatus::Success)
}

/// Applies all of it or, where the source stands in the way, nothing.
fn apply(
    workspace: PreparedWorkspace,
    run_id: Uuid,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let changes = workspace
        .changes()
        .map_err(|error| workspace_error(&error))?;
    workspace
        .apply_to_source(&changes)
        .map_err(|error| workspace_error(&error))?;
    workspace
        .remove()
        .map_err(|error| workspace_error(&error))?;
    tell("applied", run_id, output)
}

fn tell(what: &str, run_id: Uuid, output: &mut Output) -> Result<ExitStatus, AbpError> {
    if output.is_json() {
        output.json(&json!({ "run_id": run_id, "decision": what }))?;
    } else {
        output.line(&format!("{GOOD}{what}{GOOD:#} {run_id}"));
    }
    Ok(ExitStatus::Success)
}
