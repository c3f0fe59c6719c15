//! Webhooks: addresses that are told of runs.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An address that is told of the approvals and ends of runs. Read by `abp serve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// Where messages are sent. Read by `abp serve`.
    pub url: String,
    /// The environment variable with the secret that messages are signed with. Read by `abp serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_env: Option<String>,
    /// The file with that secret. Read by `abp serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// The addresses that the name may lead to. Read by `abp serve`.
    #[serde(default)]
    pub addresses: WebhookAddresses,
}

/// The addresses that a webhook's name may lead to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookAddresses {
    /// Only those that the whole internet can reach.
    #[default]
    Public,
    /// All, those of this machine and of private networks included.
    Any,
}
