//! Include and exclude lists as one decision.

use std::path::Path;

use crate::{GlobError, GlobList, GlobMatch};

/// Decides by two lists which paths are taken: an exclude always wins, and an empty include list
/// takes everything.
#[derive(Debug, Clone)]
pub struct IncludeExcludeGlobs {
    include: GlobList,
    exclude: GlobList,
}

/// Whether a path is taken, and if not, which list is the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchDecision {
    /// The path is taken.
    Allowed,
    /// An exclude pattern matches.
    DeniedByExclude,
    /// There are include patterns and none of them matches.
    DeniedByMissingInclude,
}

impl MatchDecision {
    /// Whether the path is taken.
    #[must_use]
    pub const fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed)
    }
}

impl IncludeExcludeGlobs {
    /// Compiles both lists.
    ///
    /// # Errors
    /// Fails where a pattern is malformed or a list exceeds a limit of this crate. Compile the lists
    /// with [`GlobList::new`] and use [`Self::from_lists`] to learn which of the two it was.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, GlobError> {
        Ok(Self::from_lists(
            GlobList::new(include)?,
            GlobList::new(exclude)?,
        ))
    }

    /// Joins two compiled lists.
    #[must_use]
    pub fn from_lists(include: GlobList, exclude: GlobList) -> Self {
        Self { include, exclude }
    }

    /// Whether the path is taken.
    pub fn decide(&self, path: impl AsRef<Path>) -> MatchDecision {
        self.explain(path).0
    }

    /// Whether the path is taken, and the pattern that decided: the first exclude for a denied
    /// path, the first include for an allowed one, none where no pattern matched.
    pub fn explain(&self, path: impl AsRef<Path>) -> (MatchDecision, Option<GlobMatch<'_>>) {
        let path = path.as_ref();
        if let Some(excluded) = self.exclude.first_match(path) {
            return (MatchDecision::DeniedByExclude, Some(excluded));
        }
        match self.include.first_match(path) {
            None if !self.include.is_empty() => (MatchDecision::DeniedByMissingInclude, None),
            included => (MatchDecision::Allowed, included),
        }
    }

    /// The include list.
    #[must_use]
    pub fn include(&self) -> &GlobList {
        &self.include
    }

    /// The exclude list.
    #[must_use]
    pub fn exclude(&self) -> &GlobList {
        &self.exclude
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn owned(patterns: &[&str]) -> Vec<String> {
        patterns
            .iter()
            .map(|pattern| (*pattern).to_owned())
            .collect()
    }

    #[test]
    fn both_lists_make_one_decision() {
        use MatchDecision::{Allowed, DeniedByExclude, DeniedByMissingInclude};

        fn check(
            include: &[&str],
            exclude: &[&str],
            path: &[u8],
            decision: MatchDecision,
            pattern: Option<(usize, &str)>,
        ) {
            let globs =
                IncludeExcludeGlobs::new(&owned(include), &owned(exclude)).expect("patterns");
            let (found, matched) = globs.explain(OsStr::from_bytes(path));
            let matched = matched.map(|matched| (matched.index, matched.pattern));
            assert_eq!(
                (found, matched),
                (decision, pattern),
                "{:?}",
                path.escape_ascii().to_string()
            );
        }

        check(&[], &[], b"any/thing", Allowed, None);
        check(
            &["src/**"],
            &[],
            b"src/a/b.rs",
            Allowed,
            Some((0, "src/**")),
        );
        check(&["src/**"], &[], b"doc/a.md", DeniedByMissingInclude, None);
        check(
            &["*"],
            &["*.key"],
            b"a/b.key",
            DeniedByExclude,
            Some((0, "*.key")),
        );
        check(
            &[],
            &["x", "*.key", "b.*"],
            b"b.key",
            DeniedByExclude,
            Some((1, "*.key")),
        );
        check(&[], &["*.KEY"], b"b.key", Allowed, None);
        check(&[], &["a?b"], b"a\xffb", DeniedByExclude, Some((0, "a?b")));
        check(
            &["\u{e9}*"],
            &[],
            "\u{e9}t\u{e9}".as_bytes(),
            Allowed,
            Some((0, "\u{e9}*")),
        );
    }
}
