//! Paths in the one form that rules are decided on, and the tokens that prove a decision.

use std::path::{Path, PathBuf};

/// A path that an engine allowed to be read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ApprovedRead {
    path: PathBuf,
}

/// A path that an engine allowed to be written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ApprovedWrite {
    path: PathBuf,
}

impl ApprovedRead {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// The path, relative to the workspace and in normal form.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl ApprovedWrite {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// The path, relative to the workspace and in normal form.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Why a path is not in normal form: relative, without `.`, `..`, empty components or NUL.
///
/// The bytes are looked at, not [`Path::components`], because that one hides `.`, repeated and
/// trailing slashes.
pub(crate) fn why_not_normal(path: &Path) -> Option<&'static str> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.is_empty() {
        return Some("the path is empty");
    }
    if bytes.starts_with(b"/") {
        return Some("the path is absolute");
    }
    if bytes.contains(&0) {
        return Some("the path contains NUL");
    }
    bytes
        .split(|&byte| byte == b'/')
        .find_map(|component| match component {
            b"" => Some("the path has an empty component or ends in a slash"),
            b"." => Some("the path has a `.` component"),
            b".." => Some("the path has a `..` component"),
            _ => None,
        })
}
