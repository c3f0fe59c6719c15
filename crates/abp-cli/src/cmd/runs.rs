//! `abp runs`.

use abp_control::find_run;
use abp_core::AgentEvent;
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_runtime::{Runtime, RuntimeError, workspace_error};
use abp_store::{RunFilter, RunRecord, Store};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::args::{GlobalArgs, RunsArgs, RunsCommand};
use crate::cmd::receipt::print_summary;
use crate::output::{DIM, Output};
use crate::render::EventPrinter;
use crate::session::{Session, block_on};
use crate::text::one_line;

/// How many events are read at a time.
const PAGE: u32 = 1_000;

pub(crate) fn run(
    args: &RunsArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let plane = Session::open(global, &[], output)?.plane;
    let runtime = plane.runtime();
    block_on(async {
        let store = runtime.store().await?;
        match &args.command {
            RunsCommand::List { limit, undecided } => {
                let runs = if *undecided {
                    undecided_runs(runtime, store, *limit).await?
                } else {
                    let all = RunFilter::default();
                    store.runs(&all, *limit).await.map_err(stored)?
                };
                list(&runs, output)
            }
            RunsCommand::Show { run, events } => show(runtime, store, run, *events, output).await,
        }
    })
}

pub(crate) fn stored(error: abp_store::StoreError) -> AbpError {
    RuntimeError::from(error).into()
}

/// Runs whose stage was kept and not decided about yet, newest first. The stages say so themselves,
/// so nothing is forgotten that a crash kept from being noted elsewhere.
async fn undecided_runs(
    runtime: &Runtime,
    store: &Store,
    limit: u32,
) -> Result<Vec<RunRecord>, AbpError> {
    let stages = runtime.workspaces().stages();
    let stages = stages.map_err(|error| workspace_error(&error))?;
    let mut runs = Vec::new();
    for stage in stages.iter().filter(|stage| stage.kept && stage.staged) {
        runs.extend(store.run(stage.run_id).await.map_err(stored)?);
    }
    runs.sort_unstable_by_key(|run| std::cmp::Reverse(run.number));
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
        let outcome = run.outcome.as_deref().unwrap_or("running");
        output.line(&format!(
            "{}  {}  {outcome:<9}  {}  {DIM}{}{DIM:#}",
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
        "backend": run.backend,
        "task": task(run),
    })
}

fn task(run: &RunRecord) -> String {
    let order: Option<Value> = serde_json::from_str(&run.order_json).ok();
    let task = order.as_ref().and_then(|order| order.get("task")?.as_str());
    task.unwrap_or_default().to_owned()
}

async fn show(
    runtime: &Runtime,
    store: &Store,
    text: &str,
    events: bool,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let run = find_run(store, text).await?;
    if events {
        print_events(store, run.run_id, output.is_json(), output).await?;
        return Ok(ExitStatus::Success);
    }
    let receipt = store.receipt(run.run_id).await.map_err(stored)?;
    let receipt = receipt
        .map(|record| abp_core::read_document(&record.document))
        .transpose();
    let receipt: Option<abp_core::Receipt> =
        receipt.map_err(|error| AbpError::new(error.code(), error.to_string()))?;
    if output.is_json() {
        output.json(&json!({ "run": to_json(&run), "receipt": receipt }))?;
        return Ok(ExitStatus::Success);
    }
    output.field("task", &one_line(&task(&run)));
    match receipt {
        Some(receipt) => {
            print_summary(&receipt, output);
            output.field(
                "receipt",
                &runtime.receipt_path(run.run_id).display().to_string(),
            );
        }
        None => output.field("outcome", "running"),
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
