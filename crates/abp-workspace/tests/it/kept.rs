//! Stages that outlive the process that made them: found, taken up again, decided about.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use abp_error::ErrorCode;
use abp_workspace::{Error, WorkspaceManager};
use uuid::Uuid;

use crate::fixture::{Fixture, build, chmod, snapshot};

const TREE: &[(&str, &str)] = &[
    (".gitignore", "*.log\n/out/\n"),
    ("sub/.gitignore", "!kept.log\n"),
    ("a.txt", "one\ntwo\n"),
    ("sub/b", "b"),
    ("link", "-> a.txt"),
    ("not\u{e9}/x", "1"),
    ("skipped.key", "1"),
];

/// Prepares a stage, changes it, keeps it, and forgets everything but the run.
fn kept(fixture: &Fixture, change: impl Fn(&Path)) -> (Uuid, PathBuf) {
    let run_id = Uuid::new_v4();
    let workspace = fixture
        .manager
        .prepare(&fixture.spec, run_id)
        .expect("workspace");
    change(workspace.root());
    let root = workspace.keep().expect("kept");
    (run_id, root)
}

fn edit(root: &Path) {
    build(
        root,
        &[
            ("a.txt", "one\n2\n"),
            ("new/file", "new\n"),
            ("x.log", ""),
            ("sub/kept.log", ""),
        ],
    );
    fs::remove_file(root.join("sub/b")).expect("removed");
}

/// What a later process has: the directory and the run.
fn later(root: &Path) -> WorkspaceManager {
    WorkspaceManager::new(root.ancestors().nth(2).expect("stages"))
}

#[test]
fn a_kept_stage_shows_the_same_changes_later() {
    let mut fixture = Fixture::new(TREE);
    fixture.spec.exclude = vec!["*.key".to_owned()];
    let run_id = Uuid::new_v4();
    let workspace = fixture
        .manager
        .prepare(&fixture.spec, run_id)
        .expect("workspace");
    edit(workspace.root());
    let expected = workspace.changes().expect("changes");
    let (baseline, left_out) = (
        workspace.baseline().clone(),
        workspace.left_out().0.to_vec(),
    );
    let root = workspace.keep().expect("kept");
    // Neither the source nor the rules in it have a say any more.
    build(
        &fixture.source(),
        &[("a.txt", "other"), (".gitignore", "*")],
    );

    let workspace = later(&root).reopen(run_id).expect("reopened");
    assert_eq!(workspace.baseline(), &baseline);
    assert_eq!(workspace.left_out(), (left_out.as_slice(), 1));
    assert_eq!(
        (workspace.root(), workspace.source()),
        (&*root, &*fixture.source().canonicalize().expect("path"))
    );
    let changes = workspace.changes().expect("changes");
    assert_eq!(changes, expected);
    let status = " M a.txt\n D sub/b\n?? new/file\n?? sub/kept.log\n!! x.log\n";
    assert_eq!(changes.git_status(), status);
    drop(workspace);

    // Looking is not deciding.
    assert_eq!(fixture.manager.sweep().expect("swept"), 0, "D23");
    let workspace = later(&root).reopen(run_id).expect("reopened");
    workspace.remove().expect("discarded");
    let gone = fixture.manager.reopen(run_id);
    assert!(matches!(gone, Err(Error::NoStage { .. })), "{gone:?}");
    assert!(fixture.stages().is_empty());
}

#[test]
fn a_kept_stage_is_applied_later() {
    let fixture = Fixture::new(TREE);
    let (run_id, root) = kept(&fixture, |root| {
        edit(root);
        fs::remove_file(root.join("x.log")).expect("removed");
    });
    let expected = snapshot(&root);
    let workspace = later(&root).reopen(run_id).expect("reopened");
    let changes = workspace.changes().expect("changes");
    workspace.apply_to_source(&changes).expect("applied");
    assert_eq!(snapshot(&fixture.source()), expected);
    fs::rename(fixture.source(), fixture.outside()).expect("moved");
    drop(workspace);
    let workspace = later(&root)
        .reopen(run_id)
        .expect("the source need not exist");
    let changes = workspace.changes().expect("changes");
    assert!(!changes.is_empty());
    let error = workspace.apply_to_source(&changes).expect_err("no source");
    assert!(matches!(error, Error::Root { .. }), "{error:?}");
}

#[test]
fn in_place_the_baseline_can_be_kept_too() {
    let fixture = Fixture::new(TREE).in_place();
    let (run_id, root) = kept(&fixture, edit);
    assert_eq!(root, fixture.source().canonicalize().expect("path"));
    let other = fixture.prepare();
    let busy = fixture.manager.reopen(run_id);
    assert!(matches!(busy, Err(Error::Busy { .. })), "D25 {busy:?}");
    other.remove().expect("removed");
    let workspace = fixture.manager.reopen(run_id).expect("reopened");
    let status = workspace.changes().expect("changes").git_status();
    assert!(status.starts_with(" M a.txt\n D sub/b\n"), "{status}");
}

#[test]
fn stages_are_listed_and_claimed_one_at_a_time() {
    let fixture = Fixture::new(TREE);
    assert_eq!(fixture.manager.stages().expect("none"), []);
    let run_id = Uuid::new_v4();
    let in_use = fixture
        .manager
        .prepare(&fixture.spec, run_id)
        .expect("workspace");
    let refused = fixture.manager.reopen(run_id).expect_err("in use");
    assert!(
        refused.to_string().contains(&run_id.to_string()),
        "{refused}"
    );
    assert!(matches!(refused, Error::StageInUse { .. }), "{refused:?}");
    let (kept_id, root) = kept(&fixture, |_| {});
    let left_id = Uuid::new_v4();
    drop(fixture.manager.prepare(&fixture.spec, left_id));
    let stages = root.ancestors().nth(2).expect("stages");
    symlink(
        root.parent().expect("stage"),
        stages.join(Uuid::new_v4().to_string()),
    )
    .expect("link");
    let source = fixture.source().canonicalize().expect("path");
    let listed = fixture.manager.stages().expect("listed");
    let mut expected = [
        (run_id, false, true),
        (kept_id, true, false),
        (left_id, false, false),
    ];
    expected.sort();
    let found: Vec<_> = listed
        .iter()
        .map(|stage| (stage.run_id, stage.kept, stage.in_use))
        .collect();
    assert_eq!(found, expected);
    assert!(
        listed
            .iter()
            .all(|stage| stage.staged && stage.source.as_ref() == Some(&source))
    );
    drop(in_use);
    fixture
        .manager
        .reopen(run_id)
        .expect("nobody uses it any more");
}

#[test]
fn a_torn_or_foreign_record_is_refused() {
    let check = |case: &str, harm: &dyn Fn(&Path), expected: &str| {
        let fixture = Fixture::new(TREE);
        let (run_id, root) = kept(&fixture, edit);
        harm(&root.with_file_name("record"));
        let error = fixture.manager.reopen(run_id).expect_err(case);
        assert!(error.to_string().contains(expected), "{case}: {error}");
        assert_eq!(error.code(), ErrorCode::WorkspaceInitFailed, "{case}");
        assert_eq!(fixture.manager.stages().expect(case).len(), 1, "{case}");
    };
    let rewrite = |record: &Path, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(record).expect("record");
        change(&mut bytes);
        fs::write(record, bytes).expect("record");
    };
    check(
        "gone",
        &|record| fs::remove_file(record).expect("removed"),
        "there is none",
    );
    check(
        "empty",
        &|record| fs::write(record, "").expect("written"),
        "cut short",
    );
    check(
        "foreign",
        &|record| fs::write(record, "[core]\nbare = true\n").expect("written"),
        "another version",
    );
    check(
        "newer",
        &|record| rewrite(record, &|bytes| bytes[10] = b'2'),
        "another version",
    );
    check(
        "torn",
        &|record| rewrite(record, &|bytes| bytes.truncate(bytes.len() - 40)),
        "checksum",
    );
    check(
        "one bit",
        &|record| rewrite(record, &|bytes| bytes[300] ^= 1),
        "checksum",
    );
    check(
        "link",
        &|record| {
            fs::rename(record, record.with_extension("moved")).expect("moved");
            symlink("record.moved", record).expect("link");
        },
        "stage",
    );
}

/// Removing makes a stage unusable first: half of it must not pass for a result.
#[test]
fn d23_half_a_removal_is_swept() {
    let fixture = Fixture::new(TREE);
    let (run_id, root) = kept(&fixture, edit);
    let stage = root.parent().expect("stage");
    for mark in ["kept", "record"] {
        fs::remove_file(stage.join(mark)).expect("removed");
    }
    chmod(&root, 0o500);
    assert!(
        matches!(
            fixture.manager.reopen(run_id),
            Err(Error::StageDamaged { .. })
        ),
        "D23"
    );
    assert_eq!(fixture.manager.sweep().expect("swept"), 1, "D23");
}
