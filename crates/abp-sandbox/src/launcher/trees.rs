//! Calls on mounts that the launcher's roles share: opening, cloning and attaching trees by descriptor.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount,
    open_tree,
};

/// Devices that lead to nothing of the machine.
pub(super) const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
pub(super) const DEVICE_LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];
/// Files of `/proc` that change the whole machine; user id 0 may write them without any capability.
pub(super) const MACHINE_WIDE: [&str; 10] = [
    "proc/sys",
    "proc/sysrq-trigger",
    "proc/irq",
    "proc/bus",
    "proc/fs",
    "proc/acpi",
    "proc/dynamic_debug",
    "proc/latency_stats",
    "proc/mtrr",
    "proc/scsi",
];

/// Makes a mount namespace of its own, whose mounts do not follow those of the machine.
pub(super) fn separate() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNS)
        .map_err(|error| format!("no mount namespace can be made: {error}"))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(failed("cannot separate the mounts"))
}

/// A file system of its own, not attached.
pub(super) fn new_file_system(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (option, value) in options {
        fsconfig_set_string(&context, *option, *value)?;
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// A copy of the mounts at and beneath something open, not attached.
pub(super) fn clone_open(opened: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    open_tree(opened, "", flags)
}

/// Attaches a tree to a directory or file that is open.
pub(super) fn attach(tree: &OwnedFd, point: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", point, "", flags)
}

/// Opens a path in which nothing is a link.
pub(super) fn open_path(directory: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    // With `NOFOLLOW`, a link at the end of the path would be opened itself instead of being refused.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(directory, path, flags, Mode::empty(), resolve)
}

/// Says what failed, and why.
pub(super) fn failed(what: &str) -> impl Fn(Errno) -> String {
    move |error| format!("{what}: {error}")
}
