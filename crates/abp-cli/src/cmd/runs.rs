//! `abp runs`.

use abp_control::{ControlPlane, RunScope, find_run};
use abp_core::AgentEvent;
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_runtime::{DecisionState, RuntimeError};
use abp_store::{RunRecord, Store};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::args::{GlobalArgs, RunsArgs, RunsCommand};
use crate::cmd::exchanges;
use crate::cmd::receipt::print_summary;
use crate::output::{DIM, GOOD, Output};
use crate::prompt::operator;
use crate::render::EventPrinter;
use crate::session::{Session, block_on};
use crate::text::one_line;

/// How many events are read at a time.
const PAGE: u32 = 1_000;
/// How many runs are searched for undecided ones.
const SEARCHED: u32 = 10_000;

pub(crate) fn run(
    args: &RunsArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    let runtime = session.plane.runtime();
    block_on(async {
        match &args.command {
            RunsCommand::List {
                limit,
                undecided,
                all,
            } => {
                let scope = match all {
                    true => RunScope::All,
                    false => session.scope(),
                };
                // Looking creates nothing.
                let Some(store) = runtime.existing_store().await? else {
                    return list(&[], output);
                };
                let runs = match undecided {
                    true => undecided_runs(store, &scope, *limit).await?,
                    false => store.runs(&scope.filter(), *limit).await.map_err(stored)?,
                };
                list(&runs, output)
            }
            RunsCommand::Show { run, events } => {
                let store = session.existing_store().await?;
                match find_run(store, run, &session.scope()).await {
                    Ok(run) => show(&session.plane, store, &run, *events, output).await,
                    Err(unknown) => show_exchange(store, run, unknown, output).await,
                }
            }
            RunsCommand::Delete { run } => {
                let store = session.existing_store().await?;
                let run_id = find_run(store, run, &session.scope()).await?.run_id;
                let is_new = session.plane.delete_run(&operator(), run_id).await?;
                tell_deleted(run_id, is_new, output)
            }
        }
    })
}

/// Says that a run was deleted, here or on a remote server.
pub(crate) fn tell_deleted(
    run_id: Uuid,
    is_new: bool,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    if output.is_json() {
        output.json(&json!({ "run_id": run_id, "is_changed": is_new }))?;
        return Ok(ExitStatus::Success);
    }
    output.line(&match is_new {
        true => format!("{GOOD}deleted{GOOD:#} {run_id}; its receipt stays"),
        false => format!("run {run_id} was deleted before; its receipt stays"),
    });
    Ok(ExitStatus::Success)
}

/// An exchange that went through the gateway has an id of the same kind.
async fn show_exchange(
    store: &Store,
    text: &str,
    unknown: AbpError,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    // `last` is the last run.
    let found = match text {
        "last" => None,
        text => exchanges::find(store, text).await?,
    };
    let Some(receipt) = found else {
        return Err(unknown);
    };
    exchanges::print(&receipt, output)?;
    Ok(ExitStatus::Success)
}

pub(crate) fn stored(error: abp_store::StoreError) -> AbpError {
    RuntimeError::from(error).into()
}

/// Runs whose changes wait for a decision, newest first.
async fn undecided_runs(
    store: &Store,
    scope: &RunScope,
    limit: u32,
) -> Result<Vec<RunRecord>, AbpError> {
    let undecided = store.undecided().await.map_err(stored)?;
    let mut runs = store
        .runs(&scope.filter(), SEARCHED)
        .await
        .map_err(stored)?;
    runs.retain(|run| undecided.contains(&run.run_id));
    runs.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(runs)
}

fn list(runs: &[RunRecord], output: &mut Output) -> Result<ExitStatus, AbpError> {
    if output.is_json() {
        let rows: Vec<_> = runs.iter().map(to_json).collect();
        output.json(&json!({ "runs": rows }))?;
        return Ok(ExitStatus::Success);
    }
    for run in runs {
        let state = run.state.as_str();
        output.line(&format!(
            "{}  {}  {state:<9}  {}  {DIM}{}{DIM:#}",
            run.run_id,
            run.accepted_at,
            one_line(&run.backend),
            one_line(&task(run)),
        ));
    }
    Ok(ExitStatus::Success)
}

fn to_json(run: &RunRecord) -> Value {
    json!({
        "run_id": run.run_id,
        "accepted_at": run.accepted_at,
        "ended_at": run.ended_at,
        "outcome": run.outcome,
        "state": run.state,
        "attempt": run.attempt,
        "backend": run.backend,
        "task": task(run),
    })
}

fn task(run: &RunRecord) -> String {
    let order: Option<Value> = serde_json::from_str(&run.order_json).ok();
    let task = order.as_ref().and_then(|order| order.get("task")?.as_str());
    task.unwrap_or_default().to_owned()
}

/// The state of the decision about a run's changes, for programs.
fn decision_json(state: &DecisionState) -> Value {
    match state {
        DecisionState::Nothing => json!({ "state": "nothing_to_decide" }),
        DecisionState::Open(_) => json!({ "state": "undecided" }),
        DecisionState::Decided { state, by, at } => {
            json!({ "state": state.as_str(), "by": by, "at": at })
        }
    }
}

fn describe(state: &DecisionState) -> String {
    match state {
        DecisionState::Nothing => "nothing to decide about".to_owned(),
        DecisionState::Open(_) => "undecided".to_owned(),
        DecisionState::Decided { state, by, at } => format!("{state} by {by} at {at}"),
    }
}

async fn show(
    plane: &ControlPlane,
    store: &Store,
    run: &RunRecord,
    events: bool,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    if events {
        if run.state.is_final() {
            plane.require_events(run.run_id).await?;
        }
        print_events(store, run.run_id, output.is_json(), output).await?;
        return Ok(ExitStatus::Success);
    }
    let runtime = plane.runtime();
    let receipt = store.receipt(run.run_id).await.map_err(stored)?;
    let receipt = receipt
        .map(|record| abp_core::read_document(&record.document))
        .transpose();
    let receipt: Option<abp_core::Receipt> =
        receipt.map_err(|error| AbpError::new(error.code(), error.to_string()))?;
    let state = match &receipt {
        Some(_) => Some(runtime.decision_state(run.run_id).await?),
        None => None,
    };
    if output.is_json() {
        let decision = state.as_ref().map(decision_json);
        let shown = json!({ "run": to_json(run), "decision": decision, "receipt": receipt });
        output.json(&shown)?;
        return Ok(ExitStatus::Success);
    }
    if let Some(state) = &state {
        output.field("decision", &one_line(&describe(state)));
    }
    output.field("task", &one_line(&task(run)));
    match receipt {
        Some(receipt) => {
            print_summary(&receipt, output);
            output.field(
                "receipt",
                &runtime.receipt_path(run.run_id).display().to_string(),
            );
        }
        None => output.field("outcome", run.state.as_str()),
    }
    Ok(ExitStatus::Success)
}

/// All events, page by page, however many there are; as they were stored, or as people read them.
pub(crate) async fn print_events(
    store: &Store,
    run_id: Uuid,
    as_stored: bool,
    output: &mut Output,
) -> Result<(), AbpError> {
    let mut printer = EventPrinter::new(output);
    let mut next = 0;
    loop {
        let page = store.events(run_id, next, PAGE).await.map_err(stored)?;
        let Some(last) = page.last() else { break };
        next = last.seq + 1;
        for record in page {
            if as_stored {
                output.line(&record.json);
                continue;
            }
            let event: AgentEvent = serde_json::from_str(&record.json).map_err(|error| {
                AbpError::new(
                    ErrorCode::ReceiptChainBroken,
                    format!("event {}: {error}", record.seq),
                )
            })?;
            printer.print(&event.kind, output);
        }
    }
    printer.end_line(output);
    Ok(())
}
