//! `abp receipt`, and what other commands show of receipts.

mod log;
mod mcp;
mod process;
mod verify;

use std::path::Path;

use abp_core::{Outcome, Receipt, SandboxReport};
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_receipt::diff_documents;

use crate::args::{GlobalArgs, ReceiptArgs, ReceiptCommand};
use crate::input;
use crate::output::{BAD, GOOD, NOTE, Output};
use crate::text::one_line;

pub(crate) use self::log::{tell_checkpoint, tell_receipts};

pub(crate) fn run(
    args: &ReceiptArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    match &args.command {
        ReceiptCommand::Verify(args) if args.log => log::verify(args, global, output),
        ReceiptCommand::Verify(args) => verify::verify(args, global, output),
        ReceiptCommand::List { limit } => log::list(*limit, global, output),
        ReceiptCommand::Checkpoint => log::checkpoint(global, output),
        ReceiptCommand::Export { run } => log::export(run, global, output),
        ReceiptCommand::Key { rotate } => log::key(*rotate, global, output),
        ReceiptCommand::Diff { old, new } => diff(old, new, output),
        ReceiptCommand::Verifier => {
            output.write(&abp_console::verifier_page());
            Ok(ExitStatus::Success)
        }
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

/// The sandbox of a run's processes, in a line.
fn confined(sandbox: &SandboxReport) -> String {
    if sandbox.layers.is_empty() {
        return format!("{BAD}by nothing: the sandbox is switched off{BAD:#}");
    }
    let network = match sandbox.network.as_str() {
        "open" => format!("; {BAD}the network is open{BAD:#}"),
        _ => String::new(),
    };
    format!("by {}{network}", one_line(&sandbox.layers.join(", ")))
}

/// Prints the essence of a receipt in a few aligned lines.
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
        process::print(error, output);
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
    if let Some(sandbox) = &receipt.enforcement.sandbox {
        output.field("confined", &confined(sandbox));
    }
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
