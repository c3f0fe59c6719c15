//! What the server that `abp serve` starts may take.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The limits and rights of the server, beside `bind_address` and `port`. Read by `abp serve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Hosts that requests may name, beside the address itself and `localhost`: whoever makes a
    /// name point here must not reach a browser's user. Read by `abp serve`.
    pub allowed_hosts: Vec<String>,
    /// Where pages may come from that call the server. Read by `abp serve`.
    pub allowed_origins: Vec<String>,
    /// The largest body of a request, in megabytes. Read by `abp serve`.
    #[schemars(range(min = 1, max = 1_024))]
    pub max_body_mb: u32,
    /// The most connections at once. Read by `abp serve`.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_connections: u32,
    /// The most requests at once. Read by `abp serve`.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_concurrent: u32,
    /// The most bytes of request bodies in memory at once, in megabytes; at least twice `max_body_mb`. A
    /// key has at most as many as are free. Read by `abp serve`.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_bodies_mb: u32,
    /// The longest the head of a request may take, in seconds. Read by `abp serve`.
    #[schemars(range(min = 1, max = 86_400))]
    pub header_timeout_secs: u32,
    /// The longest the body of a request may take, in seconds. Read by `abp serve`.
    #[schemars(range(min = 1, max = 86_400))]
    pub body_timeout_secs: u32,
    /// The longest a connection may be without a request, and the longest a caller may take nothing
    /// of its answer, in seconds. Read by `abp serve`.
    #[schemars(range(min = 1, max = 86_400))]
    pub idle_timeout_secs: u32,
    /// The certificate, with its chain, as PEM; without one the server speaks plain HTTP. Read by
    /// `abp serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key as PEM. Read by `abp serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// How long a translated stream may be silent before a comment keeps it open, in seconds. Read
    /// by `abp serve`.
    #[schemars(range(min = 1, max = 86_400))]
    pub keepalive_secs: u32,
    /// How long requests may go on once the server is told to stop, in seconds. Read by `abp
    /// serve`.
    #[schemars(range(min = 1, max = 86_400))]
    pub drain_timeout_secs: u32,
    /// How often a request is sent at most, the first time and fallbacks included. Read by
    /// `abp serve`.
    #[schemars(range(min = 1, max = 10))]
    pub max_attempts: u32,
    /// Directories whose subdirectories runs over HTTP may work on. Without any, runs bring their files or
    /// have none. Read by `abp serve`.
    pub roots: Vec<PathBuf>,
    /// The largest file that may be uploaded, in megabytes. Read by `abp serve`.
    #[schemars(range(min = 1, max = 4_096))]
    pub max_blob_mb: u32,
    /// The most that one key may have uploaded, in megabytes. Read by `abp serve`.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_uploads_mb: u32,
    /// How long answers and reasoning are kept for later turns, in days. Read by `abp serve`.
    #[schemars(range(min = 1, max = 3_650))]
    pub keep_days: u32,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_body_mb: 32,
            max_connections: 10_000,
            max_concurrent: 4_096,
            max_bodies_mb: 128,
            header_timeout_secs: 10,
            body_timeout_secs: 60,
            idle_timeout_secs: 90,
            tls_cert: None,
            tls_key: None,
            keepalive_secs: 15,
            drain_timeout_secs: 30,
            max_attempts: 3,
            roots: Vec::new(),
            max_blob_mb: 256,
            max_uploads_mb: 4_096,
            keep_days: 30,
        }
    }
}
