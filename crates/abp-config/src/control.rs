//! How much runs may take.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The limits of runs. What is over a limit is refused, and the refusal names the limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ControlConfig {
    /// The most runs that go on at once in a process; each may be several processes. Further ones wait.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_running: u32,
    /// The most runs of one principal that a server carries out at once. Further ones wait.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_running_per_principal: u32,
    /// The most runs that wait for a person besides those that go on; further ones keep their place.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_parked: u32,
    /// The most runs that may be queued in all.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_queued: u32,
    /// The most runs of one principal that may be queued.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_queued_per_principal: u32,
    /// The most that orders, events and receipts of all runs may take before submissions are refused, in
    /// megabytes; unlimited where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_stored_mb: Option<u32>,
    /// The same for the runs of one principal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_stored_mb_per_principal: Option<u32>,
    /// How long a run of `/v1/assist` goes on after its sender left, in seconds. A request that is sent
    /// again with its idempotency key within that time gets the answer from the start.
    #[schemars(range(min = 0, max = 86_400))]
    pub assist_reattach_secs: u32,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            max_running: 32,
            max_running_per_principal: 8,
            max_parked: 64,
            max_queued: 10_000,
            max_queued_per_principal: 1_000,
            max_stored_mb: None,
            max_stored_mb_per_principal: None,
            assist_reattach_secs: 30,
        }
    }
}
