//! A PID namespace, with the rights we have or those of a user namespace.

use std::fs;

use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Signal, getegid, geteuid, set_parent_process_death_signal};

/// Whether the next child is the first process of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Namespace {
    Entered,
    Refused,
}

impl Namespace {
    /// Arranges for it. With a mount namespace, for the processes in it to have a `/proc` of theirs.
    ///
    /// # Errors
    /// Fails where the way back is cut off, too.
    pub(super) fn enter() -> Result<Self, String> {
        let flags = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
        if unshare(flags).is_ok() {
            return Ok(Self::Entered);
        }
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        if unshare(flags | CloneFlags::CLONE_NEWUSER).is_err() {
            return Ok(Self::Refused);
        }
        // Everybody is who they were: only the rights to make namespaces were wanted.
        let identity = |file: &str, line: String| {
            fs::write(file, line).map_err(|error| format!("cannot write {file}: {error}"))
        };
        identity("/proc/self/setgroups", "deny".to_owned())?;
        identity("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        identity("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
        Ok(Self::Entered)
    }
}

/// As first process of the namespace: end with the launcher, and show only our own processes.
pub(super) fn settle() -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("cannot bind to the launcher: {error}"))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // Some containers forbid it. The namespace holds all the same; only `/proc` shows other ids.
    let _ = mount_change("/", private).and_then(|()| mount("proc", "/proc", "proc", flags, None));
    Ok(())
}
