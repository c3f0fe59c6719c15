//! Limits on what a sidecar and everything it starts may use together, by control groups.
//!
//! The launcher moves itself into groups of its own before it starts anything, and out of them when
//! everything ended. Both versions of control groups are tried, whichever has the controller.

use std::fs;
use std::path::{Path, PathBuf};

use crate::ResourceLimits;

/// Where control groups are mounted.
const ROOT: &str = "/sys/fs/cgroup";

/// The groups that were made; they are removed with this.
#[derive(Debug)]
pub(super) struct Groups(Vec<Group>);

#[derive(Debug)]
struct Group {
    parent: PathBuf,
    own: PathBuf,
}

/// A controller: its name, its file, and what that file is called in version 1.
struct Controller {
    name: &'static str,
    file: &'static str,
    old_file: &'static str,
}

const PIDS: Controller = Controller {
    name: "pids",
    file: "pids.max",
    old_file: "pids.max",
};
const MEMORY: Controller = Controller {
    name: "memory",
    file: "memory.max",
    old_file: "memory.limit_in_bytes",
};

impl Groups {
    /// Applies the limits to this process and everything it will start.
    ///
    /// # Errors
    /// Fails where a limit cannot be had: it was asked for, so it is not passed over.
    pub(super) fn apply(limits: ResourceLimits) -> Result<Self, String> {
        let mut groups = Self(Vec::new());
        let wanted = [(PIDS, limits.processes), (MEMORY, limits.memory_bytes)];
        for (controller, limit) in wanted {
            if let Some(limit) = limit {
                let group = controller.limit(limit).ok_or_else(|| {
                    format!(
                        "the limit on {} cannot be set: no control group can be made",
                        controller.name
                    )
                })?;
                groups.0.push(group);
            }
        }
        Ok(groups)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for Group { parent, own } in &self.0 {
            // A group that stays is empty and limits nobody.
            drop(join(parent).and_then(|()| fs::remove_dir(own)));
        }
    }
}

impl Controller {
    fn limit(&self, limit: u64) -> Option<Group> {
        let places = [
            (self.old_parent(), self.old_file),
            (self.parent("unified"), self.file),
            (self.parent(""), self.file),
        ];
        places
            .into_iter()
            .find_map(|(parent, file)| make(parent?, file, limit))
    }

    /// Version 1: one hierarchy for each controller, named in `N:controllers:path`.
    fn old_parent(&self) -> Option<PathBuf> {
        let path = own_path(|controllers| controllers.split(',').any(|name| name == self.name))?;
        Some(Path::new(ROOT).join(self.name).join(path))
    }

    /// Version 2: one hierarchy, `0::path`.
    fn parent(&self, mount: &str) -> Option<PathBuf> {
        Some(Path::new(ROOT).join(mount).join(own_path(str::is_empty)?))
    }
}

fn own_path(is_ours: impl Fn(&str) -> bool) -> Option<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        is_ours(controllers).then(|| path.trim_start_matches('/').to_owned())
    })
}

fn make(parent: PathBuf, file: &str, limit: u64) -> Option<Group> {
    let own = parent.join(format!("abp-{}", std::process::id()));
    fs::create_dir(&own).ok()?;
    let limited = own.join(file);
    let entered =
        limited.is_file() && fs::write(&limited, limit.to_string()).is_ok() && join(&own).is_ok();
    if !entered {
        // It may not be removable either; it is empty.
        drop(fs::remove_dir(&own));
        return None;
    }
    Some(Group { parent, own })
}

fn join(group: &Path) -> std::io::Result<()> {
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())
}
