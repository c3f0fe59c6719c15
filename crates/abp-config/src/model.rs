//! What can be configured.
//!
//! Each setting says who reads it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use abp_core::{Capability, EmulationStrategy, ModelPrice, PolicyProfile};
use abp_emulation::EmulationConfig;
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::{
    ControlConfig, EnvValue, McpConfig, RetentionConfig, SandboxConfig, ServerConfig, StoreConfig,
    TelemetryConfig, UpstreamConfig, WebhookConfig,
};

/// The effective configuration; its serialised form is that of `backplane.toml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The backend of a run that names none; `auto` is whichever fits best. Read by `abp run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_backend: Option<String>,
    /// The policy, from `[policies]`, of a run that brings none. Read by `abp run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_policy: Option<String>,
    /// The price table, from `[prices]`, of a run that names none. Read by `abp run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_prices: Option<String>,
    /// Where keys, the store and receipts are kept. When omitted, `abp` below `XDG_STATE_HOME` or
    /// `~/.local/state`; absolute after loading, and empty in a configuration that was not loaded.
    /// Read by every command that keeps something.
    #[serde(skip_serializing_if = "is_empty")]
    pub state_dir: PathBuf,
    /// Where the copies are kept that agents work on. When omitted, `abp/stages` below
    /// `XDG_CACHE_HOME` or `~/.cache`. Each state directory has its own directory there, which is
    /// part of the value after loading. Read by `abp run` and `abp serve`.
    #[serde(skip_serializing_if = "is_empty")]
    pub stages_dir: PathBuf,
    /// Where the hosts of the backends `sidecar:NAME` are; beside the program when omitted. Read by
    /// `abp run` and `abp backends`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts_dir: Option<PathBuf>,
    /// Where `abp agents install` puts agents. When omitted, `abp/agents` below `XDG_DATA_HOME` or
    /// `~/.local/share`. Read by `abp agents`, `abp run` and `abp backends`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents_dir: Option<PathBuf>,
    /// What is logged to standard error. Read by every command; `RUST_LOG` and `--debug` win.
    pub log_level: LogLevel,
    /// How long a request for approval waits for an answer before it counts as denied, in seconds.
    /// Read by `abp run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub approval_timeout_secs: Option<u32>,
    /// The address that is listened on. Read by `abp serve`.
    pub bind_address: IpAddr,
    /// The port that is listened on. Read by `abp serve`.
    #[schemars(range(min = 1))]
    pub port: u16,
    /// What the server may take. Read by `abp serve`.
    pub server: ServerConfig,
    /// How much runs may take.
    pub control: ControlConfig,
    /// The database. Read by every command that keeps something.
    pub store: StoreConfig,
    /// What no run may do, whichever policy it has. The restrictions of all layers add up. Read by
    /// `abp run`.
    pub restrictions: Restrictions,
    /// The sandbox that the processes of runs start in. Read by `abp run` and `abp serve`.
    pub sandbox: SandboxConfig,
    /// Backends by name. Read by `abp run` and `abp backends`.
    pub backends: BTreeMap<String, BackendConfig>,
    /// Models' APIs by name. Read by `abp serve`, and by `abp run` as the backends `upstream:NAME`.
    pub upstreams: BTreeMap<String, UpstreamConfig>,
    /// MCP. Read by `abp mcp --gateway` and `abp serve`.
    pub mcp: McpConfig,
    /// How long runs leave things behind. Read by `abp gc` and `abp serve`.
    pub retention: RetentionConfig,
    /// The collector of traces and metrics. Read by `abp serve` and `abp run`.
    pub telemetry: TelemetryConfig,
    /// Webhooks by name. Read by `abp serve`.
    pub webhooks: BTreeMap<String, WebhookConfig>,
    /// Policies by name. Read by `abp run`.
    pub policies: BTreeMap<String, PolicyProfile>,
    /// Price tables by name, each with prices by model; `*` is every other model. Read by
    /// `abp run` and `abp serve`.
    pub prices: BTreeMap<String, BTreeMap<String, ModelPrice>>,
    /// Emulation strategies that replace the defaults. Read by `abp run`.
    #[schemars(extend("additionalProperties" = false))]
    pub emulation: BTreeMap<Capability, EmulationStrategy>,
}

/// Paths that `load` fills in have no default that a schema could name.
fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

impl Default for Config {
    fn default() -> Self {
        Self {
            default_backend: None,
            default_policy: None,
            default_prices: None,
            state_dir: PathBuf::new(),
            stages_dir: PathBuf::new(),
            hosts_dir: None,
            agents_dir: None,
            log_level: LogLevel::Warn,
            approval_timeout_secs: None,
            bind_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 8088,
            server: ServerConfig::default(),
            control: ControlConfig::default(),
            store: StoreConfig::default(),
            restrictions: Restrictions::default(),
            sandbox: SandboxConfig::default(),
            backends: BTreeMap::new(),
            upstreams: BTreeMap::new(),
            retention: RetentionConfig::default(),
            telemetry: TelemetryConfig::default(),
            webhooks: BTreeMap::new(),
            mcp: McpConfig::default(),
            policies: BTreeMap::new(),
            prices: BTreeMap::new(),
            emulation: BTreeMap::new(),
        }
    }
}

impl Config {
    /// The JSON schema of `backplane.toml`.
    #[must_use]
    pub fn json_schema() -> serde_json::Value {
        SchemaGenerator::default()
            .into_root_schema_for::<Self>()
            .to_value()
    }

    /// The emulation strategies in the form a plan takes.
    #[must_use]
    pub fn emulation_config(&self) -> EmulationConfig {
        let mut config = EmulationConfig::new();
        for (capability, strategy) in &self.emulation {
            config.set(capability.clone(), strategy.clone());
        }
        config
    }
}

/// How much is logged.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Failures.
    Error,
    /// And what somebody should know.
    Warn,
    /// And the steps taken.
    Info,
    /// And why.
    Debug,
    /// And everything else.
    Trace,
}

impl LogLevel {
    /// The level as it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Patterns that are added to the policy of every run.
///
/// There is no allow list here: adding to one would permit more, not less.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Restrictions {
    /// Tools that may not be used.
    pub disallowed_tools: Vec<String>,
    /// Paths that may not be read.
    pub deny_read: Vec<String>,
    /// Paths that may not be written.
    pub deny_write: Vec<String>,
    /// Hosts that may not be reached.
    pub deny_network: Vec<String>,
    /// Tools that need a person's approval.
    pub require_approval_for: Vec<String>,
}

impl Restrictions {
    /// Adds the restrictions to a policy. Patterns that it has already are not repeated.
    pub fn apply(&self, policy: &mut PolicyProfile) {
        let pairs = [
            (&self.disallowed_tools, &mut policy.disallowed_tools),
            (&self.deny_read, &mut policy.deny_read),
            (&self.deny_write, &mut policy.deny_write),
            (&self.deny_network, &mut policy.deny_network),
            (&self.require_approval_for, &mut policy.require_approval_for),
        ];
        for (added, list) in pairs {
            for pattern in added {
                if !list.contains(pattern) {
                    list.push(pattern.clone());
                }
            }
        }
    }
}

/// A backend that the operator set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum BackendConfig {
    /// The embedded backend under another name.
    Mock {
        /// The script it plays (JSON); the demonstration when omitted. Read by `abp run` and
        /// `abp backends`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        script: Option<PathBuf>,
        /// Preference among backends that fit equally well; higher is better. Wins over the
        /// script's own. Read by `abp run --backend auto`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priority: Option<u32>,
    },
    /// A process that speaks the sidecar protocol. Read by `abp run` and `abp backends`.
    Sidecar {
        /// The program: a name on the search path, or a path.
        command: String,
        /// Its arguments.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        args: Vec<String>,
        /// Its environment variables, in addition to what every sidecar gets.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, EnvValue>,
        /// The longest a run on it may take, in seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 86_400))]
        timeout_secs: Option<u32>,
        /// The longest it may take to say hello, in seconds; 10 when omitted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 86_400))]
        hello_timeout_secs: Option<u32>,
        /// The longest it may go without an event during a run, in seconds; 900 when omitted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 86_400))]
        stall_timeout_secs: Option<u32>,
        /// The most processes and threads it may have at once. Needs the right to make control
        /// groups; without it the sidecar is not started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 4))]
        max_processes: Option<u32>,
        /// The most memory it and its processes may use, in megabytes; as `max_processes`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 16))]
        max_memory_mb: Option<u32>,
        /// The largest file it and its processes may write, in megabytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1))]
        max_file_mb: Option<u32>,
        /// How large its workspace may become, in megabytes. It is measured every few seconds; a run
        /// that went beyond it is ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1))]
        max_workspace_mb: Option<u32>,
        /// Preference among backends that fit equally well; higher is better.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priority: Option<u32>,
    },
    /// A program that speaks the Agent Client Protocol. Read by `abp run` and `abp backends`.
    Acp {
        /// The program: a name on the search path, or a path.
        command: String,
        /// Its arguments. In them and in `env`, `{url}`, `{key}` and `{model}` stand for the run's gateway, its
        /// key and the model to ask for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        args: Vec<String>,
        /// Its environment variables, in addition to what every program gets.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, EnvValue>,
        /// Where its requests to models go: to the gateway, with a key of the run, or wherever it is logged in,
        /// which receipts say.
        #[serde(default)]
        models: AgentModels,
        /// The session mode to set before the task is given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
        /// The longest it may go without a message during a run, in seconds; 900 when omitted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 86_400))]
        stall_timeout_secs: Option<u32>,
        /// The most processes and threads it may have at once. Needs the right to make control
        /// groups; without it the agent is not started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 4))]
        max_processes: Option<u32>,
        /// The most memory it and its processes may use, in megabytes; as `max_processes`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 16))]
        max_memory_mb: Option<u32>,
        /// The largest file it and its processes may write, in megabytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1))]
        max_file_mb: Option<u32>,
        /// How large its workspace may become, in megabytes; a run that went beyond it is ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1))]
        max_workspace_mb: Option<u32>,
        /// Preference among backends that fit equally well; higher is better.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priority: Option<u32>,
    },
}

/// Where an agent's requests to models go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentModels {
    /// To the gateway, with a key of the run.
    #[default]
    Gateway,
    /// Wherever the agent is logged in. The operator says so; ABP neither measures nor limits what it costs.
    Own,
}
