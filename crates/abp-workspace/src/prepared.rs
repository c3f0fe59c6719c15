//! A workspace in use: resolves paths, reads and writes files for tools, collects changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use abp_core::LeftOut;
use abp_policy::{ApprovedRead, ApprovedWrite};
use abp_sandbox::Overlay;
use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;
use uuid::Uuid;

use crate::Error;
use crate::change_set::{BeforeImage, ChangeSet};
use crate::changes::{Changes, Collector};
use crate::dir::{Dir, is_regular, path_of};
use crate::git::GitBaseline;
use crate::left_out::LeftOutList;
use crate::limits::{Budget, StageLimits};
use crate::manifest::Manifest;
use crate::overlay::OverlayStage;
use crate::pack::{Pack, PackPosition};
use crate::placeholder::{Placeholder, without};
use crate::resolve::{Landing, Tree, land};
use crate::selection::Selection;
use crate::source::SourceIdentity;
use crate::stage::Stage;
use crate::walk::{REPOSITORY, STATE, StateDir, Walker};

/// The directory a run works on, with its content at the start.
///
/// [`Self::discard`] moves the stage to the trash and [`Self::keep`] leaves it for a decision; one
/// that is merely dropped stays until [`WorkspaceManager::sweep`](crate::WorkspaceManager::sweep).
#[derive(Debug)]
pub struct PreparedWorkspace {
    pub(crate) root: PathBuf,
    pub(crate) root_dir: Dir,
    pub(crate) is_staged: bool,
    pub(crate) source: SourceIdentity,
    pub(crate) stage: Stage,
    pub(crate) baseline: Arc<Baseline>,
    pub(crate) form: StageForm,
    /// The layers, where the stage is an overlay.
    pub(crate) overlay: Option<OverlayStage>,
    /// The overlays that the sandbox mounts.
    pub(crate) overlays: Vec<Overlay>,
    /// Ignored directories that are lent, and no part of the changes.
    pub(crate) lent: BTreeSet<Vec<u8>>,
    /// Names of a copy that only keep a place.
    pub(crate) placeholders: BTreeMap<Vec<u8>, Placeholder>,
    pub(crate) left_out: LeftOutList,
    pub(crate) hidden: Vec<u64>,
    pub(crate) git: GitBaseline,
    pub(crate) limits: StageLimits,
}

/// The form of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StageForm {
    /// The source itself.
    InPlace,
    /// A copy of the source as it was at the start.
    Copy {
        /// Why it is not an overlay, where one was asked for.
        reason: Option<String>,
    },
    /// The source under a layer that takes the changes; what the user saves meanwhile is seen.
    Overlay,
}

/// The content of a workspace at the start, bytes included.
#[derive(Debug)]
pub(crate) struct Baseline {
    pub(crate) manifest: Manifest,
    /// For each entry, the place of its bytes in the packs.
    pub(crate) packed_at: Vec<Option<PackPosition>>,
    pub(crate) packs: Vec<Pack>,
    /// The rules of the start, whatever the agent did to the `.gitignore` files since.
    pub(crate) selection: Selection,
}

impl Baseline {
    /// The bytes at a place; none where they cannot be read.
    pub(crate) fn read(&self, place: PackPosition, size: u64) -> Option<Vec<u8>> {
        let pack = self.packs.get(usize::try_from(place.pack).ok()?)?;
        pack.read(place.at, size).ok()
    }
}

/// The effect of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// There was no file.
    Created,
    /// There was one, and its mode was kept.
    Replaced,
}

impl PreparedWorkspace {
    /// The directory the agent works in, absolute.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory it was made from, absolute.
    #[must_use]
    pub fn source(&self) -> &Path {
        self.source.path()
    }

    /// Whether the agent works on a copy.
    #[must_use]
    pub fn is_staged(&self) -> bool {
        self.is_staged
    }

    /// The form of the workspace.
    #[must_use]
    pub fn form(&self) -> &StageForm {
        &self.form
    }

    /// The overlays that the sandbox of the run has to mount; without them the workspace is not there.
    #[must_use]
    pub fn overlays(&self) -> &[Overlay] {
        &self.overlays
    }

    /// The content of the workspace at the start.
    #[must_use]
    pub fn baseline(&self) -> &Manifest {
        &self.baseline.manifest
    }

    /// The names of the source that were not staged: the first thousand, and the number of all.
    #[must_use]
    pub fn left_out(&self) -> (&[LeftOut], u64) {
        (&self.left_out.first, self.left_out.count)
    }

    /// For each pattern of the hidden paths, in their order, the number of names it kept out of the
    /// stage. A directory counts once, with everything beneath it.
    #[must_use]
    pub fn hidden(&self) -> &[u64] {
        &self.hidden
    }

    /// Whether the stage started as a git repository.
    #[must_use]
    pub fn git_baseline(&self) -> &GitBaseline {
        &self.git
    }

    /// Resolves a tool's path: relative to the root, in normal form, with every link followed. Neither
    /// it nor its parents need to exist. The root itself is the empty path.
    ///
    /// # Errors
    /// Fails where the path leaves the root, is empty or malformed, or cannot be followed.
    pub fn resolve(&self, path: &str) -> Result<PathBuf, Error> {
        let unresolvable = |reason| Error::Unresolvable {
            path: path.to_owned(),
            reason,
        };
        if path.is_empty() || path.contains('\0') {
            return Err(unresolvable("it is empty or contains NUL"));
        }
        let tree = match &self.overlay {
            None => Tree::Plain(&self.root_dir),
            Some(overlay) => Tree::Layers([&self.root_dir, &overlay.mask, &overlay.source]),
        };
        match land(&tree, Some(&self.root), b"", path.as_bytes()) {
            Ok(Landing::Inside(bytes)) => Ok(path_of(&bytes).to_owned()),
            Ok(Landing::Outside) => Err(Error::LeavesRoot {
                path: path.to_owned(),
            }),
            Ok(Landing::Nowhere(reason)) => Err(unresolvable(reason)),
            Err(error) => Err(access("resolve", Path::new(path), error)),
        }
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// Fails where there is no regular file at exactly this path (a link is not followed), or it
    /// is larger than `max_bytes`.
    pub fn read(&self, approved: &ApprovedRead, max_bytes: u64) -> Result<Vec<u8>, Error> {
        let path = approved.path();
        self.check_plain("read", path)?;
        let failed = |error| match error {
            Errno::NOTSUP => Error::NotAFile {
                path: path.to_owned(),
            },
            error => access("read", path, error),
        };
        let (parent, name) = self.root_dir.open_parent(bytes_of(path)).map_err(failed)?;
        let (file, stat) = parent.open_file(name).map_err(failed)?;
        read_limited(file, &stat, path, max_bytes)
    }

    /// Writes a whole file, creating its directories. Readers see the old file or the new one, and
    /// a hard link elsewhere keeps the old.
    ///
    /// # Errors
    /// Fails where something other than a regular file is at the path or on the way to it, or the
    /// path is repository metadata or the state directory.
    pub fn write(&self, approved: &ApprovedWrite, bytes: &[u8]) -> Result<WriteKind, Error> {
        let path = approved.path();
        self.check_plain("write", path)?;
        let mut components = bytes_of(path).split(|&byte| byte == b'/');
        let is_protected =
            |component: &[u8]| component == STATE || component.eq_ignore_ascii_case(REPOSITORY);
        if components.any(is_protected) {
            return Err(Error::Protected {
                path: path.to_owned(),
            });
        }
        let failed = |error: Errno| access("write", path, error);
        let (directory, name) = split(bytes_of(path));
        let parent = self
            .root_dir
            .open_or_create_dirs(directory)
            .map_err(failed)?;
        let replaced = parent.stat_if_exists(name).map_err(failed)?;
        if replaced.as_ref().is_some_and(|stat| !is_regular(stat)) {
            return Err(Error::NotAFile {
                path: path.to_owned(),
            });
        }
        let temporary = format!(".{}.abp", Uuid::new_v4().simple());
        let file = parent
            .create_file(temporary.as_bytes(), 0o666)
            .map_err(failed)?;
        let written = fill(file, bytes, replaced.as_ref())
            .and_then(|()| Ok(parent.rename(temporary.as_bytes(), &parent, name)?));
        if let Err(source) = written {
            let _ = parent.remove_file(temporary.as_bytes());
            return Err(Error::Access {
                action: "write",
                path: path.to_owned(),
                source,
            });
        }
        Ok(if replaced.is_some() {
            WriteKind::Replaced
        } else {
            WriteKind::Created
        })
    }

    /// The regular files of the workspace as it is now, sorted.
    ///
    /// # Errors
    /// Fails where the workspace cannot be read.
    pub fn list(&self) -> Result<Vec<PathBuf>, Error> {
        self.check_plain("list", Path::new("."))?;
        let mut files = Vec::new();
        let mut pending = vec![Vec::new()];
        while let Some(directory) = pending.pop() {
            let failed = |error| access("list", path_of(&directory), error);
            let dir = if directory.is_empty() {
                self.root_dir.open_dir(b".")
            } else {
                self.root_dir.open_dir(&directory)
            };
            for entry in dir.and_then(|dir| dir.entries()).map_err(failed)? {
                if entry.name == REPOSITORY || entry.name == STATE {
                    continue;
                }
                let mut path = directory.clone();
                crate::selection::push_component(&mut path, &entry.name);
                match entry.file_type {
                    FileType::Directory => pending.push(path),
                    FileType::RegularFile => files.push(path_of(&path).to_owned()),
                    _ => {}
                }
            }
        }
        files.sort_unstable();
        Ok(files)
    }

    /// Compares the workspace as it is now with the baseline.
    ///
    /// In a stage everything is read and reported, except for the repository it started with
    /// ([`Self::git_baseline`]): that one belongs to the agent, which may commit or remove it. In
    /// place, the directories that the rules left out at the start are not read, because they may be
    /// huge (dependencies, build output) and their content was not recorded; files that only a
    /// `.gitignore` hides are read.
    ///
    /// New files that the `.gitignore` rules of the start hide (build output, as a rule) are reported
    /// as ignored ([`FileChange::ignored`](crate::FileChange::ignored), `!!` in the status) and are
    /// neither in the diff nor applied. Rules that the run itself wrote hide nothing.
    ///
    /// # Errors
    /// [`Error::StageReplaced`] where the tree was moved away or replaced, [`Error::BaselineDamaged`]
    /// where the stored baseline was rewritten, [`Error::Scan`] where the workspace cannot be read.
    pub fn changes(&self) -> Result<Changes, Error> {
        let baseline = &self.baseline;
        // The agent has a budget of its own on top of the baseline, so that its files cannot push
        // those of the start out of the budget.
        let limits = StageLimits {
            max_files: self
                .limits
                .max_files
                .saturating_add(baseline.manifest.entries().len() as u64),
            max_bytes: self
                .limits
                .max_bytes
                .saturating_add(baseline.manifest.bytes()),
            ..self.limits
        };
        self.check_root()?;
        let walker = if self.is_staged {
            Walker::new(&self.root_dir, StateDir::Foreign)
                .skip_repository(self.git == GitBaseline::Made)
                .pass_over(self.lent.clone())
        } else {
            Walker::new(&self.root_dir, StateDir::Own)
                .select(baseline.selection.clone())
                .skip(self.stage.stages_id()?)
        };
        if let Some(overlay) = &self.overlay {
            let pack = self.stage.create_pack(0)?;
            let compared = overlay.compare(walker, baseline, limits, pack)?;
            return Collector::new(&self.root_dir, Arc::new(compared.before))
                .collect(compared.after, compared.notes);
        }
        let walked = walker.verify(Budget::new(limits, 0, Arc::default()))?;
        let entries = walked.entries.into_iter().map(|(entry, _)| entry);
        let after = without(entries.collect(), &self.placeholders);
        Collector::new(&self.root_dir, Arc::clone(baseline)).collect(after, Vec::new())
    }

    /// The change set of the run, and the images that its application may need. Both are for the
    /// caller to store; the stage may be kept or discarded independently.
    ///
    /// # Errors
    /// [`Error::BaselineDamaged`] where the stored baseline was rewritten, [`Error::TooManyChanges`]
    /// where a change set cannot name all changes.
    pub fn change_set(&self, changes: &Changes) -> Result<(ChangeSet, Vec<BeforeImage>), Error> {
        let source = self.source.clone();
        let mut set = ChangeSet::new(self.is_staged, source, changes)?;
        let images = set.take_images(&changes.before)?;
        Ok((set, images))
    }

    /// Moves the copy to the trash. A source that was worked on in place is not touched.
    ///
    /// # Errors
    /// [`Error::StageReplaced`] where something else had the name of the stage; it is moved to the
    /// trash instead. [`Error::Remove`] where nothing can be moved.
    pub fn discard(self) -> Result<(), Error> {
        self.stage.discard()
    }

    /// Leaves the stage for a later decision, flushed to the disk, and returns the path of the tree.
    /// Whether it survives the next sweep is for the caller of
    /// [`WorkspaceManager::sweep`](crate::WorkspaceManager::sweep) to say.
    ///
    /// # Errors
    /// Fails where the stage cannot be flushed.
    pub fn keep(self) -> Result<PathBuf, Error> {
        self.stage.flush()?;
        Ok(self.root)
    }

    /// Refuses what needs the tree as the agent sees it.
    fn check_plain(&self, action: &'static str, path: &Path) -> Result<(), Error> {
        match self.overlay {
            None => Ok(()),
            Some(_) => Err(Error::OnlyInSandbox {
                action,
                path: path.to_owned(),
            }),
        }
    }

    /// Makes sure that the root still has its name, so that a later process finds the tree that is
    /// verified now.
    fn check_root(&self) -> Result<(), Error> {
        if self.is_staged {
            return self.stage.check_names(&self.root_dir);
        }
        self.source.open().map(drop)
    }
}

fn fill(mut file: File, bytes: &[u8], replaced: Option<&Stat>) -> std::io::Result<()> {
    file.write_all(bytes)?;
    if let Some(stat) = replaced {
        rustix::fs::fchmod(&file, Mode::from_raw_mode(stat.st_mode & 0o777))?;
    }
    Ok(())
}

/// Reads a file that may grow meanwhile, up to a limit.
pub(crate) fn read_limited(
    file: File,
    stat: &Stat,
    path: &Path,
    max: u64,
) -> Result<Vec<u8>, Error> {
    let too_large = |size| Error::FileTooLarge {
        path: path.to_owned(),
        size,
        max,
    };
    let expected = u64::try_from(stat.st_size).unwrap_or_default();
    if expected > max {
        return Err(too_large(expected));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or_default());
    let mut limited = file.take(max.saturating_add(1));
    limited
        .read_to_end(&mut bytes)
        .map_err(|source| Error::Access {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
    if bytes.len() as u64 > max {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes)
}

pub(crate) fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

/// The directory and the name of a path.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (
            path.get(..slash).unwrap_or_default(),
            path.get(slash + 1..).unwrap_or_default(),
        ),
        None => (b"", path),
    }
}

fn access(action: &'static str, path: &Path, error: Errno) -> Error {
    Error::Access {
        action,
        path: path.to_owned(),
        source: error.into(),
    }
}
