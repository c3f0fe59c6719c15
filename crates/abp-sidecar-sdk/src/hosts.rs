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
}

/// The sidecars that come with ABP.
#[must_use]
pub const fn built_in_hosts() -> &'static [BuiltInHost] {
    &[
        BuiltInHost {
            name: "sidecar:node",
            command: "node",
            script: "node/host.js",
        },
        BuiltInHost {
            name: "sidecar:python",
            command: "python3",
            script: "python/host.py",
        },
    ]
}

impl BuiltInHost {
    /// Its script, where it is installed.
    pub(crate) fn find(&self, config: &Config, program: Option<&Path>) -> Option<PathBuf> {
        directories(config, program)
            .into_iter()
            .map(|directory| directory.join(self.script))
            .find(|script| script.is_file())
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
