//! Deleting discarded stages in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abp_workspace::WorkspaceManager;

/// How long one sweep may take.
const TIME: Duration = Duration::from_secs(600);

/// Deletes discarded stages on a thread of its own, one sweep at a time. A sweep ends with the process;
/// the rest is for the next one.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrashSweeper {
    is_busy: Arc<AtomicBool>,
}

impl TrashSweeper {
    /// Starts a sweep, unless one goes on.
    pub(crate) fn sweep(&self, workspaces: WorkspaceManager) {
        if self.is_busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let is_busy = Arc::clone(&self.is_busy);
        let work = move || {
            if let Err(error) = workspaces.sweep_trash(TIME) {
                tracing::warn!(target: "abp.workspace", %error, "discarded stages could not be deleted");
            }
            is_busy.store(false, Ordering::Release);
        };
        let thread = std::thread::Builder::new().name("abp-sweep".to_owned());
        if let Err(error) = thread.spawn(work) {
            self.is_busy.store(false, Ordering::Release);
            tracing::warn!(target: "abp.workspace", %error, "discarded stages are deleted later");
        }
    }
}
