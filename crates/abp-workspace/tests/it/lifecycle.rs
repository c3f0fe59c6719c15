//! How workspaces are claimed, removed, kept and swept.

use std::fs;
use std::os::unix::fs::symlink;

use abp_workspace::Error;

use crate::fixture::{Fixture, build, chmod, fifo, snapshot};

#[test]
fn d25_one_run_at_a_time_works_in_place() {
    let fixture = Fixture::new(&[("a", "")]).in_place();
    let first = fixture.prepare();
    assert_eq!(first.root(), fixture.source().canonicalize().expect("path"));
    assert!(
        matches!(fixture.try_prepare(), Err(Error::Busy { .. })),
        "D25 second run"
    );
    first.remove().expect("removed");
    fixture.prepare();
    assert_eq!(snapshot(&fixture.source()).len(), 1);
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
    workspace.remove().expect("D24 removed");
    assert_eq!(
        snapshot(&fixture.outside()),
        alive,
        "D24 link inside the stage"
    );

    let workspace = fixture.prepare();
    let stage = workspace.root().parent().expect("stage").to_owned();
    fs::rename(&stage, fixture.outside().join("moved")).expect("moved");
    symlink(fixture.outside().join("canary"), &stage).expect("link");
    workspace.remove().expect("D24 removed");
    fs::remove_dir(fixture.outside().join("moved")).expect("emptied");
    assert_eq!(
        snapshot(&fixture.outside()),
        alive,
        "D24 stage replaced by a link"
    );
    assert!(fixture.stages().is_empty());
}

#[test]
fn d23_the_sweeper_takes_what_nobody_uses() {
    let fixture = Fixture::new(&[("a", "")]);
    assert_eq!(fixture.manager.sweep().expect("nothing yet"), 0);
    let in_use = fixture.prepare();
    let kept = fixture.prepare().keep().expect("kept");
    drop(fixture.prepare());
    drop(fixture.prepare());
    let foreign = kept.parent().expect("stage").with_file_name("not-a-stage");
    fs::create_dir(&foreign).expect("directory");
    assert_eq!(fixture.manager.sweep().expect("swept"), 2, "D23");
    assert!(in_use.root().exists() && kept.exists() && foreign.exists());
}
