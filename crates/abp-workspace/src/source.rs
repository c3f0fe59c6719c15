//! The identity of a source directory, by which a later process makes sure that it writes to the
//! directory the run was started on and to no other that has its name by now.

use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;

use crate::Error;
use crate::dir::{Dir, FileId, path_of};

/// A source directory as it was when a run started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceIdentity {
    pub(crate) path: Vec<u8>,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) birth: Option<BirthTime>,
}

/// The moment a directory was created, where its file system records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BirthTime {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
}

impl SourceIdentity {
    /// The canonical path.
    #[must_use]
    pub fn path(&self) -> &Path {
        path_of(&self.path)
    }

    /// The inode number.
    #[must_use]
    pub const fn inode(&self) -> u64 {
        self.inode
    }

    pub(crate) fn of(dir: &Dir, canonical: &Path) -> Result<Self, Errno> {
        let id = FileId::of(&dir.stat_self()?);
        Ok(Self {
            path: canonical.as_os_str().as_encoded_bytes().to_vec(),
            device: id.device,
            inode: id.inode,
            birth: birth_time(dir)?,
        })
    }

    /// Opens the directory, which must still be the same one under the same name. No component of
    /// the path may be a link, and no mount point beneath it is entered.
    pub(crate) fn open(&self) -> Result<Dir, Error> {
        let unreadable = |error: Errno| Error::Root {
            root: self.path().to_owned(),
            source: error.into(),
        };
        let root = Dir::open_operator_path(Path::new("/")).map_err(unreadable)?;
        let relative = self.path.strip_prefix(b"/").unwrap_or(&self.path);
        let relative = if relative.is_empty() { b"." } else { relative };
        let dir = match root.open_dir(relative) {
            Err(Errno::NOENT) => return Err(self.replaced("it is gone")),
            Err(Errno::LOOP) => return Err(self.replaced("a link leads there by now")),
            Err(Errno::NOTDIR) => return Err(self.replaced("it is no directory by now")),
            opened => opened.map_err(unreadable)?,
        };
        let found = Self::of(&dir, self.path()).map_err(unreadable)?;
        // Device numbers may change with a restart; the birth time does not.
        let same_birth = match (self.birth, found.birth) {
            (Some(recorded), Some(found)) => recorded == found,
            _ => self.device == found.device,
        };
        if self.inode != found.inode || !same_birth {
            return Err(self.replaced("another directory has its name by now"));
        }
        Ok(dir.within_one_mount())
    }

    fn replaced(&self, reason: &'static str) -> Error {
        Error::SourceReplaced {
            path: PathBuf::from(self.path()),
            reason,
        }
    }
}

fn birth_time(dir: &Dir) -> Result<Option<BirthTime>, Errno> {
    let found = rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME);
    let found = match found {
        // Kernels and filters without the call.
        Err(Errno::NOSYS | Errno::PERM) => return Ok(None),
        found => found?,
    };
    let recorded = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    Ok(recorded.then_some(BirthTime {
        seconds: found.stx_btime.tv_sec,
        nanoseconds: found.stx_btime.tv_nsec,
    }))
}
