//! Includes and excludes with choices, nested and escaped: a walk skips directories by how a pattern
//! begins, and must not skip one that a choice names.

use crate::fixture::Fixture;

const TREE: &[(&str, &str)] = &[
    ("a/one.rs", ""),
    ("a/deep/two.rs", ""),
    ("b/c/three.rs", ""),
    ("b/d/four.rs", ""),
    ("b/five.md", ""),
    ("e/six.rs", ""),
    ("{a,b}/seven.rs", ""),
    ("top.rs", ""),
    ("top.rs.bak", ""),
];

/// The includes, the excludes, and the files that are staged then.
type Case = (
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
);

const CASES: &[Case] = &[
    (
        &["{a,e}/**"],
        &[],
        &["a/deep/two.rs", "a/one.rs", "e/six.rs"],
    ),
    (
        &["{a,b/{c,d}}"],
        &[],
        &["a/deep/two.rs", "a/one.rs", "b/c/three.rs", "b/d/four.rs"],
    ),
    (&["b/{c,d}/*.rs"], &[], &["b/c/three.rs", "b/d/four.rs"]),
    (
        &["./{e,b}/"],
        &["b/{c,five.md}"],
        &["b/d/four.rs", "e/six.rs"],
    ),
    (&["top.rs{,.bak}"], &[], &["top.rs", "top.rs.bak"]),
    (&[r"\{a,b\}/**"], &[], &["{a,b}/seven.rs"]),
    (&["[{]a,b[}]"], &[], &["{a,b}/seven.rs"]),
    (
        &["[ae]/*.rs"],
        &[],
        &["a/deep/two.rs", "a/one.rs", "e/six.rs"],
    ),
    (
        &["{a,b,e,top}*"],
        &["{a,b}/{one,c/three,d/four}.rs", "*{.md,.bak}"],
        &["a/deep/two.rs", "e/six.rs", "top.rs"],
    ),
];

#[test]
fn choices_select_what_they_name() {
    for (include, exclude, expected) in CASES {
        let mut fixture = Fixture::new(TREE);
        let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect();
        fixture.spec.include = owned(include);
        fixture.spec.exclude = owned(exclude);
        let workspace = fixture.prepare();
        let listed = workspace.list().expect("list");
        let names: Vec<_> = listed
            .iter()
            .map(|path| path.to_str().expect("utf-8"))
            .collect();
        assert_eq!(names, *expected, "include {include:?} exclude {exclude:?}");
        assert!(workspace.changes().expect("changes").is_empty());
    }
}
