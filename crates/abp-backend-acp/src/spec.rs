//! The program of an agent, and its known behaviour.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use abp_agents::{AgentPreset, InstalledAgent, PermissionBehaviour};
use abp_core::Capability;
use abp_host::{Launcher, ResourceLimits};
use secrecy::SecretString;

/// An agent to start.
///
/// Texts of `args`, `env` and `files` may hold `{url}`, `{key}` and `{model}`.
#[derive(Debug, Clone)]
pub struct AcpSpec {
    /// The program: an absolute path, or a name on the search path.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment, in addition to what every program gets.
    pub env: BTreeMap<String, String>,
    /// Values that are kept out of the log and of every error, such as secret values of `env`.
    pub secrets: Vec<SecretString>,
    /// Files of its home directory, by their paths there.
    pub files: Vec<(String, String)>,
    /// Directories that belong to its installation.
    pub installation: Vec<PathBuf>,
    /// The name and version that it has to give; `None` takes any.
    pub version: Option<String>,
    /// Whether it asks models with a login of its own, past the gateway, because the operator said so.
    pub has_own_login: bool,
    /// The model it is asked for where the order names none.
    pub usual_model: String,
    /// The session mode that is set before the first prompt.
    pub mode: Option<String>,
    /// Whether it asks before it uses a tool.
    pub permissions: PermissionBehaviour,
    /// Whether it may read and write files through the host.
    pub offers_files: bool,
    /// Capabilities that it has besides those it tells.
    pub tools: Vec<Capability>,
    /// Capabilities that it is known to tell; `None` where nothing is known before it is opened.
    pub told: Option<Vec<Capability>>,
    /// The program that starts it and ends it.
    pub launcher: Launcher,
    /// Limits on it and everything it starts.
    pub limits: ResourceLimits,
    /// The directory in which running programs are noted, to be found again after a crash of the host.
    pub records: Option<PathBuf>,
    /// Its time limits.
    pub timing: AcpTiming,
}

/// The time limits of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcpTiming {
    /// To answer the first request.
    pub initialize: Duration,
    /// To open a session, and for every other request but a prompt.
    pub request: Duration,
    /// Without a message, a model exchange or a connection during a prompt.
    pub stall: Duration,
    /// To end a turn after it was cancelled.
    pub cancel: Duration,
    /// To exit after its work.
    pub exit: Duration,
}

impl Default for AcpTiming {
    fn default() -> Self {
        Self {
            initialize: Duration::from_secs(60),
            request: Duration::from_secs(60),
            stall: Duration::from_secs(900),
            cancel: Duration::from_millis(800),
            exit: Duration::from_secs(1),
        }
    }
}

impl AcpSpec {
    /// A program that nothing is known of: it is not expected to ask, and gets no key.
    #[must_use]
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            secrets: Vec::new(),
            files: Vec::new(),
            installation: Vec::new(),
            version: None,
            has_own_login: false,
            usual_model: String::new(),
            mode: None,
            permissions: PermissionBehaviour::NeverAsks,
            offers_files: false,
            tools: Vec::new(),
            told: None,
            launcher: Launcher::this_program(),
            limits: ResourceLimits::default(),
            records: None,
            timing: AcpTiming::default(),
        }
    }

    /// An installed agent of the table.
    #[must_use]
    pub fn of_preset(preset: &AgentPreset, installed: &InstalledAgent) -> Self {
        let owned = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            let pairs = pairs.map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
            pairs.collect::<Vec<_>>()
        };
        let mut env: BTreeMap<String, String> = owned(preset.env).into_iter().collect();
        if let Some(node) = &installed.node_bin {
            let path = format!("{}:/usr/local/bin:/usr/bin:/bin", node.display());
            env.insert("PATH".to_owned(), path);
        }
        let args = preset.args.iter().map(|arg| (*arg).to_owned());
        let named = |names: &[&str]| {
            names
                .iter()
                .map(|name| Capability::from_wire(name))
                .collect()
        };
        Self {
            args: installed.args.iter().cloned().chain(args).collect(),
            env,
            files: owned(preset.files),
            installation: installed.installation.clone(),
            version: Some(preset.version().to_owned()),
            usual_model: preset.usual_model.to_owned(),
            mode: preset.mode.map(ToOwned::to_owned),
            permissions: preset.permissions,
            offers_files: preset.offers_files,
            tools: named(preset.tools),
            told: Some(named(preset.told)),
            ..Self::new(installed.command.to_string_lossy())
        }
    }
}
