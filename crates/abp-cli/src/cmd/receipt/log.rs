//! Receipts in the store, and the signed log over them.

use abp_control::{RunScope, find_run};
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_receipt::{KeyRing, SignedCheckpoint, VerifyingKey};
use abp_store::{StoreCoverage, StoreReader, StoreReport, VerifyOptions};
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::args::{GlobalArgs, VerifyArgs};
use crate::cmd::runs::stored;
use crate::input;
use crate::output::{BAD, GOOD, Output};
use crate::session::{Session, block_on};
use crate::text::printable;

/// Checks the log and every receipt in it, and says which promise does not hold.
pub(super) fn verify(
    args: &VerifyArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    let options = VerifyOptions {
        keys: args
            .key
            .as_ref()
            .map(|path| read_key(path))
            .transpose()?
            .map(KeyRing::of),
        kept: args
            .checkpoint
            .iter()
            .map(|path| read_checkpoint(path))
            .collect::<Result<_, _>>()?,
    };
    let report = block_on(async {
        // Only reads: a log that is being examined is not changed, not even by a recovery.
        let store = StoreReader::open(&session.config().state_dir)
            .await
            .map_err(stored)?;
        let report = store.verify(options).await.map_err(stored);
        store.close().await;
        report
    })?;
    tell(&report, output)?;
    Ok(if report.is_ok() {
        ExitStatus::Success
    } else {
        ExitStatus::VerificationFailed
    })
}

fn tell(report: &StoreReport, output: &mut Output) -> Result<(), AbpError> {
    let problems: Vec<Value> = report
        .log
        .problems
        .iter()
        .map(failure)
        .chain(report.problems.iter().map(failure))
        .collect();
    let StoreCoverage {
        runs,
        unbound_runs,
        undigested_traces,
        erased_traces,
    } = report.coverage;
    if output.is_json() {
        return output.json(&json!({
            "valid": report.is_ok(),
            "entries": report.log.size,
            "root": report.log.root.to_string(),
            "coverage": {
                "runs": runs,
                "unbound_runs": unbound_runs,
                "undigested_traces": undigested_traces,
                "erased_traces": erased_traces,
            },
            "problem_count": report.log.problem_count + report.problem_count,
            "problems": problems,
        }));
    }
    let (style, word) = if report.is_ok() {
        (GOOD, "valid")
    } else {
        (BAD, "INVALID")
    };
    output.line(&format!(
        "{style}{word}{style:#}   log of {} entries",
        report.log.size
    ));
    if unbound_runs > 0 {
        output.line(&format!(
            "  not covered: the rows and stored orders of {unbound_runs} runs of an older release"
        ));
    }
    if undigested_traces > 0 {
        output.line(&format!(
            "  not covered: the events of {undigested_traces} runs, whose receipts have no digest of them all"
        ));
    }
    if erased_traces > 0 {
        output.line(&format!(
            "  removed: the events of {erased_traces} runs; the log says so, and their receipts are there"
        ));
    }
    for problem in problems {
        let text = |key: &str| problem.get(key).and_then(Value::as_str).unwrap_or_default();
        output.line(&format!(
            "  {}: {}",
            text("failed"),
            printable(text("message"))
        ));
    }
    Ok(())
}

/// One problem; `failed` says in one word what it is: edit, truncation, run_changed and so on.
fn failure(problem: &(impl Serialize + ToString)) -> Value {
    let value = serde_json::to_value(problem).unwrap_or_default();
    let failed = value.get("problem").cloned().unwrap_or_default();
    json!({ "failed": failed, "message": problem.to_string() })
}

pub(super) fn list(
    limit: u32,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let plane = Session::open(global, &[], output)?.plane;
    let receipts = block_on(async {
        // Looking creates nothing.
        match plane.runtime().existing_store().await? {
            Some(store) => store.receipts(None, limit).await.map_err(stored),
            None => Ok(Vec::new()),
        }
    })?;
    let rows = receipts.into_iter();
    let rows: Vec<_> = rows
        .map(|row| (row.log_seq, row.run_id, row.sha256))
        .collect();
    tell_receipts(&rows, output)
}

/// Prints receipts: place in the log, run and hash of each.
pub(crate) fn tell_receipts(
    rows: &[(u64, Uuid, String)],
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    if output.is_json() {
        let row = |(seq, run_id, sha256): &(u64, Uuid, String)| json!({ "run_id": run_id, "seq": seq, "sha256": sha256 });
        let rows: Vec<_> = rows.iter().map(row).collect();
        output.json(&json!({ "receipts": rows }))?;
        return Ok(ExitStatus::Success);
    }
    for (seq, run_id, sha256) in rows {
        output.line(&format!("{seq:>6}  {run_id}  {sha256}"));
    }
    Ok(ExitStatus::Success)
}

/// Prints the newest checkpoint, for somebody to keep where the operator cannot reach it.
pub(super) fn checkpoint(global: &GlobalArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    let checkpoint = block_on(async {
        let store = session.existing_store().await?;
        store.latest_checkpoint().await.map_err(stored)
    })?;
    tell_checkpoint(&checkpoint.to_string(), output)
}

/// Prints a checkpoint, byte for byte.
pub(crate) fn tell_checkpoint(
    checkpoint: &str,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    if output.is_json() {
        output.json(&json!({ "checkpoint": checkpoint }))?;
    } else {
        output.write(checkpoint);
    }
    Ok(ExitStatus::Success)
}

/// Prints a receipt with everything that proves it elsewhere.
pub(super) fn export(
    run: &str,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    let exported = block_on(async {
        let store = session.existing_store().await?;
        let run_id = find_run(store, run, &RunScope::All).await?.run_id;
        let exported = store.export(run_id).await.map_err(stored)?;
        exported.ok_or_else(|| {
            let message = format!("run {run_id} has not ended yet");
            AbpError::new(ErrorCode::ValidationFailed, message)
        })
    })?;
    output.json(&exported)?;
    Ok(ExitStatus::Success)
}

/// Prints the public key, after replacing it where that is asked for.
pub(super) fn key(
    rotate: bool,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    let key = block_on(async {
        // A key is made with the first run; looking for it, or replacing none, makes no store.
        let store = session.existing_store().await?;
        let key = if rotate {
            store.rotate_key().await
        } else {
            store.public_key().await
        };
        key.map_err(stored)
    })?;
    if output.is_json() {
        output.json(&json!({ "key": key.to_string(), "rotated": rotate }))?;
    } else {
        output.line(&key.to_string());
    }
    Ok(ExitStatus::Success)
}

fn read_checkpoint(path: &std::path::Path) -> Result<SignedCheckpoint, AbpError> {
    read_text(path)?
        .parse()
        .map_err(|error: abp_receipt::CheckpointError| {
            AbpError::new(error.code(), format!("{}: {error}", path.display()))
        })
}

pub(super) fn read_key(path: &std::path::Path) -> Result<VerifyingKey, AbpError> {
    read_text(path)?
        .trim()
        .parse()
        .map_err(|error: abp_receipt::KeyError| {
            AbpError::new(error.code(), format!("{}: {error}", path.display()))
        })
}

fn read_text(path: &std::path::Path) -> Result<String, AbpError> {
    String::from_utf8(input::read(path)?).map_err(|error| {
        AbpError::new(
            ErrorCode::ValidationFailed,
            format!("{}: {error}", path.display()),
        )
    })
}
