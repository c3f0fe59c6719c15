//! Paths that a policy hides are not staged, and names that cannot be used are left out alone.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use abp_testkit::skip;
use abp_workspace::{ConflictReason, Error};

use crate::fixture::{Fixture, apply_changes, build, chmod, globs, path, snapshot};

const TREE: &[(&str, &str)] = &[
    (".gitignore", "ignored\n"),
    (".env", "secret"),
    ("a", "1"),
    ("keys/one.pem", "secret"),
    ("keys/readme", "1"),
    ("vault/deep/x", "secret"),
    ("sub/.env", "secret"),
];

fn fixture() -> Fixture {
    let mut fixture = Fixture::new(TREE);
    fixture.hidden = globs(&["**/.env", "vault", "*.pem", "no-such"]);
    fixture
}

#[test]
fn hidden_paths_are_not_staged_and_counted_by_pattern() {
    let fixture = fixture();
    let workspace = fixture.prepare();
    let found = snapshot(workspace.root());
    assert!(!found.values().any(|shown| shown.contains("secret")));
    let names: Vec<_> = found.keys().map(|name| path(name).to_owned()).collect();
    let expected = [".gitignore", "a", "keys", "keys/readme", "sub"];
    assert_eq!(names, expected.map(Path::new));
    assert_eq!(workspace.hidden(), [2, 1, 1, 0]);
    let left: Vec<_> = workspace
        .left_out()
        .0
        .iter()
        .map(|left| (left.path.as_str(), left.reason.as_str()))
        .collect();
    let env = "hidden by the deny_read pattern \"**/.env\"";
    let expected = [
        (".env", env),
        ("keys/one.pem", "hidden by the deny_read pattern \"*.pem\""),
        ("sub/.env", env),
        ("vault", "hidden by the deny_read pattern \"vault\""),
    ];
    assert_eq!(left, expected);
    assert!(workspace.changes().expect("changes").is_empty());
}

#[test]
fn an_include_does_not_win_over_hiding() {
    let mut fixture = fixture();
    fixture.spec.include = vec![".env".to_owned(), "vault/**".to_owned(), "a".to_owned()];
    let workspace = fixture.prepare();
    assert_eq!(workspace.list().expect("list"), [Path::new("a")]);
    assert_eq!(workspace.hidden(), [1, 1, 0, 0]);
}

#[test]
fn in_place_nothing_is_hidden() {
    let fixture = fixture().in_place();
    let workspace = fixture.prepare();
    assert_eq!(workspace.baseline().files(), 7);
    assert!(workspace.hidden().iter().all(|count| *count == 0));
}

#[test]
fn hidden_paths_are_neither_deleted_nor_written_over() {
    let fixture = fixture();
    let workspace = fixture.prepare();
    fs::remove_dir_all(workspace.root().join("sub")).expect("removed");
    fs::remove_dir_all(workspace.root().join("keys")).expect("removed");
    build(workspace.root(), &[("a", "2")]);
    let changes = workspace.changes().expect("changes");
    assert_eq!(changes.git_status(), " M a\n D keys/readme\n D sub/\n");
    let secrets = |fixture: &Fixture| {
        let found = snapshot(&fixture.source()).into_values();
        found.filter(|shown| shown.contains("secret")).count()
    };
    apply_changes(&workspace, &changes, &[]).expect("applied");
    assert_eq!(secrets(&fixture), 4);
    assert!(!fixture.source().join("keys/readme").exists());

    build(
        workspace.root(),
        &[(".env", "of the agent"), ("vault/x", "1")],
    );
    let changes = workspace.changes().expect("changes");
    let Err(Error::Conflict { conflicts }) = apply_changes(&workspace, &changes, &[]) else {
        panic!("written over")
    };
    assert_eq!(conflicts.len(), 1, "{conflicts:?}");
    assert_eq!(conflicts[0].path, Path::new(".env"));
    assert_eq!(conflicts[0].reason, ConflictReason::Appeared);
    fs::remove_file(workspace.root().join(".env")).expect("removed");
    fs::remove_dir_all(workspace.root().join("vault")).expect("removed");
    build(workspace.root(), &[("vault", "a file now")]);
    let changes = workspace.changes().expect("changes");
    let refused = apply_changes(&workspace, &changes, &[]);
    assert!(
        matches!(refused, Err(Error::Conflict { .. })),
        "{refused:?}"
    );
    assert_eq!(secrets(&fixture), 4);
}

#[test]
fn one_unusable_name_leaves_out_that_name_alone() {
    let fixture = Fixture::new(&[("a", "1"), ("d/b", "1")]);
    let source = fixture.source();
    let long = "x".repeat(300);
    symlink(&long, source.join("long-component")).expect("link");
    symlink(
        format!("d/{}", "y/".repeat(2_000)),
        source.join("long-target"),
    )
    .expect("link");
    symlink("loop", source.join("loop")).expect("link");
    symlink("loop/x", source.join("through-loop")).expect("link");
    symlink("a/x", source.join("through-file")).expect("link");
    let workspace = fixture.prepare();
    let left: Vec<_> = workspace
        .left_out()
        .0
        .iter()
        .map(|left| left.path.as_str())
        .collect();
    let expected = ["long-component", "loop", "through-file", "through-loop"];
    assert_eq!(left, expected);
    assert_eq!(
        snapshot(workspace.root()).len(),
        4,
        "a, d, d/b and one link"
    );
    assert!(workspace.changes().expect("changes").is_empty());
}

/// A process's own files in `/proc` have one that opens and then fails with `EIO`.
#[test]
fn a_file_that_cannot_be_read_is_left_out() {
    let mut fixture = Fixture::new(&[]);
    fixture.spec.root = "/proc/self".to_owned();
    fixture.spec.include = vec!["mem".to_owned(), "comm".to_owned()];
    let workspace = match fixture.try_prepare() {
        Ok(workspace) => workspace,
        Err(Error::Root { source, .. }) => {
            return skip(
                "a_file_that_cannot_be_read_is_left_out",
                &source.to_string(),
            );
        }
        Err(error) => panic!("{error:?}"),
    };
    assert_eq!(workspace.list().expect("list"), [Path::new("comm")]);
    let (left, _) = workspace.left_out();
    let mem = left.iter().find(|left| left.path == "mem").expect("mem");
    assert!(mem.reason.starts_with("cannot be read"), "{}", mem.reason);
}

#[test]
fn a_name_without_permission_is_left_out() {
    if rustix::process::geteuid().is_root() {
        return skip(
            "a_name_without_permission_is_left_out",
            "root may read everything",
        );
    }
    let fixture = Fixture::new(&[("a", "1"), ("secret", "1"), ("closed/x", "1")]);
    chmod(&fixture.source().join("secret"), 0o000);
    chmod(&fixture.source().join("closed"), 0o000);
    let workspace = fixture.prepare();
    assert_eq!(workspace.list().expect("list"), [Path::new("a")]);
    assert_eq!(workspace.left_out().1, 2);
    chmod(&fixture.source().join("closed"), 0o700);
}
