//! `abp diff`, `abp apply` and `abp discard`: deciding about the result of a run.

use std::path::{Component, Path, PathBuf};

use abp_control::{ApplyOutcome, DecisionProgress, DiscardOutcome, ProposedChanges, find_run};
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_runtime::{ApplyRequest, Decider, HostFiles};
use abp_store::RunRecord;
use serde_json::{Value, json};

use crate::args::{ApplyArgs, GlobalArgs, StageArgs};
use crate::output::{GOOD, NOTE, Output};
use crate::prompt;
use crate::render;
use crate::session::{Session, block_on};
use crate::text::one_line;

pub(crate) fn diff(
    args: &StageArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    block_on(async {
        let run = find(&session, &args.run).await?;
        let changes = session.plane.changes(run.run_id).await?;
        show(&changes, output)
    })
}

fn show(changes: &ProposedChanges, output: &mut Output) -> Result<ExitStatus, AbpError> {
    if output.is_json() {
        let host_files = changes.host_files.iter();
        let host_files = host_files
            .map(|(path, reason)| json!({ "path": path.display().to_string(), "reason": reason }));
        let (decision, decided) = match &changes.progress {
            DecisionProgress::Unchanged => ("nothing_to_apply", Value::Null),
            DecisionProgress::Undecided => ("undecided", Value::Null),
            DecisionProgress::Decided { state, by, at } => {
                (state.as_str(), json!({ "by": by, "at": at }))
            }
        };
        output.json(&json!({
            "decision": decision,
            "decided": decided,
            "applied": changes.applied,
            "status": changes.status,
            "diff": changes.diff,
            "paths": changes.paths,
            "takes_effect_on_this_machine": host_files.collect::<Vec<_>>(),
        }))?;
        return Ok(ExitStatus::Success);
    }
    tell_decided(changes, output);
    if output.is_coloured() {
        render::diff(&changes.diff, output);
    } else {
        // For `git apply`: byte for byte.
        output.write(&changes.diff);
    }
    for (path, reason) in &changes.host_files {
        let path = one_line(&path.display().to_string());
        output.warn(&format!("{path} takes effect on this machine: {reason}"));
    }
    Ok(ExitStatus::Success)
}

/// Tells, beside the patch, what of the run is decided already.
fn tell_decided(changes: &ProposedChanges, output: &mut Output) {
    if let DecisionProgress::Decided { state, by, at } = &changes.progress {
        let by = one_line(by);
        let message = format!("nothing is undecided: the changes were {state} by {by} at {at}");
        output.note(&message);
    }
    for path in &changes.applied {
        output.note(&format!("already applied: {}", one_line(path)));
    }
}

/// Applies all of it or, where something stands in the way, nothing.
pub(crate) fn apply(
    args: &ApplyArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    let plane = &session.plane;
    block_on(async {
        let run = find(&session, &args.run).await?;
        let mut request = ApplyRequest {
            decider: decider(),
            paths: in_project(&args.paths, &run),
            host_files: match args.allow_host_files {
                true => HostFiles::Write,
                false => HostFiles::Refuse,
            },
        };
        let outcome = match plane.apply(run.run_id, &request).await {
            Err(error) if error.code() == ErrorCode::ApprovalRequired && output.can_ask() => {
                if !agrees(&error, output) {
                    return Err(error);
                }
                request.host_files = HostFiles::Write;
                plane.apply(run.run_id, &request).await?
            }
            outcome => outcome?,
        };
        tell_applied(&run, &outcome, output)?;
        Ok(ExitStatus::Success)
    })
}

fn agrees(refusal: &AbpError, output: &mut Output) -> bool {
    let why = one_line(refusal.message());
    output.status(&format!(
        "{NOTE}{why}{NOTE:#}\nwrite these files as well? [y/N] "
    ));
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.is_ok() && matches!(line.trim().to_lowercase().as_str(), "y" | "yes")
}

fn tell_applied(
    run: &RunRecord,
    outcome: &ApplyOutcome,
    output: &mut Output,
) -> Result<(), AbpError> {
    let run_id = run.run_id;
    if output.is_json() {
        return output.json(&match outcome {
            ApplyOutcome::Applied(applied) => json!({
                "run_id": run_id,
                "decision": "applied",
                "paths": applied.paths,
                "undecided": applied.remaining,
            }),
            ApplyOutcome::AlreadyApplied { by, at } => {
                json!({ "run_id": run_id, "decision": "already_applied", "by": by, "at": at })
            }
            ApplyOutcome::Nothing => json!({ "run_id": run_id, "decision": "nothing_to_apply" }),
        });
    }
    match outcome {
        ApplyOutcome::Applied(applied) => {
            let files = count(applied.paths.len() as u64, "path");
            let rest = match applied.remaining {
                0 => String::new(),
                rest => format!(", {} still undecided", count(rest, "path")),
            };
            output.line(&format!("{GOOD}applied{GOOD:#} {run_id}  {files}{rest}"));
        }
        ApplyOutcome::AlreadyApplied { by, at } => {
            let by = one_line(by);
            output.line(&format!("already applied {run_id}  by {by} at {at}"));
        }
        ApplyOutcome::Nothing => output.line(&format!("nothing to apply {run_id}")),
    }
    Ok(())
}

fn count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}

pub(crate) fn discard(
    args: &StageArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    block_on(async {
        let run_id = find(&session, &args.run).await?.run_id;
        let (word, decision) = match session.plane.discard(run_id, decider()).await? {
            DiscardOutcome::Discarded => ("discarded", "discarded"),
            DiscardOutcome::Nothing => ("nothing to discard", "nothing_to_discard"),
        };
        if output.is_json() {
            output.json(&json!({ "run_id": run_id, "decision": decision }))?;
        } else {
            output.line(&format!("{GOOD}{word}{GOOD:#} {run_id}"));
        }
        Ok(ExitStatus::Success)
    })
}

/// The person at this terminal.
pub(crate) fn decider() -> Decider {
    let person = prompt::approver("cli");
    Decider {
        by: person.name,
        via: person.via,
    }
}

async fn find(session: &Session, text: &str) -> Result<RunRecord, AbpError> {
    let store = session.existing_store().await?;
    find_run(store, text, &session.scope()).await
}

/// Paths as the change set names them: relative to the project, also where they are given from one of its
/// directories.
fn in_project(paths: &[PathBuf], run: &RunRecord) -> Vec<PathBuf> {
    let root = run.project.as_ref().map(|project| Path::new(&project.path));
    let relative = |path: &PathBuf| {
        let absolute = without_dots(&std::path::absolute(path).ok()?);
        Some(absolute.strip_prefix(root?).ok()?.to_owned())
    };
    paths
        .iter()
        .map(|path| relative(path).unwrap_or_else(|| path.clone()))
        .collect()
}

/// An absolute path without `..`. The path may be one that only the run made, so links are not asked.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}
