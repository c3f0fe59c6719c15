//! Resolves a path beneath a root: component by component, following links itself, and never above
//! the root.

use std::path::Path;

use rustix::fs::FileType;
use rustix::io::{Errno, Result};

use crate::dir::Dir;

/// As many links as Linux follows.
const MAX_LINKS: usize = 40;

/// The place a path resolves to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Landing {
    /// Beneath the root, at these bytes; empty is the root itself. It need not exist.
    Inside(Vec<u8>),
    /// Not beneath the root.
    Outside,
    /// Nowhere: the links lead in a circle, or a file is used as a directory.
    Nowhere(&'static str),
}

/// Follows `path` from the directory `start` beneath `root`.
///
/// Absolute paths are outside, save those beneath `root_path`, where one is given.
pub(crate) fn land(
    root: &Dir,
    root_path: Option<&Path>,
    start: &[u8],
    path: &[u8],
) -> Result<Landing> {
    let mut walk = Walk {
        at: components(start).map(<[u8]>::to_vec).collect(),
        missing: 0,
        pending: Vec::new(),
    };
    if !walk.add(path, root_path) {
        return Ok(Landing::Outside);
    }
    let mut links = 0;
    while let Some(component) = walk.pending.pop() {
        if component == b".." {
            if walk.at.pop().is_none() {
                return Ok(Landing::Outside);
            }
            walk.missing = walk.missing.saturating_sub(1);
            continue;
        }
        if walk.missing > 0 {
            walk.missing += 1;
            walk.at.push(component);
            continue;
        }
        let dir = match root.open_dir(&walk.directory()) {
            Err(Errno::NOENT) => {
                walk.missing = 1;
                walk.at.push(component);
                continue;
            }
            Err(Errno::NOTDIR) => return Ok(Landing::Nowhere("a component is not a directory")),
            opened => opened?,
        };
        match dir.stat_if_exists(&component)? {
            None => {
                walk.missing = 1;
                walk.at.push(component);
            }
            Some(stat) if FileType::from_raw_mode(stat.st_mode).is_symlink() => {
                links += 1;
                if links > MAX_LINKS {
                    return Ok(Landing::Nowhere("its links lead in a circle"));
                }
                if !walk.add(&dir.read_link(&component)?, root_path) {
                    return Ok(Landing::Outside);
                }
            }
            Some(_) => walk.at.push(component),
        }
    }
    Ok(Landing::Inside(walk.at.join(&b'/')))
}

struct Walk {
    /// The components reached, links resolved.
    at: Vec<Vec<u8>>,
    /// The number of components at the end that do not exist.
    missing: usize,
    /// The components still to be followed, last first.
    pending: Vec<Vec<u8>>,
}

impl Walk {
    /// Puts a path in front of the pending components; `false` where it is absolute and outside.
    fn add(&mut self, path: &[u8], root_path: Option<&Path>) -> bool {
        let mut rest = path;
        if path.starts_with(b"/") {
            let root = root_path.map(|root| root.as_os_str().as_encoded_bytes());
            match root.and_then(|root| path.strip_prefix(root)) {
                Some(beneath) if beneath.is_empty() || beneath.starts_with(b"/") => rest = beneath,
                _ => return false,
            }
            self.at.clear();
            self.missing = 0;
        }
        self.pending
            .extend(components(rest).map(<[u8]>::to_vec).rev());
        true
    }

    fn directory(&self) -> Vec<u8> {
        if self.at.is_empty() {
            b".".to_vec()
        } else {
            self.at.join(&b'/')
        }
    }
}

fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/')
        .filter(|component| !matches!(*component, b"" | b"."))
}
