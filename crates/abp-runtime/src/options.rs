//! What belongs to one run and is not in its order.

use std::collections::BTreeMap;
use std::time::Duration;

use abp_backend_core::AgentSession;
use abp_core::{CapabilityOrigins, PriceTable};
use abp_host::CheckCommand;
use abp_plan::ModelTarget;
use abp_telemetry::TraceContext;
use secrecy::SecretString;

use crate::Approvals;

/// What belongs to one run and is not in its order.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// The longest the run may take.
    pub timeout: Option<Duration>,
    /// Approvals given in advance.
    pub approvals: Approvals,
    /// Who said what the order's client can render.
    pub client_origins: CapabilityOrigins,
    /// The prices of the models of each backend.
    pub prices: RunPrices,
    /// The backends that are models, and how each of them is asked.
    pub models: BTreeMap<String, ModelTarget>,
    /// Values that are taken out of everything the run says.
    pub secrets: Vec<SecretString>,
    /// The place of the caller in a trace.
    pub trace: Option<TraceContext>,
    /// The agent's session of an earlier run that this one goes on with.
    pub session: Option<AgentSession>,
    /// Judges the result before the receipt is written; a result that it does not pass is not complete.
    pub check: Option<CheckCommand>,
}

/// The prices of models, by the backend that asks them.
#[derive(Debug, Clone, Default)]
pub struct RunPrices {
    /// The prices of backends that have their own.
    pub backends: BTreeMap<String, PriceTable>,
    /// The prices of all others.
    pub usual: PriceTable,
}

impl RunPrices {
    /// The prices of a backend.
    #[must_use]
    pub fn of(&self, backend: &str) -> &PriceTable {
        self.backends.get(backend).unwrap_or(&self.usual)
    }
}

impl From<PriceTable> for RunPrices {
    fn from(usual: PriceTable) -> Self {
        Self {
            backends: BTreeMap::new(),
            usual,
        }
    }
}
