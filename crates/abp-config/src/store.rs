//! The database of the store.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::EnvValue;

/// The database of runs, events, receipts, keys and budgets. Read by every command that keeps something.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// The address of a Postgres database that several nodes share, such as
    /// `postgres://abp@db.example.org/abp`; a file in `state_dir` when omitted. A password is better
    /// given in `ABP_DATABASE_URL`, `PGPASSWORD` or `~/.pgpass` than here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<EnvValue>,
    /// The directory with the keys that sign the log and seal submissions. Required with `url`, and the
    /// operator's: `abp migrate` makes the keys, and every node is given the same files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<PathBuf>,
    /// The schema of that database; `abp` when omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// The name of this node: of the machine that its files are on. The host name when omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The most connections for reading of one process; 8 when omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 1_000))]
    pub max_connections: Option<u32>,
}
