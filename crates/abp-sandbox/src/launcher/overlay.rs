//! Overlays: a directory that shows layers of others, of which only the top one is written.
//!
//! The layers are opened without following links, and the kernel is given the descriptors by their names in
//! `/proc`, so that a path that changes meanwhile leads nowhere else. The marks of the kernel are in
//! attributes of the user (`userxattr`), which a namespace without rights can write and the host can read;
//! redirects and copies of metadata alone are off in that mode, so every changed file is whole in the
//! top layer.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, mkdirat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};

use super::trees::{attach, new_file_system, open_path};
use crate::plan::Overlay;

/// The directories of an overlay, open.
pub(super) struct OpenLayers {
    lower: Vec<OwnedFd>,
    upper: OwnedFd,
    work: OwnedFd,
}

impl OpenLayers {
    /// Opens the directories of an overlay.
    pub(super) fn open(overlay: &Overlay) -> Result<Self, String> {
        let open = |path: &Path| {
            open_path(CWD, path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let lower = overlay.lower.iter().map(|path| open(path));
        Ok(Self {
            lower: lower.collect::<Result<_, _>>()?,
            upper: open(&overlay.upper)?,
            work: open(&overlay.work)?,
        })
    }

    /// Makes the overlay, not attached.
    pub(super) fn mount(&self) -> Result<OwnedFd, String> {
        let lower: Vec<String> = self.lower.iter().map(name).collect();
        let options = [
            ("lowerdir", lower.join(":")),
            ("upperdir", name(&self.upper)),
            ("workdir", name(&self.work)),
        ];
        let made = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).and_then(|context| {
            for (option, value) in &options {
                fsconfig_set_string(&context, *option, value)?;
            }
            fsconfig_set_flag(&context, "userxattr")?;
            fsconfig_create(&context)?;
            let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        });
        made.map_err(|error: Errno| error.to_string())
    }
}

/// Tries an overlay of directories in memory, in a mount namespace of its own.
pub(super) fn probe() -> Result<(), String> {
    let cannot = |error: Errno| format!("no overlay can be tried: {error}");
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let memory = new_file_system("tmpfs", &[], attributes).map_err(cannot)?;
    let base = open_path(CWD, Path::new("/usr")).map_err(cannot)?;
    attach(&memory, &base).map_err(cannot)?;
    let make = |name: &str| {
        mkdirat(&memory, name, Mode::RWXU)?;
        open_path(&memory, Path::new(name))
    };
    let made = make("lower").and_then(|lower| Ok((lower, make("upper")?, make("work")?)));
    let (lower, upper, work) = made.map_err(cannot)?;
    let layers = OpenLayers {
        lower: vec![lower],
        upper,
        work,
    };
    let refused = |reason| format!("no overlay can be mounted: {reason}");
    layers.mount().map(drop).map_err(refused)
}

/// The name of a descriptor that the kernel opens again.
fn name(descriptor: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}
