//! The state directory and the directory of stages.
//!
//! State holds keys, the store and receipts; stages are the copies that agents work on. Neither may
//! contain the other, because a stage is lent to an agent. Stages of different state directories
//! never meet: each state directory has its own, named after a digest of its canonical path.
//! Resolving them reads links but makes nothing.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::SettingOrigin;
use crate::check::Fault;
use crate::diagnostic::Problem;
use crate::sources::{absolute_variable, home};

/// The directory, in the working directory, where earlier versions kept their state.
pub const LEGACY_STATE_DIR: &str = ".agent-backplane";

/// How many digits of the digest name the stages of a state directory.
const DIGEST_DIGITS: usize = 16;
/// The most links that are followed, as on Linux.
const MAX_LINKS: usize = 40;

/// Whether a path has the name that earlier versions gave to their state directory. Such a
/// directory comes with a repository and is not to be trusted.
#[must_use]
pub fn is_legacy_state_dir(path: &Path) -> bool {
    path.file_name() == Some(OsStr::new(LEGACY_STATE_DIR))
}

/// A directory and the setting or variable it comes from.
pub(crate) type Placed = (PathBuf, SettingOrigin);

/// The state directory where no setting names one.
pub(crate) fn default_state_dir(env: &BTreeMap<String, String>) -> Result<Placed, Fault> {
    below_base(env, "XDG_STATE_HOME", ".local/state")
        .map(|(base, origin)| (base.join("abp"), origin))
        .ok_or_else(|| {
            let message =
                "there is no state directory: neither a setting, XDG_STATE_HOME nor HOME names one";
            Fault::new(Problem::NoDirectory, message)
                .help("set ABP_HOME to an absolute path, or pass --state-dir")
        })
}

/// The directory that holds the stages of every state directory, where no setting names one.
pub(crate) fn default_stages_base(env: &BTreeMap<String, String>) -> Result<Placed, Fault> {
    below_base(env, "XDG_CACHE_HOME", ".cache")
        .map(|(base, origin)| (base.join("abp").join("stages"), origin))
        .ok_or_else(|| {
            let message =
                "there is no directory for stages: neither a setting, XDG_CACHE_HOME nor HOME names one";
            Fault::new(Problem::NoDirectory, message)
                .help("set `stages_dir` or ABP_STAGES_DIR to an absolute path")
        })
}

/// A base directory of the XDG specification, which ignores relative values.
fn below_base(env: &BTreeMap<String, String>, variable: &str, usual: &str) -> Option<Placed> {
    let name = variable.to_owned();
    match absolute_variable(env, variable) {
        Some(base) => Some((base, SettingOrigin::Env { name })),
        None => Some((home(env)?.join(usual), SettingOrigin::Default)),
    }
}

/// The stages of one state directory: `base` plus the digest of the state directory's canonical
/// path, unless `base` ends with that digest already, so that a printed configuration reads the same.
pub(crate) fn stages_dir(base: &Path, state_dir: &Path) -> Result<PathBuf, Fault> {
    let state = real_path(state_dir);
    let stages = real_path(base);
    if stages.starts_with(&state) || state.starts_with(&stages) {
        let message = format!(
            "the directory for stages, {}, and the state directory, {}, contain one another",
            base.display(),
            state_dir.display()
        );
        return Err(Fault::new(Problem::InvalidValue, message)
            .help("set `stages_dir` to a directory apart from the state directory"));
    }
    let digest = digest(&state);
    Ok(if base.file_name() == Some(OsStr::new(&digest)) {
        base.to_owned()
    } else {
        base.join(digest)
    })
}

fn digest(path: &Path) -> String {
    let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
    let mut digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.truncate(DIGEST_DIGITS);
    digits
}

/// The path without links, `.` and `..`, also where it or its target does not exist yet: a
/// directory must have the same name before and after it is made.
fn real_path(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    let mut left: VecDeque<OsString> = parts(path).collect();
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        if part == ".." {
            resolved.pop();
            continue;
        }
        let next = resolved.join(&part);
        match fs::read_link(&next) {
            Ok(target) if links < MAX_LINKS => {
                links += 1;
                for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                    left.push_front(part);
                }
            }
            _ => resolved = next,
        }
    }
    resolved
}

/// The components that mean something; an absolute path starts with its root.
fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components()
        .filter(|component| *component != Component::CurDir)
        .map(|component| component.as_os_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_same_name_before_and_after_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir(root.join("real")).unwrap();
        for (link, target) in [
            ("link", "real"),
            ("dangling", "later/there"),
            ("absolute", "/nowhere"),
            ("loop", "loop"),
            ("up", "real/../real"),
        ] {
            std::os::unix::fs::symlink(target, root.join(link)).unwrap();
        }
        let cases = [
            ("real", "real"),
            ("link", "real"),
            ("./link/./x", "real/x"),
            ("link/../y", "y"),
            ("up/z", "real/z"),
            ("dangling/x", "later/there/x"),
            ("not/there/../x", "not/x"),
            ("loop/x", "loop/x"),
            ("absolute/x", "/nowhere/x"),
        ];
        for (given, expected) in cases {
            assert_eq!(real_path(&root.join(given)), root.join(expected), "{given}");
        }
        let before = real_path(&root.join("dangling/x"));
        fs::create_dir_all(root.join("later/there/x")).unwrap();
        assert_eq!(fs::canonicalize(root.join("dangling/x")).unwrap(), before);
        assert_eq!(real_path(Path::new("/../..")), Path::new("/"));
    }

    #[test]
    fn the_name_of_earlier_state_directories_is_known() {
        for (path, expected) in [
            (".agent-backplane", true),
            ("/w/.agent-backplane/", true),
            (".agent-backplane/receipts", false),
            ("agent-backplane", false),
            ("..", false),
        ] {
            assert_eq!(is_legacy_state_dir(Path::new(path)), expected, "{path}");
        }
    }
}
