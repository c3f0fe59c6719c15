//! A workspace in use: paths resolved, files read and written for tools, changes collected.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use abp_core::LeftOut;
use abp_policy::{ApprovedRead, ApprovedWrite};
use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;
use uuid::Uuid;

use crate::Error;
use crate::apply;
use crate::changes::{Changes, Collector};
use crate::dir::{Dir, is_regular, path_of};
use crate::git::GitBaseline;
use crate::left_out::LeftOutList;
use crate::limits::{Budget, StageLimits};
use crate::manifest::Manifest;
use crate::pack::{Pack, Place};
use crate::resolve::{Landing, land};
use crate::selection::Selection;
use crate::stage::Stage;
use crate::walk::{REPOSITORY, STATE, StateDir, Walker};

/// A directory a run works on, and what it held at the start.
///
/// [`Self::remove`] deletes the stage and [`Self::keep`] keeps it until it is taken up again; one
/// that is merely dropped stays until [`WorkspaceManager::sweep`](crate::WorkspaceManager::sweep).
#[derive(Debug)]
pub struct PreparedWorkspace {
    pub(crate) root: PathBuf,
    pub(crate) root_dir: Dir,
    pub(crate) origin: Origin,
    pub(crate) source_path: PathBuf,
    pub(crate) stage: Stage,
    pub(crate) baseline: Baseline,
    pub(crate) left_out: LeftOutList,
    pub(crate) git: GitBaseline,
    pub(crate) limits: StageLimits,
}

/// What the workspace is made from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A copy of this directory; none where it is gone by the time a stage is taken up again.
    Staged { source: Option<Dir> },
    /// The source itself.
    InPlace,
}

/// What the workspace held at the start, bytes included.
#[derive(Debug)]
pub(crate) struct Baseline {
    pub(crate) manifest: Manifest,
    /// For each entry, the place of its bytes in the packs.
    pub(crate) packed_at: Vec<Option<Place>>,
    pub(crate) packs: Vec<Pack>,
    /// The rules as they were, whatever the agent did to the `.gitignore` files since.
    pub(crate) selection: Selection,
}

impl Baseline {
    /// The bytes at a place; none where they cannot be read.
    pub(crate) fn read(&self, place: Place, size: u64) -> Option<Vec<u8>> {
        let pack = self.packs.get(usize::try_from(place.pack).ok()?)?;
        pack.read(place.at, size).ok()
    }
}

/// What a write did.
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
        &self.source_path
    }

    /// Whether the agent works on a copy.
    #[must_use]
    pub fn is_staged(&self) -> bool {
        matches!(self.origin, Origin::Staged { .. })
    }

    /// What the workspace held at the start.
    #[must_use]
    pub fn baseline(&self) -> &Manifest {
        &self.baseline.manifest
    }

    /// What does not belong to the workspace: the first thousand by name, all of it by number.
    #[must_use]
    pub fn left_out(&self) -> (&[LeftOut], u64) {
        (&self.left_out.first, self.left_out.count)
    }

    /// Whether the stage started as a git repository.
    #[must_use]
    pub fn git_baseline(&self) -> &GitBaseline {
        &self.git
    }

    /// Where a tool's path really lands: relative to the root, in normal form, with every link
    /// followed. It need not exist, nor its parents. The root itself is the empty path.
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
        match land(&self.root_dir, Some(&self.root), b"", path.as_bytes()) {
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
        let mut components = bytes_of(path).split(|&byte| byte == b'/');
        let first = components.clone().next();
        if first == Some(STATE)
            || components.any(|component| component.eq_ignore_ascii_case(REPOSITORY))
        {
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
                if entry.name == REPOSITORY || (directory.is_empty() && entry.name == STATE) {
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

    /// What the run changed: the workspace as it is now against the baseline.
    ///
    /// In a stage everything is looked at and reported, save the repository it started with
    /// ([`Self::git_baseline`]): that one belongs to the agent, which may commit or remove it. In place, the directories that the rules
    /// left out at the start are not looked into, because they may be huge (dependencies, build
    /// output) and nothing is known of what they held; files that only a `.gitignore` hides are
    /// looked at.
    ///
    /// What is new and hidden by the `.gitignore` rules of the start (build output, as a rule) is
    /// reported as ignored ([`FileChange::ignored`](crate::FileChange::ignored), `!!` in the status)
    /// and is neither in the diff nor applied: what is left out on the way in is left out on the way
    /// out. Rules that the run itself wrote hide nothing.
    ///
    /// # Errors
    /// Fails where the workspace cannot be read or the stored baseline is damaged.
    pub fn changes(&self) -> Result<Changes, Error> {
        let baseline = &self.baseline;
        // What the agent may add is a budget of its own: it must not be able to make what was there
        // at the start exceed it.
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
        let walker = match &self.origin {
            Origin::Staged { .. } => Walker::new(&self.root_dir, StateDir::Foreign)
                .skip_repository(self.git == GitBaseline::Made),
            Origin::InPlace => Walker::new(&self.root_dir, StateDir::Ours)
                .select(baseline.selection.clone())
                .skip(self.stage.stages_id()?),
        };
        let walked = walker.verify(Budget::new(limits, 0, Arc::default()))?;
        let after = Manifest::new(walked.entries.into_iter().map(|(entry, _)| entry).collect());
        Collector::new(&self.root_dir, baseline).collect(after)
    }

    /// Makes the changes in the source, three-way. What only the run changed is taken; what the
    /// source already has stays; where both changed a text, the two changes are merged by lines.
    /// Where anything does not go together, nothing at all is changed.
    ///
    /// FIFOs, sockets, devices, repository metadata and ignored files made by the run are not applied.
    ///
    /// # Errors
    /// [`Error::Conflict`], which lists every conflict, and [`Error::UnsafeLinks`] leave the source
    /// untouched, and so does every failure to copy; [`Error::ApplyIncomplete`] says how far it came.
    pub fn apply_to_source(&self, changes: &Changes) -> Result<(), Error> {
        match &self.origin {
            Origin::Staged {
                source: Some(source),
            } => apply::apply(&self.root_dir, source, &self.baseline, changes),
            Origin::Staged { source: None } => Err(Error::Root {
                root: self.source_path.clone(),
                source: std::io::ErrorKind::NotFound.into(),
            }),
            Origin::InPlace => Err(Error::NotStaged),
        }
    }

    /// Deletes what was made for the run: the copy and the stored baseline. A source that was worked
    /// on in place is not touched.
    ///
    /// # Errors
    /// Fails where something cannot be deleted.
    pub fn remove(self) -> Result<(), Error> {
        self.stage.remove()
    }

    /// Leaves the stage where it is, for somebody to decide about, and says where the tree is. It
    /// survives the process and a loss of power, and is taken up again with
    /// [`WorkspaceManager::reopen`](crate::WorkspaceManager::reopen).
    ///
    /// # Errors
    /// Fails where the stage cannot be marked as kept or written out.
    pub fn keep(self) -> Result<PathBuf, Error> {
        self.stage.keep()?;
        Ok(self.root)
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
