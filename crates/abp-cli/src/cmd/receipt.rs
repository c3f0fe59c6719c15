//! `abp receipt`, and what other commands show of receipts.

mod log;
mod mcp;

use std::path::Path;

use abp_core::{Outcome, Receipt, ValidationError, verify_receipt_document};
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_receipt::{ExportedReceipt, KeyRing, VerifyingKey, diff_documents};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::{GlobalArgs, ReceiptArgs, ReceiptCommand, VerifyArgs};
use crate::input;
use crate::output::{BAD, GOOD, NOTE, Output};
use crate::text::{one_line, printable};

pub(crate) fn run(
    args: &ReceiptArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    match &args.command {
        ReceiptCommand::Verify(args) if args.log => log::verify(args, global, output),
        ReceiptCommand::Verify(args) => verify(args, output),
        ReceiptCommand::List { limit } => log::list(*limit, global, output),
        ReceiptCommand::Checkpoint => log::checkpoint(global, output),
        ReceiptCommand::Export { run } => log::export(run, global, output),
        ReceiptCommand::Key { rotate } => log::key(*rotate, global, output),
        ReceiptCommand::Diff { old, new } => diff(old, new, output),
    }
}

/// Shows how two receipts differ, field by field.
fn diff(old: &Path, new: &Path, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let difference = diff_documents(&input::read(old)?, &input::read(new)?)
        .map_err(|error| AbpError::new(error.code(), error.to_string()))?;
    if output.is_json() {
        output.json(&difference)?;
        return Ok(ExitStatus::Success);
    }
    for change in &difference.changes {
        output.line(&format!(
            "{}: {BAD}{}{BAD:#} {GOOD}{}{GOOD:#}",
            one_line(&change.field),
            one_line(
                &change
                    .old
                    .as_ref()
                    .map_or_else(|| "absent".to_owned(), ToString::to_string)
            ),
            one_line(
                &change
                    .new
                    .as_ref()
                    .map_or_else(|| "absent".to_owned(), ToString::to_string)
            ),
        ));
    }
    Ok(ExitStatus::Success)
}

/// Checks every file, says what is wrong with each, and fails if any is.
fn verify(args: &VerifyArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let key = args.key.as_deref().map(log::read_key).transpose()?;
    let mut all_valid = true;
    let mut results = Vec::new();
    for path in &args.files {
        let bytes = input::read(path)?;
        let checked = check(&bytes, key.as_ref());
        all_valid &= checked.is_ok();
        if output.is_json() {
            results.push(to_json(path, &checked));
        } else {
            print_verdict(path, &checked, output);
        }
    }
    if output.is_json() {
        output.json(&json!({ "valid": all_valid, "receipts": results }))?;
    }
    Ok(if all_valid {
        ExitStatus::Success
    } else {
        ExitStatus::VerificationFailed
    })
}

/// What is wrong with a receipt.
#[derive(Debug, Serialize)]
struct Finding {
    code: ErrorCode,
    problem: String,
}

/// An exported receipt is checked against the key that is trusted; a bare one against itself.
fn check(bytes: &[u8], key: Option<&VerifyingKey>) -> Result<Receipt, Vec<Finding>> {
    let finding = |code, problem: String| vec![Finding { code, problem }];
    let Ok(exported) = ExportedReceipt::from_json(bytes) else {
        return verify_receipt_document(bytes).map_err(|problems| {
            let told = |problem: &ValidationError| Finding {
                code: problem.code(),
                problem: problem.to_string(),
            };
            problems.iter().map(told).collect()
        });
    };
    let Some(key) = key else {
        let problem = "an exported receipt is checked against a public key; name it with --key";
        return Err(finding(ErrorCode::ConfigInvalid, problem.to_owned()));
    };
    exported
        .verify(&KeyRing::of(key.clone()))
        .map_err(|error| finding(error.code(), error.to_string()))
}

fn to_json(path: &Path, checked: &Result<Receipt, Vec<Finding>>) -> Value {
    let problems = checked.as_ref().err();
    let receipt = checked.as_ref().ok();
    json!({
        "file": path.display().to_string(),
        "valid": checked.is_ok(),
        "run_id": receipt.map(|receipt| receipt.meta.run_id),
        "receipt_sha256": receipt.and_then(|receipt| receipt.receipt_sha256.as_deref()),
        "problems": problems.map_or(&[][..], Vec::as_slice),
    })
}

fn print_verdict(path: &Path, checked: &Result<Receipt, Vec<Finding>>, output: &mut Output) {
    let path = path.display();
    match checked {
        Ok(receipt) => {
            let hash = receipt.receipt_sha256.as_deref().unwrap_or_default();
            output.line(&format!("{GOOD}valid{GOOD:#}   {path}  {hash}"));
        }
        Err(problems) => {
            output.line(&format!("{BAD}INVALID{BAD:#} {path}"));
            for problem in problems {
                output.line(&format!(
                    "  {}: {}",
                    problem.code,
                    printable(&problem.problem)
                ));
            }
        }
    }
}

/// What a receipt says, in a few aligned lines.
pub(crate) fn print_summary(receipt: &Receipt, output: &mut Output) {
    let (style, word) = match receipt.outcome {
        Outcome::Complete => (GOOD, "complete"),
        Outcome::Partial => (NOTE, "partial"),
        Outcome::Failed => (BAD, "failed"),
        Outcome::Cancelled => (NOTE, "cancelled"),
    };
    output.field(
        "outcome",
        &format!("{style}{word}{style:#} in {} ms", receipt.meta.duration_ms),
    );
    if let Some(error) = &receipt.error {
        output.field(
            "error",
            &format!("[{}] {}", error.code, one_line(&error.message)),
        );
    }
    let version = receipt
        .backend
        .backend_version
        .as_deref()
        .map(|version| format!(" {version}"))
        .unwrap_or_default();
    output.field(
        "backend",
        &one_line(&format!("{}{version}", receipt.backend.id)),
    );
    for entry in receipt.plan.iter().flat_map(|plan| &plan.emulation.applied) {
        output.field("emulated", entry.capability.as_str());
    }
    for note in receipt.plan.iter().flat_map(|plan| &plan.notes) {
        output.field("note", &one_line(note));
    }
    for rule in receipt
        .enforcement
        .rules
        .iter()
        .filter(|rule| rule.denied > 0)
    {
        let times = if rule.denied == 1 {
            String::new()
        } else {
            format!(" ({} times)", rule.denied)
        };
        output.field(
            "denied",
            &format!("by {} {:?}{times}", rule.list, rule.pattern),
        );
    }
    if let Some(report) = &receipt.mcp {
        mcp::print(report, output);
    }
    if let Some(workspace) = &receipt.workspace {
        if let Some(changes) = &workspace.changes {
            let applied = if workspace.applied {
                ", applied to the source"
            } else {
                ""
            };
            let (files, plus, minus) =
                (changes.files_changed, changes.insertions, changes.deletions);
            let files = if files == 1 {
                "1 file".to_owned()
            } else {
                format!("{files} files")
            };
            output.field(
                "changes",
                &format!("{files} changed, +{plus} -{minus}{applied}"),
            );
        }
        for note in &workspace.notes {
            output.field("note", &one_line(note));
        }
        if workspace.left_out_count > 0 {
            output.field(
                "left out",
                &format!("{} entries of the source", workspace.left_out_count),
            );
        }
    }
    if let Some(cost) = receipt.usage.estimated_cost_usd {
        output.field("cost", &format!("${cost:.6}"));
    }
    output.field("run", &receipt.meta.run_id.to_string());
    if let Some(hash) = &receipt.receipt_sha256 {
        output.field("sha256", hash);
    }
}

/// Writes a second copy of a receipt.
pub(crate) fn write_copy(path: &Path, receipt: &Receipt) -> Result<(), AbpError> {
    let write = || std::fs::write(path, receipt.to_document().map_err(std::io::Error::other)?);
    write().map_err(|error| {
        AbpError::new(
            ErrorCode::ReceiptStoreFailed,
            format!("cannot write {}", path.display()),
        )
        .with_source(error)
    })
}
