//! A program that speaks a protocol of its own over its standard streams.
//!
//! It is started, watched and ended as a sidecar is: in the same sandbox, with the same notes for the case
//! that the host is killed, and nothing of it stays.

use std::time::Duration;

use abp_core::StateAccess;
use abp_error::AbpError;
use abp_sandbox::{Concealment, ContainedProcess, Containment, Exit, ProcessSpec, SpawnError};
use secrecy::{ExposeSecret as _, SecretString};
use sidecar_kit::{Fault, Stderr};
use tokio::net::unix::pipe;
use tokio::process::ChildStdout;
use uuid::Uuid;

use crate::environment::environment;
use crate::records::Record;
use crate::{Egress, SidecarFailure, SidecarSpec, with_process_end};

/// How long a program may take to end after it was asked to.
const TERM: Duration = Duration::from_millis(300);

/// A running program. Dropping it ends it and everything it started.
#[derive(Debug)]
pub struct AgentProcess {
    process: ContainedProcess,
    stderr: Stderr,
    record: Option<Record>,
}

/// The streams of a program.
#[derive(Debug)]
pub struct AgentStreams {
    /// Its standard input.
    pub stdin: pipe::Sender,
    /// Its standard output.
    pub stdout: ChildStdout,
    /// The way out of its sandbox, where that has one.
    pub egress: Option<Egress>,
}

/// The end of a program.
#[derive(Debug)]
pub struct AgentExit {
    /// How it ended.
    pub exit: Exit,
    /// The end of its standard error.
    pub stderr_tail: String,
}

impl AgentProcess {
    /// Starts a program. The timing and the longest line of the specification are the caller's matter.
    ///
    /// # Errors
    /// Says why it could not be started.
    pub async fn spawn(spec: SidecarSpec) -> Result<(Self, AgentStreams), AbpError> {
        let id = Uuid::new_v4().to_string();
        let (env, marks) = environment(std::env::vars_os(), &spec.env, &id);
        let process = ProcessSpec {
            program: spec.command.into(),
            args: spec.args.into_iter().map(Into::into).collect(),
            env,
            marks,
            directory: spec.directory,
            confinement: spec.confinement,
            launcher: spec.launcher,
            limits: spec.limits,
        };
        let (process, pipes) = ContainedProcess::spawn(&process)
            .await
            .map_err(not_started)?;
        let exposed = spec.secrets.iter().map(SecretString::expose_secret);
        let hidden: Vec<String> = exposed.map(ToOwned::to_owned).collect();
        let record = Record::write(spec.records.as_deref(), id, process.launcher_pid());
        let agent = Self {
            process,
            stderr: Stderr::read(pipes.stderr, &hidden),
            record: Some(record),
        };
        let egress = pipes
            .egress
            .map(|listener| Egress::start(listener, spec.egress));
        let egress = egress.transpose().map_err(|error| {
            let problem = format!("the way out of its sandbox cannot be served: {error}");
            not_started(SpawnError::Program(problem))
        })?;
        let streams = AgentStreams {
            stdin: pipes.stdin,
            stdout: pipes.stdout,
            egress,
        };
        Ok((agent, streams))
    }

    /// What keeps its descendants from getting away.
    #[must_use]
    pub fn containment(&self) -> Containment {
        self.process.containment()
    }

    /// Whether its processes can reach the directories that were to be hidden from them.
    #[must_use]
    pub fn state_access(&self) -> StateAccess {
        match self.process.concealment() {
            Concealment::Concealed => StateAccess::Hidden,
            Concealment::Exposed(_) => StateAccess::Reachable,
        }
    }

    /// Keeps this out of the log and of what is kept of its standard error.
    pub fn hide(&self, secret: &str) {
        self.stderr.hide(secret);
    }

    /// Waits until it ended by itself. May be dropped and called again.
    pub async fn exited(&mut self) -> Exit {
        self.process.exited().await
    }

    /// Ends it and everything it started, where it has not ended within `patience` by itself.
    pub async fn end(mut self, patience: Duration) -> AgentExit {
        let exit = match tokio::time::timeout(patience, self.process.exited()).await {
            Ok(exit) => exit,
            Err(_) => self.stop().await,
        };
        if let Some(record) = self.record.take() {
            record.settle(Some(exit));
        }
        AgentExit {
            exit,
            stderr_tail: self.stderr.tail().await,
        }
    }

    async fn stop(&mut self) -> Exit {
        self.process.terminate().await;
        if let Ok(exit) = tokio::time::timeout(TERM, self.process.exited()).await {
            return exit;
        }
        self.process.kill().await;
        self.process.exited().await
    }
}

impl AgentExit {
    /// The error with the end of the process in its context.
    #[must_use]
    pub fn explain(&self, error: AbpError) -> AbpError {
        with_process_end(error, Some(self.exit), &self.stderr_tail)
    }
}

fn not_started(error: SpawnError) -> AbpError {
    SidecarFailure {
        error: Fault::from(error).into(),
        exit: None,
        stderr_tail: String::new(),
    }
    .into()
}
