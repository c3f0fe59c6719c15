//! Keeping the lease of a run while it goes on.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use abp_backend_core::CancelHandle;
use abp_core::CancelReason;
use abp_store::{CancelRecord, Lease, Store, StoreError};
use abp_telemetry::MetricsCollector;
use tokio::task::JoinHandle;

/// How often a run that goes on says so in the store.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// The request that ended a run, for its receipt.
pub(crate) type CancelSlot = Arc<OnceLock<CancelRecord>>;

/// Renews a lease until it is dropped. A run that somebody cancelled, in whichever process, is cancelled; one
/// that lost its lease is stopped, and nothing more of it can be written.
#[derive(Debug)]
pub(crate) struct LeaseKeeper {
    task: JoinHandle<()>,
}

impl LeaseKeeper {
    pub(crate) fn start(
        store: Store,
        lease: Lease,
        duration: Duration,
        cancel: CancelHandle,
        cancelled: CancelSlot,
        metrics: Option<Arc<MetricsCollector>>,
    ) -> Self {
        let keep = async move {
            loop {
                tokio::time::sleep(HEARTBEAT).await;
                match store.renew(lease, duration).await {
                    Ok(None) => {}
                    Ok(Some(record)) => {
                        // The first request is the one that counts, and the one that is stored.
                        drop(cancelled.set(record));
                        cancel.cancel(CancelReason::User);
                    }
                    Err(StoreError::NotOwner(_) | StoreError::RunOver(_)) => {
                        let run_id = lease.run_id;
                        if let Some(metrics) = &metrics {
                            metrics.count_lease_loss();
                        }
                        tracing::warn!(target: "abp.runtime", %run_id, "the lease of the run is lost");
                        cancel.cancel(CancelReason::Storage);
                        return;
                    }
                    // A store that takes nothing ends the run with the next event.
                    Err(error) => {
                        tracing::debug!(target: "abp.runtime", %error, "the lease was not renewed");
                    }
                }
            }
        };
        Self {
            task: tokio::spawn(keep),
        }
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}
