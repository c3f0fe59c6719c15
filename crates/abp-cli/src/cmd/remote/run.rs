//! `abp run --remote`: uploads the workspace, submits the order, and follows.

use abp_control_http::api::{SubmitOptions, SubmitRequest, SubmittedRun, WorkspaceSource};
use abp_core::{Receipt, WorkOrder, WorkspaceMode, WorkspaceSpec};
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_policy::PolicyEngine;
use abp_remote::{Remote, UploadSummary};
use abp_runtime::Audience;
use abp_store::RunState;
use serde_json::json;
use uuid::Uuid;

use super::{Origin, connect, remember};
use crate::args::{GlobalArgs, RunArgs};
use crate::cmd::run::{print, tell_end};
use crate::order;
use crate::output::Output;
use crate::render::EventPrinter;
use crate::session::{Session, block_on};

pub(crate) fn run(
    args: &RunArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    if !args.race.is_empty() || args.check.is_some() {
        let message = "--race and --check are for runs on this machine; leave out --remote";
        return Err(AbpError::new(ErrorCode::ValidationFailed, message));
    }
    let remote = connect(global)?;
    let session = Session::open(global, &args.host.mock_scripts, output)?;
    let mut order = order::build(args, &session, output)?;
    check_order(&order)?;
    order::declare_client(&mut order, args, output);
    let audience = Audience::new(order.client.clone());
    block_on(async {
        let uploaded = upload(&remote, &order).await?;
        tell_upload(&uploaded, args, output);
        let root = std::fs::canonicalize(&order.workspace.root)
            .map_err(|error| AbpError::new(ErrorCode::WorkspaceInitFailed, error.to_string()))?;
        order.workspace.root = WorkspaceSpec::default().root;
        let continue_from = match &args.continue_run {
            Some(run) => Some(remote.find(run).await?.run_id),
            None => None,
        };
        let request = SubmitRequest {
            order,
            backend: args.backend.clone(),
            workspace: Some(WorkspaceSource::Uploaded(uploaded.workspace_id)),
            continue_from,
            options: SubmitOptions {
                timeout_secs: args.limits.timeout.map(|time| time.as_secs().max(1)),
                approve: args.governance.approve.clone(),
                notify: Vec::new(),
            },
        };
        let key = args.idempotency_key.as_deref();
        let submitted = match &args.fork {
            Some(run) => {
                let run_id = remote.find(run).await?.run_id;
                remote.fork(run_id, &request, key).await?
            }
            None => remote.submit(&request, key).await?,
        };
        let run_id = submitted.run_id;
        if submitted.is_replay {
            output.warn(&format!("run {run_id} was started by this request before"));
        }
        let url = global.remote.clone().unwrap_or_default();
        remember(
            &session,
            run_id,
            &Origin {
                url: url.clone(),
                root,
            },
        )?;
        if args.detach {
            return tell_submitted(&submitted, output);
        }
        let receipt = follow(&remote, run_id, audience, args, output).await?;
        let place = format!("{}/v1/runs/{run_id}/receipt", url.trim_end_matches('/'));
        tell_end(&receipt, place, &run_id.to_string(), args, output)
    })
}

/// Prints the run that goes on without anybody at this terminal.
fn tell_submitted(submitted: &SubmittedRun, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let run_id = submitted.run_id;
    let state = RunState::from(submitted.state);
    if output.is_json() {
        let is_new = !submitted.is_replay;
        output.json(&json!({ "run_id": run_id, "state": state, "is_new": is_new }))?;
    } else {
        output.field("run", &run_id.to_string());
        output.field("state", state.as_str());
        output.field("next", &format!("abp logs {run_id} -f --remote URL"));
    }
    Ok(ExitStatus::Success)
}

/// Refuses what only makes sense on this machine.
fn check_order(order: &WorkOrder) -> Result<(), AbpError> {
    if order.workspace.mode == WorkspaceMode::PassThrough {
        let message = "a remote run works on a copy; leave --workspace-mode out";
        return Err(AbpError::new(ErrorCode::ConfigInvalid, message));
    }
    Ok(())
}

/// Uploads what the agent may read, and of it only what the server lacks.
async fn upload(remote: &Remote, order: &WorkOrder) -> Result<UploadSummary, AbpError> {
    let policy = PolicyEngine::new(&order.policy)
        .map_err(|error| AbpError::new(ErrorCode::PolicyInvalid, error.to_string()))?;
    remote
        .upload(&order.workspace, policy.unreadable_paths())
        .await
}

fn tell_upload(uploaded: &UploadSummary, args: &RunArgs, output: &mut Output) {
    if output.is_json() || args.jsonl {
        return;
    }
    let (count, bytes) = (uploaded.uploaded, uploaded.uploaded_bytes);
    let all = uploaded.entries;
    output.note(&format!("uploaded {count} of {all} files, {bytes} bytes"));
}

/// Shows the events until the end, and fetches the receipt. An interrupt cancels the run.
async fn follow(
    remote: &Remote,
    run_id: Uuid,
    mut audience: Audience,
    args: &RunArgs,
    output: &mut Output,
) -> Result<Receipt, AbpError> {
    let cancelling = tokio::spawn(cancel_on_interrupt(remote.clone(), run_id));
    let quiet = output.is_json();
    let mut printer = EventPrinter::new(output);
    let mut events = remote.follow(run_id, None);
    while let Some((_, event)) = events.next().await? {
        if args.jsonl {
            output.json_line(&event)?;
        } else if !quiet {
            for shown in audience.present(&event).await.events() {
                print(&shown, &mut printer, output);
            }
        }
    }
    if !quiet && !args.jsonl {
        for shown in audience.finish() {
            print(&shown, &mut printer, output);
        }
    }
    printer.end_line(output);
    cancelling.abort();
    remote.receipt(run_id).await
}

async fn cancel_on_interrupt(remote: Remote, run_id: Uuid) {
    if tokio::signal::ctrl_c().await.is_ok() {
        let reason = "interrupted at the terminal".to_owned();
        if let Err(error) = remote.cancel(run_id, Some(reason)).await {
            tracing::warn!(target: "abp.cli", %run_id, %error, "the run was not cancelled");
        }
    }
}
