//! `abp validate`.

use std::path::Path;

use abp_core::{PolicyProfile, WorkOrder, validate_work_order, verify_receipt_document};
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_json::{Limits, Tape};
use abp_policy::PolicyEngine;
use abp_protocol::{JsonlCodec, ProtocolError};
use serde::Serialize;
use serde_json::json;

use crate::args::{DocumentKind, ValidateArgs};
use crate::input;
use crate::output::{BAD, GOOD, NOTE, Output};
use crate::text::printable;

/// What was found in a document.
#[derive(Debug, Default, Serialize)]
struct Findings {
    problems: Vec<Problem>,
    /// Not wrong, but probably not meant.
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Problem {
    code: ErrorCode,
    problem: String,
}

pub(crate) fn run(args: &ValidateArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let bytes = input::read(&args.file)?;
    let kind = match args.kind {
        Some(kind) => kind,
        None => recognise(&args.file, &bytes)?,
    };
    let findings = match kind {
        DocumentKind::WorkOrder => check_order(&bytes),
        DocumentKind::Receipt => check_receipt(&bytes),
        DocumentKind::Policy => check_profile(&bytes),
        DocumentKind::Transcript => check_transcript(&bytes),
    };
    let status = findings
        .problems
        .first()
        .map_or(ExitStatus::Success, |problem| problem.code.exit_status());
    let name = clap::ValueEnum::to_possible_value(&kind)
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default();
    if output.is_json() {
        output.json(&json!({
            "file": args.file.display().to_string(),
            "kind": name,
            "valid": findings.problems.is_empty(),
            "problems": findings.problems,
            "warnings": findings.warnings,
        }))?;
        return Ok(status);
    }
    let (style, word) = if findings.problems.is_empty() {
        (GOOD, "valid")
    } else {
        (BAD, "INVALID")
    };
    output.line(&format!(
        "{style}{word}{style:#} {name} {}",
        args.file.display()
    ));
    for problem in &findings.problems {
        output.line(&format!(
            "  {}: {}",
            problem.code,
            printable(&problem.problem)
        ));
    }
    for warning in &findings.warnings {
        output.line(&format!("  {NOTE}warning{NOTE:#}: {}", printable(warning)));
    }
    Ok(status)
}

/// A receipt names its hash, an order its task, a policy only lists; a transcript has many lines.
fn recognise(path: &Path, bytes: &[u8]) -> Result<DocumentKind, AbpError> {
    if path
        .extension()
        .is_some_and(|extension| extension == "jsonl")
    {
        return Ok(DocumentKind::Transcript);
    }
    let Ok(tape) = Tape::parse(bytes, &Limits::default()) else {
        // Reading it as a work order gives the error with its place.
        return Ok(DocumentKind::WorkOrder);
    };
    let has = |key: &str| tape.root().get(key).is_some();
    if has("receipt_sha256") || has("outcome") {
        Ok(DocumentKind::Receipt)
    } else if has("task") {
        Ok(DocumentKind::WorkOrder)
    } else if has("t") {
        Ok(DocumentKind::Transcript)
    } else {
        let lists = serde_json::to_value(PolicyProfile::default()).unwrap_or_default();
        let known = |key: &str| lists.get(key).is_some();
        match tape
            .root()
            .entries()
            .any(|(key, _)| key.as_str().is_some_and(|key| known(&key)))
        {
            true => Ok(DocumentKind::Policy),
            false => Err(AbpError::new(
                ErrorCode::ValidationFailed,
                format!(
                    "{}: cannot tell what this is; say so with --kind",
                    path.display()
                ),
            )),
        }
    }
}

fn check_order(bytes: &[u8]) -> Findings {
    match abp_core::read_document::<WorkOrder>(bytes) {
        Err(error) => Findings::problem(error.code(), &error),
        Ok(order) => {
            let mut findings = Findings::default();
            if let Err(errors) = validate_work_order(&order) {
                findings
                    .problems
                    .extend(errors.iter().map(|error| Problem::new(error.code(), error)));
            }
            if let Err(error) = PolicyEngine::new(&order.policy) {
                findings
                    .problems
                    .push(Problem::new(ErrorCode::PolicyInvalid, &error));
            }
            findings.note_unknown(bytes, &order);
            findings
        }
    }
}

fn check_receipt(bytes: &[u8]) -> Findings {
    match verify_receipt_document(bytes) {
        Ok(receipt) => {
            let mut findings = Findings::default();
            findings.note_unknown(bytes, &receipt);
            findings
        }
        Err(errors) => Findings {
            problems: errors
                .iter()
                .map(|error| Problem::new(error.code(), error))
                .collect(),
            warnings: Vec::new(),
        },
    }
}

/// Policies are written by operators: an unknown key is an error, not a warning.
fn check_profile(bytes: &[u8]) -> Findings {
    let profile: PolicyProfile = match abp_core::read_document(bytes) {
        Ok(profile) => profile,
        Err(error) => return Findings::problem(ErrorCode::PolicyInvalid, &error),
    };
    let mut findings = Findings::default();
    if let Err(error) = PolicyEngine::new(&profile) {
        findings
            .problems
            .push(Problem::new(ErrorCode::PolicyInvalid, &error));
    }
    let unknown = input::unknown_fields(bytes, &profile);
    findings
        .problems
        .extend(unknown.iter().map(|field| Problem {
            code: ErrorCode::PolicyInvalid,
            problem: field.describe(),
        }));
    findings
}

fn check_transcript(bytes: &[u8]) -> Findings {
    let mut findings = Findings::default();
    let mut stream = JsonlCodec::decode_stream(bytes);
    while let Some(message) = stream.next() {
        let line = stream.line();
        match message {
            Ok(_) => {}
            Err(error @ ProtocolError::UnknownEnvelope { .. }) => {
                findings.warnings.push(format!("line {line}: {error}"));
            }
            Err(error) => findings.problems.push(Problem {
                code: error.code(),
                problem: format!("line {line}: {error}"),
            }),
        }
    }
    if stream.line() == 0 {
        findings.problems.push(Problem::new(
            ErrorCode::ProtocolInvalidEnvelope,
            &"there is no message",
        ));
    }
    findings
}

impl Findings {
    fn problem(code: ErrorCode, problem: &impl ToString) -> Self {
        Self {
            problems: vec![Problem::new(code, problem)],
            warnings: Vec::new(),
        }
    }

    fn note_unknown(&mut self, bytes: &[u8], understood: &impl Serialize) {
        self.warnings.extend(
            input::unknown_fields(bytes, understood)
                .iter()
                .map(input::UnknownField::describe),
        );
    }
}

impl Problem {
    fn new(code: ErrorCode, problem: &impl ToString) -> Self {
        Self {
            code,
            problem: problem.to_string(),
        }
    }
}
