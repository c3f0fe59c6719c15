//! `abp import`: the receipts of an earlier version's state directory.

use abp_control::{ImportVerdict, ImportedReceipt, LegacyImport};
use abp_error::{AbpError, ExitStatus};

use crate::args::{GlobalArgs, ImportArgs};
use crate::output::{BAD, NOTE, Output};
use crate::session::Session;
use crate::text::one_line;

pub(crate) fn run(
    args: &ImportArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    let import = session.plane.import_legacy(&args.directory)?;
    if output.is_json() {
        output.json(&import)?;
    } else {
        print(&import, output);
    }
    let is_wrong = |receipt: &ImportedReceipt| receipt.verdict == ImportVerdict::Wrong;
    Ok(if import.receipts.iter().any(is_wrong) {
        ExitStatus::VerificationFailed
    } else {
        ExitStatus::Success
    })
}

fn print(import: &LegacyImport, output: &mut Output) {
    for receipt in &import.receipts {
        let (style, word) = match receipt.verdict {
            ImportVerdict::SelfConsistent => (NOTE, "self-consistent only"),
            ImportVerdict::Wrong => (BAD, "WRONG"),
        };
        let file = one_line(&receipt.file);
        output.line(&format!("{style}{word}{style:#} {file}"));
        for problem in &receipt.problems {
            output.line(&format!("  {}", one_line(problem)));
        }
    }
    let copied = import.receipts.iter().filter(|one| one.is_copied).count();
    let receipts = if copied == 1 { "receipt" } else { "receipts" };
    let place = match copied {
        0 => String::new(),
        _ => format!(
            " to {}",
            one_line(&import.destination.display().to_string())
        ),
    };
    output.field("copied", &format!("{copied} {receipts}{place}"));
    if import.left_out > 0 {
        let detail = format!("{} receipts: there are too many", import.left_out);
        output.field("left out", &detail);
    }
    if !import.ignored.is_empty() {
        let ignored = one_line(&import.ignored.join(", "));
        output.field("not taken", &ignored);
    }
    if import.wrote_gitignore {
        output.field("gitignore", "the directory is kept out of commits now");
    }
}
