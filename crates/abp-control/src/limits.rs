//! The limits of what runs may take.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use abp_error::{AbpError, ErrorCode};
use abp_store::QueueLimits;

use crate::{ControlPlane, Principal};

/// The time that a measured size is believed. Measuring looks at everything that is stored.
const BELIEVED: Duration = Duration::from_secs(30);

/// Measured sizes: of the runs of a principal, or of all.
#[derive(Debug, Default)]
pub(crate) struct StoredSizes {
    measured: Mutex<HashMap<Option<String>, (Instant, u64)>>,
}

impl StoredSizes {
    fn get(&self, of: Option<&str>) -> Option<u64> {
        let measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, bytes) = measured.get(&of.map(str::to_owned))?;
        (at.elapsed() < BELIEVED).then_some(*bytes)
    }

    fn set(&self, of: Option<&str>, bytes: u64) {
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        measured.insert(of.map(str::to_owned), (Instant::now(), bytes));
    }

    /// Forgets every size: something was deleted.
    pub(crate) fn clear(&self) {
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        measured.clear();
    }
}

impl ControlPlane {
    /// The limits on runs that wait.
    pub(crate) fn queue_limits(&self) -> QueueLimits {
        let control = &self.config().control;
        QueueLimits {
            total: Some(control.max_queued),
            per_principal: Some(control.max_queued_per_principal),
        }
    }

    /// Refuses another run where the runs of its principal, or all, take as much as they may. Sizes are
    /// measured at most twice a minute, so runs that were submitted meanwhile may go a little beyond.
    pub(crate) async fn check_stored(&self, principal: &Principal) -> Result<(), AbpError> {
        let control = &self.config().control;
        if let Some(limit) = control.max_stored_mb {
            let taken = self.stored_bytes(None).await?;
            require_room("all runs", "max_stored_mb", taken, limit)?;
        }
        if let (Some(limit), Some(id)) = (control.max_stored_mb_per_principal, principal.id()) {
            let taken = self.stored_bytes(Some(id)).await?;
            let name = "max_stored_mb_per_principal";
            require_room("the runs of this key", name, taken, limit)?;
        }
        Ok(())
    }

    async fn stored_bytes(&self, of: Option<&str>) -> Result<u64, AbpError> {
        if let Some(bytes) = self.sizes().get(of) {
            return Ok(bytes);
        }
        let bytes = self.store().await?.stored_bytes(of).await?;
        self.sizes().set(of, bytes);
        Ok(bytes)
    }
}

fn require_room(whose: &str, setting: &str, taken: u64, limit_mb: u32) -> Result<(), AbpError> {
    if taken < u64::from(limit_mb) << 20 {
        return Ok(());
    }
    let message = format!(
        "the orders, events and receipts of {whose} take {} MB, and `{setting}` is {limit_mb}; \
         delete some with `abp runs delete`",
        taken >> 20
    );
    Err(AbpError::new(ErrorCode::RunLimitReached, message).with_context("limit", setting))
}
