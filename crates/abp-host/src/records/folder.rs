//! The directory of notes and their key, by descriptor: no link in either is ever followed.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, fchmod, fstat, mkdirat, openat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use uuid::Uuid;

use super::{NoteError, NotesError};

/// The longest note, in bytes; a real one has about 400.
const MAX_NOTE: u64 = 4096;
/// A block of the hash.
const KEY_BYTES: usize = 64;
/// The subdirectory for notes that are not believed.
const REFUSED: &str = "refused";
/// The beginning of a name that a file has until it is complete.
const UNFINISHED: &str = ".new-";

/// The directory of notes.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    parent: OwnedFd,
    notes: OwnedFd,
}

/// The key that notes are authenticated with.
pub(super) struct NoteKey([u8; KEY_BYTES]);

impl Folder {
    /// Opens the directory; makes it where it is missing.
    pub(super) fn create(path: &Path) -> Result<Self, NotesError> {
        let (parent, name) = split(path)?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)
            .map_err(failed(path))?;
        let parent = open_directory(CWD, parent).map_err(failed(path))?;
        match mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(path)(error)),
        }
        let notes = open_own(&parent, name).map_err(failed(path))?;
        Self::checked(path, parent, notes)
    }

    /// Opens the directory; `None` where it is missing.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, NotesError> {
        let (parent, name) = split(path)?;
        let parent = match open_directory(CWD, parent) {
            Err(Errno::NOENT) => return Ok(None),
            parent => parent.map_err(failed(path))?,
        };
        match open_own(&parent, name) {
            Err(Errno::NOENT) => Ok(None),
            notes => Self::checked(path, parent, notes.map_err(failed(path))?).map(Some),
        }
    }

    fn checked(path: &Path, parent: OwnedFd, notes: OwnedFd) -> Result<Self, NotesError> {
        let known = fstat(&notes).map_err(failed(path))?;
        if known.st_uid != geteuid().as_raw() {
            return Err(NotesError::ForeignDirectory {
                path: path.to_owned(),
                owner: known.st_uid,
            });
        }
        if mode(&known) & 0o077 != 0 {
            // Made by an earlier version; notes that others put there are found out by their codes.
            fchmod(&notes, Mode::RWXU).map_err(failed(path))?;
        }
        let path = path.to_owned();
        Ok(Self {
            path,
            parent,
            notes,
        })
    }

    /// The names of the notes, `limit` of them at most.
    pub(super) fn list(&self, limit: usize) -> Result<Vec<String>, NotesError> {
        let entries = Dir::read_from(&self.notes).map_err(failed(&self.path))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed(&self.path))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_note = !matches!(name.as_str(), "." | ".." | REFUSED);
            if is_note && !name.starts_with(UNFINISHED) && names.len() < limit {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// The content of a note.
    pub(super) fn read_note(&self, name: &str) -> Result<Vec<u8>, NoteError> {
        let file = match open_file(&self.notes, name) {
            Err(Errno::LOOP) => return Err(NoteError::NotAFile),
            file => file.map_err(|error| NoteError::Unreadable(error.into()))?,
        };
        let known = fstat(&file).map_err(|error| NoteError::Unreadable(error.into()))?;
        if !is_regular(&known) {
            return Err(NoteError::NotAFile);
        }
        if known.st_uid != geteuid().as_raw() {
            return Err(NoteError::ForeignOwner(known.st_uid));
        }
        let mut bytes = Vec::new();
        let mut limited = File::from(file).take(MAX_NOTE + 1);
        limited
            .read_to_end(&mut bytes)
            .map_err(NoteError::Unreadable)?;
        if bytes.len() as u64 > MAX_NOTE {
            let size = u64::try_from(known.st_size).unwrap_or_default();
            return Err(NoteError::TooLarge(size));
        }
        Ok(bytes)
    }

    /// Writes a note; a reader sees all of it or none.
    pub(super) fn write_note(&self, name: &str, content: &[u8]) -> Result<(), NotesError> {
        write_whole(&self.notes, name, content).map_err(failed(&self.path))
    }

    pub(super) fn remove(&self, name: &str) -> rustix::io::Result<()> {
        unlinkat(&self.notes, name, AtFlags::empty())
    }

    /// Moves a note that is not believed to where no sweep looks at it again.
    pub(super) fn put_aside(&self, name: &str) {
        let moved = (|| {
            match mkdirat(&self.notes, REFUSED, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            let refused = open_own(&self.notes, REFUSED)?;
            let unique = format!("{}-{name}", Uuid::new_v4());
            let unique: String = unique.chars().take(200).collect();
            renameat_with(&self.notes, name, &refused, unique, RenameFlags::NOREPLACE)
        })();
        if let Err(error) = moved {
            tracing::warn!(target: "abp.sidecar", name, %error, "cannot move a note aside");
        }
    }
}

impl NoteKey {
    pub(super) fn bytes(&self) -> [u8; KEY_BYTES] {
        self.0
    }

    /// The key of a directory of notes; made where it is missing.
    pub(super) fn create(folder: &Folder) -> Result<Self, NotesError> {
        if let Some(key) = Self::open(folder)? {
            return Ok(key);
        }
        let path = key_path(&folder.path);
        let cannot = |source: io::Error| NotesError::Key {
            path: path.clone(),
            source,
        };
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| cannot(io::Error::other(error)))?;
        match write_whole(&folder.parent, &key_name(&folder.path), &bytes) {
            // Another host may have made one just now; then that one counts.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(cannot(error.into())),
        }
        Self::open(folder)?.ok_or_else(|| cannot(io::ErrorKind::NotFound.into()))
    }

    /// The key of a directory of notes; `None` where there is none.
    pub(super) fn open(folder: &Folder) -> Result<Option<Self>, NotesError> {
        let path = key_path(&folder.path);
        let unsafe_key = |problem: &'static str| NotesError::UnsafeKey {
            path: path.clone(),
            problem,
        };
        let cannot = |error: io::Error| NotesError::Key {
            path: path.clone(),
            source: error,
        };
        let file = match open_file(&folder.parent, &key_name(&folder.path)) {
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(unsafe_key("it is a link")),
            file => file.map_err(|error| cannot(error.into()))?,
        };
        let known = fstat(&file).map_err(|error| cannot(error.into()))?;
        if !is_regular(&known) {
            return Err(unsafe_key("it is not a regular file"));
        }
        if known.st_uid != geteuid().as_raw() {
            return Err(unsafe_key("it belongs to another user"));
        }
        if mode(&known) & 0o077 != 0 {
            return Err(unsafe_key("others may read or write it"));
        }
        let mut bytes = Vec::new();
        let mut limited = File::from(file).take(KEY_BYTES as u64 + 1);
        limited.read_to_end(&mut bytes).map_err(cannot)?;
        let key = <[u8; KEY_BYTES]>::try_from(bytes);
        let key = key.map_err(|_| unsafe_key("it is not 64 bytes long"))?;
        Ok(Some(Self(key)))
    }
}

/// Writes a file that only we can read; fails where there is one of this name.
fn write_whole(directory: &OwnedFd, name: &str, content: &[u8]) -> Result<(), Errno> {
    let unfinished = format!("{UNFINISHED}{}", Uuid::new_v4());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(directory, &unfinished, flags, Mode::RUSR | Mode::WUSR)?;
    let written = File::from(file)
        .write_all(content)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .and_then(|()| {
            let (to, flags) = (name, RenameFlags::NOREPLACE);
            renameat_with(directory, &unfinished, directory, to, flags)
        });
    if written.is_err() {
        // It is not looked at again in any case.
        let _ = unlinkat(directory, &unfinished, AtFlags::empty());
    }
    written
}

fn split(path: &Path) -> Result<(&Path, &str), NotesError> {
    path.parent()
        .zip(path.file_name().and_then(|name| name.to_str()))
        .ok_or_else(|| failed(path)(Errno::INVAL))
}

fn key_name(notes: &Path) -> String {
    let name = notes.file_name().unwrap_or_default();
    format!("{}.key", name.to_string_lossy())
}

fn key_path(notes: &Path) -> PathBuf {
    notes.with_file_name(key_name(notes))
}

fn open_directory(from: impl std::os::fd::AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    // An empty parent is the working directory.
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(from, path, flags, Mode::empty())
}

fn open_own(parent: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

fn open_file(directory: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    // Not waiting, in case it is a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty())
}

fn is_regular(known: &Stat) -> bool {
    FileType::from_raw_mode(known.st_mode) == FileType::RegularFile
}

fn mode(known: &Stat) -> u32 {
    known.st_mode & 0o7777
}

fn failed<E: Into<io::Error>>(path: &Path) -> impl Fn(E) -> NotesError {
    let path = path.to_owned();
    move |error| NotesError::Directory {
        path: path.clone(),
        source: error.into(),
    }
}
