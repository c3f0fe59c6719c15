//! Commands on another machine's control plane: `--remote URL`, or `ABP_REMOTE`.

mod control;
mod receipt;
mod run;

use std::path::PathBuf;

use abp_config::Config;
use abp_control_http::api::{ChangeProgress, ChangesView, RunView};
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_remote::{LocalApply, Remote, RemoteAddress, apply_locally};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use crate::args::{ApplyArgs, Command, GlobalArgs, RunsArgs, RunsCommand, StageArgs};
use crate::cmd::receipt::print_summary;
use crate::cmd::runs::tell_deleted;
use crate::cmd::sessions;
use crate::output::{DIM, GOOD, Output};
use crate::render::{self, EventPrinter};
use crate::session::{Session, block_on};
use crate::text::one_line;

/// The variable that holds the key of the remote server. Keys are never given on a command line, where
/// others could read them.
const KEY_VARIABLE: &str = "ABP_REMOTE_KEY";

/// Carries a command out on the remote server; `None` for a command that has no remote form.
pub(crate) fn dispatch(
    command: &Command,
    global: &GlobalArgs,
    output: &mut Output,
) -> Option<Result<ExitStatus, AbpError>> {
    Some(match command {
        Command::Run(args) if !args.dry_run => run::run(args, global, output),
        Command::Runs(args) => runs(args, global, output),
        Command::Diff(args) => diff(args, global, output),
        Command::Apply(args) => apply(args, global, output),
        Command::Discard(args) => discard(args, global, output),
        Command::Receipt(args) => return receipt::run(args, global, output),
        Command::Sessions(args) => sessions::run_remote(args, global, output),
        Command::Logs(args) => control::logs(args, global, output),
        Command::Cancel(args) => control::cancel(args, global, output),
        Command::Approvals(args) => control::approvals(args, global, output),
        Command::Approve(args) => control::answer(true, args, global, output),
        Command::Deny(args) => control::answer(false, args, global, output),
        _ => return None,
    })
}

/// The server that a command is for.
pub(crate) fn connect(global: &GlobalArgs) -> Result<Remote, AbpError> {
    let url = global.remote.clone().unwrap_or_default();
    let key = std::env::var(KEY_VARIABLE).unwrap_or_default();
    if key.is_empty() {
        let message = format!("set {KEY_VARIABLE} to a key of the remote server");
        return Err(AbpError::new(ErrorCode::ConfigInvalid, message));
    }
    Remote::new(&RemoteAddress {
        url,
        key: SecretString::from(key),
    })
}

/// Where the workspace of a remote run came from: `STATE/remote/RUN.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Origin {
    url: String,
    root: PathBuf,
}

fn origin_file(session: &Session, run_id: Uuid) -> PathBuf {
    let dir = session.config().state_dir.join("remote");
    dir.join(format!("{run_id}.json"))
}

/// The directory of the journals of applications on this machine.
pub(crate) fn journals(config: &Config) -> PathBuf {
    config.state_dir.join("remote").join("applying")
}

/// Remembers which directory a run's workspace was uploaded from.
fn remember(session: &Session, run_id: Uuid, origin: &Origin) -> Result<(), AbpError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let file = origin_file(session, run_id);
    let failed = |error: &dyn std::fmt::Display| {
        let message = format!("cannot write {}: {error}", file.display());
        AbpError::new(ErrorCode::ConfigInvalid, message)
    };
    if let Some(dir) = file.parent() {
        let mut builder = std::fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(dir);
        made.map_err(|error| failed(&error))?;
    }
    let document = serde_json::to_vec(origin).map_err(|error| failed(&error))?;
    std::fs::write(&file, document).map_err(|error| failed(&error))
}

/// The directory that a run's workspace was uploaded from.
fn recall(session: &Session, run_id: Uuid) -> Option<Origin> {
    let bytes = std::fs::read(origin_file(session, run_id)).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn runs(args: &RunsArgs, global: &GlobalArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let remote = connect(global)?;
    block_on(async {
        match &args.command {
            RunsCommand::List { limit, .. } => {
                let page = remote.runs(*limit).await?;
                if output.is_json() {
                    output.json(&json!({ "runs": page.runs }))?;
                    return Ok(ExitStatus::Success);
                }
                for run in &page.runs {
                    print_run(run, output);
                }
                Ok(ExitStatus::Success)
            }
            RunsCommand::Show { run, events } => {
                let run = remote.find(run).await?;
                match events {
                    true => print_events(&remote, run.run_id, output).await,
                    false => show(&remote, &run, output).await,
                }
            }
            RunsCommand::Delete { run } => {
                let run_id = remote.find(run).await?.run_id;
                let deleted = remote.delete(run_id).await?;
                tell_deleted(run_id, deleted.is_changed, output)
            }
        }
    })
}

fn state_name(run: &RunView) -> String {
    let name = serde_json::to_value(run.state).unwrap_or_default();
    name.as_str().unwrap_or_default().to_owned()
}

fn print_run(run: &RunView, output: &mut Output) {
    output.line(&format!(
        "{}  {}  {:<9}  {}  {DIM}{}{DIM:#}",
        run.run_id,
        run.accepted_at,
        state_name(run),
        one_line(&run.backend),
        one_line(&run.task),
    ));
}

async fn show(remote: &Remote, run: &RunView, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let receipt = match run.state.is_final() {
        true => Some(remote.receipt(run.run_id).await?),
        false => None,
    };
    if output.is_json() {
        output.json(&json!({ "run": run, "receipt": receipt }))?;
        return Ok(ExitStatus::Success);
    }
    output.field("task", &one_line(&run.task));
    match receipt {
        Some(receipt) => print_summary(&receipt, output),
        None => output.field("outcome", &state_name(run)),
    }
    Ok(ExitStatus::Success)
}

/// Prints the events of a run, and follows it where it has not ended.
async fn print_events(
    remote: &Remote,
    run_id: Uuid,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let mut printer = EventPrinter::new(output);
    let mut events = remote.follow(run_id, None);
    while let Some((_, event)) = events.next().await? {
        match output.is_json() {
            true => output.json_line(&event)?,
            false => printer.print(&event.kind, output),
        }
    }
    printer.end_line(output);
    Ok(ExitStatus::Success)
}

fn diff(
    args: &StageArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let remote = connect(global)?;
    block_on(async {
        let run = remote.find(&args.run).await?;
        let changes = remote.changes(run.run_id).await?;
        if output.is_json() {
            output.json(&changes)?;
            return Ok(ExitStatus::Success);
        }
        tell_decided(&changes, output);
        match output.is_coloured() {
            true => render::diff(&changes.diff, output),
            // For `git apply`: byte for byte.
            false => output.write(&changes.diff),
        }
        for path in &changes.host_files {
            output.warn(&format!("{} takes effect on this machine", one_line(path)));
        }
        Ok(ExitStatus::Success)
    })
}

fn tell_decided(changes: &ChangesView, output: &mut Output) {
    if let ChangeProgress::Decided { decision, by, at } = &changes.progress {
        let (decision, by) = (one_line(decision), one_line(by));
        output.note(&format!(
            "nothing is undecided: the changes were {decision} by {by} at {at}"
        ));
    }
    for path in &changes.applied {
        output.note(&format!("already applied: {}", one_line(path)));
    }
}

/// Applies a remote run to the directory that it was uploaded from, or to the working directory.
fn apply(
    args: &ApplyArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let remote = connect(global)?;
    let session = Session::open(global, &[], output)?;
    block_on(async {
        let run = remote.find(&args.run).await?;
        let root = match recall(&session, run.run_id) {
            Some(origin) => origin.root,
            None => {
                let message = "the run was not uploaded from here; apply its patch with \
                               `abp diff RUN --remote URL | git apply`";
                return Err(AbpError::new(ErrorCode::ValidationFailed, message));
            }
        };
        let request = LocalApply {
            root,
            paths: args.paths.clone(),
            agree_to_host_files: args.allow_host_files,
            journals: journals(session.config()),
        };
        let paths = apply_locally(&remote, run.run_id, request).await?;
        let run_id = run.run_id;
        if output.is_json() {
            let applied = json!({ "run_id": run_id, "decision": "applied", "paths": paths });
            output.json(&applied)?;
        } else {
            let count = paths.len();
            output.line(&format!("{GOOD}applied{GOOD:#} {run_id}  {count} paths"));
        }
        Ok(ExitStatus::Success)
    })
}

fn discard(
    args: &StageArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let remote = connect(global)?;
    block_on(async {
        let run_id = remote.find(&args.run).await?.run_id;
        let report = remote.discard(run_id).await?;
        let (word, decision) = match report.is_changed {
            true => ("discarded", "discarded"),
            false => ("nothing to discard", "nothing_to_discard"),
        };
        if output.is_json() {
            output.json(&json!({ "run_id": run_id, "decision": decision }))?;
        } else {
            output.line(&format!("{GOOD}{word}{GOOD:#} {run_id}"));
        }
        Ok(ExitStatus::Success)
    })
}
