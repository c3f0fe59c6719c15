//! The last stage: a process of our own program that becomes the sidecar's.
//!
//! The supervisor starts it with one end of a socket pair as standard input. Over it come the launch
//! document and the sidecar's real standard input. The stage keeps the socket open until the program
//! is executed, which closes it: the supervisor reads either nothing, and the program runs, or the
//! reason why it does not.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use close_fds::CloseFdsBuilder;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, fchdir, ioctl_tiocsctty, setsid};
use rustix::stdio::dup2_stdin;

use super::{EXECUTE, LaunchDocument, landlock, mounts, privileges, receive, seccomp};
use crate::Confinement;

/// The first descriptor that is not a standard stream.
const FIRST_OTHER: i32 = 3;
/// The longest reason that is read.
const MAX_REASON: u64 = 4096;

/// Two connected sockets.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    Ok(socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Starts the stage, and returns when the program is executed.
pub(super) fn start(document: &LaunchDocument, input: OwnedFd) -> Result<Pid, String> {
    let cannot = |error: io::Error| format!("cannot start the last stage: {error}");
    let (ours, theirs) = pair().map_err(cannot)?;
    // Descriptors that the host left open by accident are not for the sidecar.
    CloseFdsBuilder::new().cloexecfrom(FIRST_OTHER);
    let mut command = Command::new("/proc/self/exe");
    command.arg(EXECUTE).stdin(Stdio::from(theirs));
    if !document.is_terminal {
        // With a terminal it starts a session of its own, which the leader of a group cannot.
        command.process_group(0);
    }
    let mut child = command.spawn().map_err(cannot)?;
    // It holds the other end of the socket, whose closing is waited for below.
    drop(command);
    let sent = document.send(&ours, &[input.as_fd()]);
    drop(input);
    let mut reason = String::new();
    let read = File::from(ours)
        .take(MAX_REASON)
        .read_to_string(&mut reason);
    match sent.and(read) {
        Ok(_) if reason.is_empty() => Ok(Pid::from_child(&child)),
        told => {
            // It ends by itself; without this it would stay as a zombie.
            drop(child.wait());
            told.map_err(cannot)?;
            Err(reason)
        }
    }
}

/// Becomes the program; returns only where that fails.
pub(super) fn execute() -> bool {
    // The supervisor cannot be told; it sees that the process ended.
    let Ok(reports) = fcntl_dupfd_cloexec(io::stdin(), FIRST_OTHER) else {
        return false;
    };
    if let Err(reason) = try_execute() {
        drop(File::from(reports).write_all(reason.as_bytes()));
    }
    false
}

fn try_execute() -> Result<(), String> {
    let (document, [Some(input), None, None]) = receive()? else {
        return Err("the supervisor sent no standard input".to_owned());
    };
    dup2_stdin(&input).map_err(|error| format!("cannot connect standard input: {error}"))?;
    drop(input);
    if document.is_terminal {
        setsid()
            .and_then(|_| ioctl_tiocsctty(io::stdin()))
            .map_err(|error| format!("cannot take the terminal: {error}"))?;
    }
    privileges::drop_all()?;
    let directory = Path::new(&document.directory);
    mounts::open_directory(directory)
        .and_then(fchdir)
        .map_err(|error| format!("cannot enter {}: {error}", directory.display()))?;
    CloseFdsBuilder::new().cloexecfrom(FIRST_OTHER);
    if let Confinement::Sandboxed(plan) = &document.confinement {
        landlock::restrict(plan)?;
        // Last, because the steps before use calls that it refuses.
        seccomp::restrict(plan)?;
    }
    let error = Command::new(&document.program)
        .arg0(&document.name)
        .args(&document.args)
        .env_clear()
        .envs(document.env)
        .exec();
    Err(format!("{}: {error}", document.program.to_string_lossy()))
}
