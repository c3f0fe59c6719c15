//! Prepares workspaces: a staged copy, or the source in place.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use abp_core::{WorkspaceMode, WorkspaceSpec};
use abp_glob::GlobList;
use abp_sandbox::Overlay;
use uuid::Uuid;

use crate::Error;
use crate::application::claim;
use crate::dir::Dir;
use crate::git::{GitBaseline, GitLimits, import_baseline, make_baseline};
use crate::layers::make_opaque;
use crate::left_out::LeftOutList;
use crate::lent::lend;
use crate::limits::{Budget, StageLimits};
use crate::manifest::Manifest;
use crate::notes::name_twins;
use crate::overlay::{OverlayStage, SurveyLimits};
use crate::pack::PackWriter;
use crate::placeholder::{Placeholder, choose, make_in_copy};
use crate::prepared::{Baseline, PreparedWorkspace, StageForm};
use crate::progress::StageProgress;
use crate::selection::{IgnoredFiles, Selection};
use crate::source::SourceIdentity;
use crate::stage::{self, ClaimedStage, Stage, StageInfo, TREE};
use crate::trash::{self, TrashSweep};
use crate::walk::{REPOSITORY, StateDir, Walker};

/// Prepares the workspaces of runs.
#[derive(Debug, Clone)]
pub struct WorkspaceManager {
    stages_dir: PathBuf,
    limits: StageLimits,
    git: Option<GitLimits>,
    progress: Arc<StageProgress>,
    choice: StageChoice,
    lend: BTreeSet<String>,
    placeholders: Vec<Placeholder>,
}

/// The form that stages are to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StageChoice {
    /// A copy.
    Copy {
        /// Why no overlay is tried, for the report.
        reason: Option<String>,
    },
    /// An overlay where the source allows it, otherwise a copy.
    Overlay,
}

impl WorkspaceManager {
    /// Keeps stages in a directory, which is created (mode 0700) when it is first needed.
    pub fn new(stages_dir: impl Into<PathBuf>) -> Self {
        Self {
            stages_dir: stages_dir.into(),
            limits: StageLimits::default(),
            git: Some(GitLimits::default()),
            progress: Arc::default(),
            choice: StageChoice::Copy { reason: None },
            lend: BTreeSet::new(),
            placeholders: Vec::new(),
        }
    }

    /// Keeps the places of protected names that are not there, so that the sandbox of a staged run can mount
    /// over them. In place nothing is made.
    #[must_use]
    pub fn with_placeholders(mut self, placeholders: Vec<Placeholder>) -> Self {
        self.placeholders = placeholders;
        self
    }

    /// Lends ignored directories of these names (`node_modules`, `target`) to staged runs: they are shown copy on
    /// write and are no part of the changes. The sandbox of the run has to mount
    /// [`PreparedWorkspace::overlays`].
    #[must_use]
    pub fn with_lent(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.lend = names.into_iter().collect();
        self
    }

    /// Sets the form of stages. An overlay is of use only to a run whose processes are all in one sandbox
    /// that mounts it ([`PreparedWorkspace::overlays`]).
    #[must_use]
    pub fn with_choice(mut self, choice: StageChoice) -> Self {
        self.choice = choice;
        self
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
        let origin = SourceRoot {
            dir: &source,
            path: &source_path,
        };
        match self.fill(&stage, spec.mode, &origin, selection, hidden) {
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

    /// How many discarded stages there are, as those that remain of a sweep that deletes none.
    ///
    /// # Errors
    /// Fails where they cannot be listed.
    pub fn count_trash(&self) -> Result<TrashSweep, Error> {
        trash::sweep(&self.stages_dir, Duration::ZERO)
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
        source: &SourceRoot<'_>,
        selection: Selection,
        hidden: &GlobList,
    ) -> Result<FilledStage, Error> {
        let reason = match (mode, &self.choice) {
            (WorkspaceMode::PassThrough, _) => None,
            (WorkspaceMode::Staged, StageChoice::Copy { reason }) => reason.clone(),
            (WorkspaceMode::Staged, StageChoice::Overlay) => {
                let selection = selection.clone();
                match self.survey(stage, source, selection, hidden) {
                    Err(Error::NoOverlay { reason }) => {
                        stage.empty()?;
                        Some(reason)
                    }
                    surveyed => return surveyed,
                }
            }
        };
        self.record(stage, mode, source, selection, hidden, reason)
    }

    /// Fills a stage with the layers of an overlay.
    fn survey(
        &self,
        stage: &Stage,
        source: &SourceRoot<'_>,
        selection: Selection,
        hidden: &GlobList,
    ) -> Result<FilledStage, Error> {
        let bounds = SurveyLimits {
            limits: self.limits,
            progress: Arc::clone(&self.progress),
            lend: self.lend.clone(),
            placeholders: self.placeholders.clone(),
        };
        let tree = stage.create_tree()?;
        let surveyed =
            OverlayStage::prepare(stage, source.dir, source.path, selection, hidden, bounds)?;
        if self.progress.is_stopped() {
            return Err(Error::Stopped);
        }
        let mut left_out = surveyed.left_out;
        for (path, reason) in name_twins(&surveyed.manifest) {
            left_out.add(&path, reason);
        }
        let git = match self.git {
            None => GitBaseline::Skipped {
                reason: "it is switched off".to_owned(),
            },
            Some(limits) => {
                let (manifest, path) = (&surveyed.manifest, stage.path.join(TREE));
                let stream = || stage.create_nameless("stream").map_err(io::Error::other);
                import_baseline(limits, manifest, source.dir, &path, stream)
            }
        };
        if git == GitBaseline::Made {
            // A repository that is made in the live source later must not shine through.
            let made = tree.open_dir(REPOSITORY).and_then(|dir| make_opaque(&dir));
            made.map_err(|error| stage.failed(error))?;
        }
        Ok(FilledStage {
            copy: Some(tree),
            baseline: Baseline {
                manifest: surveyed.manifest,
                packed_at: Vec::new(),
                packs: Vec::new(),
                selection: surveyed.selection,
            },
            form: StageForm::Overlay,
            placeholders: BTreeMap::new(),
            lent: surveyed.overlay.lent.clone(),
            overlays: vec![surveyed.overlay.mount.clone()],
            overlay: Some(surveyed.overlay),
            left_out,
            hidden: surveyed.hidden,
            git,
        })
    }

    /// Fills a stage with a copy, or records the source in place.
    fn record(
        &self,
        stage: &Stage,
        mode: WorkspaceMode,
        source: &SourceRoot<'_>,
        selection: Selection,
        hidden: &GlobList,
        reason: Option<String>,
    ) -> Result<FilledStage, Error> {
        let packs = (0..readers()).map(|number| stage.create_pack(number));
        let packs = packs.collect::<Result<Vec<_>, _>>()?;
        let copy = match mode {
            WorkspaceMode::Staged => Some(stage.create_tree()?),
            WorkspaceMode::PassThrough => None,
        };
        let progress = Arc::clone(&self.progress);
        let budget = Budget::new(self.limits, stage.free_space()?, progress);
        let mut walker = Walker::new(source.dir, StateDir::Own)
            .select(selection.clone())
            .skip(stage.stages_id()?);
        if copy.is_some() {
            walker = walker.hide(hidden.clone()).lend(self.lend.clone());
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
        let lent: BTreeSet<Vec<u8>> = walked.layers.lent.into_iter().collect();
        let overlays = lend(stage, source.dir, source.path, &lent, &walked.layers.masked)?;
        let placeholders = match &copy {
            Some(tree) => {
                let chosen = choose(&self.placeholders, &manifest);
                make_in_copy(tree, &chosen).map_err(|error| stage.failed(error))?;
                chosen
            }
            None => BTreeMap::new(),
        };
        let form = match &copy {
            Some(_) => StageForm::Copy { reason },
            None => StageForm::InPlace,
        };
        Ok(FilledStage {
            copy,
            form,
            placeholders,
            lent,
            overlays,
            overlay: None,
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
            baseline: Arc::new(filled.baseline),
            form: filled.form,
            overlay: filled.overlay,
            overlays: filled.overlays,
            lent: filled.lent,
            placeholders: filled.placeholders,
            left_out: filled.left_out,
            hidden: filled.hidden,
            git: filled.git,
            limits: self.limits,
        }
    }
}

/// A source, open and by its canonical path.
struct SourceRoot<'a> {
    dir: &'a Dir,
    path: &'a Path,
}

/// A stage that is complete.
struct FilledStage {
    /// None where the run works in place.
    copy: Option<Dir>,
    form: StageForm,
    overlay: Option<OverlayStage>,
    overlays: Vec<Overlay>,
    lent: BTreeSet<Vec<u8>>,
    placeholders: BTreeMap<Vec<u8>, Placeholder>,
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
