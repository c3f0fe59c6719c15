//! What verification reports: everything, and never by running git.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use abp_core::ChangeSummary;
use abp_workspace::{ChangeKind, ContentChange, Error, PreparedWorkspace};

use crate::fixture::{Fixture, apply_changes, build, chmod, fifo};

const TREE: &[(&str, &str)] = &[
    (".gitignore", "*.log\n"),
    ("a.txt", "one\ntwo\n"),
    ("d/b", "b"),
    ("link", "-> a.txt"),
    ("empty/", ""),
];

/// Makes a change in a stage and compares the status.
fn check(case: &str, change: impl Fn(&Path), expected: &str) {
    let fixture = Fixture::new(TREE);
    let workspace = fixture.prepare();
    change(workspace.root());
    let changes = workspace.changes().expect(case);
    assert_eq!(changes.git_status(), expected, "{case}");
    assert_eq!(changes.is_empty(), expected.is_empty(), "{case}");
    let same = changes.manifest_sha256() == workspace.baseline().sha256();
    assert_eq!(same, expected.is_empty(), "{case}");
}

fn edit(root: &Path) {
    fs::write(root.join("a.txt"), "changed").expect("write");
}

#[test]
fn d9_no_change_can_be_hidden() {
    check("nothing", |_| {}, "");
    check("edit", edit, " M a.txt\n");
    check(
        "D9 everything ignored",
        |root| {
            edit(root);
            build(root, &[(".gitignore", "*\n"), ("new", "")]);
        },
        " M .gitignore\n M a.txt\n?? new\n",
    );
    check(
        "D10 ignored file",
        |root| build(root, &[("x.log", "")]),
        "!! x.log\n",
    );
    check(
        "D9 mode only",
        |root| chmod(&root.join("a.txt"), 0o755),
        " M a.txt\n",
    );
    check(
        "D9 mode beyond git",
        |root| chmod(&root.join("a.txt"), 0o666),
        " M a.txt\n",
    );
    check(
        "D9 set-id",
        |root| chmod(&root.join("d/b"), 0o4644),
        " M d/b\n",
    );
    check(
        "D9 directory mode",
        |root| chmod(&root.join("d"), 0o700),
        " M d/\n",
    );
    check(
        "D9 same size and time",
        |root| {
            let path = root.join("a.txt");
            let time = fs::metadata(&path)
                .expect("metadata")
                .modified()
                .expect("time");
            fs::write(&path, "ONE\ntwo\n").expect("write");
            let file = fs::File::options().write(true).open(&path).expect("file");
            file.set_modified(time).expect("time");
        },
        " M a.txt\n",
    );
    check(
        "D6 a terabyte of nothing",
        |root| {
            edit(root);
            let file = fs::File::create(root.join("sparse")).expect("file");
            file.set_len(1 << 40).expect("length");
        },
        " M a.txt\n?? sparse\n",
    );
    check("D9 fifo", |root| fifo(&root.join("pipe")), "?? pipe\n");
    check(
        "D9 empty directory",
        |root| build(root, &[("new/", "")]),
        "?? new/\n",
    );
    check(
        "D9 directory gone",
        |root| fs::remove_dir(root.join("empty")).expect("rmdir"),
        " D empty/\n",
    );
    check(
        "D9 link target",
        |root| relink(&root.join("link"), "d/b"),
        " M link\n",
    );
    check(
        "D9 file to link",
        |root| relink(&root.join("a.txt"), "d/b"),
        " T a.txt\n",
    );
    check(
        "D9 state directory",
        |root| {
            build(
                root,
                &[(".agent-backplane/x", ""), ("d/.agent-backplane/x", "")],
            );
        },
        "?? .agent-backplane\n?? d/.agent-backplane\n",
    );
}

#[test]
fn d10_what_is_ignored_is_reported_and_left_where_it_is() {
    let rules = "/target/\n*.o\n!keep.o\n";
    let fixture = Fixture::new(&[(".gitignore", rules), ("src/main.c", "1\n")]);
    let workspace = fixture.prepare();
    let made = [
        ("target/debug/app", "1"),
        ("target/.gitignore", "*"),
        ("src/main.o", "1"),
        ("src/keep.o", "1\n"),
        ("src/.gitignore", "*"),
        ("build/x.o", "1"),
    ];
    build(workspace.root(), &made);
    let changes = workspace.changes().expect("changes");
    let expected = "?? src/.gitignore\n?? src/keep.o\n!! build/x.o\n!! src/main.o\n!! target/\n";
    assert_eq!(changes.git_status(), expected, "D10");
    let ignored = changes.files().iter().filter(|file| file.ignored);
    let ignored: Vec<_> = ignored
        .map(|file| file.path.to_str().expect("utf-8"))
        .collect();
    let expected = [
        "build/x.o",
        "src/main.o",
        "target/.gitignore",
        "target/debug/app",
    ];
    assert_eq!(ignored, expected, "D10");
    assert_eq!(changes.summary().files_changed, 2);
    assert!(!changes.git_diff().contains("target"));
}

#[test]
fn d8_a_repository_is_named_and_never_entered() {
    check(
        "D8 hostile repository",
        |root| {
            edit(root);
            let hook = "[core]\n\tfsmonitor = touch /tmp/abp-executed\n\tworktree = /\n\tfileMode = false\n";
            build(
                root,
                &[
                    (".git/config", hook),
                    (".git/info/exclude", "*"),
                    ("d/.git/HEAD", "x"),
                ],
            );
        },
        " M a.txt\n?? .git\n?? d/.git\n",
    );
}

#[test]
fn d12_names_and_types_are_told_apart() {
    check(
        "D12 names",
        |root| build(root, &[("sp ace", ""), ("n\nl", ""), ("\u{e9}", "")]),
        "?? \"n\\nl\"\n?? \"sp ace\"\n?? \"\\303\\251\"\n",
    );
    check(
        "file to directory",
        |root| {
            fs::remove_file(root.join("a.txt")).expect("removed");
            build(root, &[("a.txt/x", "")]);
        },
        " T a.txt/\n?? a.txt/x\n",
    );
}

fn relink(path: &Path, target: &str) {
    fs::remove_file(path).expect("removed");
    symlink(target, path).expect("link");
}

#[test]
fn d9_depth_hides_nothing() {
    let fixture = Fixture::new(TREE);
    let workspace = fixture.prepare();
    let mut deep = workspace.root().to_owned();
    for _ in 0..257 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).expect("directories");
    let long = workspace.root().join(vec!["n".repeat(200); 15].join("/"));
    fs::create_dir_all(&long).expect("directories");
    let below = fs::File::open(&long).expect("directory");
    {
        let flags = rustix::fs::OFlags::DIRECTORY;
        let name = "m".repeat(200);
        rustix::fs::mkdirat(&below, &name, rustix::fs::Mode::RWXU).expect("directory");
        let opened =
            rustix::fs::openat(&below, &name, flags, rustix::fs::Mode::empty()).expect("opened");
        let file = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
        rustix::fs::openat(&opened, "hidden", file, rustix::fs::Mode::RUSR).expect("file");
    }
    let changes = workspace.changes().expect("changes");
    let kinds: Vec<_> = changes.files().iter().map(|file| file.kind).collect();
    assert_eq!(kinds, [ChangeKind::Special, ChangeKind::Added]);
    assert!(changes.git_status().contains("/hidden\n"));
}

#[test]
fn d11_the_baseline_survives_the_agent() {
    let fixture = Fixture::new(TREE);
    let workspace = fixture.prepare();
    for entry in fs::read_dir(workspace.root()).expect("root") {
        let path = entry.expect("entry").path();
        let removed = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.expect("removed");
    }
    let changes = workspace.changes().expect("changes");
    assert_eq!(
        changes.git_status(),
        " D .gitignore\n D a.txt\n D d/b\n D empty/\n D link\n"
    );
    // Which of the packs has a file's bytes depends on the speed of the threads: all are rewritten.
    for pack in packs(&workspace) {
        fs::write(pack, "another past, as long as the real one").expect("write");
    }
    let damaged = workspace.changes();
    assert!(
        matches!(damaged, Err(Error::BaselineDamaged { .. })),
        "D11 {damaged:?}"
    );
    let damaged = workspace.change_set(&changes);
    assert!(
        matches!(damaged, Err(Error::BaselineDamaged { .. })),
        "D11 {damaged:?}"
    );
}

/// The files with the original bytes. They have no name, so only a process that may look into the
/// host's own reaches them.
fn packs(workspace: &PreparedWorkspace) -> Vec<PathBuf> {
    let stage = workspace.root().parent().expect("stage");
    let handles = fs::read_dir("/proc/self/fd").expect("handles");
    let paths = handles.map(|handle| handle.expect("handle").path());
    let found: Vec<PathBuf> = paths
        .filter(|path| {
            let target = fs::read_link(path).unwrap_or_default();
            target.starts_with(stage) && target.to_string_lossy().contains(".pack")
        })
        .collect();
    assert!(!found.is_empty(), "there are packs");
    found
}

#[test]
fn the_source_may_change_during_the_run() {
    let fixture = Fixture::new(TREE);
    let workspace = fixture.prepare();
    fs::write(fixture.source().join("a.txt"), "meanwhile").expect("write");
    fs::write(workspace.root().join("a.txt"), "one\n2\n").expect("write");
    let changes = workspace.changes().expect("changes");
    let expected =
        "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n";
    assert_eq!(changes.git_diff(), expected);
    let summary = ChangeSummary {
        files_changed: 1,
        insertions: 1,
        deletions: 1,
    };
    assert_eq!(changes.summary(), summary);
}

#[test]
fn in_place_the_rules_of_the_start_hold() {
    let mut fixture = Fixture::new(TREE).in_place();
    build(
        &fixture.source(),
        &[
            ("x.log", "1"),
            ("target/x", "1"),
            (".git/HEAD", "1"),
            ("out/x", "1"),
        ],
    );
    build(&fixture.source(), &[(".gitignore", "*.log\n/target/\n")]);
    fixture.spec.exclude = vec!["out".to_owned()];
    let workspace = fixture.prepare();
    assert!(!workspace.is_staged());
    assert!(workspace.changes().expect("changes").is_empty());
    let changed = [
        (".gitignore", "*\n"),
        ("a.txt", "2"),
        ("x.log", "2"),
        ("target/x", "2"),
        (".git/HEAD", "2"),
        ("out/x", "2"),
        (".agent-backplane/x", "2"),
        ("new/.gitignore", "*"),
        ("new/x", ""),
        ("new.log", ""),
    ];
    build(&fixture.source(), &changed);
    let changes = workspace.changes().expect("changes");
    assert_eq!(
        changes.git_status(),
        " M .gitignore\n M a.txt\n M x.log\n?? new/.gitignore\n?? new/x\n!! new.log\n"
    );
    assert!(changes.git_diff().contains("-two\n"));
    fs::remove_dir_all(fixture.source().join(".git")).expect("removed");
    assert!(
        workspace
            .changes()
            .expect("changes")
            .git_status()
            .starts_with(" D .git\n")
    );
    assert!(matches!(
        apply_changes(&workspace, &changes, &[]),
        Err(Error::NotStaged)
    ));
    workspace.discard().expect("removed");
    assert_eq!(
        fs::read_to_string(fixture.source().join("a.txt")).expect("file"),
        "2"
    );
}

#[test]
fn contents_too_large_are_named_only() {
    let fixture = Fixture::new(&[("large", "")]);
    fs::File::create(fixture.source().join("large"))
        .expect("file")
        .set_len(65 << 20)
        .expect("length");
    let workspace = fixture.prepare();
    fs::write(workspace.root().join("large"), "small now").expect("write");
    let changes = workspace.changes().expect("changes");
    assert_eq!(
        changes.git_diff(),
        "diff --git a/large b/large\nBinary files a/large and b/large differ\n"
    );
    assert_eq!(changes.files()[0].content, ContentChange::Omitted);
}
