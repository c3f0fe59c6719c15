//! Starting the sidecar, waiting for it, and ending whatever it leaves.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::sys::signal::{Signal as NixSignal, kill};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, pidfd_open, wait,
};
use rustix::stdio::{dup2_stderr, dup2_stdout};

use super::protocol::{Notice, Order};
use super::{LaunchDocument, stage};
use crate::procfs::descendants;
use crate::{Concealment, Containment, Exit};

/// How often orphans that ended are collected while the sidecar runs.
const COLLECT_EVERY: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
/// How long to wait between two looks at what is still to be ended.
const KILL_PAUSE: Duration = Duration::from_millis(2);

/// Runs the sidecar to its end. When this returns, nothing of it is left.
pub(super) fn supervise(
    containment: Containment,
    concealment: Concealment,
    document: &LaunchDocument,
    input: OwnedFd,
    host: BorrowedFd<'_>,
) -> Result<(), String> {
    let sidecar = stage::start(document, input)?;
    let_go_of_output()?;
    // A host that is gone closes the socket; that is seen below.
    drop(Notice::Started(containment, concealment).send(host));
    let exit = follow(sidecar, host).map_err(|error| error.to_string());
    let last = end_everything(containment, sidecar);
    let exit = exit?.unwrap_or(last);
    drop(Notice::Exited(exit).send(host));
    Ok(())
}

/// The host sees the end of the sidecar's output only when nobody else holds it open.
pub(super) fn let_go_of_output() -> Result<(), String> {
    let nowhere = OpenOptions::new()
        .write(true)
        .open("/dev/null")
        .map_err(|error| error.to_string())?;
    dup2_stdout(&nowhere).map_err(|error| error.to_string())?;
    dup2_stderr(&nowhere).map_err(|error| error.to_string())
}

/// Does what the host says until the sidecar ended, or everything is to end.
fn follow(sidecar: Pid, host: BorrowedFd<'_>) -> io::Result<Option<Exit>> {
    let process = pidfd_open(sidecar, PidfdFlags::empty())?;
    loop {
        let mut ready = [
            PollFd::from_borrowed_fd(host, PollFlags::IN),
            PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN),
        ];
        poll(&mut ready, Some(&COLLECT_EVERY))?;
        let [from_host, from_process] = ready.map(|ready| !ready.revents().is_empty());
        if let Some(exit) = collect(sidecar) {
            return Ok(Some(exit));
        }
        if from_host && !from_process {
            match next_order(host)? {
                // It may be ending just now.
                Order::Terminate => {
                    let _ = kill_process_group(sidecar, Signal::TERM);
                }
                Order::Kill => return Ok(None),
                // Only the launcher asks for it, before anything runs.
                Order::Mapped => {}
            }
        }
    }
}

pub(super) fn next_order(host: BorrowedFd<'_>) -> io::Result<Order> {
    let mut byte = [0];
    let read = rustix::io::read(host, &mut byte)?;
    Ok(if read == 0 {
        Order::Kill
    } else {
        Order::from_byte(byte[0])
    })
}

/// Collects every child that ended; says how the sidecar did, where it is among them.
fn collect(sidecar: Pid) -> Option<Exit> {
    let mut exit = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == sidecar {
            exit = Some(exit_of(status));
        }
    }
    exit
}

/// Ends whatever is left, and says how the sidecar ended, where it did only now.
fn end_everything(containment: Containment, sidecar: Pid) -> Exit {
    let mut exit = Exit::Unknown;
    loop {
        match containment {
            // To the first process of a namespace this means everybody else in it.
            Containment::PidNamespace => {
                // There may be nobody.
                let _ = kill(nix::unistd::Pid::from_raw(-1), NixSignal::SIGKILL);
            }
            Containment::Subreaper => {
                for process in descendants(getpid().as_raw_nonzero().get()) {
                    process.kill();
                }
            }
        }
        // Children of the dead become ours, until there is nobody left.
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == sidecar => exit = exit_of(status),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return exit,
            }
        }
        std::thread::sleep(KILL_PAUSE);
    }
}

fn exit_of(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unknown,
    }
}
