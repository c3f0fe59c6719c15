//! A compiled list of patterns that says which of them matched.

use std::path::Path;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use crate::{GlobError, check_limits};

/// A compiled list of patterns, in the order they were given.
#[derive(Debug, Clone, Default)]
pub struct GlobList {
    patterns: Vec<String>,
    /// What every match of a pattern begins with.
    prefixes: Vec<String>,
    set: GlobSet,
}

/// A pattern that matched, and its place in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobMatch<'a> {
    /// The pattern's place in the list, from 0.
    pub index: usize,
    /// The pattern as it was given.
    pub pattern: &'a str,
}

impl GlobList {
    /// Compiles a list in which a pattern matches exactly what it says.
    ///
    /// # Errors
    /// Fails where a pattern is empty or malformed, or a limit of this crate is exceeded.
    pub fn new(patterns: &[String]) -> Result<Self, GlobError> {
        Self::compile(patterns, &[""])
    }

    /// Compiles a list of patterns for relative paths.
    ///
    /// A pattern that matches a directory also matches everything beneath it: `secrets` matches
    /// `secrets/a/b`, and not `secrets.txt`. `./secrets`, `/secrets` and `secrets/` are read as
    /// `secrets`: taken literally they could match no relative path at all, and a rule that protects
    /// nothing while it looks as if it did is the worse reading.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn for_paths(patterns: &[String]) -> Result<Self, GlobError> {
        let relative: Vec<String> = patterns.iter().map(|pattern| relative(pattern)).collect();
        let mut list =
            Self::compile(&relative, &["", "/**"]).map_err(|error| error.as_written(patterns))?;
        list.patterns = patterns.to_vec();
        Ok(list)
    }

    /// Adds every pattern once per suffix; the set's number of a glob is the pattern's index plus a
    /// multiple of the list's length.
    fn compile(patterns: &[String], suffixes: &[&str]) -> Result<Self, GlobError> {
        check_limits(patterns)?;
        let mut builder = GlobSetBuilder::new();
        for suffix in suffixes {
            for (index, pattern) in patterns.iter().enumerate() {
                // An empty pattern matches nothing, which nobody can have meant.
                if pattern.is_empty() {
                    return Err(invalid(index, pattern, "it is empty".to_owned()));
                }
                let glob = glob(&format!("{pattern}{suffix}"))
                    .map_err(|error| invalid(index, pattern, error.kind().to_string()))?;
                builder.add(glob);
            }
        }
        let set = builder.build().map_err(|error| blame(patterns, &error))?;
        Ok(Self {
            patterns: patterns.to_vec(),
            prefixes: patterns
                .iter()
                .map(|pattern| literal_prefix(pattern))
                .collect(),
            set,
        })
    }

    /// The first pattern of the list that matches.
    pub fn first_match(&self, path: impl AsRef<Path>) -> Option<GlobMatch<'_>> {
        self.matches(path.as_ref()).next()
    }

    /// Every pattern that matches, in the order of the list.
    pub fn matches<'a>(&'a self, path: &Path) -> impl Iterator<Item = GlobMatch<'a>> + use<'a> {
        let count = self.patterns.len();
        let globs = self.set.matches(path);
        let mut indices: Vec<usize> = globs
            .iter()
            .filter_map(|glob| glob.checked_rem(count))
            .collect();
        indices.sort_unstable();
        indices.dedup();
        indices.into_iter().filter_map(|index| {
            let pattern = self.patterns.get(index)?;
            Some(GlobMatch { index, pattern })
        })
    }

    /// Whether any pattern matches.
    pub fn is_match(&self, path: impl AsRef<Path>) -> bool {
        self.set.is_match(path)
    }

    /// Whether something beneath a directory could match, judged by how the patterns begin: `false`
    /// is certain, so a walk may skip the directory.
    pub fn may_match_beneath(&self, directory: impl AsRef<Path>) -> bool {
        let mut directory = directory.as_ref().as_os_str().as_encoded_bytes().to_vec();
        directory.push(b'/');
        self.prefixes
            .iter()
            .map(String::as_bytes)
            .any(|prefix| prefix.starts_with(&directory) || directory.starts_with(prefix))
    }

    /// The patterns that name one path, each with that path: see [`named_path`].
    pub fn named_paths(&self) -> impl Iterator<Item = (GlobMatch<'_>, String)> {
        let patterns = self.patterns.iter().enumerate();
        patterns.filter_map(|(index, pattern)| {
            let path = named_path(pattern)?;
            Some((GlobMatch { index, pattern }, path))
        })
    }

    /// The patterns as they were given.
    #[must_use]
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }

    /// Whether the list has no patterns.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }
}

/// The path that a pattern for paths names, with everything beneath it: `secrets`, `./secrets/` and
/// `secrets/**` name `secrets`, `*.pem` names none.
#[must_use]
pub fn named_path(pattern: &str) -> Option<String> {
    let path = relative(pattern.strip_suffix("/**").unwrap_or(pattern));
    let is_literal = !path.is_empty() && literal_prefix(&path) == path;
    is_literal.then_some(path)
}

/// An empty choice means nothing, as in a shell: `.env{,.local}` also matches `.env`. By itself the
/// compiler takes such a choice out, and the rule would leave open what it was written for.
fn glob(pattern: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(pattern).empty_alternates(true).build()
}

fn literal_prefix(pattern: &str) -> String {
    pattern
        .chars()
        .take_while(|character| !"*?[{\\".contains(*character))
        .collect()
}

fn relative(pattern: &str) -> String {
    let mut rest = pattern;
    while let Some(shorter) = rest.strip_prefix("./").or_else(|| rest.strip_prefix('/')) {
        rest = shorter;
    }
    let rest = rest.trim_end_matches('/');
    if rest == "." {
        String::new()
    } else {
        rest.to_owned()
    }
}

fn invalid(index: usize, pattern: &str, reason: String) -> GlobError {
    GlobError::Invalid {
        index,
        pattern: pattern.to_owned(),
        reason,
    }
}

/// Names the pattern the set could not be built with; the set's own error does not.
fn blame(patterns: &[String], error: &globset::Error) -> GlobError {
    let alone = |pattern: &String| GlobSet::new(glob(pattern).ok()).is_err();
    let index = patterns.iter().position(alone).unwrap_or_default();
    GlobError::TooComplex {
        index,
        pattern: patterns.get(index).cloned().unwrap_or_default(),
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn paths(pattern: &str) -> Result<GlobList, GlobError> {
        GlobList::for_paths(&[pattern.to_owned()])
    }

    #[test]
    fn a_path_pattern_covers_what_is_beneath() {
        let check = |pattern: &str, path: &str, expected: bool| {
            let found = paths(pattern).expect("pattern").is_match(path);
            assert_eq!(found, expected, "{pattern:?} on {path:?}");
        };
        for written in [
            "secrets",
            "./secrets",
            "/secrets",
            "secrets/",
            ".//secrets//",
        ] {
            check(written, "secrets", true);
            check(written, "secrets/a/b", true);
            check(written, "secrets.txt", false);
            check(written, "a/secrets", false);
        }
        check("**", "a", true);
        check("**/.env", "a/b/.env/c", true);
        check("{a,b}", "b/c", true);
        check("a/**", "a", false);
    }

    #[test]
    fn a_pattern_without_wildcards_names_a_path() {
        let named = ["secrets", "./secrets", "/secrets/", "secrets/**"];
        for pattern in named {
            assert_eq!(named_path(pattern).as_deref(), Some("secrets"), "{pattern}");
            let found = paths(pattern).expect("pattern");
            let found: Vec<_> = found.named_paths().map(|(_, path)| path).collect();
            assert_eq!(found, ["secrets"]);
        }
        let others = [
            "*", "**", "/**", ".", "/", "a*", "a/*", "a/**/b", "[a]", "{a,b}", "a\\b",
        ];
        for pattern in others {
            assert_eq!(named_path(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn a_directory_is_skipped_only_where_nothing_can_match() {
        let check = |pattern: &str, directory: &str, expected: bool| {
            let found = paths(pattern)
                .expect("pattern")
                .may_match_beneath(directory);
            assert_eq!(found, expected, "{pattern:?} beneath {directory:?}");
        };
        check("src/**", "src", true);
        check("src/**", "src/a", true);
        check("src/a/*.rs", "src", true);
        check("src/a/*.rs", "src/b", false);
        check("src/**", "srcs", false);
        check("*.rs", "anything", true);
    }

    /// Choices, classes and escapes, each with what it matches, what it does not, and the directories a
    /// walk has to enter on the way.
    #[test]
    fn braces_classes_and_escapes_name_what_they_say() {
        type Case = (
            &'static str,
            &'static [&'static str],
            &'static [&'static str],
        );
        let cases: [Case; 13] = [
            (
                "{src,doc}/**",
                &["src/a", "doc/b/c"],
                &["test/a", "{src,doc}/a"],
            ),
            (
                "src/{a,b}.rs",
                &["src/a.rs", "src/b.rs"],
                &["src/c.rs", "src/a"],
            ),
            (
                "{a,b/{c,d}}/e",
                &["a/e", "b/c/e", "b/d/e/f"],
                &["b/e", "c/e"],
            ),
            ("{a,{b,{c,d}}}", &["a", "b/x", "c", "d/y"], &["e"]),
            ("{,x/}a", &["a", "x/a/b"], &["y/a"]),
            (
                ".env{,.local}",
                &[".env", ".env.local", ".env/x"],
                &[".envs"],
            ),
            ("a/{b}/c", &["a/b/c"], &["a/{b}/c"]),
            ("x{a,b}{c,d}/y", &["xac/y", "xbd/y"], &["xab/y"]),
            ("{*.rs,*.md}", &["a.rs", "b/c.md"], &["a.txt"]),
            (r"a\{b,c\}/d", &["a{b,c}/d"], &["ab/d", "ac/d"]),
            (r"\{a\}/b", &["{a}/b"], &["a/b"]),
            ("[{]a/b", &["{a/b"], &["a/b"]),
            ("{[ab],c}/d", &["a/d", "b/d", "c/d"], &["d/d"]),
        ];
        for (pattern, taken, left) in cases {
            let list = paths(pattern).expect(pattern);
            for path in taken {
                assert!(list.is_match(path), "{pattern:?} on {path:?}");
                for (slash, _) in path.match_indices('/') {
                    let directory = &path[..slash];
                    assert!(
                        list.may_match_beneath(directory),
                        "{pattern:?} beneath {directory:?}"
                    );
                }
            }
            for path in left {
                assert!(!list.is_match(path), "{pattern:?} on {path:?}");
            }
        }
    }

    #[test]
    fn a_refused_pattern_is_named() {
        let patterns = |last: &str| vec!["fine".to_owned(), last.to_owned()];
        for (pattern, reason) in [
            ("", "it is empty"),
            ("/", "it is empty"),
            ("a{b", "unclosed alternate group"),
            ("a[b", "unclosed character class"),
            ("a\\", "dangling"),
        ] {
            let error = GlobList::for_paths(&patterns(pattern)).expect_err(pattern);
            assert_eq!((error.index(), error.pattern()), (Some(1), Some(pattern)));
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    /// Patterns of every syntax, most of them well formed.
    fn any_pattern() -> impl Strategy<Value = String> {
        let leaf = prop_oneof!["[a-c*?/.]{0,4}", "\\[[a-c]{1,2}\\]", "\\\\[a-c{},*]"];
        let nested = leaf.prop_recursive(3, 12, 3, |inner| {
            let choice = prop::collection::vec(inner.clone(), 1..4)
                .prop_map(|choices| format!("{{{}}}", choices.join(",")));
            let row = prop::collection::vec(prop_oneof![inner, choice.clone()], 1..3);
            prop_oneof![choice, row.prop_map(|parts| parts.concat())]
        });
        prop_oneof![nested, "[a-c*?/.]{1,12}"]
    }

    proptest! {
        /// Whatever the patterns, compiling and matching end, and neither panics.
        #[test]
        fn a11_any_list_is_refused_or_works(
            patterns in prop::collection::vec("[a-c*?\\[\\]{},!/\\\\.-]{0,40}", 0..20),
            path in "[a-c/.]{1,60}",
        ) {
            if let Ok(list) = GlobList::for_paths(&patterns) {
                prop_assert_eq!(list.first_match(&path).is_some(), list.is_match(&path));
            }
        }

        /// What matches a directory matches everything beneath, and skipping never loses a match.
        #[test]
        fn descent_is_closed(pattern in any_pattern(), parent in "[a-c.]{1,4}(/[a-c.]{1,4}){0,2}", name in "[a-c.]{1,4}") {
            let Ok(list) = paths(&pattern) else { return Ok(()) };
            let child = format!("{parent}/{name}");
            prop_assert!(!list.is_match(&parent) || list.is_match(&child));
            prop_assert!(!list.is_match(&child) || list.may_match_beneath(&parent));
        }
    }
}
