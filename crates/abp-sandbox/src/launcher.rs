//! The launcher: our own program, started again, between us and the sidecar.
//!
//! It puts the sidecar where nothing can get away from: into a PID namespace of its own, whose
//! first process ends every other one with it. Where the kernel does not give us one, the launcher
//! becomes the parent of every orphan below it and ends them one by one.
//!
//! The program is started several times, each time in another role:
//!
//! 1. The *launcher* applies limits, enters the PID namespace and waits.
//! 2. The *first process* of the namespace makes the mount namespace, keeps its privileges and
//!    supervises.
//! 3. The *last stage* gives up every privilege and executes the sidecar's program.
//!
//! Each of them gets the [`LaunchDocument`] over its standard input. The launcher's standard input
//! is a socket to the host: when the host goes away, however it goes, the socket closes and
//! everything ends. The sidecar's own standard input comes with the document; its output and errors
//! are the launcher's.

mod cgroup;
mod document;
mod landlock;
mod mountinfo;
mod mounts;
mod namespace;
mod network;
mod overlay;
mod privileges;
mod protocol;
mod reaper;
mod root;
mod seccomp;
mod stage;
mod trees;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getpid, set_child_subreaper, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit, setsid,
};
use rustix::system::sethostname;

pub(crate) use document::{LaunchDocument, receive_descriptors, send_descriptors};
pub(crate) use namespace::map_all_ids;
pub(crate) use protocol::{Notice, Order};

use crate::kernel::KernelFeatures;
use crate::plan::{Engine, SandboxPlan};
use crate::{Concealment, Confinement, Containment};
use cgroup::Groups;
use namespace::Namespace;

/// As first argument: be the launcher.
pub(crate) const LAUNCH: &str = "__sidecar-launch";
/// As first argument: be the first process of a namespace.
const INIT: &str = "__sidecar-init";
/// As first argument: give up every privilege and become the program.
const EXECUTE: &str = "__sidecar-exec";

/// As first argument: try what the kernel offers, and tell.
pub(crate) const PROBE: &str = "__sandbox-probe";
/// As first argument: the part of it that happens in namespaces.
const PROBE_INSIDE: &str = "__sandbox-probe-inside";

/// Why the program is not started.
#[derive(Debug, PartialEq, Eq)]
enum LaunchFailure {
    /// The kernel refused an overlay of the plan.
    NoOverlay(String),
    /// Anything else.
    Other(String),
}

impl From<String> for LaunchFailure {
    fn from(problem: String) -> Self {
        Self::Other(problem)
    }
}

/// Does the launcher's work where this process was started as one; to be called first of all in
/// `main`, before any thread is started.
#[must_use]
pub fn run_if_launcher() -> Option<ExitCode> {
    let role = std::env::args_os().nth(1)?;
    let succeeded = match role.to_str()? {
        LAUNCH => tell_failure(io::stdin(), launch().map_err(LaunchFailure::Other)),
        INIT => init(),
        EXECUTE => stage::execute(),
        PROBE => probe(),
        PROBE_INSIDE => probe_inside(),
        _ => return None,
    };
    Some(if succeeded {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Tells the host why there is no sidecar. A host that is gone does not need to know.
fn tell_failure(host: impl AsFd, done: Result<(), LaunchFailure>) -> bool {
    let notice = match done {
        Ok(()) => return true,
        Err(LaunchFailure::NoOverlay(problem)) => Notice::NoOverlay(problem),
        Err(LaunchFailure::Other(problem)) => Notice::Failed(problem),
    };
    drop(notice.send(host));
    false
}

fn launch() -> Result<(), String> {
    let (document, [Some(input), channel, None]) = receive()? else {
        return Err("the host sent no standard input".to_owned());
    };
    let _groups = Groups::apply(document.limits)?;
    limit_files(document.limits.file_bytes)?;
    // No terminal, and no signals from one: the host decides when the sidecar ends.
    setsid().map_err(|error| format!("cannot start a session: {error}"))?;
    if enter_namespaces(&document)? == Namespace::Entered {
        return start_init(&document, input, channel);
    }
    set_child_subreaper(Some(getpid())).map_err(|error| format!("cannot adopt: {error}"))?;
    let exposed = Concealment::Exposed("there is no PID namespace".to_owned());
    let host = io::stdin();
    reaper::supervise(
        Containment::Subreaper,
        exposed,
        &document,
        input,
        host.as_fd(),
    )
}

fn enter_namespaces(document: &LaunchDocument) -> Result<Namespace, String> {
    match &document.confinement {
        Confinement::Sandboxed(plan) if plan.engine() == Engine::Namespaces => {
            namespace::enter_all(plan).map(|()| Namespace::Entered)
        }
        Confinement::Sandboxed(_) | Confinement::Hidden(_) => match document.containment {
            Some(Containment::Subreaper) => Ok(Namespace::Refused),
            Some(Containment::PidNamespace) | None => Namespace::enter(),
        },
    }
}

/// The document of the stage before, and the descriptors that came with it.
fn receive() -> Result<(LaunchDocument, [Option<OwnedFd>; 3]), String> {
    let received = LaunchDocument::receive(io::stdin());
    let (document, descriptors) =
        received.map_err(|error| format!("cannot read the launch document: {error}"))?;
    let mut descriptors = descriptors.into_iter();
    Ok((document, std::array::from_fn(|_| descriptors.next())))
}

/// What is started later inherits the limit and cannot raise it.
fn limit_files(bytes: Option<u64>) -> Result<(), String> {
    if bytes.is_none() {
        return Ok(());
    }
    let limit = Rlimit {
        current: bytes,
        maximum: bytes,
    };
    setrlimit(Resource::Fsize, limit)
        .map_err(|error| format!("the limit on the size of files cannot be set: {error}"))
}

/// Starts ourselves once more, as first process of the namespace, and waits for it.
fn start_init(
    document: &LaunchDocument,
    input: OwnedFd,
    channel: Option<OwnedFd>,
) -> Result<(), String> {
    let cannot =
        |error: io::Error| format!("cannot start the first process of a namespace: {error}");
    let (ours, theirs) = stage::pair().map_err(cannot)?;
    let mut child = Command::new("/proc/self/exe")
        .arg(INIT)
        .stdin(Stdio::from(theirs))
        .spawn()
        .map_err(cannot)?;
    reaper::let_go_of_output()?;
    let host = io::stdin();
    let mut descriptors = vec![input.as_fd(), host.as_fd()];
    descriptors.extend(channel.as_ref().map(AsFd::as_fd));
    let sent = document.send(&ours, &descriptors);
    drop((ours, input, channel));
    let ended = child.wait();
    sent.map_err(cannot)?;
    match ended {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("lost the first process of the namespace: {error}")),
    }
}

fn init() -> bool {
    // Without the host's socket there is no telling; the host sees it closed.
    let Ok((document, [Some(input), Some(host), channel])) = receive() else {
        return false;
    };
    let done = settle(&document, channel).and_then(|concealment| {
        let namespace = Containment::PidNamespace;
        let done = reaper::supervise(namespace, concealment, &document, input, host.as_fd());
        done.map_err(LaunchFailure::Other)
    });
    tell_failure(host, done)
}

/// As first process of the namespace: end with the launcher, hide the host, and be out of reach of
/// the program, which could otherwise write to our memory and use our privileges.
fn settle(
    document: &LaunchDocument,
    channel: Option<OwnedFd>,
) -> Result<Concealment, LaunchFailure> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("cannot bind to the launcher: {error}"))?;
    let concealment = match &document.confinement {
        Confinement::Sandboxed(plan) if plan.engine() == Engine::Namespaces => {
            enter_sandbox(plan, channel)?;
            Concealment::Concealed
        }
        Confinement::Sandboxed(_) => Concealment::Concealed,
        Confinement::Hidden(hidden) => mounts::settle(hidden, Path::new(&document.directory))?,
    };
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| format!("cannot keep others out of our memory: {error}"))?;
    Ok(concealment)
}

fn enter_sandbox(plan: &SandboxPlan, channel: Option<OwnedFd>) -> Result<(), LaunchFailure> {
    network::settle(plan, channel)?;
    sethostname(b"sandbox").map_err(|error| format!("cannot set the host name: {error}"))?;
    root::enter(plan)
}

/// Tries each layer and tells the outcome on standard output.
fn probe() -> bool {
    let features = match namespace::probe() {
        // Only a process in the namespaces can try what is made there.
        Ok(()) => {
            let child = Command::new("/proc/self/exe").arg(PROBE_INSIDE).status();
            return child.is_ok_and(|status| status.success());
        }
        Err(refused) => tried(Err(refused.clone()), Err(refused)),
    };
    serde_json::to_writer(io::stdout(), &features).is_ok()
}

fn probe_inside() -> bool {
    let namespaces = root::probe();
    let overlay = namespaces.clone().and_then(|()| overlay::probe());
    serde_json::to_writer(io::stdout(), &tried(namespaces, overlay)).is_ok()
}

/// The filter comes last: it would refuse the others.
fn tried(namespaces: Result<(), String>, overlay: Result<(), String>) -> KernelFeatures {
    KernelFeatures {
        namespaces,
        overlay,
        landlock: landlock::probe(),
        seccomp: seccomp::probe(),
    }
}
