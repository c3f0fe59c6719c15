//! Recovery decides by content: every state that a kill and a user can leave, made by hand.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};

use abp_workspace::{Application, ApplyJournal, ApplyPhase, Error, RecoveryOutcome, recover};

use crate::fixture::{Fixture, build, chmod, image_of, snapshot, stored_change_set};

const TREE: &[(&str, &str)] = &[
    ("edit", "old\n"),
    ("delete", "deleted\n"),
    ("to-dir", "was a file\n"),
    ("to-file/x", "x\n"),
    ("gone/y", "y\n"),
    ("mode", "mode\n"),
];

fn change(root: &Path) {
    for name in ["delete", "to-dir"] {
        fs::remove_file(root.join(name)).expect("removed");
    }
    for name in ["to-file", "gone"] {
        fs::remove_dir_all(root.join(name)).expect("removed");
    }
    build(
        root,
        &[
            ("edit", "new\n"),
            ("to-dir/z", "z\n"),
            ("to-file", "now a file\n"),
            ("made/m", "m\n"),
        ],
    );
    chmod(&root.join("mode"), 0o755);
}

/// A source in which every name is changed, and nothing is cleaned up or recorded.
fn committed(fixture: &Fixture) -> (ApplyJournal, PathBuf) {
    let workspace = fixture.prepare();
    change(workspace.root());
    let changes = workspace.changes().expect("changes");
    let (set, images) = stored_change_set(&workspace, &changes).expect("change set");
    let application = Application::begin(workspace.root(), &set, &[], image_of(&images));
    let application = application.and_then(Application::stage_contents);
    let application = application.expect("staged");
    let journal = application.journal().clone();
    drop(application.commit().expect("committed"));
    (journal, workspace.keep().expect("kept"))
}

/// Commits, lets the user do something, recovers twice, and compares the source with the state before
/// plus what the user did.
fn check(case: &str, user: &dyn Fn(&Path), saves: &[&str], expected: &[(&str, Option<&str>)]) {
    let fixture = Fixture::in_memory(TREE);
    let before = snapshot(&fixture.source());
    let (journal, _) = committed(&fixture);
    user(&fixture.source());
    let recovered = recover(&journal).expect(case);
    let saves: Vec<PathBuf> = saves.iter().map(PathBuf::from).collect();
    let rolled_back = RecoveryOutcome::RolledBack { saves };
    assert_eq!(recovered, rolled_back, "{case}");
    let mut tree = before;
    for (path, shown) in expected {
        match shown {
            Some(shown) => tree.insert(path.as_bytes().to_vec(), (*shown).to_owned()),
            None => tree.remove(path.as_bytes()),
        };
    }
    let found = snapshot(&fixture.source());
    assert_eq!(found, tree, "{case}");
    recover(&journal).expect(case);
    assert_eq!(snapshot(&fixture.source()), tree, "{case}: once more");
}

#[test]
fn an_undisturbed_commit_is_kept() {
    let fixture = Fixture::in_memory(TREE);
    let (journal, tree) = committed(&fixture);
    assert_eq!(journal.phase(), ApplyPhase::Committing);
    for _ in 0..2 {
        assert_eq!(
            recover(&journal).expect("recovered"),
            RecoveryOutcome::Applied
        );
        assert_eq!(snapshot(&fixture.source()), snapshot(&tree));
    }
}

/// The process ended between a recovery and the note of it, and the user has worked on since.
#[test]
fn a_recovery_that_is_over_is_not_undone() {
    let fixture = Fixture::in_memory(TREE);
    let (journal, tree) = committed(&fixture);
    assert_eq!(
        recover(&journal).expect("recovered"),
        RecoveryOutcome::Applied
    );
    build(&fixture.source(), &[("edit", "later"), ("made/m", "later")]);
    let mut expected = snapshot(&tree);
    for path in ["edit", "made/m"] {
        expected.insert(path.into(), "file 644 later".to_owned());
    }
    assert_eq!(
        recover(&journal).expect("recovered"),
        RecoveryOutcome::Applied
    );
    assert_eq!(snapshot(&fixture.source()), expected);
}

#[test]
fn a_save_of_any_path_rolls_the_others_back() {
    let save = |path: &'static str| move |source: &Path| build(source, &[(path, "saved")]);
    let saved = Some("file 644 saved");
    check("edited", &save("edit"), &["edit"], &[("edit", saved)]);
    check(
        "deleted",
        &save("delete"),
        &["delete"],
        &[("delete", saved)],
    );
    check(
        "content of a file whose mode changed",
        &save("mode"),
        &["mode"],
        &[("mode", Some("file 755 saved"))],
    );
    check(
        "mode alone",
        &|source| chmod(&source.join("mode"), 0o600),
        &["mode"],
        &[("mode", Some("file 600 mode\\n"))],
    );
    check(
        "created",
        &save("made/m"),
        &["made/m"],
        &[("made", Some("dir 755")), ("made/m", saved)],
    );
    check(
        "removed, which has no bytes to keep",
        &|source| fs::remove_file(source.join("edit")).expect("removed"),
        &[],
        &[],
    );
    check(
        "moved away with its directory",
        &|source| {
            fs::rename(source.join("made"), source.join("kept")).expect("moved");
            build(source, &[("edit", "saved")]);
        },
        &["edit"],
        &[
            ("edit", saved),
            ("kept", Some("dir 755")),
            ("kept/m", Some("file 644 m\\n")),
        ],
    );
}

#[test]
fn a_removed_directory_comes_back_with_owner_and_mode() {
    let fixture = Fixture::in_memory(TREE);
    let gone = fixture.source().join("gone");
    chmod(&gone, 0o750);
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        chown(&gone, Some(65_534), Some(65_533)).expect("chown");
    }
    let (journal, _) = committed(&fixture);
    assert!(!gone.exists());
    build(&fixture.source(), &[("edit", "saved")]);
    recover(&journal).expect("recovered");
    let stat = fs::metadata(&gone).expect("stat");
    assert_eq!(stat.mode() & 0o7777, 0o750);
    if is_root {
        assert_eq!((stat.uid(), stat.gid()), (65_534, 65_533));
    }
}

/// Where the user has taken the name of an original, it is put beside.
#[test]
fn an_original_whose_name_is_taken_is_not_lost() {
    let saved = Some("file 644 saved");
    check(
        "the name of its directory",
        &|source| build(source, &[("to-file", "saved")]),
        &["to-file", "to-file/x", "x.abp-original"],
        &[
            ("to-file", saved),
            ("to-file/x", None),
            ("x.abp-original", Some("file 644 x\\n")),
        ],
    );
    check(
        "by files in a directory of its name",
        &|source| build(source, &[("edit", "saved"), ("to-dir/user", "saved")]),
        &["edit", "to-dir", "to-dir.abp-original"],
        &[
            ("edit", saved),
            ("to-dir", Some("dir 755")),
            ("to-dir/user", saved),
            ("to-dir.abp-original", Some("file 644 was a file\\n")),
        ],
    );
    check(
        "D3 by a link to elsewhere",
        &|source| {
            fs::create_dir(source.with_file_name("outside")).expect("directory");
            symlink("../outside", source.join("gone")).expect("link");
            build(source, &[("y.abp-original", "saved")]);
        },
        &["gone", "gone/y", "y.abp-original-1"],
        &[
            ("gone", Some("link ../outside")),
            ("gone/y", None),
            ("y.abp-original", saved),
            ("y.abp-original-1", Some("file 644 y\\n")),
        ],
    );
}

#[test]
fn a_file_of_the_user_in_a_new_directory_is_no_obstacle() {
    let fixture = Fixture::in_memory(TREE);
    let (journal, tree) = committed(&fixture);
    build(&fixture.source(), &[("made/user", "saved")]);
    assert_eq!(
        recover(&journal).expect("recovered"),
        RecoveryOutcome::Applied
    );
    let mut expected = snapshot(&tree);
    expected.insert(b"made/user".to_vec(), "file 644 saved".to_owned());
    assert_eq!(snapshot(&fixture.source()), expected);
}

/// The kill came between the exchange and the look at what it displaced.
#[test]
fn a_displaced_save_comes_back() {
    let displace = |old: &'static str| {
        move |source: &Path| {
            let holding = fs::read_dir(source).expect("source").find_map(|entry| {
                let path = entry.expect("entry").path();
                let name = path
                    .file_name()
                    .expect("name")
                    .to_string_lossy()
                    .into_owned();
                name.starts_with(".abp-apply-").then_some(path)
            });
            let slots = fs::read_dir(holding.expect("holding")).expect("slots");
            let slot = slots
                .map(|slot| slot.expect("slot").path())
                .find(|slot| fs::read_to_string(slot).is_ok_and(|text| text == old));
            fs::write(slot.expect("slot"), "saved").expect("save");
        }
    };
    let saved = Some("file 644 saved");
    check(
        "replaced",
        &displace("old\n"),
        &["edit"],
        &[("edit", saved)],
    );
    check(
        "deleted",
        &displace("deleted\n"),
        &["delete"],
        &[("delete", saved)],
    );
    check(
        "replaced by a directory",
        &displace("was a file\n"),
        &["to-dir"],
        &[("to-dir", saved)],
    );
}

#[test]
fn a_journal_without_a_commit_rolls_forward_or_is_dropped() {
    let prepare = || {
        let fixture = Fixture::in_memory(TREE);
        let workspace = fixture.prepare();
        change(workspace.root());
        let changes = workspace.changes().expect("changes");
        let (set, images) = stored_change_set(&workspace, &changes).expect("change set");
        let application =
            Application::begin(workspace.root(), &set, &[], image_of(&images)).expect("planned");
        let preparing = application.journal().clone();
        let staged = application.stage_contents().expect("staged");
        let committing = staged.journal().clone();
        drop(staged);
        (fixture, snapshot(workspace.root()), preparing, committing)
    };
    let (fixture, after, _, committing) = prepare();
    assert_eq!(
        recover(&committing).expect("recovered"),
        RecoveryOutcome::Applied
    );
    assert_eq!(snapshot(&fixture.source()), after);

    let (fixture, _, preparing, committing) = prepare();
    build(&fixture.source(), &[("edit", "saved")]);
    let saves = vec![PathBuf::from("edit")];
    let before = Fixture::in_memory(TREE);
    build(&before.source(), &[("edit", "saved")]);
    assert_eq!(
        recover(&committing).expect("recovered"),
        RecoveryOutcome::RolledBack { saves }
    );
    assert_eq!(snapshot(&fixture.source()), snapshot(&before.source()));
    assert_eq!(
        recover(&preparing).expect("recovered"),
        RecoveryOutcome::NothingWritten
    );

    let (fixture, _, preparing, committing) = prepare();
    assert_eq!(
        recover(&preparing).expect("recovered"),
        RecoveryOutcome::NothingWritten
    );
    let before = Fixture::in_memory(TREE);
    assert_eq!(snapshot(&fixture.source()), snapshot(&before.source()));
    // Without the holding directory, a journal cannot be finished any more.
    let undone = recover(&committing).expect("recovered");
    assert_eq!(undone, RecoveryOutcome::RolledBack { saves: Vec::new() });
    assert_eq!(snapshot(&fixture.source()), snapshot(&before.source()));

    fs::rename(fixture.source(), fixture.outside()).expect("moved");
    assert_eq!(
        recover(&preparing).expect("recovered"),
        RecoveryOutcome::NothingWritten
    );
    let refused = recover(&committing);
    assert!(
        matches!(refused, Err(Error::SourceReplaced { .. })),
        "{refused:?}"
    );
}
