//! Models' APIs that requests may go to.

use std::collections::BTreeMap;
use std::path::PathBuf;

use abp_dialect::Dialect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::EnvValue;

/// A model's API. Read by `abp serve`, and by `abp run` as the backend `upstream:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpstreamConfig {
    /// The dialect it speaks. Read by `abp serve`.
    pub dialect: Dialect,
    /// Its address, as the vendor's own client takes it: without a query, without credentials. Read
    /// by `abp serve`.
    pub base_url: String,
    /// The environment variable that holds its key. Without one, and without a file or a
    /// command, requests carry no key. Read by `abp serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// The file that holds its key. Read by `abp serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// Its key, where a program gives it that uses this as a library, such as an editor's. No file can.
    #[serde(skip)]
    pub given_key: Option<EnvValue>,
    /// The program that prints its key, and its arguments. It is started when a key is needed and inherits the
    /// environment; what it prints is used for `api_key_ttl_secs`, or until the vendor refuses it. Read by
    /// `abp serve`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_key_command: Vec<String>,
    /// How long a key that a program printed is used, in seconds. Read by `abp serve`.
    #[serde(default = "default::api_key_ttl_secs")]
    #[schemars(range(min = 1, max = 43_200))]
    pub api_key_ttl_secs: u32,
    /// The way in which the key is used. Read by `abp serve`.
    #[serde(default, skip_serializing_if = "UpstreamAuthKind::is_default")]
    pub auth: UpstreamAuthKind,
    /// The header or the parameter that holds the key, where `auth` is `header` or `query`. Read by `abp serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_name: Option<String>,
    /// The region that signatures are for, where `auth` is `bedrock`. Read by `abp serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws_region: Option<String>,
    /// The service that signatures are for, where `auth` is `bedrock`; `bedrock` when omitted. Read by
    /// `abp serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws_service: Option<String>,
    /// Headers that go along with every request. Read by `abp serve`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, EnvValue>,
    /// Parameters that every address gets. Read by `abp serve`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, String>,
    /// The proxy that it is reached through, or `none`. When omitted, the one that HTTPS_PROXY and NO_PROXY
    /// say; never one for this machine. Read by `abp serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// The models it is asked for, as callers name them; patterns are allowed. Read by `abp serve`.
    #[serde(default = "default::models")]
    pub models: Vec<String>,
    /// What callers call a model, and what the vendor calls it. A name is looked up once. Read by
    /// `abp serve`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub aliases: BTreeMap<String, String>,
    /// Its share among upstreams that serve the same model. Read by `abp serve`.
    #[serde(default = "default::weight")]
    #[schemars(range(min = 1, max = 1_000))]
    pub weight: u32,
    /// The operator's preference among backends where a run leaves the choice; higher is better. Read by
    /// `abp run`.
    #[serde(default)]
    pub priority: u32,
    /// The version of its wire, such as `anthropic-version`; the dialect's usual one when omitted.
    /// Read by `abp serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_version: Option<String>,
    /// The price table, from `[prices]`. Read by `abp serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<String>,
    /// Certificates to trust instead of the system's, as PEM. Read by `abp serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The longest a connection may take, in milliseconds. Read by `abp serve`.
    #[serde(default = "default::connect_timeout_ms")]
    #[schemars(range(min = 1, max = 600_000))]
    pub connect_timeout_ms: u32,
    /// The longest until an answer begins, in seconds. Read by `abp serve`.
    #[serde(default = "default::first_byte_timeout_secs")]
    #[schemars(range(min = 1, max = 86_400))]
    pub first_byte_timeout_secs: u32,
    /// The longest until more of an answer comes, in seconds. Read by `abp serve`.
    #[serde(default = "default::idle_timeout_secs")]
    #[schemars(range(min = 1, max = 86_400))]
    pub idle_timeout_secs: u32,
    /// The longest a whole answer may take, in seconds. Read by `abp serve`.
    #[serde(default = "default::total_timeout_secs")]
    #[schemars(range(min = 1, max = 86_400))]
    pub total_timeout_secs: u32,
    /// The largest whole answer, in megabytes. Read by `abp serve`.
    #[serde(default = "default::max_answer_mb")]
    #[schemars(range(min = 1, max = 4_096))]
    pub max_answer_mb: u32,
    /// The most requests to it at once. Read by `abp serve`.
    #[serde(default = "default::max_concurrent")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_concurrent: u32,
    /// The parts of its API that are passed on to it as they are, beside what is translated: `embeddings`,
    /// `files`, `batches`, `images`, `audio`, `moderations` and so on, as the addresses name them, or `*`
    /// for all. Read by `abp serve`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass_through: Vec<String>,
    /// Upstreams that are tried after it, in this order. Read by `abp serve`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<String>,
}

impl UpstreamConfig {
    /// An upstream at an address, with the usual settings and without a key.
    #[must_use]
    pub fn new(dialect: Dialect, base_url: String) -> Self {
        Self {
            dialect,
            base_url,
            api_key_env: None,
            api_key_file: None,
            given_key: None,
            api_key_command: Vec::new(),
            api_key_ttl_secs: default::api_key_ttl_secs(),
            auth: UpstreamAuthKind::Dialect,
            auth_name: None,
            aws_region: None,
            aws_service: None,
            headers: BTreeMap::new(),
            query: BTreeMap::new(),
            proxy: None,
            models: default::models(),
            aliases: BTreeMap::new(),
            weight: default::weight(),
            priority: 0,
            wire_version: None,
            prices: None,
            ca_file: None,
            connect_timeout_ms: default::connect_timeout_ms(),
            first_byte_timeout_secs: default::first_byte_timeout_secs(),
            idle_timeout_secs: default::idle_timeout_secs(),
            total_timeout_secs: default::total_timeout_secs(),
            max_answer_mb: default::max_answer_mb(),
            max_concurrent: default::max_concurrent(),
            pass_through: Vec::new(),
            fallback: Vec::new(),
        }
    }
}

/// The way in which an upstream's key is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamAuthKind {
    /// As the dialect's own vendor wants it: `x-api-key`, `x-goog-api-key`, or a bearer token.
    #[default]
    Dialect,
    /// `Authorization: Bearer`, whatever the dialect.
    Bearer,
    /// The header that `auth_name` names.
    Header,
    /// The parameter of the address that `auth_name` names.
    Query,
    /// The header `api-key`.
    Azure,
    /// A token of Google's. The key is the JSON file of a service account; what a command prints is the
    /// token itself.
    Vertex,
    /// AWS Signature Version 4. The key is JSON as AWS's `credential_process` has it; without one, it is
    /// taken from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
    Bedrock,
}

impl UpstreamAuthKind {
    fn is_default(&self) -> bool {
        *self == Self::Dialect
    }
}

/// What holds where nothing is set.
mod default {
    pub(super) fn models() -> Vec<String> {
        vec!["*".to_owned()]
    }

    pub(super) const fn api_key_ttl_secs() -> u32 {
        300
    }

    pub(super) const fn weight() -> u32 {
        1
    }

    pub(super) const fn connect_timeout_ms() -> u32 {
        10_000
    }

    pub(super) const fn first_byte_timeout_secs() -> u32 {
        600
    }

    pub(super) const fn idle_timeout_secs() -> u32 {
        120
    }

    pub(super) const fn total_timeout_secs() -> u32 {
        3_600
    }

    pub(super) const fn max_answer_mb() -> u32 {
        64
    }

    pub(super) const fn max_concurrent() -> u32 {
        256
    }
}
