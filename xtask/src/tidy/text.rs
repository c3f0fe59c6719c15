//! What must not be left in a file: stubs, silenced tests, blanket suppressions, banners, stray
//! white space, and notes to oneself.

use super::Finding;
use crate::source::{Source, has_word};
use crate::workspace::Workspace;

/// Searched in code, outside comments and literals; the start of an attribute matches its forms
/// with arguments too.
const CODE: &[(&str, &str)] = &[
    ("#[ignore", "a test that never runs is deleted or repaired"),
    ("#[should_panic", "assert on the error that is returned"),
    (
        "#![allow",
        "fix it, or `#[expect(lint, reason)]` on the item",
    ),
    ("todo!", "finish it or leave it out"),
    ("unimplemented!", "finish it or leave it out"),
];

/// Searched everywhere but in Rust literals.
const MARKERS: &[&str] = &["TODO", "FIXME", "XXX"];

/// A comment made of these, four or more in a row, is a banner.
const BANNER: &[char] = &['-', '=', '*', '#', '/', '~', '─', '═'];

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &workspace.files {
        let extension = file.path.rsplit('.').next();
        if !matches!(extension, Some("rs" | "md" | "toml")) {
            continue;
        }
        let problems = white_space(&file.text)
            .into_iter()
            .chain(match &file.source {
                Some(source) => in_rust(source),
                None => markers(&file.text),
            });
        findings.extend(problems.map(|(line, message)| Finding::at(&file.path, line, message)));
    }
    findings
}

type Problem = (usize, String);

fn in_rust(source: &Source) -> Vec<Problem> {
    let mut problems = markers(&source.commented);
    for (index, line) in source.code.lines().enumerate() {
        for (pattern, fix) in CODE {
            if has_word(line, pattern) {
                problems.push((index + 1, format!("`{pattern}`: {fix}")));
            }
        }
        if line.contains("#[cfg_attr(") && has_word(line, "ignore") {
            problems.push((
                index + 1,
                "`ignore` by cfg_attr: skip with a reason".to_owned(),
            ));
        }
    }
    for (index, line) in source.commented.lines().enumerate() {
        if is_banner(line) {
            let message = "banner comment: a module or a doc comment separates better";
            problems.push((index + 1, message.to_owned()));
        }
        if is_ignored_doctest(line) {
            let message = "ignored doc test: make it compile, or mark it `text`";
            problems.push((index + 1, message.to_owned()));
        }
    }
    problems
}

fn markers(text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for marker in MARKERS.iter().filter(|marker| has_word(line, marker)) {
            let message = format!("`{marker}`: do it, or write it down where work is planned");
            problems.push((index + 1, message));
        }
    }
    problems
}

fn white_space(text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, line) in text.split_terminator('\n').enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            problems.push((index + 1, "trailing white space: remove it".to_owned()));
        }
        if line.contains('\t') {
            problems.push((index + 1, "tab: indent with spaces, write `\\t`".to_owned()));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        let last = text.lines().count();
        problems.push((last, "no line break at the end: add one".to_owned()));
    }
    problems
}

fn is_banner(line: &str) -> bool {
    let Some(comment) = line.trim_start().strip_prefix("//") else {
        return false;
    };
    let comment = comment.trim_start_matches(['!', ' ']);
    // A table in a doc comment starts with a bar, and a rule of four slashes is a banner as well.
    comment.chars().take_while(|c| BANNER.contains(c)).count() >= 4
}

fn is_ignored_doctest(line: &str) -> bool {
    let line = line.trim_start();
    let doc = line.strip_prefix("///").or(line.strip_prefix("//!"));
    let fence = doc.and_then(|doc| doc.trim_start().strip_prefix("```"));
    fence.is_some_and(|attributes| attributes.split(',').any(|one| one.trim() == "ignore"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_in_rust() {
        let check = |text: &str, expected: &[&str]| {
            let source = Source::scan("src/a.rs", text);
            let found = in_rust(&source);
            assert_eq!(found.len(), expected.len(), "{text}: {found:?}");
            for ((_, message), part) in found.iter().zip(expected) {
                assert!(message.contains(part), "{message} should contain {part}");
            }
        };
        check("#[ignore = \"slow\"]", &["#[ignore"]);
        check("#[cfg_attr(windows, ignore)]", &["cfg_attr"]);
        check("#[should_panic(expected = \"x\")]", &["#[should_panic"]);
        check("#![allow(dead_code)]", &["#![allow"]);
        check("fn f() { todo!() }", &["todo!"]);
        check("let s = \"todo!() #[ignore]\";", &[]);
        check("// todo! is a macro", &[]);
        check("// ---- parsing ----", &["banner"]);
        check("//// parsing", &[]);
        check("// ── parsing ──", &[]);
        check("/// | a | b |\n/// |---|---|", &[]);
        check("//! ====", &["banner"]);
        check("let x = a - - - -b;", &[]);
        check("/// ```ignore", &["doc test"]);
        check("/// ```rust,no_run", &[]);
    }

    #[test]
    fn markers_are_words() {
        let check = |text: &str, expected: usize| {
            assert_eq!(markers(text).len(), expected, "{text}");
        };
        check(concat!("// TO", "DO: later"), 1);
        check(concat!("see FIX", "ME and X", "XX"), 2);
        check("XXXL shirts", 0);
    }

    #[test]
    fn stray_white_space() {
        let check = |text: &str, expected: &[usize]| {
            let lines: Vec<_> = white_space(text).iter().map(|(line, _)| *line).collect();
            assert_eq!(lines, expected, "{text:?}");
        };
        check("a\nb\n", &[]);
        check("", &[]);
        check("a \nb", &[1, 2]);
        check("a\n\tb\n", &[2]);
        check("a\r\n", &[1]);
    }
}
