//! Settings that hold runs, callers or spending back, and the unknown names that resemble one.
//!
//! A restriction that is not read leaves a run freer than its author meant it to be, so a misspelled
//! one is an error where any other misspelled key is a warning. An unknown name counts as a
//! restriction in three cases:
//!
//! ```text
//! [restrictions] deny_reed = []     it stands inside a section that restricts
//! [quotas]                          its own words say that it restricts
//! [restrictons]                     the known name it resembles most restricts
//! ```

use crate::check::{closest, suggestion};
use crate::settings::{ANY, Setting, below, settings};

/// Sections in which every key restricts, or prices what a budget counts.
const SECTIONS: &[&str] = &[
    "restrictions",
    "sandbox",
    "policies",
    "prices",
    "server",
    "mcp",
];

/// Parts of names that promise a restriction, whether or not this version has the setting.
const WORDS: &[&str] = &[
    "restrict",
    "polic",
    "sandbox",
    "budget",
    "limit",
    "quota",
    "deny",
    "allow",
    "forbid",
    "approv",
    "permission",
    "timeout",
    "max_",
    "price",
    "isolat",
    "redact",
];

/// Names of restrictions that other versions have, for words that resemble one of them.
const FOREIGN: &[&str] = &[
    "budget",
    "budgets",
    "limits",
    "quotas",
    "permissions",
    "approvals",
    "timeout",
];

/// How much a name must resemble one of another section: there are many of those, so a loose match
/// would nearly always find one.
const LIKENESS_ELSEWHERE: f64 = 0.9;

/// What is to be said about a name that no setting has.
#[derive(Debug)]
pub(crate) struct UnknownName {
    /// Whether reading on without it could leave a run freer than its author meant.
    pub(crate) restricts: bool,
    pub(crate) help: Option<String>,
}

/// Judges a name that is no setting below `table`.
pub(crate) fn judge(table: &[&'static str], name: &str) -> UnknownName {
    let siblings = below(table).filter_map(|setting| setting.path.get(table.len()).copied());
    let sibling = closest(name, siblings.filter(|part| *part != ANY));
    let elsewhere = closest(name, guarding_leaves().map(|(leaf, _)| leaf))
        .filter(|(likeness, _)| *likeness > LIKENESS_ELSEWHERE)
        .filter(|(likeness, _)| sibling.is_none_or(|(nearer, _)| nearer < *likeness));
    let in_section = table.first().is_some_and(|first| SECTIONS.contains(first));
    let resembles = match (elsewhere, sibling) {
        (Some(_), _) => true,
        (None, Some((_, sibling))) => is_restriction(table, sibling),
        (None, None) => closest(name, FOREIGN.iter().copied())
            .is_some_and(|(likeness, _)| likeness > LIKENESS_ELSEWHERE),
    };
    let restricts = in_section || has_word(name) || resembles;
    let found = match (elsewhere, sibling) {
        (Some((_, leaf)), _) => guarding_leaves()
            .find(|(one, _)| *one == leaf)
            .map(|(_, setting)| suggestion(&setting.key().replace(ANY, "NAME"))),
        (None, Some((_, sibling))) => Some(suggestion(sibling)),
        (None, None) => restricts.then(|| "this version has no such setting".to_owned()),
    };
    UnknownName {
        restricts,
        help: found,
    }
}

/// Whether a setting restricts.
pub(crate) fn guards(setting: &Setting) -> bool {
    match setting.path.split_last() {
        Some((last, table)) => is_restriction(table, last),
        None => false,
    }
}

fn is_restriction(table: &[&str], name: &str) -> bool {
    let first = table.first().copied().unwrap_or(name);
    SECTIONS.contains(&first) || has_word(name)
}

fn has_word(name: &str) -> bool {
    let name = name.to_lowercase().replace('-', "_");
    WORDS.iter().any(|word| name.contains(word))
}

/// Settings of every section whose own name says that they restrict.
fn guarding_leaves() -> impl Iterator<Item = (&'static str, &'static Setting)> {
    let leaf = |setting: &'static Setting| Some((*setting.path.last()?, setting));
    settings()
        .iter()
        .filter(|setting| setting.successor().is_none())
        .filter_map(leaf)
        .filter(|(leaf, _)| has_word(leaf))
}
