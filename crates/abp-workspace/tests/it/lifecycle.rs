//! Workspaces are claimed, kept, discarded and swept.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use abp_workspace::{Error, StageProgress};
use uuid::Uuid;

use crate::fixture::{Fixture, build, chmod, fifo, snapshot};

/// Longer than any sweep takes.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn d25_one_run_at_a_time_works_in_place() {
    let fixture = Fixture::new(&[("a", "")]).in_place();
    let first = fixture.prepare();
    assert_eq!(first.root(), fixture.source().canonicalize().expect("path"));
    assert!(
        matches!(fixture.try_prepare(), Err(Error::Busy { .. })),
        "D25 second run"
    );
    first.discard().expect("removed");
    fixture.prepare();
    assert_eq!(snapshot(&fixture.source()).len(), 1);
}

/// Half of a stage is never left, whenever the preparation is stopped.
#[test]
fn a_stopped_preparation_leaves_no_stage() {
    let content = "x".repeat(1 << 16);
    let names: Vec<String> = (0..2_000).map(|number| format!("d{number}/f")).collect();
    let entries: Vec<(&str, &str)> = names.iter().map(|name| (&**name, &*content)).collect();
    let fixture = Fixture::in_memory(&entries);
    for files_before in [0, 20] {
        let progress = Arc::new(StageProgress::default());
        let manager = fixture.manager.clone().with_progress(Arc::clone(&progress));
        let stopped = std::thread::scope(|scope| {
            scope.spawn(|| {
                while progress.files() < files_before {
                    std::thread::yield_now();
                }
                progress.stop();
            });
            manager.prepare(&fixture.spec, Uuid::now_v7(), &fixture.hidden)
        });
        assert!(matches!(stopped, Err(Error::Stopped)), "{files_before}");
        assert!(
            progress.files() < 2_000,
            "{files_before}: not all was copied"
        );
        assert!(fixture.stages().is_empty(), "{files_before}");
    }
}

#[test]
fn stages_are_removed_without_following_anything() {
    let fixture = Fixture::new(&[("a", "")]);
    build(&fixture.outside(), &[("canary/file", "alive")]);
    let alive = snapshot(&fixture.outside());
    let workspace = fixture.prepare();
    let root = workspace.root().to_owned();
    symlink(fixture.outside(), root.join("link")).expect("link");
    fifo(&root.join("pipe"));
    let mut deep = fs::File::open(&root).expect("root");
    for _ in 0..600 {
        rustix::fs::mkdirat(&deep, "directory", rustix::fs::Mode::RWXU).expect("deep");
        let flags = rustix::fs::OFlags::DIRECTORY;
        let below = rustix::fs::openat(&deep, "directory", flags, rustix::fs::Mode::empty());
        deep = below.expect("below").into();
    }
    chmod(&root.join("directory"), 0o000);
    workspace.discard().expect("D24 discarded");
    assert!(fixture.stages().is_empty());
    assert_eq!(fixture.trash(), 1);
    let swept = fixture.manager.sweep_trash(LONG).expect("D24 swept");
    assert_eq!((swept.removed, swept.remaining, fixture.trash()), (1, 0, 0));
    assert_eq!(
        snapshot(&fixture.outside()),
        alive,
        "D24 link inside the stage"
    );

    let workspace = fixture.prepare();
    let stage = workspace.root().parent().expect("stage").to_owned();
    fs::rename(&stage, fixture.outside().join("moved")).expect("moved");
    symlink(fixture.outside().join("canary"), &stage).expect("link");
    let replaced = workspace.discard();
    assert!(
        matches!(replaced, Err(Error::StageReplaced { .. })),
        "D24 {replaced:?}"
    );
    fs::remove_dir(fixture.outside().join("moved")).expect("emptied");
    fixture.manager.sweep_trash(LONG).expect("D24 swept");
    assert_eq!(
        snapshot(&fixture.outside()),
        alive,
        "D24 stage replaced by a link"
    );
    assert!(fixture.stages().is_empty() && fixture.trash() == 0);
}

#[test]
fn d23_the_sweeper_takes_what_nobody_uses() {
    let fixture = Fixture::new(&[("a", "")]);
    let none = BTreeSet::new();
    assert_eq!(fixture.manager.sweep(&none).expect("nothing yet"), 0);
    let in_use = fixture.prepare();
    let kept_id = Uuid::new_v4();
    let kept = fixture.prepare_run(kept_id).expect("workspace");
    let kept = kept.keep().expect("kept");
    drop(fixture.prepare());
    drop(fixture.prepare());
    let foreign = fixture.stages_dir().join("not-a-stage");
    fs::create_dir(&foreign).expect("directory");
    let linked = fixture.stages_dir().join(Uuid::new_v4().to_string());
    symlink(&foreign, &linked).expect("link");
    let keep = BTreeSet::from([kept_id]);
    assert_eq!(fixture.manager.sweep(&keep).expect("swept"), 2, "D23");
    assert!(in_use.root().exists() && kept.exists() && foreign.exists() && linked.exists());
    assert_eq!(fixture.trash(), 2, "D23");
    assert_eq!(fixture.manager.sweep(&none).expect("swept"), 1, "D23");
    assert!(in_use.root().exists() && !kept.exists(), "D23");
}

#[test]
fn stages_are_listed_and_claimed_one_at_a_time() {
    let fixture = Fixture::new(&[("a", "")]);
    assert_eq!(fixture.manager.stages().expect("none"), []);
    let (used_id, left_id) = (Uuid::new_v4(), Uuid::new_v4());
    let in_use = fixture.prepare_run(used_id).expect("workspace");
    drop(fixture.prepare_run(left_id));
    let listed = fixture.manager.stages().expect("listed");
    let found: BTreeSet<_> = listed
        .iter()
        .map(|stage| (stage.run_id, stage.staged, stage.in_use))
        .collect();
    assert_eq!(
        found,
        BTreeSet::from([(used_id, true, true), (left_id, true, false)])
    );
    let refused = fixture.manager.discard(used_id);
    assert!(
        matches!(refused, Err(Error::StageInUse { .. })),
        "{refused:?}"
    );
    assert!(in_use.root().exists());
    let claimed = fixture.manager.claim(left_id).expect("claimed");
    assert!(claimed.tree().join("a").exists());
    let none = BTreeSet::new();
    assert_eq!(fixture.manager.sweep(&none).expect("swept"), 0, "in use");
    let refused = fixture.manager.claim(left_id);
    assert!(
        matches!(refused, Err(Error::StageInUse { .. })),
        "{refused:?}"
    );
    claimed.discard().expect("discarded");
    for gone in [left_id, Uuid::new_v4()] {
        let refused = fixture.manager.discard(gone);
        assert!(matches!(refused, Err(Error::NoStage { .. })), "{refused:?}");
    }
}

#[test]
fn the_trash_is_swept_by_several_and_in_parts() {
    let files: Vec<String> = (0..400)
        .map(|file| format!("d{}/e/{file}", file % 20))
        .collect();
    let entries: Vec<(&str, &str)> = files.iter().map(|file| (file.as_str(), "x")).collect();
    let fixture = Fixture::new(&entries);
    assert_eq!(fixture.manager.sweep_trash(LONG).expect("none").removed, 0);
    for _ in 0..6 {
        fixture.prepare().discard().expect("discarded");
    }
    let swept = fixture.manager.sweep_trash(Duration::ZERO).expect("swept");
    assert_eq!((swept.removed, swept.remaining), (0, 6), "no time");
    let removed: u64 = std::thread::scope(|scope| {
        let sweep = || fixture.manager.sweep_trash(LONG).expect("swept").removed;
        let sweepers: Vec<_> = (0..4).map(|_| scope.spawn(sweep)).collect();
        let removed = sweepers
            .into_iter()
            .map(|sweeper| sweeper.join().expect("sweeper"));
        removed.sum()
    });
    assert!(removed >= 6, "{removed}");
    assert_eq!(fixture.trash(), 0);
}

/// Moves or replaces something of a stage during the run, and expects the change to be noticed.
#[test]
fn a_stage_that_is_moved_or_replaced_is_noticed() {
    type Trick<'a> = (&'a str, &'a dyn Fn(&Path));
    let tricks: [Trick<'_>; 5] = [
        ("tree renamed", &|tree| {
            fs::rename(tree, tree.with_file_name("other")).expect("moved");
        }),
        ("tree replaced by a directory", &|tree| {
            fs::rename(tree, tree.with_file_name("other")).expect("moved");
            build(tree, &[("a", "forged")]);
        }),
        ("tree replaced by a link to itself", &|tree| {
            fs::rename(tree, tree.with_file_name("other")).expect("moved");
            symlink("other", tree).expect("link");
        }),
        ("tree removed", &|tree| {
            fs::remove_dir_all(tree).expect("removed");
        }),
        ("stage renamed", &|tree| {
            let stage = tree.parent().expect("stage");
            let moved = stage.with_file_name("moved");
            fs::rename(stage, &moved).expect("moved");
            build(stage, &[("tree/a", "forged")]);
        }),
    ];
    for (case, trick) in tricks {
        let fixture = Fixture::new(&[("a", "1")]);
        let workspace = fixture.prepare();
        trick(workspace.root());
        let error = workspace.changes().expect_err(case);
        assert!(
            matches!(error, Error::StageReplaced { .. }),
            "{case}: {error:?}"
        );
    }
    let fixture = Fixture::new(&[("a", "1")]).in_place();
    let workspace = fixture.prepare();
    fs::rename(fixture.source(), fixture.outside()).expect("moved");
    build(&fixture.source(), &[("a", "forged")]);
    let error = workspace.changes().expect_err("in place");
    assert!(matches!(error, Error::SourceReplaced { .. }), "{error:?}");
}
