//! What the machine has that a sandbox lends: system directories, toolchains, the user.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{getegid, geteuid};

/// Directories of the root that hold the system's programs, and nothing of its users.
const SYSTEM: [&str; 8] = [
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/sbin",
    "/usr",
];
/// Configuration without secrets that programs cannot do without: certificates, the loader, time, terminals.
const CONFIGURATION: [&str; 14] = [
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/profile",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];
/// Toolchains in the home directory. Each is named as deep as needed to leave credentials out: `.cargo`
/// also has `credentials.toml`.
const TOOLCHAINS: [&str; 31] = [
    ".asdf",
    ".bun/bin",
    ".bun/install/cache",
    ".cache/uv",
    ".cache/pip",
    ".cargo/bin",
    ".cargo/git",
    ".cargo/registry/cache",
    ".cargo/registry/index",
    ".cargo/registry/src",
    ".deno/bin",
    ".fnm",
    ".goenv",
    ".juliaup",
    ".local/bin",
    ".local/lib",
    ".local/share/fnm",
    ".local/share/mise",
    ".local/share/pipx",
    ".local/share/pnpm",
    ".local/share/uv",
    ".npm-global",
    ".nvm",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".rvm",
    ".sdkman",
    ".volta",
    "go/bin",
    "go/pkg",
];

/// Directories of many owners.
const SHARED: [&str; 8] = [
    "/etc", "/home", "/opt", "/root", "/srv", "/tmp", "/var", "/var/tmp",
];

/// The parts of the machine that a plan is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SystemLayout {
    /// Directories and files that every sandbox may read: absolute and without links.
    pub directories: Vec<PathBuf>,
    /// Links of the root, such as `/bin` to `usr/bin`.
    pub links: Vec<(PathBuf, OsString)>,
    /// The home directory of the user, which is private and empty in a sandbox.
    pub home: Option<PathBuf>,
    /// Toolchains in the home directory.
    pub toolchains: Vec<PathBuf>,
    /// The user's name.
    pub user: String,
    /// The user's id.
    pub uid: u32,
    /// The id of the user's group.
    pub gid: u32,
}

impl SystemLayout {
    /// Looks at this machine. `home` is the user's home directory.
    ///
    /// # Errors
    /// Fails where a system directory cannot be looked at.
    pub fn read(home: Option<&Path>) -> io::Result<Self> {
        let uid = geteuid().as_raw();
        let mut layout = Self {
            uid,
            gid: getegid().as_raw(),
            user: if uid == 0 { "root" } else { "user" }.to_owned(),
            home: home.and_then(|home| home.canonicalize().ok()),
            ..Self::default()
        };
        for path in SYSTEM.into_iter().chain(CONFIGURATION) {
            layout.add_system(Path::new(path))?;
        }
        if let Some(home) = &layout.home {
            let present = TOOLCHAINS.iter().map(|name| home.join(name));
            // A link out of the home directory is not followed: it may lead anywhere.
            let present =
                present.filter(|path| path.canonicalize().is_ok_and(|real| real == *path));
            layout.toolchains = present.collect();
        }
        Ok(layout)
    }

    fn add_system(&mut self, path: &Path) -> io::Result<()> {
        let metadata = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            metadata => metadata?,
        };
        if metadata.is_symlink() {
            let target = fs::read_link(path)?;
            self.links.push((path.to_owned(), target.into()));
        } else {
            self.directories.push(path.to_owned());
        }
        Ok(())
    }

    /// Configuration files with content of our own: no user of the machine but this one, no name server.
    pub(crate) fn configuration(&self) -> Vec<(&'static str, String)> {
        let Self { user, uid, gid, .. } = self;
        let home = self.home.as_deref().unwrap_or(Path::new("/")).display();
        let others = if *uid == 0 {
            String::new()
        } else {
            "root:x:0:0:root:/:/bin/sh\n".to_owned()
        };
        vec![
            ("/etc/group", format!("{user}:x:{gid}:\nnogroup:x:65534:\n")),
            ("/etc/hostname", "sandbox\n".to_owned()),
            (
                "/etc/hosts",
                "127.0.0.1 localhost sandbox\n::1 localhost\n".to_owned(),
            ),
            (
                "/etc/nsswitch.conf",
                "passwd: files\ngroup: files\nhosts: files\n".to_owned(),
            ),
            (
                "/etc/passwd",
                format!(
                    "{others}{user}:x:{uid}:{gid}::{home}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
                ),
            ),
            ("/etc/resolv.conf", String::new()),
        ]
    }

    /// The directories to lend for programs of a search path and for files that a command names: the
    /// installation around each, never the home directory or the root itself.
    #[must_use]
    pub fn installations(&self, search_path: &OsStr, named: &[PathBuf]) -> Vec<PathBuf> {
        let mut found = BTreeSet::new();
        for entry in std::env::split_paths(search_path) {
            found.extend(self.around_directory(&entry));
        }
        for path in named {
            // The name itself and, behind links, the file.
            for path in [Some(path.clone()), path.canonicalize().ok()] {
                found.extend(path.and_then(|path| self.around_file(&path)));
            }
        }
        found.into_iter().collect()
    }

    fn around_directory(&self, directory: &Path) -> Option<PathBuf> {
        let directory = directory.canonicalize().ok()?;
        let is_programs = matches!(
            directory.file_name()?.to_str(),
            Some("bin" | "sbin" | "shims")
        );
        // `.cargo` around `.cargo/bin` has credentials, in whosever home directory it is.
        let prefix = directory
            .parent()
            .filter(|prefix| is_programs && (!is_hidden(prefix) || is_toolchain(prefix)));
        let candidates = [prefix, Some(&*directory)];
        let lent = candidates.into_iter().flatten();
        lent.into_iter()
            .find(|path| self.may_lend(path))
            .map(Path::to_owned)
    }

    /// The package around a file: the outermost `node_modules`, the nearest directory with a manifest, or
    /// the directory it lies in.
    fn around_file(&self, file: &Path) -> Option<PathBuf> {
        let file = file.parent()?.canonicalize().ok()?.join(file.file_name()?);
        let packages = file
            .ancestors()
            .filter(|path| path.file_name() == Some(OsStr::new("node_modules")));
        let manifest = file.ancestors().skip(1).find(|directory| {
            let manifests = ["package.json", "pyproject.toml", "setup.py"];
            manifests.iter().any(|name| directory.join(name).is_file())
        });
        let candidates = [packages.last(), manifest, file.parent()];
        let lent = candidates
            .into_iter()
            .flatten()
            .find(|path| self.may_lend(path));
        lent.map(Path::to_owned)
            .or_else(|| file.exists().then(|| file.clone()))
    }

    /// Directories that hold more than one installation are not lent whole, nor are the hidden ones of the
    /// home directory, where programs keep credentials.
    fn may_lend(&self, path: &Path) -> bool {
        let Some(parent) = path.parent() else {
            return false;
        };
        let home = self.home.as_deref();
        let holds_home = home.is_some_and(|home| home.starts_with(path));
        let shared = SHARED.iter().any(|shared| path == Path::new(shared));
        !(holds_home || shared || (Some(parent) == home && is_hidden(path)))
    }
}

/// Whether a directory is one that is lent whole from a home directory.
fn is_toolchain(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| TOOLCHAINS.contains(&name))
}

fn is_hidden(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is lent for a search path and for named files, in a directory with a home.
    #[test]
    fn an_installation_is_lent_and_nothing_around_it() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let files = [
            "user/.cargo/bin/cargo",
            "user/.cargo/credentials.toml",
            "other/.cargo/bin/cargo",
            "other/.pyenv/shims/python3",
            "user/node-22/bin/node",
            "user/agent/package.json",
            "user/agent/src/main.js",
            "user/script.py",
            "opt/tool/bin/tool",
            "opt/pkg/node_modules/a/node_modules/b/cli.js",
        ];
        for file in files {
            let path = place.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let layout = SystemLayout {
            home: Some(place.join("user")),
            ..SystemLayout::default()
        };
        let on_path = |entry: &str| layout.installations(place.join(entry).as_os_str(), &[]);
        let named = |file: &str| layout.installations(OsStr::new(""), &[place.join(file)]);
        let cases = [
            (on_path("user/.cargo/bin"), "user/.cargo/bin"),
            (on_path("other/.cargo/bin"), "other/.cargo/bin"),
            (on_path("other/.pyenv/shims"), "other/.pyenv"),
            (on_path("user/node-22/bin"), "user/node-22"),
            (on_path("opt/tool/bin"), "opt/tool"),
            (named("user/agent/src/main.js"), "user/agent"),
            (named("user/script.py"), "user/script.py"),
            (
                named("opt/pkg/node_modules/a/node_modules/b/cli.js"),
                "opt/pkg/node_modules",
            ),
        ];
        for (lent, expected) in cases {
            assert_eq!(lent, [place.join(expected)]);
        }
    }
}
