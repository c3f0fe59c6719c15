//! The launcher: our own program, started again, between us and the sidecar.
//!
//! It puts the sidecar where nothing can get away from: into a PID namespace of its own, whose
//! first process ends every other one with it. Where the kernel does not give us one, the launcher
//! becomes the parent of every orphan below it and ends them one by one.
//!
//! Its standard input is a socket to the host. When the host goes away, however it goes, the socket
//! closes and everything ends. The sidecar's own standard input comes over that socket; its output
//! and errors are the launcher's.

mod cgroup;
mod namespace;
mod protocol;
mod reaper;

use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Resource, Rlimit, getpid, set_child_subreaper, setrlimit, setsid};

pub(crate) use protocol::{Notice, Order, send_descriptor};

use crate::{Containment, ResourceLimits};
use cgroup::Groups;
use namespace::Namespace;

/// As first argument: be the launcher.
pub(crate) const LAUNCH: &str = "__sidecar-launch";
/// As first argument: be the first process of a namespace.
const INIT: &str = "__sidecar-init";

/// Does the launcher's work where this process was started as one; to be called first of all in
/// `main`, before any thread is started.
#[must_use]
pub fn run_if_launcher() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let role = arguments.next()?;
    let done = match role.to_str()? {
        LAUNCH => launch(arguments),
        INIT => init(&arguments.collect::<Vec<_>>()),
        _ => return None,
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The host may be gone already; then nobody needs to know.
            drop(Notice::Failed(error).send());
            ExitCode::FAILURE
        }
    })
}

fn launch(mut arguments: impl Iterator<Item = OsString>) -> Result<(), String> {
    let wanted = arguments.next().unwrap_or_default();
    let limits = arguments.next().unwrap_or_default();
    let limits = limits.to_str().and_then(ResourceLimits::from_argument);
    let command: Vec<_> = arguments.collect();
    let limits = limits.ok_or("no limits were given")?;
    let _groups = Groups::apply(limits)?;
    limit_files(limits.file_bytes)?;
    // No terminal, and no signals from one: the host decides when the sidecar ends.
    setsid().map_err(|error| format!("cannot start a session: {error}"))?;
    if wanted != Containment::Subreaper.as_str() && Namespace::enter()? == Namespace::Entered {
        return start_init(&command);
    }
    set_child_subreaper(Some(getpid())).map_err(|error| format!("cannot adopt: {error}"))?;
    reaper::supervise(Containment::Subreaper, &command)
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
fn start_init(command: &[OsString]) -> Result<(), String> {
    let mut child = Command::new("/proc/self/exe")
        .arg(INIT)
        .args(command)
        .stdin(Stdio::inherit())
        .spawn()
        .map_err(|error| format!("cannot start the first process of a namespace: {error}"))?;
    reaper::let_go_of_output()?;
    match child.wait() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("lost the first process of the namespace: {error}")),
    }
}

fn init(command: &[OsString]) -> Result<(), String> {
    namespace::settle()?;
    reaper::supervise(Containment::PidNamespace, command)
}
