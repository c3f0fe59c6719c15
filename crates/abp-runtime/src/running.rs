//! The runs of this process that go on: how many there may be, and how each is cancelled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abp_backend_core::CancelHandle;
use abp_core::CancelReason;
use abp_store::CancelRecord;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use uuid::Uuid;

use crate::RuntimeError;
use crate::lease::CancelSlot;

/// The runs of this process that go on.
#[derive(Debug, Clone)]
pub(crate) struct RunningRuns {
    limit: usize,
    places: Arc<Semaphore>,
    parking: Arc<Semaphore>,
    runs: Arc<Mutex<BTreeMap<Uuid, Cancellation>>>,
    /// How many there are.
    count: Arc<watch::Sender<usize>>,
}

/// How a run is cancelled.
#[derive(Debug, Clone)]
pub(crate) struct Cancellation {
    pub(crate) handle: CancelHandle,
    /// The request, for the receipt.
    pub(crate) request: CancelSlot,
}

/// A run that is listed until this is dropped.
#[derive(Debug)]
pub(crate) struct ListedRun {
    run_id: Uuid,
    runs: RunningRuns,
    /// Given back when the run has ended.
    _place: Arc<RunPlace>,
}

/// The place of a run among those that go on at once. While the run waits for a person it may be parked:
/// its place is then another's, as long as there is room for parked runs.
#[derive(Debug)]
pub struct RunPlace {
    running: Mutex<Option<OwnedSemaphorePermit>>,
    places: Arc<Semaphore>,
    parking: Arc<Semaphore>,
}

/// Room for a run that is parked; `None` where it keeps its place instead.
#[derive(Debug)]
pub(crate) struct Parked(Option<OwnedSemaphorePermit>);

impl RunPlace {
    /// Gives the place to another run while this one waits.
    pub(crate) fn park(&self) -> Parked {
        let room = Arc::clone(&self.parking).try_acquire_owned().ok();
        if room.is_some() {
            drop(self.held().take());
        }
        Parked(room)
    }

    /// Waits for a place again.
    pub(crate) async fn unpark(&self, parked: Parked) {
        if parked.0.is_none() {
            return;
        }
        // It is closed never.
        if let Ok(place) = Arc::clone(&self.places).acquire_owned().await {
            *self.held() = Some(place);
        }
    }

    fn held(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningRuns {
    pub(crate) fn new(limit: usize, parking: usize) -> Self {
        Self {
            limit,
            places: Arc::new(Semaphore::new(limit)),
            parking: Arc::new(Semaphore::new(parking)),
            runs: Arc::default(),
            count: Arc::new(watch::channel(0).0),
        }
    }

    /// A place for one more run.
    ///
    /// # Errors
    /// Fails where as many go on as may.
    pub(crate) fn reserve(&self) -> Result<Arc<RunPlace>, RuntimeError> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| RuntimeError::Busy { limit: self.limit })?;
        Ok(self.place(Some(place)))
    }

    /// Waits for a place for one more run.
    pub(crate) async fn wait_for_place(&self) -> Arc<RunPlace> {
        // It is closed never.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        self.place(place)
    }

    fn place(&self, running: Option<OwnedSemaphorePermit>) -> Arc<RunPlace> {
        Arc::new(RunPlace {
            running: Mutex::new(running),
            places: Arc::clone(&self.places),
            parking: Arc::clone(&self.parking),
        })
    }

    /// Lists a run that was started.
    pub(crate) fn list(
        &self,
        run_id: Uuid,
        cancel: Cancellation,
        place: Arc<RunPlace>,
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

    /// The runs.
    pub(crate) fn ids(&self) -> Vec<Uuid> {
        self.lock().keys().copied().collect()
    }

    /// Cancels a run; whether it is one of these.
    pub(crate) fn cancel(&self, run_id: Uuid, reason: CancelReason) -> bool {
        let runs = self.lock();
        runs.get(&run_id)
            .inspect(|run| run.handle.cancel(reason))
            .is_some()
    }

    /// Cancels a run because of a request; whether it is one of these.
    pub(crate) fn cancel_by(&self, run_id: Uuid, request: &CancelRecord) -> bool {
        let runs = self.lock();
        let found = runs.get(&run_id);
        if let Some(run) = found {
            // The first request is the one that counts.
            drop(run.request.set(request.clone()));
            run.handle.cancel(CancelReason::User);
        }
        found.is_some()
    }

    /// Cancels all and waits for their ends; how many go on all the same.
    pub(crate) async fn finish(&self, reason: CancelReason, grace: Duration) -> usize {
        for run in self.lock().values() {
            run.handle.cancel(reason);
        }
        let mut count = self.count.subscribe();
        let ended = count.wait_for(|count| *count == 0);
        // The time limit shows in the count.
        drop(tokio::time::timeout(grace, ended).await);
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, Cancellation>> {
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
