//! The plan of a sandbox: everything its program will see and may do, as data.
//!
//! A plan is computed from a request and from what the machine has ([`SystemLayout`]), without touching
//! either, so it can be printed and tested without a kernel. The launcher carries it out completely or
//! does not start the program: a layer that is part of a plan is never left out silently.
//!
//! ```text
//! request   workspace /stages/7/tree, protected .github, network closed
//! system    /usr, /bin -> usr/bin, home /users/ann with .cargo/bin
//! plan      /                     empty, read-only
//!           /usr                  read-only
//!           /users/ann             private, empty
//!           /users/ann/.cargo/bin  read-only
//!           /stages/7/tree        writable
//!           /stages/7/tree/.github  read-only
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::kernel::KernelFeatures;
use crate::system::SystemLayout;
use crate::wire;

/// The port of the proxy in a network namespace, where every port is free.
pub const PROXY_PORT: u16 = 3128;
/// The path of a workspace, and that of a home, where they are the same for every program.
const USUAL_WORKSPACE: &str = "/workspace";
const USUAL_HOME: &str = "/agent";
/// The default size of each private directory in memory, in bytes.
const DEFAULT_SCRATCH: u64 = 1 << 30;
/// What Landlock and seccomp alone do not hold; the tests try each.
const LANDLOCK_GAPS: [&str; 6] = [
    "protected and hidden paths of the workspace can be read and written",
    "attributes of every file of the user: can be looked at, mode, owner and times can be changed",
    "names, arguments and states of the machine's processes can be listed, and the user's keys",
    "TCP ports that the kernel chooses can be listened on",
    "the port of the proxy, where there is one, can be connected to on every host",
    "the size of the directory for temporary files is not bounded",
];
/// Directories that hold the running system, or files of every program of it.
const MACHINES: [&str; 8] = [
    "/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/tmp", "/var/tmp",
];
/// The most mounts of a plan. The kernel takes more, but each of them costs time at every start.
const MAX_MOUNTS: usize = 1024;

/// A program's needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRequest {
    /// The mechanism wanted.
    pub engine: EngineChoice,
    /// The directory it works in and may write: absolute and without links.
    pub workspace: PathBuf,
    /// Files and directories of the workspace that it may read and not write: absolute, without links,
    /// and present.
    pub protected: Vec<PathBuf>,
    /// Files and directories of the workspace that it may not even see: absolute, without links, and
    /// present.
    pub concealed: Vec<PathBuf>,
    /// Files and directories elsewhere that it may read, such as its own installation: absolute and
    /// without links.
    pub read_only: Vec<PathBuf>,
    /// Directories at or in the workspace that show layers of others, writable at the top. Only the
    /// namespaces have them.
    pub overlays: Vec<Overlay>,
    /// Its way to the network.
    pub network: Network,
    /// The size of each private directory in memory, in bytes; `None` is one gibibyte.
    pub scratch_bytes: Option<u64>,
    /// An empty directory that stands in for `/tmp` and the home directory where there is no root of its
    /// own; without one, the program can write to its workspace only.
    pub scratch_dir: Option<PathBuf>,
    /// A directory of its own that is its home and stays when it ends: absolute, without links, and present.
    /// `None` is a home in memory that ends with it.
    pub home: Option<PathBuf>,
    /// Whether it sees its workspace and its home at paths that are the same for every program, where it has a
    /// root of its own.
    pub has_usual_paths: bool,
}

/// A directory that shows the files of several directories, of which only the top one is written.
///
/// The lower directories are never changed. All paths are absolute and without links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    /// The path in the sandbox: the workspace, or a directory in it.
    #[serde(with = "wire::path")]
    pub target: PathBuf,
    /// The read layers, the one that hides the others first.
    #[serde(with = "wire::paths")]
    pub lower: Vec<PathBuf>,
    /// The directory that takes every change.
    #[serde(with = "wire::path")]
    pub upper: PathBuf,
    /// An empty directory beside `upper`, for the kernel's own use.
    #[serde(with = "wire::path")]
    pub work: PathBuf,
}

/// The mechanism that is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineChoice {
    /// The strongest that the kernel offers.
    #[default]
    Auto,
    /// Namespaces with a root of their own.
    Namespaces,
    /// Landlock and seccomp alone.
    Landlock,
}

/// The mechanism of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// Namespaces with a root of their own; Landlock and seccomp on top of it.
    Namespaces,
    /// Landlock and seccomp alone, on the file system as it is.
    Landlock,
}

/// A program's way to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// No way out.
    Closed,
    /// Only through the host's proxy at this port of the loopback interface.
    Proxied(u16),
    /// The network of the machine.
    Open,
}

/// Everything a program will see and may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPlan {
    engine: Engine,
    /// By target, so that a directory comes before what lies beneath it.
    #[serde(with = "wire::mounts")]
    mounts: BTreeMap<PathBuf, MountKind>,
    #[serde(with = "wire::path")]
    workspace: PathBuf,
    /// The path at which the program sees its workspace.
    #[serde(with = "wire::path")]
    seen_at: PathBuf,
    network: Network,
    /// The version of Landlock's interface; `None` where the kernel has none.
    landlock: Option<u32>,
    environment: Vec<(OsString, OsString)>,
}

/// The content of a path in the new root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountKind {
    /// A file or directory of the machine, and everything mounted beneath it.
    ReadOnly(#[serde(with = "wire::path")] PathBuf),
    /// The same, writable.
    Writable(#[serde(with = "wire::path")] PathBuf),
    /// A private directory in memory of so many bytes.
    Temporary(u64),
    /// Layers of directories, of which the top one is written.
    Overlay(Overlay),
    /// An empty, read-only file or directory in place of the one of this path.
    Concealed(#[serde(with = "wire::path")] PathBuf),
    /// A small file.
    File(String),
    /// A symbolic link.
    Link(OsString),
    /// The harmless devices, terminals and shared memory.
    Devices,
    /// The processes of the sandbox.
    Processes,
}

/// Why no plan can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The kernel refuses what the engine needs.
    #[error("no sandbox of kind {engine} can be made: {reason}")]
    Unavailable {
        /// The engine.
        engine: &'static str,
        /// The kernel's refusal, and how to lift it.
        reason: String,
    },
    /// The workspace would lay open more than a workspace.
    #[error("{} cannot be the workspace of a sandbox: it {reason}", workspace.display())]
    Workspace {
        /// The workspace.
        workspace: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A path that must lie in the workspace does not.
    #[error("{} is not inside the workspace", path.display())]
    Outside {
        /// The path.
        path: PathBuf,
    },
    /// The machine cannot be looked at.
    #[error("cannot find out which sandbox can be made: {reason}")]
    Unknown {
        /// The reason.
        reason: String,
    },
    /// A path may lead somewhere else than it says.
    #[error("{} cannot be part of a sandbox: it is not an absolute path without `..`", path.display())]
    Unclear {
        /// The path.
        path: PathBuf,
    },
    /// The kernel makes no overlays for us.
    #[error("no overlay can be made: {reason}")]
    NoOverlay {
        /// The kernel's refusal.
        reason: String,
    },
    /// There are too many paths.
    #[error("{count} paths need mounts of their own, more than {MAX_MOUNTS}")]
    TooMany {
        /// Their number.
        count: usize,
    },
}

impl SandboxPlan {
    /// Plans a sandbox.
    ///
    /// # Errors
    /// Refuses an engine that the kernel does not offer, a workspace that holds the home directory or the
    /// system, and paths that are relative or have `..` in them.
    pub fn new(
        request: &SandboxRequest,
        system: &SystemLayout,
        kernel: &KernelFeatures,
    ) -> Result<Self, SandboxError> {
        let engine = kernel.choose(request.engine)?;
        check_paths(request)?;
        check_workspace(&request.workspace, system)?;
        let scratch = request.scratch_bytes.unwrap_or(DEFAULT_SCRATCH);
        let mut mounts = system_mounts(system);
        for target in ["/tmp", "/var/tmp"] {
            mounts.insert(target.into(), MountKind::Temporary(scratch));
        }
        if let Some(home) = &system.home {
            mounts.insert(home.clone(), MountKind::Temporary(scratch));
        }
        if let Some(home) = &request.home {
            let target = match usual_path(engine, request, USUAL_HOME) {
                Some(usual) => usual,
                None => home.clone(),
            };
            mounts.insert(target, MountKind::Writable(home.clone()));
        }
        let workspace = request.workspace.clone();
        let is_inside = |path: &&PathBuf| path.starts_with(&workspace) && **path != workspace;
        let lent = system.toolchains.iter().chain(&request.read_only);
        for path in lent.filter(|path| !is_inside(path)) {
            if !is_lent(&mounts, path) {
                mounts.insert(path.clone(), MountKind::ReadOnly(path.clone()));
            }
        }
        mounts.insert(workspace.clone(), MountKind::Writable(workspace.clone()));
        insert_overlays(&mut mounts, &workspace, &request.overlays, engine, kernel)?;
        // In the workspace, what is only lent has to be held like what is protected.
        let lent_inside = request.read_only.iter().filter(is_inside);
        let read_only = request.protected.iter().chain(lent_inside);
        let read_only = read_only.map(|path| (path, MountKind::ReadOnly(path.clone())));
        let concealed = request.concealed.iter();
        let concealed = concealed.map(|path| (path, MountKind::Concealed(path.clone())));
        // In this order: a path that is both is concealed.
        let held: BTreeMap<&PathBuf, MountKind> = read_only.chain(concealed).collect();
        for (path, kind) in held {
            insert_inside(&mut mounts, &workspace, path, kind)?;
        }
        if mounts.len() > MAX_MOUNTS {
            let count = mounts.len();
            return Err(SandboxError::TooMany { count });
        }
        let seen_at = usual_path(engine, request, USUAL_WORKSPACE);
        if let Some(seen_at) = &seen_at {
            mounts = moved(mounts, &workspace, seen_at);
        }
        let scratch_dir = request.scratch_dir.as_ref();
        if let Some(scratch) = scratch_dir.filter(|_| engine == Engine::Landlock) {
            mounts.insert(scratch.clone(), MountKind::Writable(scratch.clone()));
        }
        Ok(Self {
            engine,
            mounts,
            seen_at: seen_at.unwrap_or_else(|| workspace.clone()),
            workspace,
            network: request.network,
            landlock: kernel.landlock.as_ref().ok().copied(),
            environment: environment(engine, request, system),
        })
    }

    /// The variables that the program needs to find its way, and that win over others.
    #[must_use]
    pub fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment
    }

    /// The version of Landlock's interface that is applied; `None` where it is not.
    #[must_use]
    pub const fn landlock(&self) -> Option<u32> {
        self.landlock
    }

    /// The layers, all of which are in place before the program's first instruction.
    #[must_use]
    pub fn layers(&self) -> Vec<String> {
        let mut layers: Vec<String> = Vec::new();
        if self.engine == Engine::Namespaces {
            let namespaces = ["user", "mount", "pid", "ipc", "uts", "cgroup"];
            layers.extend(namespaces.map(|kind| format!("{kind} namespace")));
            if self.network != Network::Open {
                layers.push("network namespace".to_owned());
            }
        }
        layers.extend(
            self.landlock
                .map(|version| format!("landlock abi {version}")),
        );
        layers.extend(["seccomp", "no capabilities", "no_new_privs"].map(str::to_owned));
        layers
    }

    /// What the engine leaves to a program that tries; nothing but the plan's own mounts with namespaces.
    #[must_use]
    pub const fn gaps(&self) -> &'static [&'static str] {
        match self.engine {
            Engine::Namespaces => &[],
            Engine::Landlock => &LANDLOCK_GAPS,
        }
    }

    /// The mechanism.
    #[must_use]
    pub const fn engine(&self) -> Engine {
        self.engine
    }

    /// The paths of the new root with their content, directories before what lies beneath them.
    #[must_use]
    pub const fn mounts(&self) -> &BTreeMap<PathBuf, MountKind> {
        &self.mounts
    }

    /// The directory that the program may write.
    #[must_use]
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// The path at which the program sees a path of its workspace.
    #[must_use]
    pub fn inside(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.workspace) {
            // Joining nothing would add a slash.
            Ok(below) if below.as_os_str().is_empty() => self.seen_at.clone(),
            Ok(below) => self.seen_at.join(below),
            Err(_) => path.to_owned(),
        }
    }

    /// The program's way to the network.
    #[must_use]
    pub const fn network(&self) -> Network {
        self.network
    }

    /// Whether a path lies in a directory that is made of layers, so that only the sandbox has it.
    #[must_use]
    pub fn is_in_overlay(&self, path: &Path) -> bool {
        let is_overlay = |path: &Path| matches!(self.mounts.get(path), Some(MountKind::Overlay(_)));
        self.engine == Engine::Namespaces && path.ancestors().skip(1).any(is_overlay)
    }

    /// Whether a path of the workspace is held by a mount of its own.
    #[must_use]
    pub fn holds(&self, path: &Path) -> bool {
        let is_held =
            |kind: &MountKind| matches!(kind, MountKind::ReadOnly(_) | MountKind::Concealed(_));
        let path = self.inside(path);
        self.engine == Engine::Namespaces
            && path
                .ancestors()
                .take_while(|path| *path != self.seen_at)
                .any(|path| self.mounts.get(path).is_some_and(is_held))
    }
}

impl Engine {
    /// The name of the engine in configuration and receipts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Landlock => "landlock",
        }
    }
}

impl fmt::Display for SandboxPlan {
    /// One line for each path, then the network, then the gaps.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "engine   {}", self.engine.as_str())?;
        for (target, kind) in &self.mounts {
            let target = target.display();
            match kind {
                MountKind::ReadOnly(_) => writeln!(f, "read     {target}")?,
                MountKind::Writable(_) => writeln!(f, "write    {target}")?,
                MountKind::Overlay(overlay) => {
                    let lower = overlay.lower.iter().map(|path| path.to_string_lossy());
                    let lower = lower.collect::<Vec<_>>().join(", ");
                    writeln!(
                        f,
                        "overlay  {target} (changes in {}, over {lower})",
                        overlay.upper.display()
                    )?;
                }
                MountKind::Temporary(bytes) => {
                    writeln!(f, "private  {target} ({} MiB in memory)", bytes >> 20)?;
                }
                MountKind::Concealed(_) => writeln!(f, "hidden   {target}")?,
                MountKind::File(_) => writeln!(f, "made     {target}")?,
                MountKind::Link(to) => {
                    writeln!(f, "link     {target} -> {}", to.to_string_lossy())?;
                }
                MountKind::Devices => writeln!(f, "devices  {target}")?,
                MountKind::Processes => writeln!(f, "own      {target}")?,
            }
        }
        let network = match self.network {
            Network::Closed => "none",
            Network::Proxied(_) => "through the egress proxy",
            Network::Open => "as the machine",
        };
        writeln!(f, "network  {network}")?;
        let mut gaps = self.gaps().iter();
        gaps.try_for_each(|gap| writeln!(f, "open     {gap}"))
    }
}

fn environment(
    engine: Engine,
    request: &SandboxRequest,
    system: &SystemLayout,
) -> Vec<(OsString, OsString)> {
    let mut variables: Vec<(OsString, OsString)> = Vec::new();
    let mut set = |name: &str, value: OsString| variables.push((name.into(), value));
    let (usual_home, temporary) = match (engine, &request.scratch_dir) {
        (Engine::Landlock, Some(scratch)) => (Some(scratch), scratch.into()),
        (Engine::Namespaces, _) | (Engine::Landlock, None) => {
            (system.home.as_ref(), OsString::from("/tmp"))
        }
    };
    let own_home = request.home.as_ref().map(|home| {
        let usual = usual_path(engine, request, USUAL_HOME);
        usual.unwrap_or_else(|| home.clone())
    });
    if let Some(home) = own_home.as_ref().or(usual_home) {
        set("HOME", home.into());
    }
    set("TMPDIR", temporary);
    if let Network::Proxied(port) = request.network {
        let proxy = format!("http://127.0.0.1:{port}");
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
            set(name, proxy.clone().into());
        }
        for name in ["NO_PROXY", "no_proxy"] {
            set(name, "127.0.0.1,localhost".into());
        }
        // Node looks at the variables above only when told to.
        set("NODE_USE_ENV_PROXY", "1".into());
    }
    variables
}

/// A path that is the same for every program, where the program has a root of its own and is to see it.
fn usual_path(engine: Engine, request: &SandboxRequest, usual: &str) -> Option<PathBuf> {
    match engine {
        Engine::Namespaces if request.has_usual_paths => Some(usual.into()),
        Engine::Namespaces | Engine::Landlock => None,
    }
}

/// The mounts with everything at and beneath one path at another.
fn moved(
    mounts: BTreeMap<PathBuf, MountKind>,
    from: &Path,
    to: &Path,
) -> BTreeMap<PathBuf, MountKind> {
    let target = |path: PathBuf| match path.strip_prefix(from) {
        Ok(below) if below.as_os_str().is_empty() => to.to_owned(),
        Ok(below) => to.join(below),
        Err(_) => path,
    };
    let mounts = mounts.into_iter();
    mounts.map(|(path, kind)| (target(path), kind)).collect()
}

/// The operating system without the machine's own secrets and configuration.
fn system_mounts(system: &SystemLayout) -> BTreeMap<PathBuf, MountKind> {
    let mut mounts = BTreeMap::from([
        (PathBuf::from("/dev"), MountKind::Devices),
        (PathBuf::from("/proc"), MountKind::Processes),
    ]);
    for (link, target) in &system.links {
        mounts.insert(link.clone(), MountKind::Link(target.clone()));
    }
    for path in &system.directories {
        mounts.insert(path.clone(), MountKind::ReadOnly(path.clone()));
    }
    for (path, content) in system.configuration() {
        mounts.insert(path.into(), MountKind::File(content));
    }
    mounts
}

/// Whether a path can be read already. A private directory hides what the machine has beneath it.
fn is_lent(mounts: &BTreeMap<PathBuf, MountKind>, path: &Path) -> bool {
    let nearest = path.ancestors().find_map(|path| mounts.get(path));
    matches!(nearest, Some(MountKind::ReadOnly(_)))
}

fn check_workspace(workspace: &Path, system: &SystemLayout) -> Result<(), SandboxError> {
    let refuse = |reason| {
        Err(SandboxError::Workspace {
            workspace: workspace.to_owned(),
            reason,
        })
    };
    if workspace.parent().is_none() {
        return refuse("is the root of the file system");
    }
    let home = system.home.as_deref();
    if home.is_some_and(|home| home.starts_with(workspace)) {
        return refuse("holds the home directory, with its keys and credentials");
    }
    let is_system = |path: &PathBuf| workspace.starts_with(path) || path.starts_with(workspace);
    if system.directories.iter().any(is_system) {
        return refuse("is part of the system");
    }
    for path in MACHINES.map(Path::new) {
        // Stages may lie among temporary files, each in a directory of its own.
        let is_temporary = path.ends_with("tmp");
        if path.starts_with(workspace) || (workspace.starts_with(path) && !is_temporary) {
            return refuse("is part of the system");
        }
    }
    Ok(())
}

fn insert_overlays(
    mounts: &mut BTreeMap<PathBuf, MountKind>,
    workspace: &Path,
    overlays: &[Overlay],
    engine: Engine,
    kernel: &KernelFeatures,
) -> Result<(), SandboxError> {
    if overlays.is_empty() {
        return Ok(());
    }
    let available = match engine {
        Engine::Namespaces => kernel.overlay.clone(),
        Engine::Landlock => Err("Landlock alone makes no mounts".to_owned()),
    };
    available.map_err(|reason| SandboxError::NoOverlay { reason })?;
    let mut overlays: Vec<&Overlay> = overlays.iter().collect();
    overlays.sort_by(|left, right| left.target.cmp(&right.target));
    for overlay in overlays {
        let kind = MountKind::Overlay(overlay.clone());
        if overlay.target == workspace {
            mounts.insert(workspace.to_owned(), kind);
        } else {
            insert_inside(mounts, workspace, &overlay.target, kind)?;
        }
    }
    Ok(())
}

fn check_paths(request: &SandboxRequest) -> Result<(), SandboxError> {
    let single = [
        Some(&request.workspace),
        request.scratch_dir.as_ref(),
        request.home.as_ref(),
    ];
    let lists = [&request.protected, &request.concealed, &request.read_only];
    let layered = request.overlays.iter().flat_map(|overlay| {
        let own = [&overlay.target, &overlay.upper, &overlay.work];
        own.into_iter().chain(&overlay.lower)
    });
    let mut paths = single
        .into_iter()
        .flatten()
        .chain(lists.into_iter().flatten())
        .chain(layered);
    let is_clear = |path: &Path| {
        let mut components = path.components();
        path.is_absolute() && !components.any(|part| part == Component::ParentDir)
    };
    match paths.find(|path| !is_clear(path)) {
        Some(path) => Err(SandboxError::Unclear { path: path.clone() }),
        None => Ok(()),
    }
}

/// Gives a path of the workspace a mount of its own, and every directory between the two as well: a mount
/// point cannot be renamed, but the directory around it could, and with it the protected path would move
/// away and another one could take its name.
///
/// Paths come in the order of their names, so a directory that is held comes before what lies in it. There,
/// nothing can be renamed and a writable mount would be a hole; in a concealed one nothing may appear.
fn insert_inside(
    mounts: &mut BTreeMap<PathBuf, MountKind>,
    workspace: &Path,
    path: &Path,
    kind: MountKind,
) -> Result<(), SandboxError> {
    let outside = || SandboxError::Outside {
        path: path.to_owned(),
    };
    let inside = path.strip_prefix(workspace).map_err(|_| outside())?;
    if inside.as_os_str().is_empty() {
        return Err(outside());
    }
    let between = path
        .ancestors()
        .skip(1)
        .take_while(|ancestor| *ancestor != workspace);
    let holder = between
        .clone()
        .filter_map(|ancestor| mounts.get(ancestor))
        .find(|kind| matches!(kind, MountKind::ReadOnly(_) | MountKind::Concealed(_)));
    let is_concealed = matches!(kind, MountKind::Concealed(_));
    match holder {
        Some(MountKind::ReadOnly(_)) if is_concealed => {}
        Some(_) => return Ok(()),
        None => {
            for ancestor in between {
                let pinned = MountKind::Writable(ancestor.to_owned());
                mounts.entry(ancestor.to_owned()).or_insert(pinned);
            }
        }
    }
    mounts.insert(path.to_owned(), kind);
    Ok(())
}

#[cfg(test)]
mod tests;
