//! `abp receipt list`, `verify` and `checkpoint` on a remote server.

use abp_error::{AbpError, ExitStatus};
use serde_json::{Value, json};

use super::connect;
use crate::args::{GlobalArgs, ReceiptArgs, ReceiptCommand, VerifyArgs};
use crate::cmd::receipt::{tell_checkpoint, tell_receipts};
use crate::input;
use crate::output::Output;
use crate::session::block_on;
use crate::text::one_line;

/// Carries a command out on the remote server; `None` for one that has no remote form.
pub(super) fn run(
    args: &ReceiptArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Option<Result<ExitStatus, AbpError>> {
    match &args.command {
        ReceiptCommand::List { limit } => Some(list(*limit, global, output)),
        ReceiptCommand::Verify(args) if !args.log => Some(verify(args, global, output)),
        ReceiptCommand::Checkpoint => Some(checkpoint(global, output)),
        ReceiptCommand::Verify(_)
        | ReceiptCommand::Diff { .. }
        | ReceiptCommand::Export { .. }
        | ReceiptCommand::Key { .. }
        | ReceiptCommand::Verifier => None,
    }
}

fn list(limit: u32, global: &GlobalArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let remote = connect(global)?;
    let page = block_on(remote.receipts(limit))?;
    let rows = page.receipts.into_iter();
    let rows: Vec<_> = rows
        .map(|row| (row.log_seq, row.run_id, row.sha256))
        .collect();
    tell_receipts(&rows, output)
}

fn checkpoint(global: &GlobalArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let remote = connect(global)?;
    let view = block_on(remote.checkpoint())?;
    tell_checkpoint(&view.checkpoint, output)
}

/// Has the server judge receipts by its log: what is said is the server's word.
fn verify(
    args: &VerifyArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let remote = connect(global)?;
    let mut status = ExitStatus::Success;
    let mut rows: Vec<Value> = Vec::new();
    for file in &args.files {
        let document = input::read(file)?;
        let report = block_on(remote.verify(document.into()))?;
        let judged = match report.verdict.as_str() {
            "proven" => ExitStatus::Success,
            "self_consistent" => ExitStatus::NotProven,
            _ => ExitStatus::VerificationFailed,
        };
        status = match (status, judged) {
            (ExitStatus::VerificationFailed, _) | (_, ExitStatus::VerificationFailed) => {
                ExitStatus::VerificationFailed
            }
            (ExitStatus::NotProven, _) | (_, ExitStatus::NotProven) => ExitStatus::NotProven,
            _ => ExitStatus::Success,
        };
        let shown = one_line(&file.display().to_string());
        if !output.is_json() {
            let verdict = one_line(&report.verdict);
            output.line(&format!("{shown}  {verdict}, says the server"));
            for problem in &report.problems {
                output.line(&format!("  {}", one_line(problem)));
            }
        }
        rows.push(json!({ "file": shown, "report": report }));
    }
    if output.is_json() {
        output.json(&json!({ "receipts": rows }))?;
    }
    Ok(status)
}
