//! Connections that become WebSockets.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use hyper::upgrade::{OnUpgrade, Upgraded};
use tokio::runtime::Handle;

/// What goes on over a connection that was upgraded.
pub type UpgradeSession =
    Box<dyn FnOnce(Upgraded) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// The session that follows the last HTTP exchange of a connection, where one does.
#[derive(Default)]
pub(crate) struct UpgradeSlot(Mutex<Option<(OnUpgrade, UpgradeSession, Handle)>>);

impl std::fmt::Debug for UpgradeSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UpgradeSlot")
    }
}

impl UpgradeSlot {
    pub(crate) fn put(&self, upgrade: OnUpgrade, session: UpgradeSession, tasks: Handle) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some((upgrade, session, tasks));
    }

    /// Carries out the session, if there is one, on the runtime where runs live. The caller waits, so that
    /// the connection keeps its place among all connections.
    pub(crate) async fn run(&self) {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((upgrade, session, tasks)) = taken else {
            return;
        };
        match upgrade.await {
            Ok(upgraded) => {
                if let Err(error) = tasks.spawn(session(upgraded)).await {
                    tracing::error!(target: "abp.http", %error, "a WebSocket session failed");
                }
            }
            Err(error) => {
                tracing::debug!(target: "abp.http", %error, "a connection was not upgraded");
            }
        }
    }
}
