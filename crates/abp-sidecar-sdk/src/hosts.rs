//! The sidecars that come with ABP.

use std::path::{Path, PathBuf};

use abp_config::Config;

/// A sidecar that comes with ABP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltInHost {
    /// The backend's name.
    pub name: &'static str,
    /// The program that runs it.
    pub command: &'static str,
    /// Its script, below the directory of hosts.
    script: &'static str,
    /// The vendor's package that it needs in its own `node_modules`, where it needs one.
    package: Option<&'static str>,
    /// Whether it asks before every use of a tool. Its tests show that it does.
    pub(crate) asks_first: bool,
    /// Whether its agent asks models, at the address that it is told.
    pub(crate) asks_models: bool,
}

/// Whether a host can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostInstallation {
    /// Its script and its packages are there.
    Complete {
        /// Its script.
        script: PathBuf,
        /// The directory of all hosts, with the library that they share.
        directory: PathBuf,
    },
    /// Its script is there, and a package that it needs is not.
    PackageMissing {
        /// The command that installs its packages, at the versions of its lock and without their scripts.
        install: String,
    },
    /// Its script is not there.
    Absent,
}

const BUILT_IN_HOSTS: &[BuiltInHost] = &[
    BuiltInHost {
        name: "sidecar:node",
        command: "node",
        script: "node/host.js",
        package: None,
        asks_first: false,
        asks_models: false,
    },
    BuiltInHost {
        name: "sidecar:python",
        command: "python3",
        script: "python/host.py",
        package: None,
        asks_first: false,
        asks_models: false,
    },
    vendor_host(
        "sidecar:claude",
        "claude/host.js",
        "@anthropic-ai/claude-agent-sdk",
    ),
    vendor_host("sidecar:codex", "codex/host.js", "@openai/codex"),
    vendor_host("sidecar:gemini", "gemini/host.js", "@google/gemini-cli"),
    vendor_host("sidecar:copilot", "copilot/host.js", "@github/copilot-sdk"),
    vendor_host("sidecar:kimi", "kimi/host.js", "@moonshot-ai/kimi-code"),
];

/// The sidecars that come with ABP.
#[must_use]
pub const fn built_in_hosts() -> &'static [BuiltInHost] {
    BUILT_IN_HOSTS
}

/// A host of a vendor's agent.
const fn vendor_host(
    name: &'static str,
    script: &'static str,
    package: &'static str,
) -> BuiltInHost {
    BuiltInHost {
        name,
        command: "node",
        script,
        package: Some(package),
        asks_first: true,
        asks_models: true,
    }
}

impl BuiltInHost {
    /// Looks for its script and its packages.
    #[must_use]
    pub fn installation(&self, config: &Config, program: Option<&Path>) -> HostInstallation {
        let mut directories = directories(config, program).into_iter();
        let has_script = |directory: &PathBuf| directory.join(self.script).is_file();
        let Some(directory) = directories.find(has_script) else {
            return HostInstallation::Absent;
        };
        let script = directory.join(self.script);
        let own = script.parent().unwrap_or(Path::new("."));
        let is_missing = |package: &str| {
            let package = own.join("node_modules").join(package);
            !package.join("package.json").is_file()
        };
        if self.package.is_some_and(is_missing) {
            let install = format!("npm ci --ignore-scripts --prefix {}", own.display());
            return HostInstallation::PackageMissing { install };
        }
        HostInstallation::Complete { script, directory }
    }
}

/// Where hosts may be: where the configuration says, or else beside the program. Never below the
/// current directory, which may be anybody's repository.
fn directories(config: &Config, program: Option<&Path>) -> Vec<PathBuf> {
    if let Some(configured) = &config.hosts_dir {
        return vec![configured.clone()];
    }
    let Some(beside) = program.and_then(Path::parent) else {
        return Vec::new();
    };
    vec![beside.join("hosts"), beside.join("../share/abp/hosts")]
}
