//! Whether backends could be opened, found out without opening any.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use abp_agents::{AgentPreset, InstallState, find_preset, presets};
use abp_config::{BackendConfig, EnvValue};
use abp_host::SearchPath;
use abp_sidecar_sdk::{HostInstallation, built_in_hosts};
use serde::Serialize;

use crate::ControlPlane;
use crate::agents::agents_directory;
use crate::upstream_spec::http_upstream;

/// A backend and what is known of it before it is opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackendHealth {
    /// Its name.
    pub name: String,
    /// Whether a run that names no backend gets this one.
    pub is_default: bool,
    /// How it is reached: the program that is started, or the address that is asked.
    pub reached_by: String,
    /// Why it cannot be opened, where that is certain.
    pub problem: Option<String>,
}

/// A backend that ABP knows and that is not installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingBackend {
    /// The name of its backend.
    pub name: &'static str,
    /// The reason and the command that installs it.
    pub remedy: String,
}

impl ControlPlane {
    /// The hosts that come with ABP and are not registered because their packages are not installed.
    #[must_use]
    pub fn missing_hosts(&self) -> Vec<MissingBackend> {
        let program = std::env::current_exe().ok();
        let hosts = built_in_hosts().iter().filter_map(|host| {
            let found = host.installation(self.config(), program.as_deref());
            let is_missing = matches!(found, HostInstallation::PackageMissing { .. })
                && self.registry().get(host.name).is_none();
            let remedy = self.missing_host(host.name).filter(|_| is_missing)?;
            let name = host.name;
            Some(MissingBackend { name, remedy })
        });
        hosts.collect()
    }

    /// Looks for the program of every sidecar and the key of every upstream. No process is started and
    /// no upstream is asked. Hosts that come with ABP and are not installed are listed as well.
    #[must_use]
    pub fn check_backends(&self) -> Vec<BackendHealth> {
        let registered = self.registry().backends();
        let registered = registered.map(|backend| backend.descriptor().name.clone());
        let mut names: Vec<String> = registered.collect();
        let agents = presets().iter().map(|preset| preset.name);
        let hosts = built_in_hosts().iter().map(|host| host.name);
        let missing = hosts.chain(agents).map(ToOwned::to_owned);
        let missing: Vec<_> = missing.filter(|name| !names.contains(name)).collect();
        names.extend(missing);
        let default = self.backend(None);
        let healths = names.into_iter().map(|name| {
            let (reached_by, problem) = self.check_backend(&name);
            BackendHealth {
                is_default: default.as_ref().is_ok_and(|default| *default == name)
                    || self.config().default_backend.as_ref() == Some(&name),
                reached_by,
                problem,
                name,
            }
        });
        healths.collect()
    }

    /// How a backend is reached, and why it cannot be.
    fn check_backend(&self, name: &str) -> (String, Option<String>) {
        let config = self.config();
        // The configured one replaces any other of its name.
        match config.backends.get(name) {
            Some(
                BackendConfig::Sidecar { command, env, .. }
                | BackendConfig::Acp { command, env, .. },
            ) => {
                return self.check_program(command, &EnvValue::exposed(env));
            }
            Some(BackendConfig::Mock { .. }) => return ("this process".to_owned(), None),
            None => {}
        }
        if let Some(host) = built_in_hosts().iter().find(|host| host.name == name) {
            return match self.backend(Some(name)) {
                Ok(_) => self.check_program(host.command, &BTreeMap::new()),
                Err(error) => (host.command.to_owned(), Some(error.message().to_owned())),
            };
        }
        if let Some(preset) = find_preset(name) {
            return self.check_agent(preset);
        }
        let upstream = name.strip_prefix("upstream:");
        let upstream = upstream.and_then(|name| Some((name, config.upstreams.get(name)?)));
        match upstream {
            Some((name, upstream)) => {
                let problem = http_upstream(name, upstream).err();
                let problem = problem.map(|error| error.message().to_owned());
                (upstream.base_url.clone(), problem)
            }
            None => ("this process".to_owned(), None),
        }
    }

    fn check_agent(&self, preset: &AgentPreset) -> (String, Option<String>) {
        let (name, package) = (preset.name, preset.package());
        let reached = format!("{package} {}", preset.version());
        let problem = match agents_directory(self.config()).state(preset) {
            InstallState::Installed(_) => None,
            InstallState::Outdated { version } => Some(format!(
                "version {version} is installed; `abp agents update {name}` installs the pinned one"
            )),
            InstallState::Missing => Some(format!(
                "it is not installed; `abp agents install {name}` installs it"
            )),
        };
        (reached, problem)
    }

    /// Looks a program up as a sidecar's start does, on the search path that the sidecar would have.
    fn check_program(
        &self,
        command: &str,
        env: &BTreeMap<String, String>,
    ) -> (String, Option<String>) {
        let given = env.get("PATH").map(OsString::from);
        let variable = given.or_else(|| std::env::var_os("PATH"));
        // A run works in a stage; the stage itself does not exist yet.
        let workspace: &Path = &self.config().stages_dir;
        let search = SearchPath::new(&variable.unwrap_or_default(), workspace);
        match search.find(OsStr::new(command)) {
            Ok(program) => (program.display().to_string(), None),
            Err(error) => {
                let cause = std::error::Error::source(&error);
                let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
                (command.to_owned(), Some(format!("{error}{cause}")))
            }
        }
    }
}
