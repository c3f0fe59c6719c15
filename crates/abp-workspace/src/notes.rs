//! What a copy does not carry over, noted once for all files it concerns, and names that would be
//! one on other systems.

use std::collections::HashMap;
use std::fs::File;

use rustix::fs::Stat;

use crate::manifest::{Entry, Manifest};
use crate::prepared::split;

/// Labels that a system puts on every file; they say nothing about this one.
const LABELS: [&[u8]; 2] = [b"security.selinux", b"security.SMACK64"];
/// As many bytes of attribute names are looked at.
const MAX_NAME_BYTES: usize = 4 * 1024;

/// What was met among the files of a source.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    hard_links: Tally,
    attributes: Tally,
    owners: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    first: Option<Vec<u8>>,
    count: u64,
}

impl Tally {
    fn add(&mut self, path: &[u8]) {
        self.first.get_or_insert_with(|| path.to_vec());
        self.count += 1;
    }
}

impl Notes {
    /// Looks at a file that is copied.
    pub(crate) fn look_at(&mut self, file: &File, stat: &Stat, path: &[u8]) {
        if stat.st_nlink > 1 {
            self.hard_links.add(path);
        }
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            self.owners.add(path);
        }
        if has_attributes(file) {
            self.attributes.add(path);
        }
    }

    /// The notes, each with the first file it concerns.
    pub(crate) fn into_list(self) -> Vec<(Vec<u8>, String)> {
        let notes = [
            (self.hard_links, "its other names: it is a hard link"),
            (self.attributes, "its extended attributes and access lists"),
            (self.owners, "its owner: it belongs to another user"),
        ];
        let described = |(tally, what): (Tally, &str)| {
            let others = match tally.count.saturating_sub(1) {
                0 => String::new(),
                1 => ", as for 1 other file".to_owned(),
                others => format!(", as for {others} other files"),
            };
            let reason = format!("{what}{others}; the file itself is staged");
            tally.first.map(|path| (path, reason))
        };
        notes.into_iter().filter_map(described).collect()
    }
}

fn has_attributes(file: &File) -> bool {
    let mut buffer = [0_u8; MAX_NAME_BYTES];
    match rustix::fs::flistxattr(file, &mut buffer) {
        Ok(length) => {
            let names = buffer.get(..length).unwrap_or_default();
            let mut names = names
                .split(|&byte| byte == 0)
                .filter(|name| !name.is_empty());
            names.any(|name| !LABELS.contains(&name))
        }
        // More names than fit.
        Err(rustix::io::Errno::RANGE) => true,
        Err(_) => false,
    }
}

/// Names in one directory that differ only in case, each with the one before it.
pub(crate) fn case_twins(manifest: &Manifest) -> Vec<(Vec<u8>, String)> {
    let mut seen: HashMap<(&[u8], String), &Entry> = HashMap::new();
    let mut twins = Vec::new();
    for entry in manifest.entries() {
        let (directory, name) = split(entry.path_bytes());
        let Ok(text) = std::str::from_utf8(name) else {
            continue;
        };
        if let Some(twin) = seen.insert((directory, text.to_lowercase()), entry) {
            let twin = crate::quote::display_path(twin.path());
            let reason = format!("is staged, but its name differs from {twin} only in case");
            twins.push((entry.path_bytes().to_vec(), reason));
        }
    }
    twins
}
