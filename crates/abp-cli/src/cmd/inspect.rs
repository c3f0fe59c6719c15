//! `abp inspect`.

use abp_core::{Receipt, verify_receipt_document};
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_stream::Predicate;
use serde_json::json;

use crate::args::InspectArgs;
use crate::cmd::receipt::print_summary;
use crate::input;
use crate::output::{BAD, GOOD, Output};
use crate::render::{EventPrinter, candidates};
use crate::text::printable;

pub(crate) fn run(args: &InspectArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let bytes = input::read(&args.file)?;
    let problems = match verify_receipt_document(&bytes) {
        Ok(_) => Vec::new(),
        Err(problems) => problems,
    };
    let receipt: Receipt = input::document(&args.file, &bytes)?;
    let status = if problems.is_empty() {
        ExitStatus::Success
    } else {
        ExitStatus::VerificationFailed
    };
    if args.diff {
        if let Some(problem) = problems.first() {
            return Err(AbpError::new(
                ErrorCode::ReceiptHashMismatch,
                problem.to_string(),
            ));
        }
        output.write(receipt.verification.git_diff.as_deref().unwrap_or_default());
        return Ok(status);
    }
    if !args.only.is_empty() {
        print_events(&receipt, &predicate(&args.only), output)?;
        return Ok(status);
    }
    if output.is_json() {
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        output.json(
            &json!({ "consistent": problems.is_empty(), "problems": problems, "receipt": receipt }),
        )?;
        return Ok(status);
    }
    print_summary(&receipt, output);
    match problems.as_slice() {
        // Only the log can prove more, and `abp receipt verify` asks it.
        [] => output.field(
            "integrity",
            &format!("{GOOD}consistent with itself{GOOD:#}"),
        ),
        problems => {
            for problem in problems {
                output.field(
                    "integrity",
                    &format!("{BAD}{}{BAD:#}", printable(&problem.to_string())),
                );
            }
        }
    }
    if let Some(plan) = &receipt.plan {
        output.line("");
        candidates(&plan.selection.candidates, output);
    }
    Ok(status)
}

fn predicate(kinds: &[String]) -> Predicate {
    let one = |kind: &String| match kind.as_str() {
        "problem" => Predicate::Problem,
        kind => Predicate::Kind(kind.to_owned()),
    };
    Predicate::Any(kinds.iter().map(one).collect())
}

fn print_events(
    receipt: &Receipt,
    wanted: &Predicate,
    output: &mut Output,
) -> Result<(), AbpError> {
    let mut printer = EventPrinter::new(output);
    for event in receipt.trace.iter().filter(|event| wanted.matches(event)) {
        if output.is_json() {
            output.json_line(event)?;
        } else {
            printer.print(&event.kind, output);
        }
    }
    printer.end_line(output);
    Ok(())
}
