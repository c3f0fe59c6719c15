//! Namespaces, with the rights we have or those of a user namespace.

use std::fs;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;

use nix::sched::{CloneFlags, unshare};
use rustix::process::{getegid, geteuid};

use super::protocol::{Notice, Order};
use super::{privileges, reaper};
use crate::plan::{Network, SandboxPlan};

/// Every user and group id there is.
const ALL_IDS: &str = "0 0 4294967295";

/// Whether the next child is the first process of a PID namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Namespace {
    Entered,
    Refused,
}

impl Namespace {
    /// Arranges for a PID namespace alone. The mount namespace is made by the first process itself, so
    /// that the launcher keeps its view of the machine (it removes control groups at the end).
    ///
    /// # Errors
    /// Fails where the way back is cut off, too.
    pub(super) fn enter() -> Result<Self, String> {
        let flags = CloneFlags::CLONE_NEWPID;
        if unshare(flags).is_ok() {
            return Ok(Self::Entered);
        }
        let (uid, gid) = own_ids();
        if unshare(flags | CloneFlags::CLONE_NEWUSER).is_err() {
            return Ok(Self::Refused);
        }
        map_own_ids(uid, gid)?;
        privileges::keep_over_exec()?;
        Ok(Self::Entered)
    }
}

/// Enters every namespace of a plan but the mount namespace. The user namespace is new even for user id 0,
/// whose rights outside it end here.
///
/// # Errors
/// Says what the kernel refused.
pub(super) fn enter_all(plan: &SandboxPlan) -> Result<(), String> {
    let (uid, gid) = own_ids();
    unshare(flags(plan.network()))
        .map_err(|error| format!("no namespaces can be made: {error}"))?;
    if uid == 0 {
        // Only a process outside the namespace may map more than one id.
        ask_host_to_map()?;
    } else {
        map_own_ids(uid, gid)?;
    }
    privileges::keep_over_exec()
}

/// Tries every namespace on this process, which has to end afterwards.
///
/// # Errors
/// Says what the kernel refused, and what lifts it.
pub(super) fn probe() -> Result<(), String> {
    let (uid, gid) = own_ids();
    unshare(flags(Network::Closed)).map_err(|error| {
        format!(
            "no user namespace can be made ({error}); {}",
            how_to_allow()
        )
    })?;
    map_own_ids(uid, gid)?;
    privileges::keep_over_exec()
}

fn flags(network: Network) -> CloneFlags {
    let flags = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    match network {
        Network::Closed | Network::Proxied(_) => flags | CloneFlags::CLONE_NEWNET,
        Network::Open => flags,
    }
}

/// The switch that refuses user namespaces, as far as it can be seen.
fn how_to_allow() -> &'static str {
    let is = |path: &str, value: &str| {
        fs::read_to_string(path).is_ok_and(|content| content.trim() == value)
    };
    if is(
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
    ) {
        return "AppArmor restricts them: install the profile that `abp doctor --apparmor-profile` prints";
    }
    if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        return "allow them with `sysctl kernel.unprivileged_userns_clone=1`";
    }
    if is("/proc/sys/user/max_user_namespaces", "0") {
        return "allow them with `sysctl user.max_user_namespaces=15000`";
    }
    "a container may need to allow the calls unshare and mount"
}

fn own_ids() -> (u32, u32) {
    (geteuid().as_raw(), getegid().as_raw())
}

/// Every id stays the same: only the rights to make namespaces are needed.
fn map_own_ids(uid: u32, gid: u32) -> Result<(), String> {
    let write = |file: &str, line: String| {
        fs::write(file, line).map_err(|error| format!("cannot write {file}: {error}"))
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Maps every id for a process in a new user namespace, as the host.
pub(crate) fn map_all_ids(pid: i32) -> io::Result<()> {
    for file in ["uid_map", "gid_map"] {
        let mut map = fs::OpenOptions::new()
            .write(true)
            .open(format!("/proc/{pid}/{file}"))?;
        map.write_all(ALL_IDS.as_bytes())?;
    }
    Ok(())
}

fn ask_host_to_map() -> Result<(), String> {
    let host = io::stdin();
    let lost = |error: io::Error| format!("lost the host: {error}");
    Notice::Unmapped.send(&host).map_err(lost)?;
    match reaper::next_order(host.as_fd()).map_err(lost)? {
        Order::Mapped => Ok(()),
        Order::Terminate | Order::Kill => Err("the host ended the start".to_owned()),
    }
}
