//! The sandbox of agents' processes.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The sandbox that the processes of runs start in. Read by `abp run` and `abp serve`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxConfig {
    /// The mechanism. Where it cannot be had, the run is refused.
    pub engine: SandboxEngine,
    /// Files and directories that every sandbox may read, besides the system, toolchains in the home
    /// directory and the installation of the program itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_only: Vec<PathBuf>,
    /// The way to the network.
    pub network: SandboxNetwork,
    /// The size of `/tmp` and of the private home directory, which are in memory, in megabytes each; 1,024
    /// when omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub scratch_mb: Option<u32>,
    /// Names of directories that are lent to staged runs where a `.gitignore` hides them; dependencies and build
    /// output of the usual tools when omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lend: Option<Vec<String>>,
}

/// The directories that the usual tools keep dependencies and build output in.
const LENT: [&str; 7] = [
    "node_modules",
    ".venv",
    "venv",
    "target",
    "vendor",
    ".gradle",
    "deps",
];

impl SandboxConfig {
    /// Names of ignored directories that are lent to staged runs.
    #[must_use]
    pub fn lend(&self) -> Vec<String> {
        let usual = || LENT.map(str::to_owned).to_vec();
        self.lend.clone().unwrap_or_else(usual)
    }
}

/// The mechanism of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxEngine {
    /// The strongest that the kernel offers.
    #[default]
    Auto,
    /// Namespaces with a root of their own, Landlock and seccomp.
    Namespaces,
    /// Landlock and seccomp alone.
    Landlock,
    /// None: the processes of a run may do whatever the user may. Every receipt says so.
    None,
}

/// The network of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxNetwork {
    /// Hosts that the policy of the run lists in `allow_network`, and no others.
    #[default]
    Policy,
    /// The network of the machine. The network rules of a policy are held by nobody then.
    Open,
}
