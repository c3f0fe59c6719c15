//! Space set aside for the receipts of running runs, for when the disk is full.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

/// A file that takes space until that space is needed.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    bytes: u64,
}

impl Reserve {
    pub(crate) fn new(path: PathBuf, bytes: u64) -> Self {
        Self { path, bytes }
    }

    /// Whether the space is set aside.
    pub(crate) fn is_whole(&self) -> bool {
        self.bytes == 0
            || fs::metadata(&self.path).is_ok_and(|file| {
                file.len() >= self.bytes && file.blocks().saturating_mul(512) >= self.bytes
            })
    }

    /// Sets the space aside, where at least as much is left beside it.
    pub(crate) fn fill(&self) -> io::Result<()> {
        if self.is_whole() {
            return Ok(());
        }
        if self.available()? < self.bytes.saturating_mul(2) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let filled = self.allocate();
        if filled.is_err() {
            // A part of it would only be missing elsewhere.
            self.release()?;
        }
        filled
    }

    /// Gives the space back.
    pub(crate) fn release(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether less is left than the reserve would take: a failed write was for want of space.
    pub(crate) fn disk_is_full(&self) -> bool {
        self.available()
            .is_ok_and(|left| left < self.bytes.max(64 * 1024))
    }

    fn available(&self) -> io::Result<u64> {
        let directory = self.path.parent().unwrap_or(&self.path);
        let found = statvfs(directory)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn allocate(&self) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&self.path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, self.bytes) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP) => {
                // Zeros take space only where the file system neither compresses nor skips them.
                let block = [0; 64 * 1024];
                let mut left = self.bytes;
                while left > 0 {
                    let piece = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
                    file.write_all(block.get(..piece).unwrap_or(&block))?;
                    left = left.saturating_sub(piece as u64);
                }
            }
            Err(error) => return Err(error.into()),
        }
        file.sync_all()
    }
}
