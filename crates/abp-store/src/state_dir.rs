//! Whether a state directory is this user's alone.
//!
//! The directory holds the key that signs the log. A directory that another user can read or change
//! is refused, and so is one that another user's link leads to: a cloned repository or a shared
//! `/tmp` could otherwise bring a store with a stranger's key.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::StoreError;

/// Every permission of group and others.
const OTHERS: u32 = 0o077;
const ROOT: u32 = 0;

/// Why a state directory is not this user's alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateDirProblem {
    /// It belongs to another user.
    ForeignOwner {
        /// The owner.
        uid: u32,
    },
    /// It is a symbolic link that another user made.
    ForeignLink {
        /// The owner of the link.
        uid: u32,
    },
    /// Group or others may enter, read or change it.
    Accessible {
        /// Its permission bits.
        mode: u32,
    },
    /// It is not a directory.
    NotADirectory,
}

impl fmt::Display for StateDirProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForeignOwner { uid } => {
                write!(f, "it belongs to user {uid}; use another directory")
            }
            Self::ForeignLink { uid } => {
                write!(f, "it is a link of user {uid}; use another directory")
            }
            Self::Accessible { mode } => write!(
                f,
                "it has mode {mode:04o} and others can reach it; run `chmod 700` on it"
            ),
            Self::NotADirectory => f.write_str("it is not a directory; use another name"),
        }
    }
}

/// Refuses a directory that is not this user's alone. A link to one that is passes.
pub(crate) fn require_safe(root: &Path) -> Result<(), StoreError> {
    let inspect = || StoreError::io("inspect", root);
    let own = rustix::process::geteuid().as_raw();
    let unsafe_because = |problem| {
        Err(StoreError::UnsafeStateDir {
            path: root.to_owned(),
            problem,
        })
    };
    let named = fs::symlink_metadata(root).map_err(inspect())?;
    if named.is_symlink() && ![own, ROOT].contains(&named.uid()) {
        return unsafe_because(StateDirProblem::ForeignLink { uid: named.uid() });
    }
    let directory = fs::metadata(root).map_err(inspect())?;
    let mode = directory.mode() & 0o7777;
    if !directory.is_dir() {
        unsafe_because(StateDirProblem::NotADirectory)
    } else if directory.uid() != own {
        let uid = directory.uid();
        unsafe_because(StateDirProblem::ForeignOwner { uid })
    } else if mode & OTHERS != 0 {
        unsafe_because(StateDirProblem::Accessible { mode })
    } else {
        Ok(())
    }
}
