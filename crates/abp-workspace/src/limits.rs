//! Budgets of a workspace, and their use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::progress::StageProgress;

/// The size limits of a workspace. Exceeding any of them is an error, before the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageLimits {
    /// Files, links and directories.
    pub max_files: u64,
    /// Bytes in all files, holes included.
    pub max_bytes: u64,
    /// Levels of directories.
    pub max_depth: u32,
}

impl Default for StageLimits {
    fn default() -> Self {
        Self {
            max_files: 1_000_000,
            max_bytes: 64 << 30,
            max_depth: 256,
        }
    }
}

/// A budget that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exceeded {
    pub(crate) limit: &'static str,
    pub(crate) max: u64,
}

/// The use of the limits and of the disk by all threads of a walk together.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: StageLimits,
    names: AtomicU64,
    read: Arc<StageProgress>,
    disk_used: AtomicU64,
    disk_free: u64,
    closed: AtomicBool,
}

impl Budget {
    /// `disk_free` is the number of bytes that may still be written to the disk; bytes read are
    /// counted in `read`.
    pub(crate) fn new(limits: StageLimits, disk_free: u64, read: Arc<StageProgress>) -> Self {
        Self {
            limits,
            names: AtomicU64::new(0),
            read,
            disk_used: AtomicU64::new(0),
            disk_free,
            closed: AtomicBool::new(false),
        }
    }

    /// Refuses everything from now on, so that after a failure no file is read to its end.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn max_depth(&self) -> u32 {
        self.limits.max_depth
    }

    /// Takes a file, a link or a directory.
    pub(crate) fn take_name(&self) -> Result<(), Exceeded> {
        self.refuse_if_closed()?;
        let names = self.names.fetch_add(1, Ordering::Relaxed) + 1;
        within(names, self.limits.max_files, "the number of files")
    }

    /// Counts a file that is complete.
    pub(crate) fn file_done(&self) {
        self.read.add_file();
    }

    pub(crate) fn would_take(&self, bytes: u64) -> Result<(), Exceeded> {
        self.within_bytes(self.read.bytes().saturating_add(bytes))
    }

    /// Takes bytes; a number that does not fit is not taken, so that a smaller one still can be.
    pub(crate) fn take_bytes(&self, bytes: u64) -> Result<(), Exceeded> {
        self.refuse_if_closed()?;
        let taken = self.within_bytes(self.read.add_bytes(bytes));
        if taken.is_err() {
            self.read.take_back(bytes);
        }
        taken
    }

    pub(crate) fn use_disk(&self, bytes: u64) -> Result<(), Exceeded> {
        let used = self.disk_used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        within(used, self.disk_free, "the free disk space")
    }

    fn refuse_if_closed(&self) -> Result<(), Exceeded> {
        if self.closed.load(Ordering::Relaxed) || self.read.is_stopped() {
            return Err(Exceeded {
                limit: "what is left after a failure",
                max: 0,
            });
        }
        Ok(())
    }

    fn within_bytes(&self, total: u64) -> Result<(), Exceeded> {
        within(total, self.limits.max_bytes, "the number of bytes")
    }
}

fn within(used: u64, max: u64, limit: &'static str) -> Result<(), Exceeded> {
    if used > max {
        return Err(Exceeded { limit, max });
    }
    Ok(())
}
