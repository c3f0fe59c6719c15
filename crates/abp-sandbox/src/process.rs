//! A program whose standard streams are ours, and of which nothing is left when it ends.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use crate::launcher::{
    LAUNCH, LaunchDocument, Notice, Order, map_all_ids, receive_descriptors, send_descriptors,
};
use crate::plan::{Engine, Network, SandboxPlan};
use crate::{SearchPath, SpawnError, wire};

/// How much the kernel keeps of what the sidecar wrote and we did not read.
const PIPE_SIZE: usize = 1024 * 1024;

/// A program to start.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    /// The program: an absolute path, or a name to be found on the `PATH` of `env`, outside
    /// `directory`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// All of its environment but the marks. Entries of `PATH` that lead into `directory` are
    /// removed.
    pub env: BTreeMap<OsString, OsString>,
    /// Variables by which the program, everything it starts and the launcher itself are found again.
    /// The launcher has no other variables: some of them would change how it is loaded.
    pub marks: BTreeMap<OsString, OsString>,
    /// The working directory.
    pub directory: PathBuf,
    /// What it may see and do.
    pub confinement: Confinement,
    /// The program that starts it and ends it.
    pub launcher: Launcher,
    /// Limits on it and everything it starts.
    pub limits: ResourceLimits,
}

/// What a program may see and do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confinement {
    /// Everything that the user may, but these directories, as far as that can be had.
    Hidden(#[serde(with = "wire::paths")] Vec<PathBuf>),
    /// What the plan says; the program does not start where any part of it cannot be had.
    Sandboxed(SandboxPlan),
}

/// What a sidecar and everything it starts may use together; `None` is as much as there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Each file that is written.
    pub file_bytes: Option<u64>,
}

/// The program that starts the sidecar and ends it: one whose `main` begins with
/// [`run_if_launcher`](crate::run_if_launcher).
#[derive(Debug, Clone)]
pub struct Launcher {
    program: PathBuf,
    wanted: Option<Containment>,
}

/// What keeps the descendants of a sidecar from getting away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Containment {
    /// A PID namespace: the kernel ends all of them at once, even when host and launcher are killed.
    PidNamespace,
    /// The launcher is the parent of every orphan and ends them one by one.
    Subreaper,
}

/// Whether the directories of [`Confinement::Hidden`] are out of the program's reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Concealment {
    /// They are covered in a mount namespace that the program cannot change.
    Concealed,
    /// Only file permissions keep the program from them, for this reason.
    Exposed(String),
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Somehow: its launcher was lost.
    Unknown,
}

/// A process.
#[derive(Debug)]
pub struct ContainedProcess {
    launcher: Child,
    notices: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
    containment: Containment,
    concealment: Concealment,
    exit: Option<Exit>,
}

/// Its standard streams.
#[derive(Debug)]
pub struct Pipes {
    /// To write to.
    pub stdin: pipe::Sender,
    /// To read from.
    pub stdout: ChildStdout,
    /// To read from, lest it block.
    pub stderr: ChildStderr,
    /// The only way out of a sandbox whose network is [`Network::Proxied`]: a listener on its loopback
    /// interface.
    pub egress: Option<TcpListener>,
}

/// Streams of the caller's for a program.
#[derive(Debug)]
pub struct GivenStreams {
    /// Its standard input.
    pub input: OwnedFd,
    /// Its standard output.
    pub output: OwnedFd,
    /// Its standard error.
    pub errors: OwnedFd,
    /// Whether its standard input is a terminal made for it, which becomes its controlling terminal.
    pub is_terminal: bool,
}

struct LauncherStreams {
    input: OwnedFd,
    stdout: Stdio,
    stderr: Stdio,
}

impl Launcher {
    /// The running program itself.
    #[must_use]
    pub fn this_program() -> Self {
        // This name holds even if the file was replaced since.
        Self::at("/proc/self/exe")
    }

    /// The program at this path.
    #[must_use]
    pub fn at(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            wanted: None,
        }
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Wants this containment, not the best that can be had.
    #[must_use]
    pub fn contained_by(mut self, containment: Containment) -> Self {
        self.wanted = Some(containment);
        self
    }
}

impl Containment {
    /// The name that receipts give it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PidNamespace => "pid_namespace",
            Self::Subreaper => "subreaper",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::PidNamespace, Self::Subreaper]
            .into_iter()
            .find(|containment| containment.as_str() == name)
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => match nix::sys::signal::Signal::try_from(*signal) {
                Ok(name) => write!(f, "signal {signal} ({name})"),
                Err(_) => write!(f, "signal {signal}"),
            },
            Self::Unknown => f.write_str("unknown exit"),
        }
    }
}

impl ContainedProcess {
    /// Starts a program with streams to us.
    ///
    /// # Errors
    /// Says what could not be started.
    pub async fn spawn(spec: &ProcessSpec) -> Result<(Self, Pipes), SpawnError> {
        let (stdin, input) = pipe::pipe()?;
        let streams = LauncherStreams {
            input: input.into_blocking_fd()?,
            stdout: Stdio::piped(),
            stderr: Stdio::piped(),
        };
        let (mut process, egress) = Self::launch(spec, streams, false).await?;
        let launcher = &mut process.launcher;
        let (Some(stdout), Some(stderr)) = (launcher.stdout.take(), launcher.stderr.take()) else {
            return Err(SpawnError::Lost);
        };
        // Only a matter of speed.
        let _ = rustix::pipe::fcntl_setpipe_size(&stdout, PIPE_SIZE);
        let pipes = Pipes {
            stdin,
            stdout,
            stderr,
            egress,
        };
        Ok((process, pipes))
    }

    /// Starts a program with streams of the caller's. Returns the only way out of its sandbox, where that
    /// has one.
    ///
    /// # Errors
    /// Says what could not be started.
    pub async fn spawn_with(
        spec: &ProcessSpec,
        streams: GivenStreams,
    ) -> Result<(Self, Option<TcpListener>), SpawnError> {
        let is_terminal = streams.is_terminal;
        let streams = LauncherStreams {
            input: streams.input,
            stdout: streams.output.into(),
            stderr: streams.errors.into(),
        };
        Self::launch(spec, streams, is_terminal).await
    }

    async fn launch(
        spec: &ProcessSpec,
        streams: LauncherStreams,
        is_terminal: bool,
    ) -> Result<(Self, Option<TcpListener>), SpawnError> {
        let (mut document, missing) = document(spec)?;
        document.is_terminal = is_terminal;
        let (ours, theirs) = StdUnixStream::pair()?;
        let channel = egress_channel(&document.confinement)?;
        let launcher = Command::new(&spec.launcher.program)
            .arg(LAUNCH)
            .env_clear()
            .envs(&spec.marks)
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(streams.stdout)
            .stderr(streams.stderr)
            .spawn()
            .map_err(|source| SpawnError::Launcher {
                program: spec.launcher.program.display().to_string(),
                source,
            })?;
        let mut descriptors = vec![streams.input.as_fd()];
        descriptors.extend(channel.as_ref().map(|(_, theirs)| theirs.as_fd()));
        send_descriptors(&ours, &descriptors)?;
        drop(streams.input);
        ours.set_nonblocking(true)?;
        let (notices, mut orders) = UnixStream::from_std(ours)?.into_split();
        // A launcher that ends early is seen below, by what it says or does not say.
        drop(orders.write_all(&document.to_bytes()?).await);
        let mut process = Self {
            launcher,
            notices: BufReader::new(notices).lines(),
            orders,
            containment: Containment::Subreaper,
            concealment: Concealment::Concealed,
            exit: None,
        };
        process.started(missing).await?;
        let egress = channel.map(receive_listener).transpose()?;
        Ok((process, egress))
    }

    /// Waits until the program runs.
    async fn started(&mut self, missing: Option<Concealment>) -> Result<(), SpawnError> {
        loop {
            match self.next_notice().await {
                Some(Notice::Unmapped) => {
                    let pid = self.launcher_pid().ok_or(SpawnError::Lost)?;
                    map_all_ids(pid)?;
                    self.order(Order::Mapped).await;
                }
                Some(Notice::Started(containment, concealment)) => {
                    self.containment = containment;
                    self.concealment = missing.unwrap_or(concealment);
                    return Ok(());
                }
                Some(Notice::Failed(problem)) => return Err(SpawnError::Program(problem)),
                Some(Notice::NoOverlay(problem)) => return Err(SpawnError::Overlay(problem)),
                Some(Notice::Exited(_)) | None => return Err(SpawnError::Lost),
            }
        }
    }

    /// Whether the directories it must not see are out of its reach.
    #[must_use]
    pub const fn concealment(&self) -> &Concealment {
        &self.concealment
    }

    /// What keeps its descendants from getting away.
    #[must_use]
    pub const fn containment(&self) -> Containment {
        self.containment
    }

    /// The launcher's process id; `None` once it ended.
    #[must_use]
    pub fn launcher_pid(&self) -> Option<i32> {
        self.launcher.id().and_then(|pid| i32::try_from(pid).ok())
    }

    /// Asks it to end.
    pub async fn terminate(&mut self) {
        self.order(Order::Terminate).await;
    }

    /// Ends it and everything it started.
    pub async fn kill(&mut self) {
        self.order(Order::Kill).await;
    }

    /// Waits until it and everything it started has ended. May be dropped and called again.
    pub async fn exited(&mut self) -> Exit {
        let exit = loop {
            if let Some(exit) = self.exit {
                break exit;
            }
            match self.next_notice().await {
                Some(Notice::Exited(exit)) => self.exit = Some(exit),
                Some(
                    Notice::Unmapped
                    | Notice::Started(..)
                    | Notice::Failed(_)
                    | Notice::NoOverlay(_),
                ) => {}
                None => self.exit = Some(Exit::Unknown),
            }
        };
        // The launcher has nothing left to do; without this it would stay as a zombie.
        drop(self.launcher.wait().await);
        exit
    }

    async fn order(&mut self, order: Order) {
        // A launcher that is gone took everything with it, or is found by its marks.
        drop(self.orders.write_all(&[order.as_byte()]).await);
    }

    async fn next_notice(&mut self) -> Option<Notice> {
        let line = self.notices.next_line().await.ok().flatten()?;
        Notice::from_line(&line)
    }
}

/// The launch document of a program; also says that a directory cannot be hidden because it is not
/// there: it may be made while the program runs.
fn document(spec: &ProcessSpec) -> Result<(LaunchDocument, Option<Concealment>), SpawnError> {
    let directory = spec.directory.canonicalize();
    let directory = directory.map_err(|source| SpawnError::Directory {
        directory: spec.directory.display().to_string(),
        source,
    })?;
    let mut env = spec.env.clone();
    let search_path = OsString::from("PATH");
    let variable = env.remove(&search_path).unwrap_or_default();
    let search = SearchPath::new(&variable, &directory);
    let program = search.find(&spec.program)?;
    env.extend(search.to_variable().map(|path| (search_path, path)));
    if let Confinement::Sandboxed(plan) = &spec.confinement {
        env.extend(plan.environment().iter().cloned());
    }
    env.extend(spec.marks.clone());
    let (confinement, missing) = resolve(&spec.confinement);
    let document = LaunchDocument {
        program: program.into(),
        name: spec.program.clone(),
        args: spec.args.clone(),
        env: env.into_iter().collect(),
        directory: directory.into(),
        confinement,
        containment: spec.launcher.wanted,
        limits: spec.limits,
        is_terminal: false,
    };
    Ok((document, missing))
}

/// The confinement with directories that have no links in their paths.
fn resolve(confinement: &Confinement) -> (Confinement, Option<Concealment>) {
    let Confinement::Hidden(wanted) = confinement else {
        return (confinement.clone(), None);
    };
    let mut hidden = Vec::new();
    let mut missing = None;
    for path in wanted {
        match path.canonicalize() {
            Ok(path) => hidden.push(path),
            Err(error) => missing = Some(Concealment::Exposed(cannot_hide(path, &error))),
        }
    }
    (Confinement::Hidden(hidden), missing)
}

type Channel = (StdUnixStream, StdUnixStream);

/// The sockets over which the listener of a sandbox comes, where its plan has one.
fn egress_channel(confinement: &Confinement) -> io::Result<Option<Channel>> {
    match confinement {
        Confinement::Sandboxed(plan)
            if plan.engine() == Engine::Namespaces
                && matches!(plan.network(), Network::Proxied(_)) =>
        {
            StdUnixStream::pair().map(Some)
        }
        Confinement::Sandboxed(_) | Confinement::Hidden(_) => Ok(None),
    }
}

/// The listener was sent before the program was started, so it is there.
fn receive_listener((ours, theirs): Channel) -> io::Result<TcpListener> {
    drop(theirs);
    ours.set_nonblocking(true)?;
    let descriptor = receive_descriptors(&ours)?.pop();
    let descriptor = descriptor.ok_or_else(|| io::Error::other("the sandbox sent no listener"))?;
    Ok(descriptor.into())
}

fn cannot_hide(path: &Path, error: &io::Error) -> String {
    format!("cannot hide {}: {error}", path.display())
}
