//! Where traces and metrics are sent.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::EnvValue;

/// A collector that takes traces and metrics as OTLP in JSON over HTTP. Nothing is sent without an endpoint.
/// Read by `abp serve` and `abp run`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// The address that `/v1/traces` and `/v1/metrics` are below, such as `http://localhost:4318`. Read by
    /// `abp serve` and `abp run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Headers that go along, such as the collector's key. Read by `abp serve` and `abp run`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, EnvValue>,
    /// The seconds between two requests. Read by `abp serve` and `abp run`.
    #[schemars(range(min = 1, max = 86_400))]
    pub interval_secs: u32,
    /// The most megabytes of spans that wait to be sent; further ones are dropped and counted. Read by
    /// `abp serve` and `abp run`.
    #[schemars(range(min = 1, max = 1_024))]
    pub max_queue_mb: u32,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            headers: BTreeMap::new(),
            interval_secs: 5,
            max_queue_mb: 8,
        }
    }
}
