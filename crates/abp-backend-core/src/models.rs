//! The way of a run's agent to models: an address and a key that are there as long as the run is.

use std::fmt::Debug;
use std::time::Duration;

use abp_core::{MicroUsd, RunExchange, UsageNormalized};
use abp_error::AbpError;
use secrecy::SecretString;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::BoxFuture;

/// A gateway that gives each run a key of its own.
pub trait ModelGateway: Debug + Send + Sync {
    /// Makes the key of a run.
    fn open(&self, grant: ModelGrant) -> BoxFuture<'_, Result<RunModels, AbpError>>;
}

/// The limits of a run's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelGrant {
    /// The run.
    pub run_id: Uuid,
    /// The most that its exchanges may cost together; `None` is no limit.
    pub budget: Option<MicroUsd>,
    /// The time after which the key is refused, even where nothing revoked it.
    pub lifetime: Duration,
}

/// The models of a run under way. Dropping it revokes the key.
#[derive(Debug)]
pub struct RunModels {
    /// The gateway's address, without a path.
    pub url: String,
    /// The key of the run.
    pub key: SecretString,
    /// The exchanges of the key, each when it ended.
    pub exchanges: mpsc::UnboundedReceiver<MeasuredExchange>,
    /// Revokes the key when it is dropped; `exchanges` ends then.
    pub revoke: oneshot::Sender<()>,
}

/// An exchange that the gateway carried for a run.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredExchange {
    /// The exchange as a receipt lists it.
    pub exchange: RunExchange,
    /// The usage that the gateway read from the upstream's answer.
    pub usage: UsageNormalized,
    /// The error code of an exchange that the gateway refused or could not carry.
    pub error_code: Option<String>,
}

impl RunModels {
    /// Revokes the key, and returns the exchanges that were not taken yet.
    pub async fn close(self) -> Vec<MeasuredExchange> {
        let Self {
            mut exchanges,
            revoke,
            ..
        } = self;
        drop(revoke);
        let mut rest = Vec::new();
        while let Some(exchange) = exchanges.recv().await {
            rest.push(exchange);
        }
        rest
    }
}
