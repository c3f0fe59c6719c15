//! Prepares workspaces: a staged copy, or the source in place.

use std::collections::BTreeSet;
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use abp_core::{WorkspaceMode, WorkspaceSpec};
use abp_glob::GlobList;
use uuid::Uuid;

use crate::Error;
use crate::application::claim;
use crate::dir::Dir;
use crate::git::{GitBaseline, GitLimits, make_baseline};
use crate::left_out::LeftOutList;
use crate::limits::{Budget, StageLimits};
use crate::manifest::Manifest;
use crate::notes::name_twins;
use crate::pack::PackWriter;
use crate::prepared::{Baseline, PreparedWorkspace};
use crate::progress::StageProgress;
use crate::selection::{IgnoredFiles, Selection};
use crate::source::SourceIdentity;
use crate::stage::{self, ClaimedStage, Stage, StageInfo, TREE};
use crate::trash::{self, TrashSweep};
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

    /// Prepares the workspace of a run: copies the source, or takes it in place, and records its
    /// content.
    ///
    /// Names of the source that match `hidden` are not staged, whatever the specification includes.
    /// They are listed as left out, count for their pattern in [`PreparedWorkspace::hidden`], and are
    /// neither shown as deleted nor applied over. In place nothing can be hidden.
    ///
    /// A name that cannot be copied (unreadable, a link that cannot be followed, a name that the
    /// stage's file system refuses) is left out with its reason.
    ///
    /// # Errors
    /// Fails where the root cannot be opened, another run works in it in place, a pattern is
    /// invalid, a budget is exceeded, the disk is full or [`StageProgress::stop`] was called. Nothing of the
    /// stage is left then.
    pub fn prepare(
        &self,
        spec: &WorkspaceSpec,
        run_id: Uuid,
        hidden: &GlobList,
    ) -> Result<PreparedWorkspace, Error> {
        let root = Path::new(&spec.root);
        let source =
            Dir::open_operator_path(root).map_err(|error| root_error(root, error.into()))?;
        let source_path = root
            .canonicalize()
            .map_err(|source| root_error(root, source))?;
        let staged = spec.mode == WorkspaceMode::Staged;
        let selection = Selection::new(spec, ignored_files(staged))?;
        if !staged {
            claim(&source, &source_path)?;
        }
        let identity = SourceIdentity::of(&source, &source_path)
            .map_err(|error| root_error(root, error.into()))?;
        let stage = Stage::create(&self.stages_dir, run_id)?;
        match self.fill(&stage, spec.mode, &source, selection, hidden) {
            Ok(filled) => Ok(self.workspace(stage, filled, source, identity)),
            Err(error) => {
                if let Err(left) = stage.delete() {
                    tracing::warn!(target: "abp.workspace", error = %left, "half a stage could not be removed");
                }
                Err(if self.progress.is_stopped() {
                    Error::Stopped
                } else {
                    error
                })
            }
        }
    }

    /// Locks the stage of an earlier run, to apply or to discard it.
    ///
    /// # Errors
    /// [`Error::NoStage`] where the run has none, [`Error::StageInUse`] where a process uses it.
    pub fn claim(&self, run_id: Uuid) -> Result<ClaimedStage, Error> {
        Ok(ClaimedStage::new(Stage::reopen(&self.stages_dir, run_id)?))
    }

    /// Moves the stage of an earlier run to the trash.
    ///
    /// # Errors
    /// As [`Self::claim`], and where it cannot be moved.
    pub fn discard(&self, run_id: Uuid) -> Result<(), Error> {
        self.claim(run_id)?.discard()
    }

    /// Moves the stage of an earlier attempt of a run to the trash, also where a process uses it: that
    /// process has lost the run. What it still writes goes into the trash.
    ///
    /// # Errors
    /// Fails where it cannot be moved.
    pub fn evict(&self, run_id: Uuid) -> Result<(), Error> {
        stage::evict(&self.stages_dir, run_id)
    }

    /// Deletes discarded stages until the time is over. Several processes may do so at once.
    ///
    /// # Errors
    /// Fails where something cannot be deleted.
    pub fn sweep_trash(&self, time: Duration) -> Result<TrashSweep, Error> {
        trash::sweep(&self.stages_dir, time)
    }

    /// All stages there are, sorted by run.
    ///
    /// # Errors
    /// Fails where the stages cannot be listed.
    pub fn stages(&self) -> Result<Vec<StageInfo>, Error> {
        stage::list(&self.stages_dir)
    }

    /// Moves to the trash the stages whose process is gone, such as after a crash, and returns how
    /// many. Stages in use, stages of the runs to keep, and everything that is no stage stay.
    ///
    /// # Errors
    /// Fails where the stages cannot be listed or one of them cannot be moved.
    pub fn sweep(&self, keep: &BTreeSet<Uuid>) -> Result<usize, Error> {
        stage::sweep(&self.stages_dir, |run_id| keep.contains(&run_id))
    }

    fn fill(
        &self,
        stage: &Stage,
        mode: WorkspaceMode,
        source: &Dir,
        selection: Selection,
        hidden: &GlobList,
    ) -> Result<FilledStage, Error> {
        let packs = (0..readers()).map(|number| stage.create_pack(number));
        let packs = packs.collect::<Result<Vec<_>, _>>()?;
        let copy = match mode {
            WorkspaceMode::Staged => Some(stage.create_tree()?),
            WorkspaceMode::PassThrough => None,
        };
        let progress = Arc::clone(&self.progress);
        let budget = Budget::new(self.limits, stage.free_space()?, progress);
        let mut walker = Walker::new(source, StateDir::Own)
            .select(selection.clone())
            .skip(stage.stages_id()?);
        if copy.is_some() {
            walker = walker.hide(hidden.clone());
        }
        let walked = walker.record(budget, copy.as_ref(), packs)?;
        if self.progress.is_stopped() {
            return Err(Error::Stopped);
        }
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
        tracing::debug!(
            target: "abp.workspace",
            stage = %stage.path.display(),
            staged = copy.is_some(),
            files = manifest.files(),
            bytes = manifest.bytes(),
            left_out = left_out.count,
            "workspace prepared"
        );
        Ok(FilledStage {
            copy,
            baseline: Baseline {
                manifest,
                packed_at,
                packs,
                selection,
            },
            left_out,
            hidden: walked.hidden,
            git,
        })
    }

    fn workspace(
        &self,
        stage: Stage,
        filled: FilledStage,
        source_dir: Dir,
        source: SourceIdentity,
    ) -> PreparedWorkspace {
        let is_staged = filled.copy.is_some();
        PreparedWorkspace {
            root: if is_staged {
                stage.path.join(TREE)
            } else {
                source.path().to_owned()
            },
            root_dir: filled.copy.unwrap_or(source_dir),
            is_staged,
            source,
            stage,
            baseline: filled.baseline,
            left_out: filled.left_out,
            hidden: filled.hidden,
            git: filled.git,
            limits: self.limits,
        }
    }
}

/// A stage that is complete.
struct FilledStage {
    /// None where the run works in place.
    copy: Option<Dir>,
    baseline: Baseline,
    left_out: LeftOutList,
    hidden: Vec<u64>,
    git: GitBaseline,
}

/// The number of threads that read files.
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

fn root_error(root: &Path, source: io::Error) -> Error {
    Error::Root {
        root: root.to_owned(),
        source,
    }
}
