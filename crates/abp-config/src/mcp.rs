//! MCP: where runs may work, and servers that are served as one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// MCP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpConfig {
    /// The directories below which runs that MCP clients start may work; the first is the usual one.
    /// Read by `abp serve`.
    pub roots: Vec<PathBuf>,
    /// Servers by name. Read by `abp mcp --gateway` and `abp serve`.
    pub servers: BTreeMap<String, McpServerConfig>,
}

/// An MCP server: a program with `command`, or an address with `url`. Read by `abp mcp --gateway` and
/// `abp serve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpServerConfig {
    /// The program that is started. Read by `abp mcp --gateway` and
    /// `abp serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its arguments. Read by `abp mcp --gateway` and
    /// `abp serve`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// What is added to its environment, which otherwise has no secrets. Read by
    /// `abp mcp --gateway` and `abp serve`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The address of a server over HTTP. Read by `abp mcp --gateway` and
    /// `abp serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The environment variable with the token for that address. Read by `abp mcp --gateway` and
    /// `abp serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
    /// The protocol it speaks: with a handshake (`legacy`), without (`modern`), or whichever it says
    /// (`auto`). Read by `abp mcp --gateway` and
    /// `abp serve`.
    #[serde(default)]
    pub era: McpEra,
    /// The longest a request may take, in seconds. Read by `abp mcp --gateway` and
    /// `abp serve`.
    #[serde(default = "default::timeout_secs")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_secs: u32,
    /// The longest until it can be used, in seconds. Read by `abp mcp --gateway` and
    /// `abp serve`.
    #[serde(default = "default::open_timeout_secs")]
    #[schemars(range(min = 1, max = 86_400))]
    pub open_timeout_secs: u32,
    /// The tools that may be used, by its own names; patterns are allowed. Read by
    /// `abp mcp --gateway` and `abp serve`.
    #[serde(default = "default::allow_tools")]
    pub allow_tools: Vec<String>,
    /// The tools that may not; wins. Read by `abp mcp --gateway` and
    /// `abp serve`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny_tools: Vec<String>,
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

    pub(super) fn allow_tools() -> Vec<String> {
        vec!["*".to_owned()]
    }
}
