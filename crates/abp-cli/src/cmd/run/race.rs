//! `abp run --race`: one order on several backends at once, side by side.

use std::collections::BTreeSet;

use abp_control::{ApplyOutcome, ControlPlane, Submission, apply_all, short_run_id};
use abp_core::{ExecutionLane, Outcome, Receipt};
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_runtime::{CancelHandle, StartedRun};
use serde::Serialize;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{RunSummary, cancel_on_signal, exit_status, summarise};
use crate::args::RunArgs;
use crate::cmd::stage::decider;
use crate::output::{BAD, DIM, GOOD, NOTE, Output, STRONG};
use crate::prompt;
use crate::text::one_line;

/// The most backends of a race; each may be several processes.
const MAX_RACERS: usize = 8;

/// The JSON form of a race that ended.
#[derive(Debug, Serialize)]
struct RaceSummary<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    runs: Vec<RunSummary<'a>>,
    /// The fastest of the runs that changed something and are complete, and so passed the check.
    winner: Option<Uuid>,
    /// Whether the winner's changes are in the source now.
    applied: bool,
}

/// Checks everything that can be known before any backend is started.
fn validate(args: &RunArgs, submission: &Submission, plane: &ControlPlane) -> Result<(), AbpError> {
    let invalid = |message: String| AbpError::new(ErrorCode::ValidationFailed, message);
    let names: BTreeSet<&String> = args.race.iter().collect();
    if names.len() != args.race.len() || !(2..=MAX_RACERS).contains(&names.len()) {
        let message =
            format!("--race takes 2 to {MAX_RACERS} different backends, e.g. --race claude,codex");
        return Err(invalid(message));
    }
    if submission.order.lane == ExecutionLane::WorkspaceFirst {
        let message = "every run of a race would apply its changes; leave out --lane workspace-first, and use \
                       --apply-winner or `abp apply`";
        return Err(invalid(message.to_owned()));
    }
    for name in &args.race {
        plane.plan(on_backend(submission, name))?;
    }
    Ok(())
}

fn on_backend(submission: &Submission, name: &str) -> Submission {
    Submission {
        backend: Some(name.to_owned()),
        ..submission.clone()
    }
}

/// Runs the order on every named backend, and compares what came of it.
pub(super) async fn run(
    plane: &ControlPlane,
    submission: Submission,
    args: &RunArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    validate(args, &submission, plane)?;
    let mut runs = JoinSet::new();
    let mut cancels = Vec::new();
    for name in &args.race {
        let racer = on_backend(&submission, name);
        let started = plane.run_here(&prompt::operator(), racer).await?;
        let StartedRun::Started(handle) = started else {
            let message = "a run of the race was started before";
            return Err(AbpError::new(ErrorCode::Internal, message));
        };
        cancels.push(handle.cancel_handle());
        runs.spawn(handle.receipt);
    }
    let signals = tokio::spawn(cancel_all_on_signal(cancels));
    let mut receipts = Vec::new();
    while let Some(joined) = runs.join_next().await {
        let receipt =
            joined.map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))??;
        if !output.is_json() {
            let (id, outcome) = (one_line(&receipt.backend.id), shown_outcome(&receipt));
            output.line(&format!("{STRONG}{id}{STRONG:#} ended: {outcome}"));
        }
        receipts.push(receipt);
    }
    signals.abort();
    receipts.sort_by_key(|receipt| (receipt.outcome != Outcome::Complete, time(receipt)));
    let winner = receipts.iter().find(|receipt| is_win(receipt));
    let applied = match winner {
        Some(winner) if args.apply_winner => apply(plane, winner.meta.run_id).await?,
        _ => false,
    };
    tell(plane, &receipts, winner, applied, output).await?;
    Ok(match (winner, receipts.first()) {
        // The first of the list is complete where any is.
        (None, Some(best)) => exit_status(best),
        _ => ExitStatus::Success,
    })
}

/// Whether a run is complete, which includes its check, and changed something.
fn is_win(receipt: &Receipt) -> bool {
    let changes = receipt.workspace.as_ref();
    let changes = changes.and_then(|workspace| workspace.changes.as_ref());
    receipt.outcome == Outcome::Complete && changes.is_some_and(|changes| changes.files_changed > 0)
}

/// The time that the agent took, without the check.
fn time(receipt: &Receipt) -> u64 {
    let check = receipt.verification.check.as_ref();
    let check = check.map_or(0, |check| check.duration_ms);
    receipt.meta.duration_ms.saturating_sub(check)
}

async fn cancel_all_on_signal(runs: Vec<CancelHandle>) {
    let waiting = runs.into_iter().map(cancel_on_signal);
    let mut all: JoinSet<()> = waiting.collect();
    while all.join_next().await.is_some() {}
}

/// Applies the changes of the winner, and says whether they are in the source.
async fn apply(plane: &ControlPlane, run_id: Uuid) -> Result<bool, AbpError> {
    Ok(match plane.apply(run_id, &apply_all(decider())).await? {
        ApplyOutcome::Applied(_) | ApplyOutcome::AlreadyApplied { .. } => true,
        ApplyOutcome::Nothing => false,
    })
}

async fn tell(
    plane: &ControlPlane,
    receipts: &[Receipt],
    winner: Option<&Receipt>,
    applied: bool,
    output: &mut Output,
) -> Result<(), AbpError> {
    let winner_id = winner.map(|receipt| receipt.meta.run_id);
    if output.is_json() {
        let runs = receipts.iter().map(|receipt| {
            let path = plane.runtime().receipt_path(receipt.meta.run_id);
            let mut summary = summarise(receipt, path.display().to_string(), exit_status(receipt));
            summary.applied |= applied && Some(receipt.meta.run_id) == winner_id;
            summary
        });
        return output.json(&RaceSummary {
            kind: "race_summary",
            runs: runs.collect(),
            winner: winner_id,
            applied,
        });
    }
    let mut rows = vec![Row::head()];
    for receipt in receipts {
        let run = short_run_id(plane.store().await?, receipt.meta.run_id).await?;
        rows.push(Row::of(receipt, run));
    }
    output.line("");
    print_table(&rows, output);
    if let Some(winner) = winner {
        let run = short_run_id(plane.store().await?, winner.meta.run_id).await?;
        match applied {
            true => output.field("applied", &run),
            false => output.field("next", &format!("abp diff {run}, abp apply {run}")),
        }
    }
    Ok(())
}

fn shown_outcome(receipt: &Receipt) -> String {
    let (style, word) = match receipt.outcome {
        Outcome::Complete => (GOOD, "complete"),
        Outcome::Partial => (NOTE, "partial"),
        Outcome::Failed => (BAD, "failed"),
        Outcome::Cancelled => (NOTE, "cancelled"),
    };
    let reason = receipt.error.as_ref();
    let reason = reason.map(|error| format!(" {DIM}{}{DIM:#}", one_line(&error.message)));
    format!("{style}{word}{style:#}{}", reason.unwrap_or_default())
}

/// A line of the comparison.
struct Row([String; 7]);

impl Row {
    fn head() -> Self {
        let names = [
            "backend", "outcome", "check", "time", "cost", "changes", "run",
        ];
        Self(names.map(str::to_owned))
    }

    fn of(receipt: &Receipt, run: String) -> Self {
        let outcome = match receipt.outcome {
            Outcome::Complete => "complete",
            Outcome::Partial => "partial",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
        };
        let check = match &receipt.verification.check {
            None => "–",
            Some(check) if check.passed => "passed",
            Some(_) => "failed",
        };
        let cost = receipt.usage.estimated_cost_usd;
        let cost = cost.map_or_else(|| "–".to_owned(), |dollars| format!("${dollars:.4}"));
        let changes = receipt.workspace.as_ref();
        let changes = changes.and_then(|workspace| workspace.changes.as_ref());
        let changes = changes.map_or_else(
            || "–".to_owned(),
            |changes| {
                format!(
                    "{} files +{} −{}",
                    changes.files_changed, changes.insertions, changes.deletions
                )
            },
        );
        let seconds = std::time::Duration::from_millis(time(receipt)).as_secs_f64();
        Self([
            one_line(&receipt.backend.id),
            outcome.to_owned(),
            check.to_owned(),
            format!("{seconds:.1} s"),
            cost,
            changes,
            run,
        ])
    }
}

fn print_table(rows: &[Row], output: &mut Output) {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.0.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..7).map(width).collect();
    for row in rows {
        let cells = row.0.iter().zip(&widths);
        let cells = cells.map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        output.line(line.trim_end());
    }
}
