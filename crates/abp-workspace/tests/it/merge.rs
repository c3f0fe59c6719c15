//! Making the changes of a run in a source that changed meanwhile.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use abp_error::ErrorCode;
use abp_workspace::{ConflictReason, Error, LineRange};
use proptest::prelude::*;

use crate::apply::{TREE, apply};
use crate::fixture::{Fixture, apply_changes, build, chmod, snapshot};

/// Changes a stage and its source, and expects the conflicts named, with nothing changed.
fn check_conflict(
    case: &str,
    change: &dyn Fn(&Path),
    meanwhile: &dyn Fn(&Path),
    expected: &[(&str, ConflictReason)],
) {
    let fixture = Fixture::new(TREE);
    let workspace = fixture.prepare();
    change(workspace.root());
    meanwhile(&fixture.source());
    let before = snapshot(&fixture.source());
    let changes = workspace.changes().expect(case);
    let error = apply_changes(&workspace, &changes, &[]).expect_err(case);
    assert_eq!(
        error.code(),
        ErrorCode::WorkspaceConflict,
        "{case}: {error}"
    );
    let Error::Conflict { conflicts } = error else {
        panic!("{case}")
    };
    let found = conflicts
        .into_iter()
        .map(|found| (found.path, found.reason));
    let expected = expected
        .iter()
        .map(|(path, reason)| (PathBuf::from(path), reason.clone()));
    assert_eq!(
        found.collect::<Vec<_>>(),
        expected.collect::<Vec<_>>(),
        "{case}"
    );
    assert_eq!(snapshot(&fixture.source()), before, "{case}");
}

fn remove(path: &Path) {
    fs::remove_file(path).expect("removed");
}

#[test]
fn changes_that_do_not_go_together_change_nothing() {
    use ConflictReason::{Appeared, Changed, Content, Lines, Missing, Mode};
    let edit = |root: &Path| {
        build(
            root,
            &[("a", "2"), ("b", "2"), ("new/x", "2"), ("text", MERGED)],
        );
    };
    let lines = |first, last| Lines {
        lines: vec![LineRange { first, last }],
    };
    let check = check_conflict;
    check(
        "content",
        &edit,
        &|source| build(source, &[("a", "3")]),
        &[("a", lines(1, 1))],
    );
    check(
        "all are listed",
        &edit,
        &|source| build(source, &[("a", "9"), ("b", "9"), ("new/x", "9")]),
        &[("a", lines(1, 1)), ("b", lines(1, 1)), ("new/x", Appeared)],
    );
    check(
        "lines",
        &edit,
        &|source| build(source, &[("text", "1\n2\n3\n4\nfive\n6\n7\n")]),
        &[("text", lines(5, 5))],
    );
    check(
        "binary",
        &|root| build(root, &[("a", "\0")]),
        &|source| build(source, &[("a", "\0\0")]),
        &[("a", Content)],
    );
    check(
        "mode",
        &|root| chmod(&root.join("a"), 0o755),
        &|source| chmod(&source.join("a"), 0o600),
        &[("a", Mode)],
    );
    check(
        "mode of a directory",
        &|root| chmod(&root.join("dir"), 0o750),
        &|source| chmod(&source.join("dir"), 0o700),
        &[("dir", Mode)],
    );
    check(
        "gone",
        &edit,
        &|source| remove(&source.join("b")),
        &[("b", Missing)],
    );
    check(
        "removed here, changed there",
        &|root| remove(&root.join("a")),
        &edit,
        &[("a", Changed)],
    );
}

#[test]
fn what_is_no_text_conflicts_as_a_whole() {
    use ConflictReason::{Changed, NotStaged, Parent, Repository};
    let check = check_conflict;
    check(
        "link",
        &|root| relink(root, "b"),
        &|source| relink(source, "dir/c"),
        &[("link", Changed)],
    );
    check(
        "D3 file became a link",
        &|root| build(root, &[("a", "2")]),
        &|source| {
            remove(&source.join("a"));
            symlink("b", source.join("a")).expect("link");
        },
        &[("a", Changed)],
    );
    check(
        "D3 directory became a link",
        &|root| build(root, &[("dir/c", "2"), ("dir/new", "2")]),
        &|source| {
            let outside = source.with_file_name("outside");
            fs::rename(source.join("dir"), &outside).expect("moved");
            symlink(&outside, source.join("dir")).expect("link");
        },
        &[("dir/c", Parent), ("dir/new", Parent)],
    );
    check(
        "directory with files that were not staged",
        &|root| {
            fs::remove_dir_all(root.join("dir")).expect("gone");
            build(root, &[("dir", "2")]);
        },
        &|source| build(source, &[("dir/sub/ignored", "1")]),
        &[("dir", NotStaged)],
    );
    check(
        "D8 repository in another case",
        &|root| build(root, &[("dir/.Git/config", "2")]),
        &|_| {},
        &[("dir/.Git/config", Repository)],
    );
}

/// What the run makes of `text`.
const MERGED: &str = "1\n2\n3\n4\nFIVE\n6\n7\n";

fn relink(root: &Path, target: &str) {
    remove(&root.join("link"));
    symlink(target, root.join("link")).expect("link");
}

#[test]
fn changes_that_go_together_are_both_made() {
    let check = |case: &str,
                 change: &dyn Fn(&Path),
                 meanwhile: &dyn Fn(&Path),
                 path: &str,
                 expected: Option<&str>| {
        let (fixture, result, _) = apply(change, meanwhile);
        result.unwrap_or_else(|error| panic!("{case}: {error}"));
        let found = snapshot(&fixture.source());
        assert_eq!(
            found.get(path.as_bytes()).map(String::as_str),
            expected,
            "{case}"
        );
        assert!(!found.keys().any(|name| name.ends_with(b".abp")), "{case}");
    };
    let text = |root: &Path| build(root, &[("text", MERGED)]);
    let other = |source: &Path| build(source, &[("text", "one\n2\n3\n4\n5\n6\n7\n"), ("a", "9")]);
    check(
        "both texts",
        &text,
        &other,
        "text",
        Some("file 644 one\\n2\\n3\\n4\\nFIVE\\n6\\n7\\n"),
    );
    check(
        "untouched by the run",
        &text,
        &other,
        "a",
        Some("file 644 9"),
    );
    check(
        "text and mode",
        &text,
        &|source| chmod(&source.join("text"), 0o755),
        "text",
        Some("file 755 1\\n2\\n3\\n4\\nFIVE\\n6\\n7\\n"),
    );
    check(
        "mode and text",
        &|root| chmod(&root.join("a"), 0o755),
        &other,
        "a",
        Some("file 755 9"),
    );
    check(
        "the same edit",
        &text,
        &text,
        "text",
        Some("file 644 1\\n2\\n3\\n4\\nFIVE\\n6\\n7\\n"),
    );
    check(
        "the same removal",
        &|root| remove(&root.join("a")),
        &|source| remove(&source.join("a")),
        "a",
        None,
    );
    check(
        "the same link",
        &|root| relink(root, "b"),
        &|source| relink(source, "b"),
        "link",
        Some("link b"),
    );
    let add = |root: &Path| build(root, &[("n/x", "1")]);
    check("the same addition", &add, &add, "n/x", Some("file 644 1"));
    check(
        "into a directory that is gone",
        &|root| build(root, &[("empty/x", "1")]),
        &|source| fs::remove_dir(source.join("empty")).expect("gone"),
        "empty/x",
        Some("file 644 1"),
    );
    check(
        "out of a directory that is gone",
        &|root| remove(&root.join("dir/sub/d")),
        &|source| fs::remove_dir_all(source.join("dir")).expect("gone"),
        "dir",
        None,
    );
}

/// Applying again what is already applied, as after a crash in between, changes nothing.
#[test]
fn applying_twice_is_applying_once() {
    let fixture = Fixture::new(TREE);
    let workspace = fixture.prepare();
    let root = workspace.root();
    remove(&root.join("b"));
    relink(root, "dir/c");
    build(root, &[("new/x", "2"), ("text", MERGED)]);
    let changes = workspace.changes().expect("changes");
    for _ in 0..2 {
        apply_changes(&workspace, &changes, &[]).expect("applied");
        assert_eq!(snapshot(&fixture.source()), snapshot(root));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Every line belongs to the run or to somebody else. Lines of theirs that are apart are merged;
    /// where the two meet, the source stays as it is.
    #[test]
    fn random_edits_merge_or_change_nothing(owners in prop::collection::vec(0_u8..3, 1..24), apart: bool) {
        let text = |changed: &dyn Fn(u8) -> bool| -> String {
            let line = |(number, owner): (usize, &u8)| {
                let between = if apart { format!("between {number}\n") } else { String::new() };
                format!("{between}{} {number}\n", if changed(*owner) { "new" } else { "old" })
            };
            owners.iter().enumerate().map(line).collect()
        };
        let fixture = Fixture::new(&[("text", &text(&|_| false)), ("other", "1")]);
        let workspace = fixture.prepare();
        build(workspace.root(), &[("text", &text(&|owner| owner == 1)), ("other", "2")]);
        build(&fixture.source(), &[("text", &text(&|owner| owner == 2))]);
        let before = snapshot(&fixture.source());
        let changes = workspace.changes().expect("changes");
        let applied = apply_changes(&workspace, &changes, &[]);
        let meet = owners.windows(2).any(|pair| pair[0] != pair[1] && !pair.contains(&0));
        if meet && !apart {
            prop_assert!(matches!(applied, Err(Error::Conflict { .. })), "{applied:?}");
            prop_assert_eq!(snapshot(&fixture.source()), before);
        } else {
            prop_assert!(applied.is_ok(), "{applied:?}");
            let merged = fs::read_to_string(fixture.source().join("text")).expect("text");
            prop_assert_eq!(merged, text(&|owner| owner != 0));
        }
    }
}
