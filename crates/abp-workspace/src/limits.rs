//! Budgets of a workspace, and what of them is used.

/// What a workspace may consist of. Exceeding any of them is an error, before the disk is full.
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

/// What is used of the limits, and of the disk.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: StageLimits,
    files: u64,
    bytes: u64,
    disk_used: u64,
    disk_free: u64,
}

impl Budget {
    /// `disk_free` is what may still be written to the disk.
    pub(crate) fn new(limits: StageLimits, disk_free: u64) -> Self {
        Self {
            limits,
            files: 0,
            bytes: 0,
            disk_used: 0,
            disk_free,
        }
    }

    pub(crate) fn max_depth(&self) -> u32 {
        self.limits.max_depth
    }

    pub(crate) fn take_file(&mut self) -> Result<(), Exceeded> {
        self.files += 1;
        within(self.files, self.limits.max_files, "the number of files")
    }

    pub(crate) fn would_take(&self, bytes: u64) -> Result<(), Exceeded> {
        let total = self.bytes.saturating_add(bytes);
        within(total, self.limits.max_bytes, "the number of bytes")
    }

    pub(crate) fn take_bytes(&mut self, bytes: u64) -> Result<(), Exceeded> {
        self.would_take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    pub(crate) fn use_disk(&mut self, bytes: u64) -> Result<(), Exceeded> {
        self.disk_used += bytes;
        within(self.disk_used, self.disk_free, "the free disk space")
    }
}

fn within(used: u64, max: u64, limit: &'static str) -> Result<(), Exceeded> {
    if used > max {
        return Err(Exceeded { limit, max });
    }
    Ok(())
}
