//! The layers of an overlay stage, as far as single names are concerned: which sources can be shown, how a
//! file is recognised again, and the marks that the kernel leaves in the top layer.
//!
//! ```text
//! tree/    top layer: changed files, a whiteout for each removed name, opaque directories
//! mask/    whiteouts for the names that are left out, and the directories above them
//! source   as it is
//! ```
//!
//! A whiteout is a character device with the number zero; anyone may make one. Inside the overlay nobody
//! can, nor can the attributes `user.overlay.*` be set there, so every mark in the top layer is the kernel's.

use std::collections::HashMap;

use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use crate::Error;
use crate::dir::{Dir, path_of};
use crate::quote::display_path;

const OPAQUE: &str = "user.overlay.opaque";
const WHITEOUT: &str = "user.overlay.whiteout";
/// The attributes of a user that mean something to an overlay.
const MARKS: &[u8] = b"user.overlay.";
/// The bytes of attribute names that are read.
const MAX_NAME_BYTES: usize = 4 * 1024;

/// The findings of a walk that concern the layers of an overlay.
#[derive(Debug, Default)]
pub(crate) struct LayerFindings {
    /// Files of the source, by which a change is recognised later.
    pub(crate) stamps: HashMap<Vec<u8>, FileStamp>,
    /// Names that the overlay must not show.
    pub(crate) masked: Vec<Vec<u8>>,
    /// Those of them that the policy hides.
    pub(crate) hidden: Vec<Vec<u8>>,
    /// Ignored directories that the run may use, and that are no part of its changes.
    pub(crate) lent: Vec<Vec<u8>>,
    /// Directories that the mask shows with plain permission bits.
    pub(crate) dressed: Vec<Vec<u8>>,
    /// Names of the top layer that stand for removed ones.
    pub(crate) whiteouts: Vec<Vec<u8>>,
    /// Directories of the top layer that hide those below them.
    pub(crate) opaque: Vec<Vec<u8>>,
}

impl LayerFindings {
    /// Takes over the findings of another thread.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.stamps.extend(other.stamps);
        self.masked.extend(other.masked);
        self.hidden.extend(other.hidden);
        self.lent.extend(other.lent);
        self.dressed.extend(other.dressed);
        self.whiteouts.extend(other.whiteouts);
        self.opaque.extend(other.opaque);
    }
}

/// The identity of a file's content without reading it. Every write moves the change time, which no
/// program can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl FileStamp {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// The way a directory of the top layer relates to those below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opacity {
    /// It shows them, too.
    Merged,
    /// It hides them.
    Opaque,
    /// It shows them, and files in it may be whiteouts by an attribute.
    MarkedFiles,
}

pub(crate) fn opacity(dir: &Dir) -> Opacity {
    let mut value = [0_u8; 1];
    match rustix::fs::fgetxattr(dir, OPAQUE, &mut value) {
        Ok(1) if value == *b"y" => Opacity::Opaque,
        Ok(1) if value == *b"x" => Opacity::MarkedFiles,
        _ => Opacity::Merged,
    }
}

/// Marks a directory of the top layer as one that hides those below it.
pub(crate) fn make_opaque(dir: &Dir) -> rustix::io::Result<()> {
    rustix::fs::fsetxattr(dir, OPAQUE, b"y", rustix::fs::XattrFlags::empty())
}

/// Whether a name is a character device with the number zero.
pub(crate) fn is_whiteout(dir: &Dir, name: &[u8]) -> bool {
    dir.stat(name).is_ok_and(|stat| is_whiteout_stat(&stat))
}

pub(crate) fn is_whiteout_stat(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// Whether a file has the attribute of a whiteout.
pub(crate) fn is_marked_whiteout(dir: &Dir, name: &[u8]) -> bool {
    let Ok((file, stat)) = dir.open_file(name) else {
        return false;
    };
    let mut value = [0_u8; 1];
    stat.st_size == 0 && rustix::fs::fgetxattr(&file, WHITEOUT, &mut value).is_ok()
}

pub(crate) fn make_whiteout(dir: &Dir, name: &[u8]) -> rustix::io::Result<()> {
    let (kind, mode) = (FileType::CharacterDevice, Mode::empty());
    match rustix::fs::mknodat(dir, name, kind, mode, 0) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

/// Whether the owner of a file, which is this user, may read it.
pub(crate) fn is_readable(stat: &Stat) -> bool {
    geteuid().is_root() || stat.st_mode & 0o400 != 0
}

/// Refuses a file that the overlay would not show as a copy has it.
pub(crate) fn check_file(stat: &Stat, path: &[u8]) -> Result<(), Error> {
    check_owner(stat, path)?;
    if stat.st_mode & 0o7000 != 0 {
        return Err(unsuited(
            path,
            "has set-id or sticky bits, which only a copy takes off",
        ));
    }
    Ok(())
}

/// Refuses a directory that the overlay would not show as a copy has it.
pub(crate) fn check_directory(
    dir: &Dir,
    stat: &Stat,
    path: &[u8],
    device: u64,
) -> Result<(), Error> {
    check_owner(stat, path)?;
    if stat.st_dev != device {
        return Err(unsuited(path, "is on another file system than the rest"));
    }
    let mut names = [0_u8; MAX_NAME_BYTES];
    let has_marks = match rustix::fs::flistxattr(dir, &mut names) {
        Ok(length) => {
            let names = names.get(..length).unwrap_or_default();
            let mut names = names.split(|&byte| byte == 0);
            names.any(|name| name.starts_with(MARKS))
        }
        Err(Errno::RANGE) => true,
        Err(_) => false,
    };
    if has_marks {
        return Err(unsuited(
            path,
            "has attributes that mean something to an overlay",
        ));
    }
    Ok(())
}

/// The agent has the rights of this user alone. A file of another user could not be written in an overlay,
/// and an id that the namespace does not know could not even be copied up.
fn check_owner(stat: &Stat, path: &[u8]) -> Result<(), Error> {
    if stat.st_uid != geteuid().as_raw() {
        return Err(unsuited(path, "belongs to another user"));
    }
    if !geteuid().is_root() && stat.st_gid != getegid().as_raw() {
        return Err(unsuited(path, "belongs to another group"));
    }
    Ok(())
}

/// A source that can only be copied.
pub(crate) fn unsuited(path: &[u8], problem: &str) -> Error {
    let reason = format!("{} {problem}", display_path(path_of(path)));
    Error::NoOverlay { reason }
}
