//! The progress of a preparation, for display, and the way to stop it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts the files and bytes read of a source while a workspace is prepared, and stops the preparation.
#[derive(Debug, Default)]
pub struct StageProgress {
    files: AtomicU64,
    bytes: AtomicU64,
    stopped: AtomicBool,
}

impl StageProgress {
    /// Files that are complete.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Bytes that were read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Makes the preparation fail with [`Error::Stopped`](crate::Error::Stopped) at the next name or block
    /// of bytes, and remove its stage.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn add_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the new total.
    pub(crate) fn add_bytes(&self, bytes: u64) -> u64 {
        self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    pub(crate) fn take_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
