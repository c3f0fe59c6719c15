//! Prepares workspaces: a staged copy, or the source in place.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use abp_core::{WorkspaceMode, WorkspaceSpec};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use uuid::Uuid;

use crate::Error;
use crate::dir::{Dir, FileId};
use crate::limits::{Budget, StageLimits};
use crate::manifest::Manifest;
use crate::pack::PackWriter;
use crate::prepared::{Baseline, Origin, PreparedWorkspace};
use crate::remove::remove_tree;
use crate::selection::{IgnoredFiles, Selection};
use crate::walk::{StateDir, Walker};

const TREE: &str = "tree";
const PACK: &str = "baseline.pack";
/// Marks a stage that nobody uses any more and that is kept all the same.
const KEPT: &str = "kept";

/// Prepares the workspaces of runs.
#[derive(Debug, Clone)]
pub struct WorkspaceManager {
    stages_dir: PathBuf,
    limits: StageLimits,
}

/// The directory of one run among the stages: the copy, and what the host keeps of the original.
#[derive(Debug)]
pub(crate) struct Stage {
    parent: Dir,
    name: String,
    dir: Dir,
    path: PathBuf,
}

impl WorkspaceManager {
    /// Keeps stages in a directory, which is created (mode 0700) when it is first needed.
    pub fn new(stages_dir: impl Into<PathBuf>) -> Self {
        Self {
            stages_dir: stages_dir.into(),
            limits: StageLimits::default(),
        }
    }

    /// Sets other budgets than the default ones.
    #[must_use]
    pub fn with_limits(mut self, limits: StageLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Prepares the workspace of a run: copies the source, or takes it in place, and records what
    /// it holds.
    ///
    /// # Errors
    /// Fails where the root cannot be opened, another run works in it in place, a pattern is
    /// invalid, a budget is exceeded or the disk fails. Nothing of the stage is left then.
    pub fn prepare(&self, spec: &WorkspaceSpec, run_id: Uuid) -> Result<PreparedWorkspace, Error> {
        let root = PathBuf::from(&spec.root);
        let cannot_open = |source| Error::Root {
            root: root.clone(),
            source,
        };
        let source = Dir::open_operator_path(&root).map_err(|error| cannot_open(error.into()))?;
        let source_path = root.canonicalize().map_err(cannot_open)?;
        let ignored_files = match spec.mode {
            WorkspaceMode::Staged => IgnoredFiles::Leave,
            WorkspaceMode::PassThrough => IgnoredFiles::Take,
        };
        let selection = Selection::new(spec, ignored_files)?;
        if spec.mode == WorkspaceMode::PassThrough {
            // Held as long as the workspace; the lock goes with the handle.
            match rustix::fs::flock(&source, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::AGAIN) => return Err(Error::Busy { root: source_path }),
                locked => locked.map_err(|error| cannot_open(error.into()))?,
            }
        }
        let stage = Stage::create(&self.stages_dir, run_id)?;
        match self.fill(&stage, spec.mode, source, source_path, selection) {
            Ok(parts) => Ok(parts.into_workspace(stage, self.limits)),
            Err(error) => {
                if let Err(left) = stage.remove() {
                    tracing::warn!(target: "abp.workspace", error = %left, "half a stage could not be removed");
                }
                Err(error)
            }
        }
    }

    /// Removes the stages whose runs are gone, such as after a crash, and says how many. Stages in
    /// use and stages kept on purpose stay, and so does everything that is no stage.
    ///
    /// # Errors
    /// Fails where the stages cannot be listed or one of them cannot be removed.
    pub fn sweep(&self) -> Result<usize, Error> {
        let failed = |error: Errno| Error::StageDirectory {
            path: self.stages_dir.clone(),
            source: error.into(),
        };
        let parent = match Dir::open_operator_path(&self.stages_dir) {
            Err(Errno::NOENT) => return Ok(0),
            opened => opened.map_err(failed)?,
        };
        let mut removed = 0;
        for entry in parent.entries().map_err(failed)? {
            let name = std::str::from_utf8(&entry.name).unwrap_or_default();
            if !entry.file_type.is_dir() || Uuid::parse_str(name).is_err() {
                continue;
            }
            // Gone or replaced by a link in the meantime: not a stage.
            let Ok(dir) = parent.open_dir(&entry.name) else {
                continue;
            };
            let in_use = rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err();
            if in_use || dir.stat(KEPT.as_bytes()).is_ok() {
                continue;
            }
            remove_tree(&parent, &entry.name, &dir).map_err(|error| Error::Remove {
                path: self.stages_dir.join(name),
                source: error.into(),
            })?;
            removed += 1;
        }
        Ok(removed)
    }

    fn fill(
        &self,
        stage: &Stage,
        mode: WorkspaceMode,
        source: Dir,
        source_path: PathBuf,
        selection: Selection,
    ) -> Result<Parts, Error> {
        let pack_file = stage
            .dir
            .create_file(PACK.as_bytes(), 0o600)
            .map_err(|error| stage.failed(error))?;
        let mut pack = PackWriter::new(pack_file);
        let copy = match mode {
            WorkspaceMode::Staged => {
                let tree = stage.dir.create_dir(TREE.as_bytes(), 0o700);
                Some(tree.map_err(|error| stage.failed(error))?)
            }
            WorkspaceMode::PassThrough => None,
        };
        let budget = Budget::new(self.limits, stage.free_space()?);
        let mut walker = Walker::new(&source, budget, StateDir::Ours)
            .select(selection)
            .pack(&mut pack)
            .skip(stage.stages_id()?);
        walker.run(copy.as_ref())?;
        let (mut found, left_out) = (walker.found, walker.left_out);
        let selection = walker.selection.map(Selection::frozen);
        found.sort_unstable_by(|(left, _), (right, _)| left.path_bytes().cmp(right.path_bytes()));
        let (entries, packed_at) = found.into_iter().unzip();
        let pack = pack.finish().map_err(|source| Error::StageDirectory {
            path: stage.path.clone(),
            source,
        })?;
        let baseline = Baseline {
            manifest: Manifest::new(entries),
            packed_at,
            pack,
            selection,
        };
        tracing::debug!(
            target: "abp.workspace",
            root = %source_path.display(),
            staged = copy.is_some(),
            files = baseline.manifest.files(),
            bytes = baseline.manifest.bytes(),
            left_out = left_out.count,
            "workspace prepared"
        );
        Ok(Parts {
            source,
            source_path,
            copy,
            baseline,
            left_out,
        })
    }
}

/// What preparing yields before it is bound to its stage.
struct Parts {
    source: Dir,
    source_path: PathBuf,
    copy: Option<Dir>,
    baseline: Baseline,
    left_out: crate::walk::LeftOutList,
}

impl Parts {
    fn into_workspace(self, stage: Stage, limits: StageLimits) -> PreparedWorkspace {
        let (root, root_dir, origin) = match self.copy {
            Some(copy) => (
                stage.path.join(TREE),
                copy,
                Origin::Staged {
                    source: self.source,
                },
            ),
            None => (self.source_path, self.source, Origin::InPlace),
        };
        PreparedWorkspace::new(
            root,
            root_dir,
            origin,
            stage,
            self.baseline,
            self.left_out,
            limits,
        )
    }
}

impl Stage {
    fn create(stages_dir: &Path, run_id: Uuid) -> Result<Self, Error> {
        let failed = |source: io::Error| Error::StageDirectory {
            path: stages_dir.to_owned(),
            source,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(stages_dir)
            .map_err(failed)?;
        let parent = Dir::open_operator_path(stages_dir).map_err(|error| failed(error.into()))?;
        let path = stages_dir.canonicalize().map_err(failed)?;
        let name = run_id.to_string();
        let path = path.join(&name);
        let dir =
            parent
                .create_dir(name.as_bytes(), 0o700)
                .map_err(|error| Error::StageDirectory {
                    path: path.clone(),
                    source: error.into(),
                })?;
        let stage = Self {
            parent,
            name,
            dir,
            path,
        };
        // Tells a sweeper that the stage is in use, until the handle is closed in whatever way.
        rustix::fs::flock(&stage.dir, FlockOperation::NonBlockingLockExclusive)
            .and_then(|()| stage.parent.stat(stage.name.as_bytes()))
            .map_err(|error| stage.failed(error))?;
        Ok(stage)
    }

    /// The directory that holds all stages, which may lie inside a source.
    pub(crate) fn stages_id(&self) -> Result<FileId, Error> {
        let stat = self.parent.stat_self();
        Ok(FileId::of(&stat.map_err(|error| self.failed(error))?))
    }

    /// Keeps the stage from being swept.
    pub(crate) fn keep(&self) -> Result<(), Error> {
        match self.dir.create_file(KEPT.as_bytes(), 0o600) {
            Ok(_) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// What may be written before the disk is called full: a twentieth, at most 256 MiB, stays free
    /// for everybody else.
    fn free_space(&self) -> Result<u64, Error> {
        const MAX_RESERVE: u64 = 256 << 20;
        let disk = rustix::fs::fstatvfs(&self.dir).map_err(|error| self.failed(error))?;
        let reserve = disk.f_blocks.saturating_mul(disk.f_frsize) / 20;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        Ok(free.saturating_sub(reserve.min(MAX_RESERVE)))
    }

    pub(crate) fn remove(&self) -> Result<(), Error> {
        remove_tree(&self.parent, self.name.as_bytes(), &self.dir).map_err(|error| Error::Remove {
            path: self.path.clone(),
            source: error.into(),
        })
    }

    fn failed(&self, error: Errno) -> Error {
        Error::StageDirectory {
            path: self.path.clone(),
            source: error.into(),
        }
    }
}
