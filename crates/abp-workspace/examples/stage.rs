//! Stages a directory, verifies the stage and removes it, and prints how long each took.
//!
//! `stage SOURCE STAGES [--git]` prints `prepare_us changes_us files bytes`; with `--git` the stage is
//! made a repository, whatever its size.
//! `cargo xtask bench staging` compares these figures with those of other programs.

use std::io::Write;
use std::time::{Duration, Instant};

use abp_core::WorkspaceSpec;
use abp_workspace::{GitBaseline, GitLimits, WorkspaceManager};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (source, stages, with_git) = match arguments.as_slice() {
        [source, stages] => (source, stages, false),
        [source, stages, flag] if flag == "--git" => (source, stages, true),
        _ => return Err("usage: stage SOURCE STAGES [--git]".into()),
    };
    let spec = WorkspaceSpec {
        root: source.clone(),
        ..WorkspaceSpec::default()
    };
    let unlimited = GitLimits {
        max_files: u64::MAX,
        max_bytes: u64::MAX,
        max_time: Duration::from_secs(600),
    };
    let manager = WorkspaceManager::new(stages);
    let manager = if with_git {
        manager.with_git_limits(unlimited)
    } else {
        manager.without_git_baseline()
    };
    let started = Instant::now();
    let workspace = manager.prepare(&spec, uuid::Uuid::new_v4())?;
    let prepared = started.elapsed();
    if let (true, GitBaseline::Skipped { reason }) = (with_git, workspace.git_baseline()) {
        return Err(format!("no repository was made: {reason}").into());
    }
    let started = Instant::now();
    let changes = workspace.changes()?;
    let verified = started.elapsed();
    if !changes.is_empty() {
        return Err("a fresh stage has changes".into());
    }
    let (files, bytes) = (workspace.baseline().files(), workspace.baseline().bytes());
    workspace.remove()?;
    writeln!(
        std::io::stdout(),
        "{} {} {files} {bytes}",
        prepared.as_micros(),
        verified.as_micros(),
    )?;
    Ok(())
}
