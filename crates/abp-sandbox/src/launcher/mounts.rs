//! The mount namespace of a sidecar: its own `/proc`, and the host's state out of sight.
//!
//! A hidden directory is covered by an empty read-only file system. The workspace may lie beneath
//! it, so a copy of the workspace's mount is taken first and attached again at the same path, on top
//! of the cover:
//!
//! ```text
//! /cache/abp/stages            an empty tmpfs, read-only
//! /cache/abp/stages/RUN/tree   the workspace, as it was
//! ```
//!
//! Every directory above a hidden one becomes a mount point, because a directory with a cover in it
//! can otherwise be renamed, and another state be put in its place for the host to find.
//!
//! Directories are opened without following links and mounts are attached to the descriptors, so
//! that a path that changes meanwhile cannot redirect them. The program has no capability in the
//! namespace and can take no mount away; in a namespace that it makes itself all of them are locked.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags, fstat, mkdirat, openat2,
    statx, symlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags,
    fsconfig_create, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
    mount, mount_bind, mount_remount, move_mount, open_tree,
};
use rustix::process::geteuid;

use super::mountinfo::{self, Alias};
use super::trees::{DEVICE_LINKS, DEVICES, MACHINE_WIDE, attach, clone_open, failed, separate};
use crate::Concealment;

/// A directory, whatever path leads to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

/// A path that leads to a hidden directory, or into one.
struct HiddenPlace {
    path: PathBuf,
    identity: Identity,
}

/// An empty file system that is not attached yet.
struct EmptyTree {
    context: OwnedFd,
    tree: OwnedFd,
}

/// Makes the mount namespace. Where that cannot be done, the program runs without it and the reason
/// is reported.
///
/// # Errors
/// Fails where the workspace cannot be reached afterwards.
pub(super) fn settle(hidden: &[PathBuf], workspace: &Path) -> Result<Concealment, String> {
    if let Err(problem) = enter() {
        return Ok(Concealment::Exposed(problem));
    }
    let lost = |error: Errno| format!("{}: {error}", workspace.display());
    let before = open_directory(workspace).and_then(identify).map_err(lost)?;
    let concealed = guard_machine().and_then(|()| cover_all(hidden, workspace));
    let after = open_directory(workspace).and_then(identify).map_err(lost)?;
    if before != after {
        return Err(format!(
            "{}: the workspace cannot be reached in the mount namespace",
            workspace.display()
        ));
    }
    Ok(match concealed {
        Ok(()) => Concealment::Concealed,
        Err(problem) => Concealment::Exposed(problem),
    })
}

fn enter() -> Result<(), String> {
    separate()?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(failed("cannot mount /proc"))
}

/// User id 0 owns the disks and the files that configure the kernel, and needs no capability to use
/// them: both lead past every mount. Other users have no access to them anyway.
fn guard_machine() -> Result<(), String> {
    if !geteuid().is_root() {
        return Ok(());
    }
    for path in MACHINE_WIDE {
        let path = format!("/{path}");
        match mount_bind(&*path, &*path) {
            Err(Errno::NOENT) => {}
            bound => {
                bound.map_err(failed(&path))?;
                make_read_only(Path::new(&path))?;
            }
        }
    }
    let mounts = mountinfo::read().map_err(|error| format!("cannot list the mounts: {error}"))?;
    for mount in mounts {
        if mount.point.starts_with("/sys") {
            make_read_only(&mount.point)?;
        }
    }
    replace_devices().map_err(failed("cannot make a /dev"))
}

fn make_read_only(path: &Path) -> Result<(), String> {
    let flags = MountFlags::BIND
        | MountFlags::RDONLY
        | MountFlags::NOSUID
        | MountFlags::NODEV
        | MountFlags::NOEXEC;
    mount_remount(path, flags, "")
        .map_err(|error| format!("cannot make {} read-only: {error}", path.display()))
}

fn replace_devices() -> rustix::io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let devices = DEVICES.map(|name| (name, open_tree(CWD, format!("/dev/{name}"), flags)));
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let own = EmptyTree::new(attributes)?;
    let everyone = Mode::from_raw_mode(0o755);
    for directory in ["pts", "shm"] {
        mkdirat(&own.tree, directory, everyone)?;
    }
    for (target, name) in DEVICE_LINKS {
        symlinkat(target, &own.tree, name)?;
    }
    let own_tree = own.attach(&open_directory(Path::new("/dev"))?)?;
    for (name, device) in devices {
        let device = match device {
            Err(Errno::NOENT) => continue,
            device => device?,
        };
        let create = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(&own_tree.tree, name, create, Mode::from_raw_mode(0o644))?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&device, "", &own_tree.tree, name, flags)?;
    }
    let (nosuid, nodev) = (MountFlags::NOSUID, MountFlags::NODEV);
    let terminals = c"newinstance,ptmxmode=0666,mode=0620";
    mount(
        "devpts",
        "/dev/pts",
        "devpts",
        nosuid | MountFlags::NOEXEC,
        terminals,
    )?;
    mount("tmpfs", "/dev/shm", "tmpfs", nosuid | nodev, c"mode=1777")?;
    own_tree.make_read_only()
}

fn cover_all(hidden: &[PathBuf], workspace: &Path) -> Result<(), String> {
    if hidden.is_empty() {
        return Ok(());
    }
    pin_ancestors(hidden)?;
    let places = find_places(hidden, workspace)?;
    // Taken before anything is covered.
    let mut tree = Some(clone_tree(workspace).map_err(failed("cannot keep the workspace"))?);
    for HiddenPlace { path, identity } in &places {
        let cannot = |error: Errno| format!("cannot hide {}: {error}", path.display());
        let directory = match open_directory(path) {
            // It lies beneath a directory that is covered by now.
            Err(Errno::NOENT) => continue,
            opened => opened.map_err(cannot)?,
        };
        if identify(&directory).map_err(cannot)? != *identity {
            continue;
        }
        let inner = workspace.strip_prefix(path).ok().filter(|_| tree.is_some());
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let cover = EmptyTree::new(attributes).map_err(cannot)?;
        let point = inner.map(|inner| cover.make_directories(inner));
        let point = point.transpose().map_err(cannot)?;
        let cover = cover.attach(&directory).map_err(cannot)?;
        if let (Some(point), Some(tree)) = (point, tree.take_if(|_| inner.is_some())) {
            attach(&tree, &point).map_err(failed("cannot bring back the workspace"))?;
        }
        cover.make_read_only().map_err(cannot)?;
    }
    places.iter().try_for_each(HiddenPlace::check_hidden)
}

/// Mounts every directory above the hidden ones on itself: a mount point can be neither renamed nor
/// removed.
fn pin_ancestors(hidden: &[PathBuf]) -> Result<(), String> {
    let ancestors = hidden.iter().flat_map(|path| path.ancestors().skip(1));
    // In the order of their names, a directory comes before those beneath it.
    let ancestors: BTreeSet<_> = ancestors.filter(|path| path.parent().is_some()).collect();
    for ancestor in ancestors {
        let pinned = is_mount_point(ancestor).and_then(|is_mount_point| {
            if is_mount_point {
                return Ok(());
            }
            attach(&clone_tree(ancestor)?, &open_directory(ancestor)?)
        });
        pinned.map_err(|error| format!("cannot pin {}: {error}", ancestor.display()))?;
    }
    Ok(())
}

fn is_mount_point(path: &Path) -> rustix::io::Result<bool> {
    let known = statx(
        open_directory(path)?,
        "",
        AtFlags::EMPTY_PATH,
        StatxFlags::empty(),
    )?;
    Ok(known.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Every path that leads to a hidden directory, outer directories first.
fn find_places(hidden: &[PathBuf], workspace: &Path) -> Result<Vec<HiddenPlace>, String> {
    let mounts = mountinfo::read().map_err(|error| format!("cannot list the mounts: {error}"))?;
    let mut places = Vec::new();
    for path in hidden {
        let cannot = |error: Errno| format!("cannot hide {}: {error}", path.display());
        let directory = open_directory(path).map_err(cannot)?;
        let identity = identify(&directory).map_err(cannot)?;
        if path == Path::new("/") || workspace == path {
            return Err(format!(
                "cannot hide {}: the workspace is in plain sight there",
                path.display()
            ));
        }
        let known = statx(&directory, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
        let mount_id = known.map_err(cannot)?.stx_mnt_id;
        for alias in mountinfo::aliases(&mounts, mount_id, path) {
            places.extend(HiddenPlace::of_alias(alias, identity, workspace));
        }
        let path = path.to_owned();
        places.push(HiddenPlace { path, identity });
    }
    places.sort_by_key(|place| place.path.components().count());
    Ok(places)
}

impl HiddenPlace {
    /// The place, unless another mount lies over it.
    fn of_alias(alias: Alias, hidden: Identity, workspace: &Path) -> Option<Self> {
        let (path, is_whole) = match alias {
            Alias::Whole(path) => (path, true),
            Alias::Part(path) => (path, false),
        };
        let identity = open_directory(&path).and_then(identify).ok()?;
        let leads_there = if is_whole {
            identity == hidden
        } else {
            identity.device == hidden.device && !path.starts_with(workspace)
        };
        leads_there.then_some(Self { path, identity })
    }

    fn check_hidden(&self) -> Result<(), String> {
        match open_directory(&self.path).and_then(identify) {
            Ok(identity) if identity == self.identity => {
                Err(format!("{} is still in sight", self.path.display()))
            }
            _ => Ok(()),
        }
    }
}

impl EmptyTree {
    fn new(attributes: MountAttrFlags) -> rustix::io::Result<Self> {
        let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (option, value) in [("mode", "0755"), ("size", "64k")] {
            fsconfig_set_string(&context, option, value)?;
        }
        fsconfig_create(&context)?;
        let tree = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        Ok(Self { context, tree })
    }

    /// Makes the directories of a relative path, and opens the last.
    fn make_directories(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let mut made = PathBuf::new();
        for name in path {
            made.push(name);
            mkdirat(&self.tree, &made, Mode::from_raw_mode(0o755))?;
        }
        open_beneath(&self.tree, path)
    }

    fn attach(self, directory: &OwnedFd) -> rustix::io::Result<Self> {
        attach(&self.tree, directory)?;
        Ok(self)
    }

    fn make_read_only(&self) -> rustix::io::Result<()> {
        fsconfig_set_flag(&self.context, "ro")?;
        fsconfig_reconfigure(&self.context)
    }
}

/// A copy of the mounts at and beneath a directory, not attached.
fn clone_tree(directory: &Path) -> rustix::io::Result<OwnedFd> {
    clone_open(&open_directory(directory)?)
}

/// Opens a directory by a path in which nothing is a link.
pub(super) fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    open_beneath(CWD, path)
}

fn open_beneath(directory: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(directory, path, flags, Mode::empty(), resolve)
}

fn identify(directory: impl AsFd) -> rustix::io::Result<Identity> {
    let known = fstat(directory)?;
    Ok(Identity {
        device: known.st_dev,
        inode: known.st_ino,
    })
}
