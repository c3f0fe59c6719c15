//! MCP: where runs may work, servers that are served as one, and what is filled in for their clients.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{EnvValue, SandboxEngine, SandboxNetwork};

/// MCP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpConfig {
    /// The directories below which runs that MCP clients start may work; the first is the usual one.
    /// Read by `abp serve`.
    pub roots: Vec<PathBuf>,
    /// Servers by name. Read by `abp mcp --gateway`, `abp serve` and runs.
    pub servers: BTreeMap<String, McpServerConfig>,
    /// What is filled in between those servers and their clients, where one of them cannot do it. Nothing is
    /// unless it is set. Read by `abp mcp --gateway`, `abp mcp negotiate` and `abp serve`.
    pub emulate: McpEmulateConfig,
}

/// What is filled in. Read by `abp mcp --gateway`, `abp mcp negotiate` and `abp serve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpEmulateConfig {
    /// The directories that servers are told of where the client has no roots; for a run, its workspace
    /// takes their place. Read by `abp mcp --gateway`, `abp mcp negotiate` and `abp serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roots: Option<Vec<PathBuf>>,
    /// How often lists are looked at whose server does not tell of changes, in seconds, while somebody wants
    /// to be told. Read by `abp mcp --gateway`, `abp mcp negotiate` and `abp serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub list_changed_secs: Option<u32>,
    /// How often resources are looked at whose server has no subscriptions, in seconds, while somebody
    /// subscribes to them. Read by `abp mcp --gateway`, `abp mcp negotiate` and `abp serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub subscribe_secs: Option<u32>,
    /// How many resources are looked at, for all clients together. Read by `abp mcp --gateway`,
    /// `abp mcp negotiate` and `abp serve`.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_subscriptions: u32,
    /// Servers sample from a model where the client has none. Read by `abp mcp --gateway`,
    /// `abp mcp negotiate` and `abp serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<McpSamplingConfig>,
    /// Forms are filled in where the client has none. Read by `abp mcp --gateway`, `abp mcp negotiate` and
    /// `abp serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elicitation: Option<McpElicitationConfig>,
}

/// Sampling from a model behind the gateway. Read by `abp mcp --gateway`, `abp mcp negotiate` and
/// `abp serve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpSamplingConfig {
    /// The id of the key that pays, made by `abp keys create` with a budget; its models, rates and budgets are
    /// the limits. Read by `abp mcp --gateway` and `abp serve`.
    pub key: String,
    /// The models: the first, unless a server asks for another of them. Read by `abp mcp --gateway`,
    /// `abp mcp negotiate` and `abp serve`.
    pub models: Vec<String>,
    /// The longest answer, in tokens. Read by `abp mcp --gateway`, `abp mcp negotiate` and `abp serve`.
    #[serde(default = "default::max_tokens")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_tokens: u32,
    /// How often a server may sample within one request. Read by `abp mcp --gateway`, `abp mcp negotiate` and
    /// `abp serve`.
    #[serde(default = "default::max_per_call")]
    #[schemars(range(min = 1, max = 100))]
    pub max_per_call: u32,
}

/// Answers to forms. A form is filled in where every field it requires has an answer that fits, and is declined
/// otherwise. Read by `abp mcp --gateway`, `abp mcp negotiate` and `abp serve`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpElicitationConfig {
    /// For every server, by the name of the field. Read by `abp mcp --gateway`, `abp mcp negotiate` and
    /// `abp serve`.
    pub answers: BTreeMap<String, String>,
    /// For one server, by its name; goes first. Read by `abp mcp --gateway`, `abp mcp negotiate` and
    /// `abp serve`.
    pub servers: BTreeMap<String, BTreeMap<String, String>>,
}

impl Default for McpEmulateConfig {
    fn default() -> Self {
        Self {
            roots: None,
            list_changed_secs: None,
            subscribe_secs: None,
            max_subscriptions: 64,
            sampling: None,
            elicitation: None,
        }
    }
}

/// An MCP server: a program with `command`, or an address with `url`. Read by `abp mcp --gateway`,
/// `abp serve` and runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpServerConfig {
    /// The program that is started. Read by `abp mcp --gateway`, `abp serve` and runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its arguments. Read by `abp mcp --gateway`, `abp serve` and runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// What is added to its environment, which otherwise has no secrets. Read by
    /// `abp mcp --gateway`, `abp serve` and runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, EnvValue>,
    /// The address of a server over HTTP. Read by `abp mcp --gateway`, `abp serve` and runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The environment variable with the token for that address. Read by `abp mcp --gateway`,
    /// `abp serve` and runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
    /// The protocol it speaks: with a handshake (`legacy`), without (`modern`), or whichever it
    /// says (`auto`). Read by `abp mcp --gateway`, `abp serve` and runs.
    #[serde(default)]
    pub era: McpEra,
    /// The longest a request may take, in seconds. Read by `abp mcp --gateway`, `abp serve` and
    /// runs.
    #[serde(default = "default::timeout_secs")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_secs: u32,
    /// The longest until it can be used, in seconds. Read by `abp mcp --gateway`, `abp serve` and
    /// runs.
    #[serde(default = "default::open_timeout_secs")]
    #[schemars(range(min = 1, max = 86_400))]
    pub open_timeout_secs: u32,
    /// The tools that may be used, by its own names; patterns are allowed. Read by
    /// `abp mcp --gateway`, `abp serve` and runs.
    #[serde(default = "default::allow_tools")]
    pub allow_tools: Vec<String>,
    /// The tools that may not; wins. Read by `abp mcp --gateway`, `abp serve` and runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny_tools: Vec<String>,
    /// The sandbox of its program. Read by `abp mcp --gateway`, `abp serve` and runs.
    #[serde(default)]
    pub sandbox: McpSandboxConfig,
}

/// The sandbox that the program of an MCP server starts in, besides `[sandbox]`. Read by
/// `abp mcp --gateway`, `abp serve` and runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpSandboxConfig {
    /// The mechanism; that of `[sandbox]` when omitted. Read by `abp mcp --gateway`, `abp serve` and runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<SandboxEngine>,
    /// The directory it works in and may write; when omitted, that of the run, or that of the command.
    /// Read by `abp mcp --gateway`, `abp serve` and runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PathBuf>,
    /// Files and directories that it may read, besides those of `[sandbox]`. Read by
    /// `abp mcp --gateway`, `abp serve` and runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_only: Vec<PathBuf>,
    /// Its way to the network: by `allow_network` (`policy`), or without a bound (`open`); that of
    /// `[sandbox]` when omitted. Read by `abp mcp --gateway`, `abp serve` and runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<SandboxNetwork>,
    /// The hosts that it may reach; none when omitted. Read by `abp mcp --gateway`, `abp serve` and runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_network: Vec<String>,
}

/// Which protocol a server speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpEra {
    /// Whichever it says.
    #[default]
    Auto,
    /// With a handshake, up to 2025-11-25.
    Legacy,
    /// Without, since 2026-07-28.
    Modern,
}

/// What holds where nothing is set.
mod default {
    pub(super) const fn timeout_secs() -> u32 {
        300
    }

    pub(super) const fn open_timeout_secs() -> u32 {
        15
    }

    pub(super) const fn max_tokens() -> u32 {
        1_024
    }

    pub(super) const fn max_per_call() -> u32 {
        4
    }

    pub(super) fn allow_tools() -> Vec<String> {
        vec!["*".to_owned()]
    }
}
