//! The runs of this process that go on: how many there may be, and how each is cancelled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abp_backend_core::CancelHandle;
use abp_core::CancelReason;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use uuid::Uuid;

use crate::RuntimeError;

/// The runs of this process that go on.
#[derive(Debug, Clone)]
pub(crate) struct RunningRuns {
    limit: usize,
    places: Arc<Semaphore>,
    runs: Arc<Mutex<BTreeMap<Uuid, CancelHandle>>>,
    /// How many there are.
    count: Arc<watch::Sender<usize>>,
}

/// A run that is listed until this is dropped.
#[derive(Debug)]
pub(crate) struct ListedRun {
    run_id: Uuid,
    runs: RunningRuns,
    /// Given back when the run has ended.
    _place: OwnedSemaphorePermit,
}

impl RunningRuns {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            places: Arc::new(Semaphore::new(limit)),
            runs: Arc::default(),
            count: Arc::new(watch::channel(0).0),
        }
    }

    /// A place for one more run.
    ///
    /// # Errors
    /// Fails where as many go on as may.
    pub(crate) fn reserve(&self) -> Result<OwnedSemaphorePermit, RuntimeError> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map_err(|_| RuntimeError::Busy { limit: self.limit })
    }

    /// Lists a run that was started.
    pub(crate) fn list(
        &self,
        run_id: Uuid,
        cancel: CancelHandle,
        place: OwnedSemaphorePermit,
    ) -> ListedRun {
        let mut runs = self.lock();
        runs.insert(run_id, cancel);
        self.count.send_replace(runs.len());
        ListedRun {
            run_id,
            runs: self.clone(),
            _place: place,
        }
    }

    /// Cancels a run; whether it is one of these.
    pub(crate) fn cancel(&self, run_id: Uuid, reason: CancelReason) -> bool {
        let runs = self.lock();
        runs.get(&run_id)
            .inspect(|run| run.cancel(reason))
            .is_some()
    }

    /// Cancels all and waits for their ends; how many go on all the same.
    pub(crate) async fn finish(&self, reason: CancelReason, grace: Duration) -> usize {
        for run in self.lock().values() {
            run.cancel(reason);
        }
        let mut count = self.count.subscribe();
        let ended = count.wait_for(|count| *count == 0);
        // The time limit shows in the count.
        drop(tokio::time::timeout(grace, ended).await);
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, CancelHandle>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ListedRun {
    fn drop(&mut self) {
        let mut runs = self.runs.lock();
        runs.remove(&self.run_id);
        self.runs.count.send_replace(runs.len());
    }
}
