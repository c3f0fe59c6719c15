//! Notes about properties that a copy does not carry over, one for all files it concerns, and about
//! names that would be one on other systems.

use std::collections::HashMap;
use std::fs::File;

use rustix::fs::Stat;
use unicode_normalization::UnicodeNormalization as _;

use crate::manifest::{Entry, Manifest};
use crate::prepared::split;
use crate::quote::display_path;

/// Labels that a system puts on every file; they say nothing about this one.
const LABELS: [&[u8]; 2] = [b"security.selinux", b"security.SMACK64"];
/// The bytes of attribute names that are read.
const MAX_NAME_BYTES: usize = 4 * 1024;

/// The properties met among the files of a source.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    hard_links: Tally,
    attributes: Tally,
    owners: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    /// The first file of the walk, with its place there.
    first: Option<(u64, Vec<u8>)>,
    count: u64,
}

impl Tally {
    fn add(&mut self, place: u64, path: &[u8]) {
        self.first.get_or_insert_with(|| (place, path.to_vec()));
        self.count += 1;
    }

    fn absorb(&mut self, other: Self) {
        self.first = self.first.take().into_iter().chain(other.first).min();
        self.count += other.count;
    }
}

impl Notes {
    /// Looks at a file that is copied; one thread meets files in the order of their places.
    pub(crate) fn look_at(&mut self, file: &File, stat: &Stat, place: u64, path: &[u8]) {
        if stat.st_nlink > 1 {
            self.hard_links.add(place, path);
        }
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            self.owners.add(place, path);
        }
        if has_attributes(file) {
            self.attributes.add(place, path);
        }
    }

    /// Looks at a file that an overlay shows with its attributes, and whose names part when it is written.
    pub(crate) fn look_at_name(&mut self, stat: &Stat, place: u64, path: &[u8]) {
        if stat.st_nlink > 1 {
            self.hard_links.add(place, path);
        }
    }

    /// Takes over the notes of another thread.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.hard_links.absorb(other.hard_links);
        self.attributes.absorb(other.attributes);
        self.owners.absorb(other.owners);
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
            tally.first.map(|(_, path)| (path, reason))
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

/// Names in one directory that other systems take for one, each with the one before it.
pub(crate) fn name_twins(manifest: &Manifest) -> Vec<(Vec<u8>, String)> {
    let mut seen: HashMap<(&[u8], String), &Entry> = HashMap::new();
    let mut twins = Vec::new();
    for entry in manifest.entries() {
        let (directory, name) = split(entry.path_bytes());
        let Ok(text) = std::str::from_utf8(name) else {
            continue;
        };
        if let Some(twin) = seen.insert((directory, folded(text)), entry) {
            let (_, twin_name) = split(twin.path_bytes());
            let difference = match std::str::from_utf8(twin_name) {
                Ok(other) if other.nfc().eq(text.nfc()) => "its Unicode form",
                Ok(other) if other.to_lowercase() == text.to_lowercase() => "case",
                _ => "case and its Unicode form",
            };
            let twin = display_path(twin.path());
            let reason =
                format!("is staged, but its name differs from {twin} only in {difference}");
            twins.push((entry.path_bytes().to_vec(), reason));
        }
    }
    twins
}

/// A name as a system sees it that cares for neither case nor Unicode form.
fn folded(name: &str) -> String {
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    // Composed again: lower case may be made of other characters.
    name.nfc().flat_map(char::to_lowercase).nfc().collect()
}
