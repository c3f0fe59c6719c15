//! `abp agents probe`.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use abp_config::Config;
use abp_control::{ProbeEvidence, ProbedCapability, probe};
use abp_core::SupportLevel;
use abp_error::{AbpError, ErrorCode, ExitStatus};
use serde_json::json;

use crate::output::{BAD, DIM, GOOD, NOTE, Output, STRONG};
use crate::session::block_on;
use crate::text::one_line;

/// Probes backends one after the other. The status is that of a failed verification where one of them claims
/// what it does not show.
pub(super) fn run(
    names: &[String],
    out: Option<&Path>,
    config: &Config,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let mut all = Vec::new();
    for name in names {
        let scratch = tempfile::tempdir().map_err(|error| failed("make a directory", error))?;
        // State is kept in a directory that only its owner reaches.
        let own = scratch.path().join("probe");
        let mut private = fs::DirBuilder::new();
        private.recursive(true).mode(0o700);
        private
            .create(own.join("state"))
            .map_err(|error| failed("make a directory", error))?;
        let evidence = block_on(probe(config, name, &own))?;
        if let Some(directory) = out {
            write(directory, &evidence)?;
        }
        if !output.is_json() {
            print(&evidence, output);
        }
        all.push(evidence);
    }
    let is_false = |row: &ProbedCapability| {
        row.claimed != SupportLevel::Unsupported && row.shown == Some(false)
    };
    let is_refuted = all.iter().any(|one| one.capabilities.iter().any(is_false));
    if output.is_json() {
        output.json(&json!({ "evidence": all }))?;
    }
    Ok(match is_refuted {
        true => ExitStatus::VerificationFailed,
        false => ExitStatus::Success,
    })
}

fn write(directory: &Path, evidence: &ProbeEvidence) -> Result<(), AbpError> {
    let name = evidence.backend.replace(':', "-");
    let mut text = serde_json::to_string_pretty(evidence)
        .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?;
    text.push('\n');
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(directory.join(format!("{name}.json")), text))
        .map_err(|error| failed("write the evidence", error))
}

fn print(evidence: &ProbeEvidence, output: &mut Output) {
    let version = evidence.version.as_deref().unwrap_or("no version");
    let (name, version) = (one_line(&evidence.backend), one_line(version));
    let date = &evidence.date;
    output.line(&format!("{STRONG}{name}{STRONG:#} {version}, {date}"));
    for row in &evidence.capabilities {
        let (style, word) = match (row.shown, &row.claimed) {
            (None, _) => (DIM, "not tried"),
            (Some(true), SupportLevel::Unsupported) => (NOTE, "shown, not claimed"),
            (Some(true), _) => (GOOD, "shown"),
            (Some(false), _) => (BAD, "NOT SHOWN"),
        };
        let (capability, how) = (one_line(&row.capability), one_line(&row.how));
        output.line(&format!(
            "  {capability:<20} {style}{word}{style:#}  {DIM}{how}{DIM:#}"
        ));
    }
}

fn failed(what: &str, error: std::io::Error) -> AbpError {
    AbpError::new(ErrorCode::Internal, format!("cannot {what}")).with_source(error)
}
