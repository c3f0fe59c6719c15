//! `abp run`.

mod dry_run;
mod race;

use std::path::Path;

use abp_backend_core::SessionUse;
use abp_control::{
    ControlPlane, Submission, TraceContext, find_run, legacy_state_dir, short_run_id,
};
use abp_core::{
    AgentEvent, AgentEventKind, CancelReason, CheckReport, Outcome, Receipt, UsageNormalized,
    WorkOrder,
};
use abp_error::{AbpError, AbpErrorDto, ErrorCode, ExitStatus};
use abp_runtime::{Approvals, Audience, CancelHandle, RunHandle, StartedRun};
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use crate::args::{GlobalArgs, RunArgs};
use crate::cmd::receipt::{print_summary, write_copy};
use crate::cmd::runs::print_events;
use crate::live::LiveLine;
use crate::order;
use crate::output::Output;
use crate::prompt::{self, Prompt, Question};
use crate::render::{self, EventPrinter};
use crate::session::{Session, block_on};
use crate::text::one_line;
use crate::turns::TerminalTurns;

/// What `--json` prints, and `--jsonl` prints last.
#[derive(Debug, Serialize)]
struct RunSummary<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    run_id: Uuid,
    outcome: Outcome,
    exit_code: u8,
    backend: &'a str,
    mode: abp_core::ExecutionMode,
    receipt: String,
    receipt_sha256: Option<&'a str>,
    duration_ms: u64,
    diff: Option<abp_core::ChangeSummary>,
    applied: bool,
    denied: u64,
    emulated: Vec<&'a abp_core::Capability>,
    usage: &'a UsageNormalized,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<&'a CheckReport>,
    error: Option<&'a AbpErrorDto>,
}

pub(crate) fn run(
    args: &RunArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &args.host.mock_scripts, output)?;
    let mut order = order::build(args, &session, output)?;
    warn_of_legacy_state(&order, &session, output);
    let client_origins = order::declare_client(&mut order, args, output);
    let prices = args.limits.prices.as_ref();
    let prices = prices.map(|file| session.prices(file)).transpose()?;
    let operator = prompt::approver("--approve");
    let approvals = Approvals::for_tools(&args.governance.approve, operator)
        .map_err(|error| AbpError::new(ErrorCode::ConfigInvalid, format!("--approve: {error}")))?;
    let audience = Audience::new(order.client.clone());
    let submission = Submission {
        backend: args.backend.clone(),
        timeout: args.limits.timeout,
        approvals,
        client_origins,
        prices,
        idempotency_key: args.idempotency_key.clone(),
        trace: caller_trace(),
        check: args.check.clone(),
        ..Submission::new(order)
    };
    // One runtime for all of it: the store of the process lives in the one that opened it.
    block_on(start(args, &session, submission, audience, output))
}

/// Starts the submission in the way that the flags ask for.
async fn start(
    args: &RunArgs,
    session: &Session,
    submission: Submission,
    audience: Audience,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let plane = &session.plane;
    let mut submission = match asked_session(args) {
        Some((text, usage)) => go_on(submission, session, text, usage, output).await?,
        None => submission,
    };
    if args.dry_run {
        dry_run::run(plane, submission, output)?;
        return Ok(ExitStatus::Success);
    }
    if !args.race.is_empty() {
        let status = race::run(plane, submission, args, output).await;
        plane.close().await;
        return status;
    }
    // On a terminal a person can be asked, and of a queued run anybody; elsewhere what was not approved in
    // advance is denied.
    if args.detach || output.can_ask() {
        submission.approvals = submission.approvals.or_ask(session.approval_timeout());
    }
    if args.detach {
        return detach(plane, submission, output).await;
    }
    let receipt = match plane.run_here(&prompt::operator(), submission).await? {
        StartedRun::Started(handle) => follow(plane, handle, audience, args, output).await?,
        StartedRun::Existing(run_id) => recall(plane, run_id, args, output).await?,
    };
    let status = conclude(plane, &receipt, args, output).await;
    plane.close().await;
    status
}

/// The earlier run whose session is asked for.
fn asked_session(args: &RunArgs) -> Option<(&str, SessionUse)> {
    let continued = args.continue_run.as_deref();
    let forked = args.fork.as_deref();
    continued
        .map(|run| (run, SessionUse::Continue))
        .or(forked.map(|run| (run, SessionUse::Fork)))
}

/// The submission with the agent's session of an earlier run, on the backend of that run.
async fn go_on(
    submission: Submission,
    session: &Session,
    text: &str,
    usage: SessionUse,
    output: &mut Output,
) -> Result<Submission, AbpError> {
    let plane = &session.plane;
    let run = find_run(plane.store().await?, text, &session.scope()).await?;
    let operator = prompt::operator();
    let continued = plane.with_session(&operator, submission, run.run_id, usage);
    let (submission, earlier) = continued.await?;
    if earlier.has_undecided_changes {
        output.warn(&format!(
            "the changes of run {} are not in the workspace; the agent remembers them all the same",
            run.run_id
        ));
    }
    Ok(submission)
}

/// Queues the run for whichever process serves.
async fn detach(
    plane: &ControlPlane,
    submission: Submission,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let submitted = plane.submit(&prompt::operator(), submission).await?;
    let run_id = submitted.run_id;
    if output.is_json() {
        let (state, is_new) = (submitted.state, submitted.is_new);
        output.json(&json!({ "run_id": run_id, "state": state, "is_new": is_new }))?;
    } else {
        output.field("run", &run_id.to_string());
        output.field("state", submitted.state.as_str());
        output.field(
            "next",
            &format!("abp serve carries it out; abp logs {run_id} -f"),
        );
    }
    Ok(ExitStatus::Success)
}

/// A state directory of an earlier version comes with the workspace, so nothing in it is believed.
/// The place of whatever started this process in a trace: the variable is what other tools use.
fn caller_trace() -> Option<TraceContext> {
    TraceContext::parse(&std::env::var("TRACEPARENT").ok()?)
}

fn warn_of_legacy_state(order: &WorkOrder, session: &Session, output: &mut Output) {
    let Some(legacy) = legacy_state_dir(Path::new(&order.workspace.root)) else {
        return;
    };
    let state = session.config().state_dir.canonicalize().ok();
    if state.is_some() && state == legacy.canonicalize().ok() {
        return;
    }
    let path = one_line(&legacy.display().to_string());
    output.warn(&format!(
        "{path} is not used; `abp import {path}` copies its receipts"
    ));
}

/// Shows the events until the end, and waits for the receipt.
async fn follow(
    plane: &ControlPlane,
    handle: RunHandle,
    mut audience: Audience,
    args: &RunArgs,
    output: &mut Output,
) -> Result<Receipt, AbpError> {
    let signals = tokio::spawn(cancel_on_signal(handle.cancel_handle()));
    let quiet = output.is_json();
    let mut live = LiveLine::new(output.is_watched() && !quiet && !args.jsonl, handle.staging);
    let mut turns = TerminalTurns::new(output.is_on_terminal());
    let (mut prompt, mut answers) = Prompt::new();
    let mut printer = EventPrinter::new(output);
    let mut events = handle.events;
    loop {
        let mut shown = Vec::new();
        let mut has_ended = false;
        tokio::select! {
            biased;
            event = events.next() => match event? {
                Some(followed) => {
                    let event = AgentEvent::clone(&followed.event);
                    live.seen(&event);
                    if let Some(question) = Question::of(&event.kind) {
                        turns.add_question(&question.tool.clone(), question);
                    }
                    shown = turns.add_event(event);
                }
                None => {
                    has_ended = true;
                    shown = turns.finish();
                }
            },
            Some((approval_id, answer)) = answers.recv() => {
                plane.answer(&prompt::operator().via("terminal"), approval_id, answer).await?;
            }
            () = live.tick(), if !turns.is_open() && !printer.is_in_line() => {
                live.draw(output);
                continue;
            }
        }
        if !turns.is_open() {
            prompt.close(output);
            live.clear(output);
        }
        for event in shown {
            if args.jsonl {
                output.json_line(&event)?;
            } else if !quiet {
                for shown in audience.present(&event).await.events() {
                    print(&shown, &mut printer, output);
                }
            }
        }
        if has_ended {
            break;
        }
        if let Some(question) = turns.due_question() {
            live.clear(output);
            printer.end_line(output);
            prompt.ask(question, output);
        } else if turns.take_hidden() {
            printer.end_line(output);
            prompt.show(output);
        }
    }
    if !quiet && !args.jsonl {
        for shown in audience.finish() {
            print(&shown, &mut printer, output);
        }
    }
    printer.end_line(output);
    let receipt = handle.receipt.await;
    signals.abort();
    Ok(receipt?)
}

/// Prints an event; what was changed for the terminal is summed up at the end.
pub(crate) fn print(event: &AgentEvent, printer: &mut EventPrinter, output: &mut Output) {
    if !matches!(event.kind, AgentEventKind::Adapted { .. }) {
        printer.print(&event.kind, output);
    }
}

/// The receipt of the run that the same request started before; where it is still under way, in
/// another process, that is waited for.
async fn recall(
    plane: &ControlPlane,
    run_id: Uuid,
    args: &RunArgs,
    output: &mut Output,
) -> Result<Receipt, AbpError> {
    output.warn(&format!("run {run_id} was started by this request before"));
    let receipt = plane.receipt(run_id).await?;
    if args.jsonl {
        print_events(plane.store().await?, run_id, true, output).await?;
    }
    Ok(receipt)
}

/// The first interrupt cancels the run, which then ends in a receipt; so does a request to terminate.
async fn cancel_on_signal(cancel: CancelHandle) {
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut stream) => stream.recv().await.map(|()| CancelReason::Shutdown),
            Err(_) => std::future::pending().await,
        }
    };
    let reason = tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted.ok().map(|()| CancelReason::User),
        terminated = terminate => terminated,
    };
    if let Some(reason) = reason {
        cancel.cancel(reason);
    }
}

async fn conclude(
    plane: &ControlPlane,
    receipt: &Receipt,
    args: &RunArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let path = plane
        .runtime()
        .receipt_path(receipt.meta.run_id)
        .display()
        .to_string();
    let run = match has_stage(receipt) {
        // Not `last`: a later run, or a replay of an older one, would make it another run.
        true => short_run_id(plane.store().await?, receipt.meta.run_id).await?,
        false => String::new(),
    };
    tell_end(receipt, path, &run, args, output)
}

/// Whether changes of the run wait for a decision.
fn has_stage(receipt: &Receipt) -> bool {
    let mut artifacts = receipt.artifacts.iter();
    artifacts.any(|artifact| artifact.kind == "stage")
}

/// Prints the end of a run; `path` is where its receipt is, and `run` how commands name the run.
pub(crate) fn tell_end(
    receipt: &Receipt,
    path: String,
    run: &str,
    args: &RunArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    if let Some(copy) = &args.out {
        write_copy(copy, receipt)?;
    }
    let status = exit_status(receipt);
    if output.is_json() || args.jsonl {
        let summary = summarise(receipt, path, status);
        if args.jsonl {
            output.json_line(&summary)?;
        } else {
            output.json(&summary)?;
        };
    } else {
        if let Some(diff) = receipt
            .verification
            .git_diff
            .as_deref()
            .filter(|diff| !diff.is_empty())
        {
            output.line("");
            render::diff(diff, output);
        }
        output.line("");
        print_summary(receipt, output);
        if !receipt.adaptations.is_empty() {
            output.field("adapted", &adapted(receipt));
        }
        output.field("receipt", &path);
        if has_stage(receipt) {
            output.field("next", &format!("abp apply {run}, or abp discard {run}"));
        }
    }
    Ok(status)
}

/// What was changed for whoever follows, in a line.
fn adapted(receipt: &Receipt) -> String {
    let changes = receipt.adaptations.iter();
    let changes = changes.map(|change| match change.from.as_str() {
        "block" => format!("{} × {}", change.event, change.count),
        from => format!("{from} × {}", change.count),
    });
    one_line(&changes.collect::<Vec<_>>().join(", "))
}

fn exit_status(receipt: &Receipt) -> ExitStatus {
    match (receipt.outcome, &receipt.error) {
        (Outcome::Complete, _) => ExitStatus::Success,
        (_, Some(error)) => error.code.exit_status(),
        (Outcome::Cancelled, None) => ExitStatus::Cancelled,
        (Outcome::Partial | Outcome::Failed, None) => ExitStatus::RunFailed,
    }
}

fn summarise(receipt: &Receipt, path: String, status: ExitStatus) -> RunSummary<'_> {
    let workspace = receipt.workspace.as_ref();
    let emulated = receipt
        .plan
        .iter()
        .flat_map(|plan| &plan.emulation.applied)
        .map(|entry| &entry.capability);
    RunSummary {
        kind: "run_summary",
        run_id: receipt.meta.run_id,
        outcome: receipt.outcome,
        exit_code: status.code(),
        backend: &receipt.backend.id,
        mode: receipt.mode,
        receipt: path,
        receipt_sha256: receipt.receipt_sha256.as_deref(),
        duration_ms: receipt.meta.duration_ms,
        diff: workspace.and_then(|workspace| workspace.changes.clone()),
        applied: workspace.is_some_and(|workspace| workspace.applied),
        denied: receipt
            .enforcement
            .rules
            .iter()
            .map(|rule| rule.denied)
            .sum(),
        emulated: emulated.collect(),
        usage: &receipt.usage,
        check: receipt.verification.check.as_ref(),
        error: receipt.error.as_ref(),
    }
}
