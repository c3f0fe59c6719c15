//! A PID namespace, with the rights we have or those of a user namespace.

use std::fs;

use nix::sched::{CloneFlags, unshare};
use rustix::process::{getegid, geteuid};

use super::privileges;

/// Whether the next child is the first process of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Namespace {
    Entered,
    Refused,
}

impl Namespace {
    /// Arranges for it. The mount namespace is made by the first process itself, so that the
    /// launcher keeps its view of the machine (it removes control groups at the end).
    ///
    /// # Errors
    /// Fails where the way back is cut off, too.
    pub(super) fn enter() -> Result<Self, String> {
        let flags = CloneFlags::CLONE_NEWPID;
        if unshare(flags).is_ok() {
            return Ok(Self::Entered);
        }
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        if unshare(flags | CloneFlags::CLONE_NEWUSER).is_err() {
            return Ok(Self::Refused);
        }
        // Every id stays the same: only the rights to make namespaces are needed.
        let identity = |file: &str, line: String| {
            fs::write(file, line).map_err(|error| format!("cannot write {file}: {error}"))
        };
        identity("/proc/self/setgroups", "deny".to_owned())?;
        identity("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        identity("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
        privileges::keep_over_exec()?;
        Ok(Self::Entered)
    }
}
