//! Stages a directory, verifies the stage, applies one change to the source and discards the stage,
//! and prints how long each took.
//!
//! `stage SOURCE STAGES [--git]` prints `prepare_us changes_us files bytes apply_us discard_us`; with
//! `--git` the stage is made a repository, whatever its size. The change is one more line in the
//! first file. `cargo xtask bench staging` compares these figures with those of other programs.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use abp_core::WorkspaceSpec;
use abp_glob::GlobList;
use abp_workspace::{
    Application, ApplyJournal, ChangeSet, ClaimedStage, FileKind, GitBaseline, GitLimits,
    WorkspaceManager,
};
use uuid::Uuid;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
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
    let run_id = Uuid::new_v4();
    let started = Instant::now();
    let workspace = manager.prepare(&spec, run_id, &GlobList::for_paths(&[])?)?;
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
    let mut entries = workspace.baseline().entries().iter();
    let first = entries.find(|entry| entry.kind() == FileKind::File);
    let first = first.ok_or("the source has no file")?;
    let path = workspace.root().join(first.path());
    OpenOptions::new()
        .append(true)
        .open(path)?
        .write_all(b"one more line\n")?;
    let (set, images) = workspace.change_set(&workspace.changes()?)?;
    drop(workspace);

    let stored = set.to_document()?;
    let journal = Path::new(stages).join(format!("{run_id}.journal"));
    let started = Instant::now();
    let stage = manager.claim(run_id)?;
    let image = |hash: &[u8; 32]| {
        let found = images.iter().find(|image| image.sha256 == *hash);
        found.map(|image| image.bytes.clone())
    };
    apply(&stage, &stored, image, &journal)?;
    let applied = started.elapsed();
    let started = Instant::now();
    stage.discard()?;
    let discarded = started.elapsed();

    std::fs::remove_file(journal)?;
    manager.sweep_trash(Duration::from_secs(600))?;
    writeln!(
        std::io::stdout(),
        "{} {} {files} {bytes} {} {}",
        prepared.as_micros(),
        verified.as_micros(),
        applied.as_micros(),
        discarded.as_micros(),
    )?;
    Ok(())
}

/// Applies as a later process does: from the stored document, with a durable journal.
fn apply(
    stage: &ClaimedStage,
    stored: &[u8],
    images: impl Fn(&[u8; 32]) -> Option<Vec<u8>>,
    journal: &Path,
) -> Result<(), Failure> {
    let set = ChangeSet::from_document(stored)?;
    let application = Application::begin(stage.tree(), &set, &[], images)?;
    write_journal(journal, application.journal())?;
    let application = application.stage_contents()?;
    write_journal(journal, application.journal())?;
    let application = application.commit()?;
    write_journal(journal, application.journal())?;
    application.clean_up()?;
    Ok(())
}

fn write_journal(path: &Path, journal: &ApplyJournal) -> Result<(), Failure> {
    let mut file = File::create(path)?;
    file.write_all(&journal.to_document()?)?;
    file.sync_all()?;
    Ok(())
}
