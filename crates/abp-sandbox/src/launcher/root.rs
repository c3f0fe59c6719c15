//! The root of a sandbox: an empty file system in which only the mounts of the plan appear.
//!
//! 1. Every source of the plan is opened without following links and its mounts are cloned, by descriptor.
//!    Only the directories of overlays are opened alone, and what lies in an overlay is cloned in step 2,
//!    when the overlay is there.
//! 2. An empty file system is attached, the clones are moved to their places in it, and it becomes the
//!    root; the old one is taken away.
//! 3. Every mount that the plan does not make writable becomes read-only. A clone brings the mounts beneath
//!    it along, and those are writable whatever their parent is, so the list of all mounts is read, each is
//!    changed, and the list is read again: one that is still writable ends the start.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fchmod, mkdirat, openat, statat, symlinkat,
};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountFlags, UnmountFlags, mount_remount, unmount};
use rustix::process::{chdir, fchdir, pivot_root};

use super::overlay::OpenLayers;
use super::trees::{
    DEVICE_LINKS, DEVICES, MACHINE_WIDE, attach, clone_open, failed, new_file_system, open_path,
    separate,
};
use super::{LaunchFailure, mountinfo};
use crate::plan::{MountKind, SandboxPlan};

/// A directory of every Linux system, over which the new root lies until it is the root.
const BASE: &str = "/usr";
/// The size of the file system that holds links, mount points and made files.
const SKELETON_BYTES: &str = "4m";
/// Files of `/proc` that tell about the whole machine's memory and keys.
const TELLING: [&str; 4] = [
    "proc/kcore",
    "proc/keys",
    "proc/timer_list",
    "proc/kpagecount",
];

const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);
const FILE_MODE: Mode = Mode::from_raw_mode(0o644);

/// A clone that is not attached yet.
struct Clone {
    tree: OwnedFd,
    is_directory: bool,
}

/// Makes the root of the plan the root of this process, in a mount namespace of its own.
///
/// # Errors
/// Says which step failed; the process has to end then.
pub(super) fn enter(plan: &SandboxPlan) -> Result<(), LaunchFailure> {
    separate()?;
    let sources = clone_sources(plan)?;
    let layers = open_layers(plan)?;
    let devices = clone_devices()?;
    let skeleton = new_file_system(
        "tmpfs",
        &[("mode", "0755"), ("size", SKELETON_BYTES)],
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
    .map_err(failed("cannot make a root"))?;
    let base = open_path(CWD, Path::new(BASE)).map_err(failed(BASE))?;
    attach(&skeleton, &base).map_err(failed("cannot attach the root"))?;
    let root = Root { tree: skeleton };
    root.fill(plan, sources, &layers, devices)?;
    drop(layers);
    root.become_root()?;
    Ok(restrict_mounts(plan)?)
}

fn open_layers(plan: &SandboxPlan) -> Result<BTreeMap<PathBuf, OpenLayers>, LaunchFailure> {
    let overlays = plan
        .mounts()
        .iter()
        .filter_map(|(target, kind)| match kind {
            MountKind::Overlay(overlay) => Some((target.clone(), overlay)),
            _ => None,
        });
    let opened = overlays.map(|(target, overlay)| Ok((target, OpenLayers::open(overlay)?)));
    opened
        .collect::<Result<_, String>>()
        .map_err(LaunchFailure::NoOverlay)
}

/// Tries to make the parts of a root, as first process of a PID namespace.
pub(super) fn probe() -> Result<(), String> {
    separate()?;
    new_file_system("tmpfs", &[], nothing()).map_err(failed("no file system can be mounted"))?;
    new_file_system("proc", &[], nothing()).map_err(failed(
        "no /proc can be mounted, as in a container that hides parts of its own",
    ))?;
    Ok(())
}

fn clone_sources(plan: &SandboxPlan) -> Result<BTreeMap<PathBuf, Clone>, String> {
    let mut sources = BTreeMap::new();
    for (target, kind) in plan.mounts() {
        let source = match kind {
            MountKind::ReadOnly(source) | MountKind::Writable(source) => source,
            MountKind::Concealed(_)
            | MountKind::Overlay(_)
            | MountKind::Temporary(_)
            | MountKind::File(_)
            | MountKind::Link(_)
            | MountKind::Devices
            | MountKind::Processes => continue,
        };
        if plan.is_in_overlay(target) {
            continue;
        }
        let cloned = clone_tree(source);
        let cloned =
            cloned.map_err(|error| format!("cannot lend {}: {error}", source.display()))?;
        sources.insert(target.clone(), cloned);
    }
    Ok(sources)
}

fn clone_devices() -> Result<Vec<(&'static str, OwnedFd)>, String> {
    let mut devices = Vec::new();
    for name in DEVICES {
        match clone_tree(&Path::new("/dev").join(name)) {
            Ok(device) => devices.push((name, device.tree)),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(format!("cannot lend /dev/{name}: {error}")),
        }
    }
    Ok(devices)
}

/// The new root while it is filled.
struct Root {
    tree: OwnedFd,
}

impl Root {
    fn fill(
        &self,
        plan: &SandboxPlan,
        mut sources: BTreeMap<PathBuf, Clone>,
        layers: &BTreeMap<PathBuf, OpenLayers>,
        devices: Vec<(&'static str, OwnedFd)>,
    ) -> Result<(), LaunchFailure> {
        let mut devices = Some(devices);
        for (target, kind) in plan.mounts() {
            let path = target.strip_prefix("/").unwrap_or(target);
            let made = match kind {
                MountKind::ReadOnly(_) | MountKind::Writable(_) => match sources.remove(target) {
                    Some(source) => self.attach_clone(path, &source),
                    None => self.pin(path),
                },
                MountKind::Overlay(_) => match layers.get(target) {
                    Some(layers) => self.attach_overlay(path, layers)?,
                    None => Err(Errno::NOENT),
                },
                MountKind::Concealed(_) => self.conceal(path),
                MountKind::Temporary(bytes) => self.attach_temporary(path, *bytes),
                MountKind::File(content) => self.write_file(path, content),
                MountKind::Link(to) => self.make_link(path, to),
                MountKind::Devices => self.make_devices(devices.take().unwrap_or_default()),
                MountKind::Processes => self.mount_processes(path),
            };
            made.map_err(|error| format!("cannot make {}: {error}", target.display()))?;
        }
        Ok(())
    }

    /// Makes the directories of a relative path where they are missing, and opens the last.
    fn make_directories(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let mut current = open_path(&self.tree, Path::new("."))?;
        for name in path {
            match mkdirat(&current, name, DIRECTORY_MODE) {
                Ok(()) | Err(Errno::EXIST) => {}
                // A read-only mount of the plan has it or is no place for it.
                Err(Errno::ROFS | Errno::ACCESS) => {}
                Err(error) => return Err(error),
            }
            current = open_path(&current, Path::new(name))?;
        }
        Ok(current)
    }

    /// Opens the mount point for a file, which is made where it is missing.
    fn make_file(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let parent = self.make_directories(path.parent().unwrap_or(Path::new("")))?;
        let name = Path::new(path.file_name().ok_or(Errno::INVAL)?);
        match open_path(&parent, name) {
            Err(Errno::NOENT) => {}
            opened => return opened,
        }
        let create = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(&parent, name, create, FILE_MODE)?;
        open_path(&parent, name)
    }

    fn attach_clone(&self, path: &Path, source: &Clone) -> rustix::io::Result<()> {
        let point = if source.is_directory {
            self.make_directories(path)?
        } else {
            self.make_file(path)?
        };
        attach(&source.tree, &point)
    }

    /// Makes a path of an overlay a mount of its own.
    fn pin(&self, path: &Path) -> rustix::io::Result<()> {
        let point = open_path(&self.tree, path)?;
        attach(&clone_open(&point)?, &point)
    }

    fn attach_overlay(
        &self,
        path: &Path,
        layers: &OpenLayers,
    ) -> Result<rustix::io::Result<()>, LaunchFailure> {
        let point = match self.make_directories(path) {
            Ok(point) => point,
            Err(error) => return Ok(Err(error)),
        };
        let overlay = layers.mount().map_err(LaunchFailure::NoOverlay)?;
        Ok(attach(&overlay, &point))
    }

    /// Lays something empty over a path of the workspace.
    fn conceal(&self, path: &Path) -> rustix::io::Result<()> {
        let point = open_path(&self.tree, path)?;
        if is_directory(&point)? {
            let empty = new_file_system("tmpfs", &[("mode", "0555"), ("size", "4k")], nothing())?;
            return attach(&empty, &point);
        }
        let parent = self.make_directories(Path::new("etc"))?;
        let name = "abp-empty";
        let create = OFlags::CREATE | OFlags::RDONLY | OFlags::CLOEXEC;
        let empty = openat(&parent, name, create, Mode::from_raw_mode(0o444))?;
        attach(&clone_open(&empty)?, &point)
    }

    fn attach_temporary(&self, path: &Path, bytes: u64) -> rustix::io::Result<()> {
        let point = self.make_directories(path)?;
        // `/tmp` belongs to everybody, a home directory to its owner.
        let is_shared = path.file_name() == Some(OsStr::new("tmp"));
        let mode = if is_shared { "1777" } else { "0700" };
        let (nosuid, nodev) = (
            MountAttrFlags::MOUNT_ATTR_NOSUID,
            MountAttrFlags::MOUNT_ATTR_NODEV,
        );
        let size = bytes.to_string();
        let options = [("mode", mode), ("size", &*size)];
        attach(&new_file_system("tmpfs", &options, nosuid | nodev)?, &point)
    }

    fn write_file(&self, path: &Path, content: &str) -> rustix::io::Result<()> {
        let parent = self.make_directories(path.parent().unwrap_or(Path::new("")))?;
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let create = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&parent, name, create, FILE_MODE)?;
        fchmod(&file, FILE_MODE)?;
        let written = File::from(file).write_all(content.as_bytes());
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    fn make_link(&self, path: &Path, to: &OsStr) -> rustix::io::Result<()> {
        let parent = self.make_directories(path.parent().unwrap_or(Path::new("")))?;
        symlinkat(to, &parent, path.file_name().ok_or(Errno::INVAL)?)
    }

    fn make_devices(&self, devices: Vec<(&'static str, OwnedFd)>) -> rustix::io::Result<()> {
        let point = self.make_directories(Path::new("dev"))?;
        let nosuid_noexec = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let own = new_file_system("tmpfs", &[("mode", "0755"), ("size", "64k")], nosuid_noexec)?;
        attach(&own, &point)?;
        for (target, name) in DEVICE_LINKS {
            symlinkat(target, &own, name)?;
        }
        for (name, device) in devices {
            attach(&device, &self.make_file(&Path::new("dev").join(name))?)?;
        }
        let terminals = [("ptmxmode", "0666"), ("mode", "0620")];
        let terminals = new_file_system("devpts", &terminals, nosuid_noexec)?;
        attach(&terminals, &self.make_directories(Path::new("dev/pts"))?)?;
        let memory = new_file_system("tmpfs", &[("mode", "1777"), ("size", "256m")], nothing())?;
        attach(&memory, &self.make_directories(Path::new("dev/shm"))?)
    }

    fn mount_processes(&self, path: &Path) -> rustix::io::Result<()> {
        let point = self.make_directories(path)?;
        let own = new_file_system("proc", &[], nothing())?;
        attach(&own, &point)?;
        for path in MACHINE_WIDE {
            match open_path(&self.tree, Path::new(path)) {
                Err(Errno::NOENT) => {}
                point => {
                    let point = point?;
                    attach(&clone_open(&point)?, &point)?;
                }
            }
        }
        for path in TELLING {
            match open_path(&self.tree, Path::new(path)) {
                Err(Errno::NOENT) => {}
                point => {
                    let null = open_path(&self.tree, Path::new("dev/null"))?;
                    attach(&clone_open(&null)?, &point?)?;
                }
            }
        }
        Ok(())
    }

    fn become_root(self) -> Result<(), String> {
        let done = fchdir(&self.tree)
            .and_then(|()| pivot_root(".", "."))
            .and_then(|()| unmount(".", UnmountFlags::DETACH))
            .and_then(|()| chdir("/"));
        done.map_err(failed("cannot enter the root"))
    }
}

/// Makes every mount read-only but those of the plan that are writable, and checks it.
fn restrict_mounts(plan: &SandboxPlan) -> Result<(), String> {
    let list = || mountinfo::read().map_err(|error| format!("cannot list the mounts: {error}"));
    for mount in list()? {
        let mut flags = MountFlags::BIND | MountFlags::NOSUID;
        if !is_writable(plan, &mount.point) || mount.has_option("ro") {
            flags |= MountFlags::RDONLY;
        }
        // Devices are used through their mounts; nothing else has any.
        if !mount.point.starts_with("/dev") || mount.point == Path::new("/dev/shm") {
            flags |= MountFlags::NODEV;
        }
        if mount.has_option("noexec") {
            flags |= MountFlags::NOEXEC;
        }
        mount_remount(&mount.point, flags, "")
            .map_err(|error| format!("cannot restrict {}: {error}", mount.point.display()))?;
    }
    let mounts = list()?;
    let left = mounts
        .iter()
        .find(|mount| !is_writable(plan, &mount.point) && !mount.has_option("ro"));
    if let Some(mount) = left {
        return Err(format!("{} is still writable", mount.point.display()));
    }
    // The list leaves out a mount whose directory was moved away meanwhile, from outside. It was not
    // restricted, and could come back.
    let is_listed = |target: &Path| mounts.iter().any(|mount| mount.point == target);
    match mounted_targets(plan).find(|target| !is_listed(target)) {
        Some(target) => Err(format!("{} was moved away", target.display())),
        None => Ok(()),
    }
}

/// The paths of the plan that have mounts of their own.
fn mounted_targets(plan: &SandboxPlan) -> impl Iterator<Item = &Path> {
    let is_mounted = |kind: &MountKind| match kind {
        MountKind::ReadOnly(_)
        | MountKind::Writable(_)
        | MountKind::Overlay(_)
        | MountKind::Temporary(_)
        | MountKind::Concealed(_)
        | MountKind::Devices
        | MountKind::Processes => true,
        MountKind::File(_) | MountKind::Link(_) => false,
    };
    let mounts = plan.mounts().iter();
    mounts
        .filter(move |(_, kind)| is_mounted(kind))
        .map(|(target, _)| target.as_path())
}

/// Whether the nearest mount of the plan makes a mount point writable. Processes write their own files of
/// `/proc`; what concerns the machine there has mounts of its own.
fn is_writable(plan: &SandboxPlan, point: &Path) -> bool {
    if point.starts_with("/dev") {
        return point != Path::new("/dev");
    }
    if point == Path::new("/proc") {
        return true;
    }
    let nearest = point.ancestors().find_map(|path| plan.mounts().get(path));
    match nearest {
        Some(MountKind::Writable(_) | MountKind::Overlay(_) | MountKind::Temporary(_)) => true,
        Some(
            MountKind::ReadOnly(_)
            | MountKind::Concealed(_)
            | MountKind::File(_)
            | MountKind::Link(_)
            | MountKind::Devices
            | MountKind::Processes,
        )
        | None => false,
    }
}

fn nothing() -> MountAttrFlags {
    MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
}

/// A copy of the mounts at and beneath a path in which nothing is a link, not attached.
fn clone_tree(path: &Path) -> rustix::io::Result<Clone> {
    let opened = open_path(CWD, path)?;
    Ok(Clone {
        tree: clone_open(&opened)?,
        is_directory: is_directory(&opened)?,
    })
}

fn is_directory(opened: &OwnedFd) -> rustix::io::Result<bool> {
    let known = statat(opened, "", AtFlags::EMPTY_PATH)?;
    Ok(FileType::from_raw_mode(known.st_mode) == FileType::Directory)
}
