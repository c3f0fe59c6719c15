//! The models of a sidecar's run: a key of the gateway for each, and what the gateway measured.
//!
//! A host of a vendor's agent is told the address and the key in `config.vendor.abp.model_api`. What the agent uses is
//! then known from the exchanges of that key, and its own claims about usage are not passed on.

use abp_backend_core::{MeasuredExchange, MeasuredModels, RunContext, RunEnd, RunModels};
use abp_error::{AbpError, ErrorCode};
use abp_host::Egress;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

/// The name of the gateway's route out of the sandbox.
const ROUTE: &str = "models";
/// The models of a run under way, and what it used of them. Without a gateway nothing is measured.
#[derive(Debug, Default)]
pub(crate) struct ModelUse {
    models: Option<RunModels>,
    measured: MeasuredModels,
}

impl ModelUse {
    pub(crate) fn new(models: Option<RunModels>) -> Self {
        Self {
            models,
            ..Self::default()
        }
    }

    /// Whether the gateway measures what the run uses.
    pub(crate) fn is_measured(&self) -> bool {
        self.models.is_some()
    }

    /// The address and the key as the sidecar is told them, with the way to the address out of its sandbox.
    ///
    /// # Errors
    /// Fails where the way out cannot lead there.
    pub(crate) fn setting(&self, egress: Option<&Egress>) -> Result<Option<Value>, AbpError> {
        let Some(models) = &self.models else {
            return Ok(None);
        };
        let url = match egress {
            Some(egress) => egress
                .add_route(ROUTE, &models.url)
                .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?,
            None => models.url.clone(),
        };
        let key = models.key.expose_secret();
        Ok(Some(json!({ "url": url, "key": key })))
    }

    /// The next exchange that ended; never where there is no gateway.
    pub(crate) async fn next(&mut self) -> MeasuredExchange {
        if let Some(models) = &mut self.models
            && let Some(exchange) = models.exchanges.recv().await
        {
            return exchange;
        }
        std::future::pending().await
    }

    /// Takes an exchange into account and tells the host of the usage so far.
    ///
    /// # Errors
    /// Fails where the budget did not allow the exchange: the run is to end.
    pub(crate) async fn tell(
        &mut self,
        measured: MeasuredExchange,
        context: &RunContext,
    ) -> Result<(), AbpError> {
        let added = self.measured.add(measured);
        // Where the run is over, the next event of the sidecar finds it out.
        let _ = context.emit_all(vec![self.measured.event()]).await;
        added
    }

    /// Revokes the key, and adds what was measured to the end of the run.
    pub(crate) async fn finish(mut self, end: RunEnd, context: &RunContext) -> RunEnd {
        let Some(models) = self.models.take() else {
            return end;
        };
        let mut refused = None;
        for exchange in models.close().await {
            refused = self.tell(exchange, context).await.err().or(refused);
        }
        self.measured.complete(RunEnd {
            result: match refused {
                Some(error) => Err(error),
                None => end.result,
            },
            ..end
        })
    }
}
