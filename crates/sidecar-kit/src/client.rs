//! A sidecar that said hello, waiting for its run.

use std::net::TcpListener;

use abp_sandbox::{ContainedProcess, ProcessSpec, SpawnError};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::sync::mpsc;

use crate::driver::Driver;
use crate::session::Timing;
use crate::{CancelToken, DEFAULT_MAX_LINE, Fault, Frame, HelloFrame, RawRun, RunReport};

/// How many batches of events may wait for the reader; while they do, nothing is read.
const WAITING_BATCHES: usize = 2;
/// How much the streams of [`Connection::memory`] hold, as much as a pipe.
const MEMORY_STREAM: usize = 64 * 1024;

/// How to treat a sidecar.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How long things may take.
    pub timing: Timing,
    /// The longest line accepted.
    pub max_line: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timing: Timing::default(),
            max_line: DEFAULT_MAX_LINE,
        }
    }
}

/// The streams to a sidecar, and its process where it has one.
pub struct Connection {
    pub(crate) stdin: Box<dyn AsyncWrite + Send + Unpin>,
    pub(crate) stdout: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pub(crate) process: Option<ContainedProcess>,
    pub(crate) secrets: Vec<String>,
    egress: Option<TcpListener>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// A connection to a new process.
    ///
    /// # Errors
    /// Says what could not be started.
    pub async fn spawn(spec: &ProcessSpec) -> Result<Self, SpawnError> {
        let (process, pipes) = ContainedProcess::spawn(spec).await?;
        Ok(Self {
            stdin: Box::new(pipes.stdin),
            stdout: Box::new(pipes.stdout),
            stderr: Some(Box::new(pipes.stderr)),
            process: Some(process),
            secrets: Vec::new(),
            egress: pipes.egress,
        })
    }

    /// Its process, where it has one.
    #[must_use]
    pub fn process(&self) -> Option<&ContainedProcess> {
        self.process.as_ref()
    }

    /// The listener that is the only way out of its sandbox, where that has one.
    pub fn take_egress(&mut self) -> Option<TcpListener> {
        self.egress.take()
    }

    /// Keeps these values out of the log and of the kept end of its standard error, from the first
    /// byte on.
    #[must_use]
    pub fn hiding(mut self, secrets: impl IntoIterator<Item = String>) -> Self {
        self.secrets.extend(secrets);
        self
    }

    /// A connection without a process, and its other end: read there what the sidecar would read,
    /// and write what it would write.
    #[must_use]
    pub fn memory() -> (Self, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(MEMORY_STREAM);
        let (stdout, stdin) = tokio::io::split(ours);
        let connection = Self {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: None,
            process: None,
            secrets: Vec::new(),
            egress: None,
        };
        (connection, theirs)
    }
}

/// A sidecar that said hello. Dropping it ends the sidecar.
pub struct SidecarClient {
    driver: Driver,
    hello: HelloFrame,
}

impl std::fmt::Debug for SidecarClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SidecarClient")
            .field("hello", &self.hello)
            .finish_non_exhaustive()
    }
}

impl SidecarClient {
    /// Starts a sidecar and waits for its hello.
    ///
    /// # Errors
    /// Says how it ended instead.
    pub async fn spawn(spec: &ProcessSpec, settings: &Settings) -> Result<Self, Box<RunReport>> {
        match Connection::spawn(spec).await {
            Ok(connection) => Self::connect(connection, settings).await,
            Err(error) => Err(Box::new(RunReport::failed(Fault::Spawn(error)))),
        }
    }

    /// Waits for the hello of a sidecar.
    ///
    /// # Errors
    /// Says how it ended instead.
    pub async fn connect(
        connection: Connection,
        settings: &Settings,
    ) -> Result<Self, Box<RunReport>> {
        let (driver, hello) = Driver::new(connection, settings).greet().await?;
        Ok(Self { driver, hello })
    }

    /// What it said.
    #[must_use]
    pub fn hello(&self) -> &HelloFrame {
        &self.hello
    }

    /// Its process, where it has one.
    #[must_use]
    pub fn process(&self) -> Option<&ContainedProcess> {
        self.driver.process()
    }

    /// Pings it before the run; whether it answered is told with the run.
    pub fn ping(&mut self) {
        self.driver.ping();
    }

    /// Sends a message of the caller's own before the run.
    pub fn send(&self, frame: &Frame) {
        self.driver.send(frame);
    }

    /// Keeps this out of the log and of what is kept of its standard error.
    pub fn hide(&self, secret: &str) {
        self.driver.hide(secret);
    }

    /// Gives it its run. There is one run to a process: it is over when the run is.
    #[must_use]
    pub fn run(self, id: impl Into<String>, work_order: Value) -> RawRun {
        let (sender, events) = mpsc::channel(WAITING_BATCHES);
        let (answers, answered) = mpsc::unbounded_channel();
        let cancel = CancelToken::new();
        let run = self
            .driver
            .run(id.into(), work_order, sender, cancel.clone(), answered);
        RawRun {
            events,
            report: tokio::spawn(run),
            cancel,
            answers,
        }
    }

    /// Lets it go without a run.
    pub async fn close(self) -> RunReport {
        self.driver.close().await
    }
}
