//! The names under which the tools or prompts of several servers are shown as those of one.
//!
//! A name stays as it is unless two servers have it. Then both get the name of their server in front,
//! so that none takes the place of the other, however they are ordered.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use crate::digest;

/// Between the name of a server and that of a tool. Model APIs accept no dots and no slashes.
const SEPARATOR: &str = "__";
/// The longest name the protocol recommends; no name made here is longer.
const MAX_LENGTH: usize = 128;
/// The digits of a hash in a name that is not unique without.
const SHORT_HASH: usize = 16;
const FULL_HASH: usize = 64;

/// A name of a server, and the name it is shown under.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoutedName {
    /// The server.
    pub upstream: String,
    /// Its name for the thing.
    pub name: String,
    /// The name it is shown under, which nothing else has.
    pub shown: String,
}

/// How much is added to a name to tell it from others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Added {
    Nothing,
    Server,
    ShortHash,
    FullHash,
}

/// Gives every name of every server one that nothing else has, in the order of servers and names.
///
/// The outcome depends on what names there are, not on the order in which they are given.
#[must_use]
pub fn route_names(listed: &[(&str, Vec<String>)]) -> Vec<RoutedName> {
    let names: BTreeSet<_> = listed
        .iter()
        .flat_map(|(upstream, names)| names.iter().map(move |name| (*upstream, name.as_str())))
        .collect();
    let mut added: BTreeMap<_, _> = names.iter().map(|one| (*one, Added::Nothing)).collect();
    loop {
        let mut takers: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
        for ((upstream, name), added) in &added {
            let shown = added.to(upstream, name);
            takers.entry(shown).or_default().push((upstream, name));
        }
        let contested: Vec<_> = takers
            .into_values()
            .filter(|takers| takers.len() > 1)
            .flatten()
            .collect();
        if contested.is_empty() {
            break;
        }
        // All that want a name give way, so this ends: nobody gives way more than three times.
        for one in contested {
            added.entry(one).and_modify(|added| *added = added.more());
        }
    }
    let routed = added
        .into_iter()
        .map(|((upstream, name), added)| RoutedName {
            upstream: upstream.to_owned(),
            name: name.to_owned(),
            shown: added.to(upstream, name),
        });
    routed.collect()
}

impl Added {
    fn more(self) -> Self {
        match self {
            Self::Nothing => Self::Server,
            Self::Server => Self::ShortHash,
            Self::ShortHash | Self::FullHash => Self::FullHash,
        }
    }

    fn to(self, upstream: &str, name: &str) -> String {
        match self {
            Self::Nothing => name.to_owned(),
            Self::Server => {
                let prefixed = prefixed(upstream, name);
                match prefixed.len() > MAX_LENGTH {
                    true => hashed(upstream, name, SHORT_HASH),
                    false => prefixed,
                }
            }
            Self::ShortHash => hashed(upstream, name, SHORT_HASH),
            Self::FullHash => hashed(upstream, name, FULL_HASH),
        }
    }
}

fn prefixed(upstream: &str, name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let upstream = upstream.replace(|c| !is_plain(c), "_");
    format!("{upstream}{SEPARATOR}{name}")
}

fn hashed(upstream: &str, name: &str, digits: usize) -> String {
    let mut hash = Sha256::new();
    digest::add(&mut hash, &[upstream.as_bytes(), name.as_bytes()]);
    let hash: String = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let hash: String = hash.chars().take(digits).collect();
    let mut cut = prefixed(upstream, name);
    let room = MAX_LENGTH - SEPARATOR.len() - digits;
    cut.truncate(cut.floor_char_boundary(room));
    format!("{cut}{SEPARATOR}{hash}")
}
