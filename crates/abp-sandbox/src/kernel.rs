//! The layers that the kernel offers to us, found by trying each in a process that ends afterwards.

use std::io;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::Launcher;
use crate::launcher::PROBE;
use crate::plan::{Engine, EngineChoice, SandboxError};

/// What each layer said when it was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFeatures {
    /// User, mount, PID, IPC, UTS and network namespaces with a root and a `/proc` of their own; otherwise
    /// the refusal.
    pub namespaces: Result<(), String>,
    /// Overlays in those namespaces, whose changes a host without rights can read; otherwise the refusal.
    pub overlay: Result<(), String>,
    /// The version of Landlock's interface; otherwise the refusal.
    pub landlock: Result<u32, String>,
    /// Filters of system calls; otherwise the refusal.
    pub seccomp: Result<(), String>,
}

impl KernelFeatures {
    /// Tries every layer.
    ///
    /// # Errors
    /// Fails where the launcher cannot be started or does not answer.
    pub fn probe(launcher: &Launcher) -> io::Result<Self> {
        let output = Command::new(launcher.program())
            .arg(PROBE)
            .env_clear()
            .stdin(Stdio::null())
            .output()?;
        serde_json::from_slice(&output.stdout).map_err(|error| {
            let said = String::from_utf8_lossy(&output.stderr);
            io::Error::other(format!(
                "the probe did not answer ({}): {error}; {said}",
                output.status
            ))
        })
    }

    /// The engine for a choice.
    ///
    /// # Errors
    /// Refuses an engine whose layers cannot all be had.
    pub fn choose(&self, choice: EngineChoice) -> Result<Engine, SandboxError> {
        match choice {
            EngineChoice::Namespaces => self.namespaces_engine(),
            EngineChoice::Landlock => self.landlock_engine(),
            EngineChoice::Auto => self.namespaces_engine().or_else(|refused| {
                // The reason of the stronger engine is the one to remove.
                self.landlock_engine().map_err(|_| refused)
            }),
        }
    }

    fn namespaces_engine(&self) -> Result<Engine, SandboxError> {
        let available = self.namespaces.clone().and(self.seccomp.clone());
        let engine = Engine::Namespaces;
        available
            .map(|()| engine)
            .map_err(|reason| unavailable(engine, reason))
    }

    fn landlock_engine(&self) -> Result<Engine, SandboxError> {
        let engine = Engine::Landlock;
        let version = self
            .landlock
            .clone()
            .map_err(|reason| unavailable(engine, reason))?;
        if version < MIN_LANDLOCK {
            let reason = format!(
                "version {version} of Landlock does not restrict connections; version {MIN_LANDLOCK} (Linux 6.7) does"
            );
            return Err(unavailable(engine, reason));
        }
        self.seccomp
            .clone()
            .map(|()| engine)
            .map_err(|reason| unavailable(engine, reason))
    }
}

/// The first version of Landlock that restricts connections.
const MIN_LANDLOCK: u32 = 4;

fn unavailable(engine: Engine, reason: String) -> SandboxError {
    SandboxError::Unavailable {
        engine: engine.as_str(),
        reason,
    }
}
