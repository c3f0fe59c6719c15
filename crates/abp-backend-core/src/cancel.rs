//! Cancellation that carries its reason.

use abp_core::CancelReason;
use tokio::sync::watch;

/// Makes a connected pair: one side asks for the end, the other hears of it.
#[must_use]
pub fn cancellation() -> (CancelHandle, CancelSignal) {
    let (sender, receiver) = watch::channel(None);
    (CancelHandle { sender }, CancelSignal { receiver })
}

/// Asks a run to end. The first reason given is the one that counts.
#[derive(Debug, Clone)]
pub struct CancelHandle {
    sender: watch::Sender<Option<CancelReason>>,
}

impl CancelHandle {
    /// Asks for the end; does nothing where it was asked for before.
    pub fn cancel(&self, reason: CancelReason) {
        self.sender.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                *current = Some(reason);
            }
            first
        });
    }
}

/// Hears that a run is to end.
#[derive(Debug, Clone)]
pub struct CancelSignal {
    receiver: watch::Receiver<Option<CancelReason>>,
}

impl CancelSignal {
    /// The reason, where the end was asked for.
    #[must_use]
    pub fn reason(&self) -> Option<CancelReason> {
        *self.receiver.borrow()
    }

    /// Waits until the end is asked for; for ever where nobody can ask any more.
    pub async fn cancelled(&mut self) -> CancelReason {
        let asked = match self.receiver.wait_for(Option::is_some).await {
            Ok(reason) => *reason,
            Err(_) => None,
        };
        match asked {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }
}
