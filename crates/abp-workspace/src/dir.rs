//! Directories as handles.
//!
//! Every step from one name to the next is an `openat2` beneath an open directory, which follows no
//! link and cannot leave the directory it starts from. Paths are never checked as text first.

use std::ffi::OsStr;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, RenameFlags, ResolveFlags, Stat};
use rustix::io::{Errno, Result};

/// The bytes of directory entries read per call.
const ENTRY_BUFFER_BYTES: usize = 32 * 1024;
/// The longest path given to the kernel at once; longer ones are followed piece by piece.
const MAX_PIECE_BYTES: usize = 2048;
/// The number of attempts at an open that the kernel could not decide because of concurrent renames.
const OPEN_ATTEMPTS: usize = 32;

/// An open directory.
#[derive(Debug)]
pub(crate) struct Dir {
    fd: OwnedFd,
    /// The rules for resolving names beneath it; directories opened beneath it inherit them.
    resolve: ResolveFlags,
}

/// A name in a directory, and its type when the directory was read.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: Vec<u8>,
    pub(crate) file_type: FileType,
}

/// The identity of a file, whatever its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl FileId {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

impl Dir {
    /// Opens a directory the operator named, following links.
    pub(crate) fn open_operator_path(path: &Path) -> Result<Self> {
        Self::open_named(path, OFlags::empty())
    }

    /// Opens a directory of the host's own; the last component of the path must not be a link.
    pub(crate) fn open_own_path(path: &Path) -> Result<Self> {
        Self::open_named(path, OFlags::NOFOLLOW)
    }

    fn open_named(path: &Path, flags: OFlags) -> Result<Self> {
        let flags = flags | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        Ok(Self { fd, resolve })
    }

    /// Refuses with `EXDEV` to enter a mount point from here on, bind mounts included.
    pub(crate) fn within_one_mount(mut self) -> Self {
        self.resolve |= ResolveFlags::NO_XDEV;
        self
    }

    fn beneath(&self, fd: OwnedFd) -> Self {
        Self {
            fd,
            resolve: self.resolve,
        }
    }

    /// Opens a directory beneath this one; the path may have any number of components.
    pub(crate) fn open_dir(&self, path: &[u8]) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let (piece, rest) = first_piece(path);
        let mut opened = self.open_beneath(piece, flags, Mode::empty())?;
        let mut rest = rest;
        while let Some(path) = rest {
            let (piece, behind) = first_piece(path);
            opened = self
                .beneath(opened)
                .open_beneath(piece, flags, Mode::empty())?;
            rest = behind;
        }
        Ok(self.beneath(opened))
    }

    /// Opens the directory that holds `path`, and names the last component.
    pub(crate) fn open_parent<'a>(&self, path: &'a [u8]) -> Result<(Self, &'a [u8])> {
        match path.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => {
                let (parent, name) = path.split_at(slash);
                Ok((self.open_dir(parent)?, name.get(1..).unwrap_or_default()))
            }
            None => Ok((self.open_dir(b".")?, path)),
        }
    }

    /// Opens a regular file for reading. Anything else is refused without being opened, save in a
    /// race, where the flags keep the open from blocking.
    pub(crate) fn open_file(&self, name: &[u8]) -> Result<(File, Stat)> {
        if !is_regular(&self.stat(name)?) {
            return Err(Errno::NOTSUP);
        }
        self.open_file_seen_as_regular(name)
    }

    /// As [`Self::open_file`], where the directory entry already said that it is a regular file.
    pub(crate) fn open_file_seen_as_regular(&self, name: &[u8]) -> Result<(File, Stat)> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
        let fd = self.open_beneath(name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        if !is_regular(&stat) {
            return Err(Errno::NOTSUP);
        }
        Ok((File::from(fd), stat))
    }

    /// Creates a file that must not exist yet.
    pub(crate) fn create_file(&self, name: &[u8], mode: u32) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let fd = self.open_beneath(name, flags, Mode::from_raw_mode(mode))?;
        Ok(File::from(fd))
    }

    /// Creates a directory and opens it.
    pub(crate) fn create_dir(&self, name: &[u8], mode: u32) -> Result<Self> {
        rustix::fs::mkdirat(self, name, Mode::from_raw_mode(mode))?;
        self.open_dir(name)
    }

    /// Opens every directory on the way to `path`, creating the missing ones.
    pub(crate) fn open_or_create_dirs(&self, path: &[u8]) -> Result<Self> {
        let mut current = self.open_dir(b".")?;
        for component in path
            .split(|&byte| byte == b'/')
            .filter(|part| !part.is_empty())
        {
            current = match current.open_dir(component) {
                Err(Errno::NOENT) => match current.create_dir(component, 0o777) {
                    Err(Errno::EXIST) => current.open_dir(component)?,
                    created => created?,
                },
                opened => opened?,
            };
        }
        Ok(current)
    }

    /// The metadata of a name, without following it.
    pub(crate) fn stat(&self, name: &[u8]) -> Result<Stat> {
        rustix::fs::statat(self, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// As [`Self::stat`], with nothing at that name being no error.
    pub(crate) fn stat_if_exists(&self, name: &[u8]) -> Result<Option<Stat>> {
        match self.stat(name) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The metadata of the directory itself.
    pub(crate) fn stat_self(&self) -> Result<Stat> {
        rustix::fs::fstat(&self.fd)
    }

    /// The target of a link.
    pub(crate) fn read_link(&self, name: &[u8]) -> Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(self, name, Vec::new())?.into_bytes())
    }

    /// Creates a link.
    pub(crate) fn create_link(&self, target: &[u8], name: &[u8]) -> Result<()> {
        rustix::fs::symlinkat(target, self, name)
    }

    /// The names in the directory, sorted.
    pub(crate) fn entries(&self) -> Result<Vec<Named>> {
        // A handle of its own: reading moves the handle's position.
        let own = self.open_dir(b".")?;
        let mut buffer = vec![MaybeUninit::uninit(); ENTRY_BUFFER_BYTES];
        let mut raw = RawDir::new(&own, &mut buffer);
        let mut entries = Vec::new();
        while let Some(entry) = raw.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                entries.push(Named {
                    name: name.to_vec(),
                    file_type: entry.file_type(),
                });
            }
        }
        for entry in &mut entries {
            // Some file systems do not say; a name that is gone by now stays unknown.
            if entry.file_type == FileType::Unknown
                && let Some(stat) = self.stat_if_exists(&entry.name)?
            {
                entry.file_type = FileType::from_raw_mode(stat.st_mode);
            }
        }
        entries.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        Ok(entries)
    }

    pub(crate) fn rename(&self, from: &[u8], to_dir: &Self, to: &[u8]) -> Result<()> {
        rustix::fs::renameat(self, from, to_dir, to)
    }

    /// Renames to a name that must be free.
    pub(crate) fn rename_to_free(&self, from: &[u8], to_dir: &Self, to: &[u8]) -> Result<()> {
        rustix::fs::renameat_with(self, from, to_dir, to, RenameFlags::NOREPLACE)
    }

    /// Swaps two names in one step.
    pub(crate) fn exchange(&self, name: &[u8], other_dir: &Self, other: &[u8]) -> Result<()> {
        rustix::fs::renameat_with(self, name, other_dir, other, RenameFlags::EXCHANGE)
    }

    /// Writes the directory's names to the disk.
    pub(crate) fn sync(&self) -> Result<()> {
        rustix::fs::fsync(&self.fd)
    }

    pub(crate) fn remove_file(&self, name: &[u8]) -> Result<()> {
        rustix::fs::unlinkat(self, name, AtFlags::empty())
    }

    pub(crate) fn remove_dir(&self, name: &[u8]) -> Result<()> {
        rustix::fs::unlinkat(self, name, AtFlags::REMOVEDIR)
    }

    pub(crate) fn set_mode(&self, mode: u32) -> Result<()> {
        rustix::fs::fchmod(&self.fd, Mode::from_raw_mode(mode))
    }

    /// A handle that only names a directory, for one that cannot be read.
    pub(crate) fn name_dir(&self, name: &[u8]) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        self.open_beneath(name, flags, Mode::empty())
    }

    fn open_beneath(&self, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        let resolve = self.resolve;
        let mut attempt = 0;
        loop {
            let opened = rustix::fs::openat2(self, path, flags | OFlags::CLOEXEC, mode, resolve);
            attempt += 1;
            match opened {
                Err(Errno::AGAIN | Errno::INTR) if attempt < OPEN_ATTEMPTS => {}
                other => return other,
            }
        }
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Splits a path behind as many components as the kernel takes at once.
fn first_piece(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    let head = path
        .get(..MAX_PIECE_BYTES)
        .filter(|_| path.len() > MAX_PIECE_BYTES);
    match head.and_then(|head| head.iter().rposition(|&byte| byte == b'/')) {
        Some(slash) => (path.get(..slash).unwrap_or_default(), path.get(slash + 1..)),
        None => (path, None),
    }
}

pub(crate) fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file()
}

/// A relative path from its bytes.
pub(crate) fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
