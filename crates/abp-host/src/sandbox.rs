//! From an operator's settings and a run's policy to the sandbox of its programs.

use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use abp_core::SandboxReport;
use abp_error::{AbpError, ErrorCode};
use abp_glob::GlobList;
use abp_policy::{Holder, Holders, PolicyEngine, PolicyList, Rule};
use abp_sandbox::{
    Engine, EngineChoice, Machine, Network, Overlay, SandboxError, SandboxPlan, SandboxRequest,
};
use tempfile::TempDir;

/// An operator's settings for sandboxes.
#[derive(Debug, Clone)]
pub struct SandboxSettings {
    /// The machine, looked at once for all sandboxes of the process.
    pub machine: Arc<Machine>,
    /// The mechanism.
    pub engine: EngineChoice,
    /// Files and directories that every sandbox may read, besides the system and toolchains.
    pub read_only: Vec<PathBuf>,
    /// The network of every sandbox.
    pub network: Network,
    /// The size of private directories in memory, in bytes.
    pub scratch_bytes: Option<u64>,
}

/// A program to confine, as the operator configured it.
#[derive(Debug, Clone, Copy)]
pub struct ConfinedProgram<'a> {
    /// The program: an absolute path or a bare name.
    pub command: &'a str,
    /// Its arguments; files named there belong to its installation.
    pub args: &'a [String],
    /// Its `PATH`.
    pub search_path: &'a OsStr,
    /// The directory it works in and may write.
    pub workspace: &'a Path,
    /// Directories of which nothing is lent but files that the command names.
    pub hidden: &'a [PathBuf],
    /// A home directory of its own that stays when it ends; `None` is one in memory. With one, it sees its home
    /// and its workspace at paths that are the same for every run, so that what it keeps of one run makes sense
    /// in another.
    pub home: Option<&'a Path>,
    /// The installation of the program, besides what its command and arguments name.
    pub installation: &'a [PathBuf],
    /// The overlays at or in the workspace.
    pub overlays: &'a [Overlay],
    /// Whether the workspace is the user's own directory, so that it has what `deny_read` matches.
    pub is_in_place: bool,
}

/// The most names of a workspace in place that are looked through for `deny_read` patterns.
const MAX_NAMES: usize = 200_000;
/// The most paths that are hidden one by one for the patterns of a policy.
const MAX_CONCEALED: usize = 512;

/// A sandbox that was planned for a run.
#[derive(Debug, Clone)]
pub struct RunSandbox {
    /// What its program will see and may do.
    pub plan: SandboxPlan,
    /// The rules that its mounts hold.
    pub mounted: Vec<Rule>,
    /// Stands in for `/tmp` and the home directory where there is no root of its own; gone with this.
    _scratch: Option<Arc<TempDir>>,
}

impl SandboxSettings {
    /// The mechanism that sandboxes will have.
    ///
    /// # Errors
    /// Fails where none can be had.
    pub fn engine(&self) -> Result<Engine, AbpError> {
        let kernel = self.machine.kernel().map_err(|error| refused(&error))?;
        kernel.choose(self.engine).map_err(|error| refused(&error))
    }

    /// Whether sandboxes can mount overlays.
    #[must_use]
    pub fn has_overlays(&self) -> bool {
        let kernel = self.machine.kernel();
        matches!(self.engine(), Ok(Engine::Namespaces))
            && kernel.is_ok_and(|kernel| kernel.overlay.is_ok())
    }

    /// The holders that a sandbox will bring, besides single mounts; none where no sandbox can be had, and
    /// runs are refused.
    #[must_use]
    pub fn expected_holders(&self) -> Holders {
        match self.engine() {
            Ok(engine) => holders(network(self.network, engine), engine),
            Err(_) => Holders::NONE,
        }
    }

    /// Plans the sandbox of a program under a policy.
    ///
    /// # Errors
    /// Fails where the sandbox cannot be had: the program must not be started without it.
    pub fn plan(
        &self,
        program: &ConfinedProgram<'_>,
        policy: &PolicyEngine,
    ) -> Result<RunSandbox, AbpError> {
        let workspace = program.workspace.canonicalize().map_err(|error| {
            let message = format!("cannot work in {}", program.workspace.display());
            AbpError::new(ErrorCode::ExecutionWorkspaceError, message)
                .with_source(error.to_string())
        })?;
        let system = self.machine.system().map_err(|error| refused(&error))?;
        let kernel = self.machine.kernel().map_err(|error| refused(&error))?;
        let engine = kernel
            .choose(self.engine)
            .map_err(|error| refused(&error))?;
        let scratch = match engine {
            Engine::Namespaces => None,
            Engine::Landlock => Some(make_scratch()?),
        };
        let mut request = SandboxRequest {
            engine: self.engine,
            read_only: self.lent(system, program, &workspace),
            workspace,
            protected: Vec::new(),
            concealed: Vec::new(),
            overlays: program.overlays.to_vec(),
            network: network(self.network, engine),
            scratch_bytes: self.scratch_bytes,
            scratch_dir: scratch.as_ref().map(|scratch| scratch.path().to_owned()),
            home: program.home.map(Path::to_owned),
            has_usual_paths: program.home.is_some(),
        };
        let mut named = protect(&mut request, policy);
        if program.is_in_place && engine == Engine::Namespaces {
            named.extend(conceal_matches(&mut request, policy));
        }
        let plan = self
            .machine
            .plan(&request)
            .map_err(|error| refused(&error))?;
        // Only the plan says what is mounted: Landlock, for example, cannot deny beneath a grant.
        let mut mounted: Vec<Rule> = Vec::new();
        for (rule, _) in named.iter().filter(|(_, path)| plan.holds(path)) {
            let is_held = |(other, path): &(Rule, PathBuf)| other != rule || plan.holds(path);
            if !mounted.contains(rule) && named.iter().all(is_held) {
                mounted.push(rule.clone());
            }
        }
        Ok(RunSandbox {
            plan,
            mounted,
            _scratch: scratch.map(Arc::new),
        })
    }

    /// The installation of the program and what the operator lends, without the host's own directories.
    fn lent(
        &self,
        system: &abp_sandbox::SystemLayout,
        program: &ConfinedProgram<'_>,
        workspace: &Path,
    ) -> Vec<PathBuf> {
        let named = std::iter::once(program.command)
            .chain(program.args.iter().map(String::as_str))
            .map(PathBuf::from)
            .filter(|path| path.is_absolute() && path.exists());
        let named: Vec<PathBuf> = named.collect();
        let resolved = |path: &PathBuf| path.canonicalize().ok();
        let own: Vec<PathBuf> = program.hidden.iter().filter_map(resolved).collect();
        let is_own = |path: &Path| {
            let mut own = own.iter();
            own.any(|own| own.starts_with(path) || path.starts_with(own))
        };
        let found = system.installations(program.search_path, &named);
        let found = found.into_iter().filter(|path| !is_own(path));
        // A file whose directory holds the host's own is lent by itself.
        let files = named
            .iter()
            .filter_map(resolved)
            .filter(|path| path.is_file());
        found
            .chain(files)
            .chain(self.read_only.iter().filter_map(resolved))
            .chain(program.installation.iter().filter_map(resolved))
            .filter(|path| !path.starts_with(workspace) && !workspace.starts_with(path))
            .collect()
    }
}

impl RunSandbox {
    /// The holders of the policy's rules that the sandbox brings, besides single mounts.
    #[must_use]
    pub fn holders(&self) -> Holders {
        holders(self.plan.network(), self.plan.engine())
    }

    /// The path at which the program sees a path of its workspace.
    #[must_use]
    pub fn inside(&self, path: &Path) -> PathBuf {
        match path.canonicalize() {
            Ok(path) => self.plan.inside(&path),
            Err(_) => self.plan.inside(path),
        }
    }

    /// The sandbox as a receipt tells it.
    #[must_use]
    pub fn report(&self) -> SandboxReport {
        let network = match self.plan.network() {
            Network::Closed => "closed",
            Network::Proxied(_) => "proxied",
            Network::Open => "open",
        };
        SandboxReport {
            engine: self.plan.engine().as_str().to_owned(),
            layers: self.plan.layers(),
            network: network.to_owned(),
        }
    }
}

fn holders(network: Network, engine: Engine) -> Holders {
    let network = match (network, engine) {
        (Network::Open, _) => Holder::NONE,
        (Network::Closed, Engine::Namespaces) => Holder::kernel("network namespace"),
        (Network::Proxied(_), Engine::Namespaces) => {
            Holder::kernel("network namespace and egress proxy")
        }
        // A filter that looks at numbers of ports and of calls, not a network without a way out.
        (Network::Closed | Network::Proxied(_), Engine::Landlock) => {
            Holder::host("landlock and seccomp")
        }
    };
    Holders {
        network,
        ..Holders::NONE
    }
}

/// Landlock grants a port on every host, so the proxy's would be a way to anybody who listens there: without a
/// network namespace nothing is reached.
fn network(wanted: Network, engine: Engine) -> Network {
    match (wanted, engine) {
        (Network::Proxied(_), Engine::Landlock) => Network::Closed,
        (wanted, Engine::Namespaces | Engine::Landlock) => wanted,
    }
}

fn make_scratch() -> Result<TempDir, AbpError> {
    tempfile::tempdir().map_err(|error| {
        let message = "cannot make a temporary directory for the sandbox";
        AbpError::new(ErrorCode::ExecutionWorkspaceError, message).with_source(error.to_string())
    })
}

/// Takes the paths that the policy names into the request, where they are there, and returns them with
/// their rules. A path with a link in it cannot be a mount point that stays.
fn protect(request: &mut SandboxRequest, policy: &PolicyEngine) -> Vec<(Rule, PathBuf)> {
    let mut named = Vec::new();
    for (rule, path) in policy.named_paths() {
        let path = request.workspace.join(path);
        if !is_there(request, &path) {
            continue;
        }
        let paths = match rule.list {
            PolicyList::DenyRead => &mut request.concealed,
            PolicyList::DenyWrite => &mut request.protected,
            PolicyList::AllowedTools
            | PolicyList::DisallowedTools
            | PolicyList::AllowNetwork
            | PolicyList::DenyNetwork
            | PolicyList::RequireApprovalFor => continue,
        };
        paths.push(path.clone());
        named.push((rule, path));
    }
    named
}

/// Takes everything into the request that a `deny_read` pattern with wildcards matches now. A pattern is held
/// only where something matches it, all of it can be hidden, and the whole workspace was looked through.
fn conceal_matches(request: &mut SandboxRequest, policy: &PolicyEngine) -> Vec<(Rule, PathBuf)> {
    let named: Vec<Rule> = policy
        .named_paths()
        .into_iter()
        .map(|(rule, _)| rule)
        .collect();
    let hidden = policy.unreadable_paths();
    let is_named = |index: usize| {
        let mut named = named.iter();
        named.any(|rule| rule.list == PolicyList::DenyRead && rule.index == index)
    };
    if hidden
        .patterns()
        .iter()
        .enumerate()
        .all(|(index, _)| is_named(index))
    {
        return Vec::new();
    }
    let Some(matched) = find_matches(&request.workspace, hidden) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (index, path) in matched {
        let Some(pattern) = hidden.patterns().get(index) else {
            continue;
        };
        let rule = Rule {
            list: PolicyList::DenyRead,
            pattern: pattern.clone(),
            index,
        };
        // A link cannot be a mount point; where it leads, the pattern may not match.
        let is_plain = path.canonicalize().ok().as_ref() == Some(&path);
        if is_plain {
            request.concealed.push(path.clone());
        }
        found.push((rule, path));
    }
    found
}

/// The paths of a workspace that patterns match, each with the first pattern; none where there are too many
/// names or matches, or a directory cannot be listed.
fn find_matches(workspace: &Path, hidden: &GlobList) -> Option<Vec<(usize, PathBuf)>> {
    let (mut found, mut names) = (Vec::new(), 0);
    let mut pending = vec![workspace.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).ok()? {
            let entry = entry.ok()?;
            names += 1;
            let path = entry.path();
            let relative = path.strip_prefix(workspace).ok()?;
            if let Some(matched) = hidden.first_match(relative) {
                found.push((matched.index, path));
            } else if entry.file_type().ok()?.is_dir() {
                pending.push(path);
            }
            if names > MAX_NAMES || found.len() > MAX_CONCEALED {
                return None;
            }
        }
    }
    Some(found)
}

/// An argument that names a path with `..` in it, as a path without: in a sandbox, directories on the way may be
/// absent. Everything else stays as it is.
#[must_use]
pub fn without_parent_components(argument: &str) -> String {
    let path = Path::new(argument);
    let has_parents = path.components().any(|part| part == Component::ParentDir);
    let resolved = (path.is_absolute() && has_parents).then(|| path.canonicalize().ok());
    let resolved = resolved
        .flatten()
        .and_then(|path| path.into_os_string().into_string().ok());
    resolved.unwrap_or_else(|| argument.to_owned())
}

/// Whether a path of the workspace is there when the program starts, with no link on the way to it.
fn is_there(request: &SandboxRequest, path: &Path) -> bool {
    let overlay = request.overlays.iter();
    let overlay = overlay
        .filter(|overlay| path.starts_with(&overlay.target))
        .max_by_key(|overlay| overlay.target.as_os_str().len());
    match overlay {
        None => path.canonicalize().ok().as_deref() == Some(path),
        Some(overlay) => is_in_layers(overlay, path),
    }
}

/// Nobody has written to the top layer yet but the host, and only what no rule names.
fn is_in_layers(overlay: &Overlay, path: &Path) -> bool {
    let Ok(relative) = path.strip_prefix(&overlay.target) else {
        return false;
    };
    let mut above: Vec<&Path> = relative.ancestors().collect();
    above.retain(|path| !path.as_os_str().is_empty());
    above.iter().rev().all(|path| {
        let found = overlay.lower.iter().find_map(|layer| {
            let known = fs::symlink_metadata(layer.join(path)).ok()?;
            Some(known.file_type())
        });
        // A character device stands for a name that is hidden.
        found.is_some_and(|kind| kind.is_dir() || kind.is_file())
    })
}

fn refused(error: &SandboxError) -> AbpError {
    AbpError::new(ErrorCode::SandboxUnavailable, error.to_string())
}
