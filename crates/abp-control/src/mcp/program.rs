//! MCP servers that are programs, each in a sandbox.
//!
//! A server works in the workspace of its run, under the run's rules on files, or in the directory that the
//! operator sets; its network is the operator's list, and in a run nothing that the run denies.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use abp_config::{Config, EnvValue, McpSandboxConfig, McpServerConfig, SandboxConfig};
use abp_core::PolicyProfile;
use abp_error::{AbpError, ErrorCode};
use abp_host::{ConfinedProgram, RunSandbox, SandboxSettings, without_parent_components};
use abp_mcp::{ProgramServer, RunningPrograms};
use abp_policy::{PolicyEngine, PolicyList};
use abp_runtime::McpPlace;
use abp_sidecar_sdk::{Place, sandbox_settings};

/// A server that is a program, as it is configured.
pub(super) struct ProgramConfig<'a> {
    pub(super) name: &'a str,
    pub(super) command: &'a str,
    pub(super) server: &'a McpServerConfig,
}

/// Makes the programs of servers with what they have in common.
pub(super) struct ServerPrograms {
    sandbox: SandboxConfig,
    own: Vec<PathBuf>,
    /// The directory of those that servers have for themselves.
    workspaces: PathBuf,
    place: Place,
}

/// The part of the machine that a program may work on.
struct Workplace<'a> {
    workspace: PathBuf,
    hidden: Vec<PathBuf>,
    is_in_place: bool,
    policy: &'a PolicyEngine,
}

impl ServerPrograms {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            sandbox: config.sandbox.clone(),
            own: vec![config.state_dir.clone(), config.stages_dir.clone()],
            workspaces: config.stages_dir.join("mcp-servers"),
            place: Place::of_this_program(),
        }
    }

    /// The names of servers whose programs have no sandbox.
    pub(super) fn unconfined(&self, servers: &BTreeMap<String, McpServerConfig>) -> Vec<String> {
        let programs = servers.iter().filter(|(_, one)| one.command.is_some());
        let unconfined = programs.filter(|(_, one)| self.settings(&one.sandbox).is_none());
        unconfined.map(|(name, _)| name.clone()).collect()
    }

    /// A program that is not to be started yet.
    pub(super) fn unplanned(&self, config: &ProgramConfig<'_>) -> Result<ProgramServer, AbpError> {
        self.server(config, Path::new("/"), None, &PolicyEngine::default())
    }

    /// A program for clients of the gateway. It works in the directory that the operator sets, or else in
    /// this one, or else in one of its own that it keeps.
    pub(super) fn outside_runs(
        &self,
        config: &ProgramConfig<'_>,
        directory: Option<&Path>,
    ) -> Result<ProgramServer, AbpError> {
        let set = config.server.sandbox.workspace.as_deref();
        let workspace = match set.or(directory) {
            Some(workspace) => workspace.to_owned(),
            None => self.own_workspace(config.name)?,
        };
        let workplace = Workplace {
            workspace,
            hidden: self.own.clone(),
            is_in_place: true,
            policy: &PolicyEngine::default(),
        };
        self.confined(config, &workplace)
    }

    /// A program for a run.
    pub(super) fn in_run(
        &self,
        config: &ProgramConfig<'_>,
        place: &McpPlace<'_>,
    ) -> Result<ProgramServer, AbpError> {
        let own = config.server.sandbox.workspace.clone();
        let workplace = Workplace {
            is_in_place: own.is_some() || place.source.is_none(),
            workspace: own.unwrap_or_else(|| place.workspace.to_owned()),
            hidden: place.hidden.iter().chain(&place.source).cloned().collect(),
            policy: place.policy,
        };
        self.confined(config, &workplace)
    }

    /// A directory that a server alone writes to, and finds again when it is started again.
    fn own_workspace(&self, name: &str) -> Result<PathBuf, AbpError> {
        let directory = self.workspaces.join(name);
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory);
        made.map_err(|error| {
            let message = format!("cannot make {}", directory.display());
            AbpError::new(ErrorCode::ExecutionWorkspaceError, message)
                .with_source(error.to_string())
        })?;
        Ok(directory)
    }

    fn confined(
        &self,
        config: &ProgramConfig<'_>,
        workplace: &Workplace<'_>,
    ) -> Result<ProgramServer, AbpError> {
        let sandbox = match self.settings(&config.server.sandbox) {
            Some(settings) => Some(plan(config, &settings, workplace)?),
            None => None,
        };
        self.server(config, &workplace.workspace, sandbox, workplace.policy)
    }

    fn server(
        &self,
        config: &ProgramConfig<'_>,
        directory: &Path,
        sandbox: Option<RunSandbox>,
        policy: &PolicyEngine,
    ) -> Result<ProgramServer, AbpError> {
        let args = config.server.args.iter();
        let args = args.map(|argument| match &sandbox {
            Some(_) => without_parent_components(argument),
            None => argument.clone(),
        });
        Ok(ProgramServer {
            command: config.command.to_owned(),
            args: args.collect(),
            env: EnvValue::exposed(&config.server.env),
            directory: directory.to_owned(),
            sandbox,
            network: network(config, policy)?,
            launcher: self.place.launcher.clone(),
            running: RunningPrograms::default(),
        })
    }

    /// The settings of a server's sandbox; `None` where the operator wants none.
    fn settings(&self, server: &McpSandboxConfig) -> Option<SandboxSettings> {
        let mut config = self.sandbox.clone();
        config.engine = server.engine.unwrap_or(config.engine);
        config.network = server.network.unwrap_or(config.network);
        config.read_only.extend(server.read_only.iter().cloned());
        sandbox_settings(&config, &self.place)
    }
}

fn plan(
    config: &ProgramConfig<'_>,
    settings: &SandboxSettings,
    workplace: &Workplace<'_>,
) -> Result<RunSandbox, AbpError> {
    let own = EnvValue::exposed(&config.server.env);
    let own = own.get("PATH").map(Into::into);
    let search_path = own.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let program = ConfinedProgram {
        command: config.command,
        args: &config.server.args,
        search_path: &search_path,
        workspace: &workplace.workspace,
        hidden: &workplace.hidden,
        home: None,
        installation: &[],
        overlays: &[],
        is_in_place: workplace.is_in_place,
    };
    settings.plan(&program, workplace.policy).map_err(|error| {
        let message = format!(
            "the MCP server {} cannot be started: {}; set a workspace, or engine = \"none\", under [mcp.servers.{}.sandbox]",
            config.name,
            error.message(),
            config.name
        );
        AbpError::new(error.code(), message)
    })
}

/// The hosts that a program may reach: the operator's, without those that its run denies.
fn network(config: &ProgramConfig<'_>, policy: &PolicyEngine) -> Result<PolicyEngine, AbpError> {
    let profile = PolicyProfile {
        allow_network: config.server.sandbox.allow_network.clone(),
        deny_network: policy.patterns(PolicyList::DenyNetwork).to_vec(),
        ..PolicyProfile::default()
    };
    PolicyEngine::new(&profile).map_err(|error| {
        let message = format!("mcp.servers.{}.sandbox: {error}", config.name);
        AbpError::new(ErrorCode::ConfigInvalid, message)
    })
}
