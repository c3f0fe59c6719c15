//! What to start.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sidecar_kit::{DEFAULT_MAX_LINE, Launcher, ResourceLimits};

use crate::Timing;

/// A sidecar to start.
#[derive(Debug, Clone)]
pub struct SidecarSpec {
    /// The program: a name on the search path, or a path.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment, in addition to what every sidecar gets.
    pub env: BTreeMap<String, String>,
    /// Where it works.
    pub directory: PathBuf,
    /// Who starts it.
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
            directory: directory.into(),
            launcher: Launcher::this_program(),
            timing: Timing::default(),
            limits: ResourceLimits::default(),
            max_line: DEFAULT_MAX_LINE,
            records: None,
        }
    }
}
