//! Prepares workspaces: a staged copy, or the source in place.

use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use abp_core::{WorkspaceMode, WorkspaceSpec};
use rustix::io::Errno;
use uuid::Uuid;

use crate::Error;
use crate::dir::{Dir, path_of};
use crate::git::{GitBaseline, GitLimits, make_baseline};
use crate::limits::{Budget, StageLimits};
use crate::manifest::Manifest;
use crate::notes::name_twins;
use crate::pack::{Pack, PackWriter};
use crate::prepared::{Baseline, Origin, PreparedWorkspace, bytes_of};
use crate::progress::StageProgress;
use crate::record::{Head, Record};
use crate::selection::{IgnoredFiles, Selection};
use crate::stage::{self, Stage, StageInfo, TREE};
use crate::walk::{StateDir, Walker};

/// Prepares the workspaces of runs.
#[derive(Debug, Clone)]
pub struct WorkspaceManager {
    stages_dir: PathBuf,
    limits: StageLimits,
    git: Option<GitLimits>,
    progress: Arc<StageProgress>,
}

impl WorkspaceManager {
    /// Keeps stages in a directory, which is created (mode 0700) when it is first needed.
    pub fn new(stages_dir: impl Into<PathBuf>) -> Self {
        Self {
            stages_dir: stages_dir.into(),
            limits: StageLimits::default(),
            git: Some(GitLimits::default()),
            progress: Arc::default(),
        }
    }

    /// Sets other budgets than the default ones.
    #[must_use]
    pub fn with_limits(mut self, limits: StageLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets up to which size a stage starts as a git repository.
    #[must_use]
    pub fn with_git_limits(mut self, limits: GitLimits) -> Self {
        self.git = Some(limits);
        self
    }

    /// Lets stages start without a git repository.
    #[must_use]
    pub fn without_git_baseline(mut self) -> Self {
        self.git = None;
        self
    }

    /// Counts in this how far the next preparation is.
    #[must_use]
    pub fn with_progress(mut self, progress: Arc<StageProgress>) -> Self {
        self.progress = progress;
        self
    }

    /// Prepares the workspace of a run: copies the source, or takes it in place, and records what
    /// it holds.
    ///
    /// # Errors
    /// Fails where the root cannot be opened, another run works in it in place, a pattern is
    /// invalid, a budget is exceeded or the disk fails. Nothing of the stage is left then.
    pub fn prepare(&self, spec: &WorkspaceSpec, run_id: Uuid) -> Result<PreparedWorkspace, Error> {
        let root = Path::new(&spec.root);
        let source =
            Dir::open_operator_path(root).map_err(|error| root_error(root, error.into()))?;
        let source_path = root
            .canonicalize()
            .map_err(|source| root_error(root, source))?;
        let staged = spec.mode == WorkspaceMode::Staged;
        let selection = Selection::new(spec, ignored_files(staged))?;
        if !staged {
            claim_in_place(&source, &source_path)?;
        }
        let stage = Stage::create(&self.stages_dir, run_id)?;
        match self.fill(&stage, spec.mode, &source, &source_path, selection) {
            Ok((filled, copy)) => {
                let (root_dir, origin) = match copy {
                    Some(copy) => (
                        copy,
                        Origin::Staged {
                            source: Some(source),
                        },
                    ),
                    None => (source, Origin::InPlace),
                };
                Ok(self.workspace(stage, filled, (root_dir, origin), source_path))
            }
            Err(error) => {
                if let Err(left) = stage.remove() {
                    tracing::warn!(target: "abp.workspace", error = %left, "half a stage could not be removed");
                }
                Err(error)
            }
        }
    }

    /// Takes up the stage of an earlier run: one that was kept, or one that a crash left.
    ///
    /// What it is compared with is what was recorded when the run started. Where the source is gone,
    /// the changes can still be seen, but not applied.
    ///
    /// # Errors
    /// [`Error::NoStage`] where the run has none, [`Error::StageInUse`] where some process uses it,
    /// [`Error::StageDamaged`] where its record is torn or foreign, [`Error::Busy`] where the run
    /// worked in place and another one does now.
    pub fn reopen(&self, run_id: Uuid) -> Result<PreparedWorkspace, Error> {
        let stage = Stage::reopen(&self.stages_dir, run_id)?;
        let record = stage.read_record()?;
        let source_path = path_of(&record.head.source).to_owned();
        let cannot_open = |error: Errno| root_error(&source_path, error.into());
        let source = Dir::open_operator_path(&source_path);
        let (root_dir, origin) = if record.head.staged {
            let source = match source {
                Err(Errno::NOENT | Errno::NOTDIR) => None,
                opened => Some(opened.map_err(cannot_open)?),
            };
            (stage.open_tree()?, Origin::Staged { source })
        } else {
            let source = source.map_err(cannot_open)?;
            claim_in_place(&source, &source_path)?;
            (source, Origin::InPlace)
        };
        let ignored_files = ignored_files(record.head.staged);
        let filled = Filled {
            packs: stage.open_packs(record.packs)?,
            selection: Selection::recorded(record.rules.clone(), ignored_files)?,
            record,
        };
        Ok(self.workspace(stage, filled, (root_dir, origin), source_path))
    }

    /// All stages there are, sorted by run.
    ///
    /// # Errors
    /// Fails where the stages cannot be listed.
    pub fn stages(&self) -> Result<Vec<StageInfo>, Error> {
        stage::list(&self.stages_dir)
    }

    /// Removes the stages whose runs are gone, such as after a crash, and says how many. Stages in
    /// use and stages kept on purpose stay, and so does everything that is no stage.
    ///
    /// # Errors
    /// Fails where the stages cannot be listed or one of them cannot be removed.
    pub fn sweep(&self) -> Result<usize, Error> {
        stage::sweep(&self.stages_dir)
    }

    fn fill(
        &self,
        stage: &Stage,
        mode: WorkspaceMode,
        source: &Dir,
        source_path: &Path,
        selection: Selection,
    ) -> Result<(Filled, Option<Dir>), Error> {
        let packs = (0..readers()).map(|number| stage.create_pack(number));
        let packs = packs.collect::<Result<Vec<_>, _>>()?;
        let copy = match mode {
            WorkspaceMode::Staged => Some(stage.create_tree()?),
            WorkspaceMode::PassThrough => None,
        };
        let progress = Arc::clone(&self.progress);
        let budget = Budget::new(self.limits, stage.free_space()?, progress);
        let walked = Walker::new(source, StateDir::Ours)
            .select(selection.clone())
            .skip(stage.stages_id()?)
            .record(budget, copy.as_ref(), packs)?;
        let selection = walked.selection.unwrap_or(selection).frozen();
        let (entries, packed_at) = walked.entries.into_iter().unzip();
        let packs = walked.packs.into_iter().map(PackWriter::finish);
        let packs =
            packs
                .collect::<io::Result<Vec<_>>>()
                .map_err(|source| Error::StageDirectory {
                    path: stage.path.clone(),
                    source,
                })?;
        let (manifest, mut left_out) = (Manifest::new(entries), walked.left_out);
        for (path, reason) in name_twins(&manifest) {
            left_out.add(&path, reason);
        }
        let git = match (&copy, self.git) {
            (Some(_), Some(limits)) => make_baseline(limits, &manifest, &stage.path.join(TREE)),
            (Some(_), None) => GitBaseline::Skipped {
                reason: "it is switched off".to_owned(),
            },
            (None, _) => GitBaseline::Skipped {
                reason: "the run works in place".to_owned(),
            },
        };
        let record = Record {
            head: Head {
                staged: copy.is_some(),
                source: bytes_of(source_path).to_vec(),
            },
            rules: selection.rules().clone(),
            left_out,
            git,
            manifest,
            packed_at,
            packs: packs.len() as u64,
        };
        stage.write_record(&record)?;
        tracing::debug!(
            target: "abp.workspace",
            root = %source_path.display(),
            staged = copy.is_some(),
            files = record.manifest.files(),
            bytes = record.manifest.bytes(),
            left_out = record.left_out.count,
            "workspace prepared"
        );
        let filled = Filled {
            packs,
            selection,
            record,
        };
        Ok((filled, copy))
    }

    fn workspace(
        &self,
        stage: Stage,
        filled: Filled,
        (root_dir, origin): (Dir, Origin),
        source_path: PathBuf,
    ) -> PreparedWorkspace {
        let Filled {
            packs,
            selection,
            record,
        } = filled;
        let root = if record.head.staged {
            stage.path.join(TREE)
        } else {
            source_path.clone()
        };
        PreparedWorkspace {
            root,
            root_dir,
            origin,
            source_path,
            stage,
            baseline: Baseline {
                manifest: record.manifest,
                packed_at: record.packed_at,
                packs,
                selection,
            },
            left_out: record.left_out,
            git: record.git,
            limits: self.limits,
        }
    }
}

/// What a stage holds when it is complete.
struct Filled {
    packs: Vec<Pack>,
    selection: Selection,
    record: Record,
}

/// How many threads read files.
fn readers() -> u64 {
    const MOST: u64 = 8;
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    MOST.min(threads as u64)
}

fn ignored_files(staged: bool) -> IgnoredFiles {
    if staged {
        IgnoredFiles::Leave
    } else {
        IgnoredFiles::Take
    }
}

/// Held as long as the workspace; the lock goes with the handle.
fn claim_in_place(source: &Dir, path: &Path) -> Result<(), Error> {
    match stage::lock(source) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::Busy {
            root: path.to_owned(),
        }),
        Err(error) => Err(root_error(path, error.into())),
    }
}

fn root_error(root: &Path, source: io::Error) -> Error {
    Error::Root {
        root: root.to_owned(),
        source,
    }
}
