//! Paths as tools name them, and reading and writing through them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use abp_core::PolicyProfile;
use abp_policy::PolicyEngine;
use abp_workspace::{Error, WriteKind};
use proptest::prelude::*;

use crate::fixture::{Fixture, build, fifo, snapshot, tool_read, tool_write};

const TREE: &[(&str, &str)] = &[
    ("a.txt", "text"),
    ("d/e/f", "deep"),
    ("to-dir", "-> d/e"),
    ("to-file", "-> d/../a.txt"),
];

#[test]
fn d13_paths_land_where_the_kernel_would_put_them() {
    let fixture = Fixture::new(TREE);
    let workspace = fixture.prepare();
    let root = workspace.root().to_owned();
    symlink("/etc", root.join("to-etc")).expect("link");
    symlink("..", root.join("d/up")).expect("link");
    symlink(root.join("d/e"), root.join("to-self")).expect("link");
    symlink("circle", root.join("circle")).expect("link");
    let check = |path: &str, expected: Option<&str>| {
        let found = workspace.resolve(path).ok();
        assert_eq!(found.as_deref(), expected.map(Path::new), "D13 {path:?}");
    };
    check("a.txt", Some("a.txt"));
    check("./d//e/./f", Some("d/e/f"));
    check("d/", Some("d"));
    check(".", Some(""));
    check("d/../a.txt", Some("a.txt"));
    check("to-dir/f", Some("d/e/f"));
    check("to-dir/../x", Some("d/x"));
    check("to-file", Some("a.txt"));
    check("d/up/a.txt", Some("a.txt"));
    check("new/deep/file", Some("new/deep/file"));
    check("new/../a.txt", Some("a.txt"));
    check("to-self/f", Some("d/e/f"));
    check(&format!("{}/d/e", root.display()), Some("d/e"));
    for outside in [
        "..",
        "../x",
        "d/../../x",
        "d/up/..",
        "/etc/passwd",
        "/",
        "to-etc/passwd",
        "new/../../x",
        "/proc/self/root",
    ] {
        check(outside, None);
        let left = workspace.resolve(outside);
        assert!(
            matches!(left, Err(Error::LeavesRoot { .. })),
            "D13 {outside:?}: {left:?}"
        );
    }
    for nowhere in ["", "a\0b", "circle", "circle/x", "a.txt/x"] {
        let left = workspace.resolve(nowhere);
        assert!(
            matches!(left, Err(Error::Unresolvable { .. })),
            "D13 {nowhere:?}: {left:?}"
        );
    }
    check(&format!("{}x/d", root.display()), None);
}

#[test]
fn tools_write_and_read() {
    let fixture = Fixture::new(TREE);
    let source = snapshot(&fixture.source());
    let workspace = fixture.prepare();
    let root = workspace.root();
    fs::set_permissions(root.join("a.txt"), fs::Permissions::from_mode(0o751)).expect("chmod");
    fs::hard_link(root.join("a.txt"), root.join("twin")).expect("link");
    assert_eq!(
        tool_write(&workspace, "to-file", "new").expect("write"),
        WriteKind::Replaced
    );
    assert_eq!(
        tool_write(&workspace, "n/e/w", "created").expect("write"),
        WriteKind::Created
    );
    let mode = fs::metadata(root.join("a.txt"))
        .expect("metadata")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o751);
    assert_eq!(
        fs::read_to_string(root.join("twin")).expect("twin"),
        "text",
        "D4 hard link"
    );
    assert_eq!(tool_read(&workspace, "to-file", 3).expect("read"), b"new");
    let refused = tool_read(&workspace, "a.txt", 2);
    assert!(
        matches!(
            refused,
            Err(Error::FileTooLarge {
                size: 3,
                max: 2,
                ..
            })
        ),
        "{refused:?}"
    );
    assert_eq!(
        workspace.list().expect("list").len(),
        4,
        "no temporary file is left"
    );
    assert_eq!(snapshot(&fixture.source()), source);
}

#[test]
fn tools_are_kept_out() {
    let fixture = Fixture::new(TREE);
    build(&fixture.outside(), &[("file", "canary")]);
    let workspace = fixture.prepare();
    let root = workspace.root();
    fifo(&root.join("pipe"));
    let protected = [
        ".git/config",
        "d/.git/hooks/x",
        ".GIT/config",
        ".agent-backplane/x",
    ];
    for path in protected {
        let refused = tool_write(&workspace, path, "");
        assert!(
            matches!(refused, Err(Error::Protected { .. })),
            "{path}: {refused:?}"
        );
    }
    for path in ["pipe", "d"] {
        assert!(
            matches!(tool_read(&workspace, path, 9), Err(Error::NotAFile { .. })),
            "D5 {path}"
        );
        assert!(
            matches!(
                tool_write(&workspace, path, ""),
                Err(Error::NotAFile { .. })
            ),
            "D5 {path}"
        );
    }
    // The path was approved, and then its directory became a link that leads out.
    let engine = PolicyEngine::new(&PolicyProfile::default()).expect("policy");
    let write = engine.approve_write(Path::new("d/e/f")).expect("approved");
    let read = engine.approve_read(Path::new("d/e/f")).expect("approved");
    fs::remove_dir_all(root.join("d/e")).expect("removed");
    symlink(fixture.outside(), root.join("d/e")).expect("link");
    assert!(workspace.write(&write, b"escaped").is_err(), "D3");
    assert!(workspace.read(&read, 9).is_err(), "D3");
    fs::remove_file(root.join("a.txt")).expect("removed");
    symlink(fixture.outside().join("file"), root.join("a.txt")).expect("link");
    let write = engine.approve_write(Path::new("a.txt")).expect("approved");
    assert!(workspace.write(&write, b"escaped").is_err(), "D3");
    assert_eq!(
        fs::read_to_string(fixture.outside().join("file")).expect("file"),
        "canary",
        "D3"
    );
    assert_eq!(snapshot(&fixture.outside()).len(), 1, "D3");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// D13: however a path is spelled, the decision is the one on the file it lands at.
    #[test]
    fn decision_on_a_path_is_the_decision_on_its_file(
        parts in prop::collection::vec(prop::sample::select(vec!["d", "e", "f", "..", ".", "", "to-dir", "a.txt", "to-file"]), 1..8),
    ) {
        let fixture = Fixture::new(TREE);
        let workspace = fixture.prepare();
        let spelled = parts.join("/");
        let profile = PolicyProfile { deny_read: vec!["d/e".to_owned()], ..PolicyProfile::default() };
        let engine = PolicyEngine::new(&profile).expect("policy");
        let Ok(resolved) = workspace.resolve(&spelled) else { return Ok(()) };
        let root = workspace.root();
        if let Ok(real) = root.join(spelled.trim_start_matches('/')).canonicalize() && !resolved.as_os_str().is_empty() {
            let real = real.strip_prefix(root).expect("beneath");
            prop_assert_eq!(&resolved, real);
            prop_assert_eq!(engine.can_read_path(&resolved).is_allowed(), !real.starts_with("d/e"));
        }
    }
}
