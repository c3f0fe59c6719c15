//! What a stage does not carry over, and disks that are full.

use std::fs;
use std::io::ErrorKind;

use abp_testkit::skip;
use abp_workspace::{Error, WorkspaceManager};
use rustix::fs::XattrFlags;

use crate::fixture::{Fixture, Mount, build};

fn notes(fixture: &Fixture) -> Vec<(String, String)> {
    let workspace = fixture.prepare();
    let (notes, _) = workspace.left_out();
    notes
        .iter()
        .map(|note| (note.path.clone(), note.reason.clone()))
        .collect()
}

#[test]
fn d12_names_that_other_systems_take_for_one_are_flagged() {
    let fixture = Fixture::new(&[
        ("Makefile", ""),
        ("makefile", ""),
        ("d/makefile", ""),
        ("d/cafe\u{301}", ""),
        ("d/caf\u{e9}", ""),
        ("\u{c9}", ""),
        ("\u{e9}", ""),
        ("u\u{308}", ""),
        ("\u{dc}", ""),
        ("other", ""),
    ]);
    let expected = [
        ("d/caf\u{e9}", "d/cafe\u{301}", "its Unicode form"),
        ("makefile", "Makefile", "case"),
        ("\u{dc}", "u\u{308}", "case and its Unicode form"),
        ("\u{e9}", "\u{c9}", "case"),
    ];
    let expected = expected.map(|(path, twin, what)| {
        let note = format!("is staged, but its name differs from {twin} only in {what}");
        (path.to_owned(), note)
    });
    assert_eq!(notes(&fixture), expected, "D12");
    assert_eq!(fixture.prepare().baseline().files(), 10, "D12");
}

/// Whichever thread is faster: the manifest, what was left out and the stored bytes are the same.
#[test]
fn threads_do_not_show() {
    let mut files: Vec<(String, String)> = Vec::new();
    for number in 0..700 {
        let name = format!("d{}/e{}/file-{number}", number % 7, number % 3);
        files.push((format!("{name}.log"), "left out".to_owned()));
        files.push((name, format!("{number} ").repeat(number)));
    }
    files.push((".gitignore".to_owned(), "*.log\n".to_owned()));
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    let fixture = Fixture::new(&files);
    let first = fixture.prepare();
    assert_eq!(first.left_out().1, 700);
    for _ in 0..5 {
        let again = fixture.prepare();
        assert_eq!(again.baseline(), first.baseline());
        assert_eq!(again.left_out(), first.left_out());
        fs::remove_dir_all(again.root().join("d0")).expect("removed");
        let changes = again
            .changes()
            .expect("the stored bytes are those of the files");
        let deleted = changes.summary().deletions;
        assert_eq!(deleted, 99, "one line each, but for the empty file");
    }
}

#[test]
fn d26_attributes_and_owners_are_left_behind_and_noted() {
    let fixture = Fixture::new(&[("a", ""), ("b", ""), ("c", "")]);
    let source = fixture.source();
    for name in ["b", "c"] {
        let set = rustix::fs::setxattr(source.join(name), "user.note", b"x", XattrFlags::empty());
        if set.is_err() {
            return skip(
                "d26_attributes_and_owners_are_left_behind_and_noted",
                "the file system has no attributes",
            );
        }
    }
    let mut expected = vec![(
        "b".to_owned(),
        "its extended attributes and access lists, as for 1 other file; the file itself is staged"
            .to_owned(),
    )];
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(source.join("a"), Some(65_534), None).expect("chown");
        expected.push((
            "a".to_owned(),
            "its owner: it belongs to another user; the file itself is staged".to_owned(),
        ));
    }
    assert_eq!(notes(&fixture), expected, "D26");
    let workspace = fixture.prepare();
    let mut names = [0_u8; 64];
    let length = rustix::fs::listxattr(workspace.root().join("b"), &mut names).expect("list");
    assert!(!names[..length].starts_with(b"user.note"), "D26");
}

#[test]
fn d7_a_full_disk_leaves_no_half_stage() {
    let mut files: Vec<(String, String)> = Vec::new();
    for number in 0..48 {
        files.push((
            format!("d{}/file-{number}", number % 6),
            "x".repeat(64 << 10),
        ));
    }
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    let fixture = Fixture::new(&files);
    build(&fixture.outside(), &[("keep", "")]);
    for (case, options) in [("bytes", "size=1m"), ("files", "size=64m,nr_inodes=24")] {
        let disk = fixture.outside().join(case);
        let Some(_mount) = Mount::new(&disk, options) else {
            return skip(
                "d7_a_full_disk_leaves_no_half_stage",
                "nothing can be mounted",
            );
        };
        let manager = WorkspaceManager::new(disk.join("stages")).without_git_baseline();
        let error = manager
            .prepare(&fixture.spec, uuid::Uuid::new_v4(), &fixture.hidden)
            .expect_err(case);
        let full = match &error {
            Error::TooLarge { limit, .. } => *limit == "the free disk space",
            Error::Scan { source, .. } => source.kind() == ErrorKind::StorageFull,
            _ => false,
        };
        assert!(full, "D7 {case}: {error:?}");
        let left = fs::read_dir(disk.join("stages")).expect("stages").count();
        assert_eq!(left, 0, "D7 {case}");
        assert_eq!(manager.stages().expect("listed"), [], "D7 {case}");
    }
}
