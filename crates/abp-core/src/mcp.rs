//! MCP servers in runs: how an order asks for them, and what the receipt says of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{RuntimeConfig, SandboxReport, ValidationError};

/// Which of the operator's MCP servers an order asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpAsk {
    /// All that are configured.
    All,
    /// These, by name; never empty.
    Named(Vec<String>),
}

impl RuntimeConfig {
    /// The MCP servers asked for by `vendor.abp.mcp`, where there are some. Servers are the operator's:
    /// an order names them and cannot describe them.
    ///
    /// # Errors
    /// Fails where the setting is neither a boolean nor a list of names.
    pub fn mcp_ask(&self) -> Result<Option<McpAsk>, ValidationError> {
        let invalid = || ValidationError::Field {
            pointer: "/config/vendor/abp/mcp".to_owned(),
            problem: "is neither a boolean nor a list of names of configured servers".to_owned(),
        };
        match self.abp_setting("mcp") {
            None | Some(Value::Bool(false)) => Ok(None),
            Some(Value::Bool(true)) => Ok(Some(McpAsk::All)),
            Some(Value::Array(names)) if !names.is_empty() => {
                let names = names.iter().map(|name| name.as_str().map(str::to_owned));
                let names: Option<Vec<_>> = names.collect();
                Ok(Some(McpAsk::Named(names.ok_or_else(invalid)?)))
            }
            Some(_) => Err(invalid()),
        }
    }
}

/// The MCP servers that a run was given, what was agreed on with them and how they were used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct McpReport {
    /// The servers, by name.
    pub servers: Vec<McpServerReport>,
    /// What was agreed on last; absent where the agent never asked for anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub negotiation: Option<McpNegotiationReport>,
}

/// One MCP server of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct McpServerReport {
    /// What the operator calls it.
    pub name: String,
    /// The version that was spoken with it; `null` where it could not be used, or nobody asked for it.
    #[serde(default)]
    pub protocol_version: Option<String>,
    /// Whether that version begins with a handshake.
    #[serde(default)]
    pub era: Option<McpProtocolEra>,
    /// The sandbox of its program, `none` where it had none; absent for a server over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxReport>,
    /// The tools that were called, by name.
    #[serde(default)]
    pub tools: Vec<McpToolReport>,
}

/// How a version of MCP begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpProtocolEra {
    /// With a handshake, up to 2025-11-25.
    Legacy,
    /// Without, since 2026-07-28.
    Modern,
}

/// How often a tool was called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct McpToolReport {
    /// What its server calls it.
    pub name: String,
    /// Calls that were let through to the server.
    pub calls: u64,
    /// Those of them that ended in an error.
    pub failed: u64,
    /// Calls that were refused by the policy, or by a person.
    pub refused: u64,
}

/// What was agreed on between the agent and the servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct McpNegotiationReport {
    /// The version that the agent spoke.
    pub client_version: String,
    /// Every flag that somebody declared.
    pub flags: Vec<McpFlagReport>,
}

/// What came of one capability flag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct McpFlagReport {
    /// The flag, e.g. `server.tools.listChanged`.
    pub flag: String,
    /// How it can be had.
    pub level: McpFlagLevel,
    /// How it is emulated, or why it cannot be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the agent declared it, where that is up to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_client: Option<bool>,
    /// The servers that have it, or are told of it.
    #[serde(default)]
    pub native: Vec<String>,
    /// The servers for which it is filled in.
    #[serde(default)]
    pub emulated: Vec<String>,
    /// The servers without it.
    #[serde(default)]
    pub without: Vec<String>,
}

/// How a capability flag can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpFlagLevel {
    /// Both ends have it.
    Native,
    /// It is filled in.
    Emulated,
    /// It cannot be had.
    Unsupported,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a7_an_order_names_servers_and_cannot_describe_them() {
        let asked = |setting: Value| {
            let vendor = [("abp".to_owned(), json!({ "mcp": setting }))];
            let config = RuntimeConfig {
                vendor: vendor.into(),
                ..RuntimeConfig::default()
            };
            config.mcp_ask().ok()
        };
        let named = |names: &[&str]| McpAsk::Named(names.iter().map(ToString::to_string).collect());
        assert_eq!(asked(json!(true)), Some(Some(McpAsk::All)));
        assert_eq!(asked(json!(false)), Some(None));
        assert_eq!(asked(json!(["a", "b"])), Some(Some(named(&["a", "b"]))));
        for described in [
            json!({ "url": "http://127.0.0.1:1/mcp" }),
            json!({ "servers": { "a": { "command": "sh" } } }),
            json!([{ "command": "sh" }]),
            json!(["a", { "url": "http://127.0.0.1:1/mcp" }]),
            json!("a"),
            json!([]),
            Value::Null,
        ] {
            assert_eq!(asked(described.clone()), None, "{described}");
        }
    }
}
