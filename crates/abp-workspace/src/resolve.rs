//! Resolves a path beneath a root: component by component, following links itself, and never above
//! the root.

use std::path::Path;

use rustix::fs::FileType;
use rustix::io::{Errno, Result};

use crate::dir::Dir;
use crate::layers::{Opacity, is_whiteout_stat, opacity};

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

/// The tree that is looked at.
pub(crate) enum Tree<'a> {
    /// One directory.
    Plain(&'a Dir),
    /// Layers of an overlay, the top one first.
    Layers([&'a Dir; 3]),
}

/// The finding at one name.
enum Look {
    Missing,
    /// A component above it is no directory.
    NoDirectory,
    Link(Vec<u8>),
    Other,
}

impl Tree<'_> {
    fn look(&self, directory: &[u8], name: &[u8]) -> Result<Look> {
        match self {
            Self::Plain(root) => {
                let dir = match root.open_dir(directory) {
                    Err(Errno::NOENT) => return Ok(Look::Missing),
                    Err(Errno::NOTDIR) => return Ok(Look::NoDirectory),
                    opened => opened?,
                };
                look_at(&dir, name)
            }
            Self::Layers(layers) => look_in_layers(layers, directory, name),
        }
    }
}

fn look_at(dir: &Dir, name: &[u8]) -> Result<Look> {
    Ok(match dir.stat_if_exists(name)? {
        None => Look::Missing,
        Some(stat) if FileType::from_raw_mode(stat.st_mode).is_symlink() => {
            Look::Link(dir.read_link(name)?)
        }
        Some(_) => Look::Other,
    })
}

/// The first layer that has the name, a whiteout for it or an opaque directory above it decides.
fn look_in_layers(layers: &[&Dir], directory: &[u8], name: &[u8]) -> Result<Look> {
    'layers: for layer in layers {
        let mut dir = layer.open_dir(b".")?;
        let mut is_last = false;
        for component in components(directory) {
            let Some(stat) = dir.stat_if_exists(component)? else {
                if is_last {
                    return Ok(Look::Missing);
                }
                continue 'layers;
            };
            if is_whiteout_stat(&stat) {
                return Ok(Look::Missing);
            }
            dir = match dir.open_dir(component) {
                Err(Errno::NOTDIR | Errno::LOOP) => return Ok(Look::NoDirectory),
                opened => opened?,
            };
            is_last |= opacity(&dir) == Opacity::Opaque;
        }
        match dir.stat_if_exists(name)? {
            Some(stat) if is_whiteout_stat(&stat) => return Ok(Look::Missing),
            Some(_) => return look_at(&dir, name),
            None if is_last => return Ok(Look::Missing),
            None => {}
        }
    }
    Ok(Look::Missing)
}

/// Follows `path` from the directory `start` beneath `root`.
///
/// Absolute paths are outside, save those beneath `root_path`, where one is given.
pub(crate) fn land(
    root: &Tree<'_>,
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
        match root.look(&walk.directory(), &component)? {
            Look::Missing => {
                walk.missing = 1;
                walk.at.push(component);
            }
            Look::NoDirectory => {
                return Ok(Landing::Nowhere("a component is not a directory"));
            }
            Look::Link(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return Ok(Landing::Nowhere("its links lead in a circle"));
                }
                if !walk.add(&target, root_path) {
                    return Ok(Landing::Outside);
                }
            }
            Look::Other => walk.at.push(component),
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
