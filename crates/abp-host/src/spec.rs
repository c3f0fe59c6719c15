//! What to start.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use abp_policy::PolicyEngine;
use abp_sandbox::{Confinement, Launcher, ResourceLimits};
use secrecy::SecretString;
use sidecar_kit::DEFAULT_MAX_LINE;

use crate::Timing;

/// A sidecar to start.
#[derive(Clone)]
pub struct SidecarSpec {
    /// The program: an absolute path, or a bare name to be found on `PATH`, outside `directory`.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment, in addition to what every sidecar gets.
    pub env: BTreeMap<String, String>,
    /// Values that are kept out of the log and of every error, such as secret values of `env`.
    pub secrets: Vec<SecretString>,
    /// The working directory.
    pub directory: PathBuf,
    /// What its processes may see and do.
    pub confinement: Confinement,
    /// The network rules for a sandbox with a proxy; without them nothing is reached.
    pub egress: Option<PolicyEngine>,
    /// The program that starts it and ends it.
    pub launcher: Launcher,
    /// How long things may take.
    pub timing: Timing,
    /// What it and everything it starts may use.
    pub limits: ResourceLimits,
    /// The longest line it may send.
    pub max_line: usize,
    /// Where running sidecars are noted, to be found again after a crash of the host.
    pub records: Option<PathBuf>,
}

impl SidecarSpec {
    /// A sidecar that works in `directory`, started by this program, with the usual limits.
    pub fn new(command: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        Self {
            command: command.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            secrets: Vec::new(),
            directory: directory.into(),
            confinement: Confinement::Hidden(Vec::new()),
            egress: None,
            launcher: Launcher::this_program(),
            timing: Timing::default(),
            limits: ResourceLimits::default(),
            max_line: DEFAULT_MAX_LINE,
            records: None,
        }
    }
}

/// Shows the names of variables and not their values, among which keys are.
impl fmt::Debug for SidecarSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variables: Vec<_> = self.env.keys().collect();
        f.debug_struct("SidecarSpec")
            .field("command", &self.command)
            .field("args", &self.args)
            .field("env", &variables)
            .field("directory", &self.directory)
            .field("confinement", &self.confinement)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
