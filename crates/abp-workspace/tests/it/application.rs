//! Applying in steps: what is refused, what is kept, and what a failure leaves.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use abp_error::ErrorCode;
use abp_testkit::skip;
use abp_workspace::{Application, BeforeImage, ChangeSet, Error, StagedApplication};
use rustix::fs::XattrFlags;

use crate::apply::TREE;
use crate::fixture::{
    Fixture, Mount, apply_changes, apply_set, build, chmod, image_of, snapshot, stored_change_set,
};

/// A run that is over, as a later process finds it.
struct Finished {
    fixture: Fixture,
    tree: PathBuf,
    set: ChangeSet,
    images: Vec<BeforeImage>,
}

impl Finished {
    fn new(entries: &[(&str, &str)], change: impl Fn(&Path)) -> Self {
        Self::of(Fixture::in_memory(entries), change)
    }

    fn of(fixture: Fixture, change: impl Fn(&Path)) -> Self {
        let workspace = fixture.prepare();
        change(workspace.root());
        let changes = workspace.changes().expect("changes");
        let (set, images) = stored_change_set(&workspace, &changes).expect("change set");
        let tree = workspace.keep().expect("kept");
        Self {
            fixture,
            tree,
            set,
            images,
        }
    }

    fn begin(&self) -> Result<Application, Error> {
        Application::begin(&self.tree, &self.set, &[], image_of(&self.images))
    }

    fn stage(&self) -> StagedApplication {
        let application = self.begin().expect("planned");
        application.stage_contents().expect("staged")
    }

    fn apply(&self, selected: &[&str]) -> Result<Vec<PathBuf>, Error> {
        apply_set(&self.tree, &self.set, selected, &self.images)
    }
}

fn edit(root: &Path) {
    build(
        root,
        &[("a", "2"), ("dir/c", "2"), ("new/x", "2"), ("new/y/z", "2")],
    );
    fs::remove_file(root.join("b")).expect("removed");
}

#[test]
fn single_paths_are_applied_and_the_rest_stays_undecided() {
    let check = |selected: &[&str], applied: &[&str]| {
        let run = Finished::new(TREE, edit);
        let before = snapshot(&run.fixture.source());
        let paths = run.apply(selected).expect("applied");
        let applied: Vec<PathBuf> = applied.iter().map(PathBuf::from).collect();
        assert_eq!(paths, applied, "{selected:?}");
        let after = snapshot(&run.tree);
        let mut expected = before;
        for path in &applied {
            let above = path.ancestors().filter(|path| !path.as_os_str().is_empty());
            for path in above.map(|path| path.as_os_str().as_encoded_bytes()) {
                match after.get(path) {
                    Some(shown) => expected.insert(path.to_vec(), shown.clone()),
                    None => expected.remove(path),
                };
            }
        }
        assert_eq!(snapshot(&run.fixture.source()), expected, "{selected:?}");
        // The rest, and what is already applied once more.
        let all = run.apply(&[]).expect("the rest");
        assert_eq!(all, run.set.applicable_paths());
        assert_eq!(snapshot(&run.fixture.source()), after, "{selected:?}");
    };
    check(&["a"], &["a"]);
    check(&["./a", "b"], &["a", "b"]);
    check(&["new"], &["new/x", "new/y/z"]);
    check(&["new/y/"], &["new/y/z"]);
    check(&["dir", "new/x"], &["dir/c", "new/x"]);
    check(&["."], &["a", "b", "dir/c", "new/x", "new/y/z"]);
}

#[test]
fn a_selected_file_brings_the_directory_that_replaces_a_file() {
    let run = Finished::new(TREE, |root| {
        fs::remove_file(root.join("a")).expect("removed");
        build(root, &[("a/x", "2"), ("a/y", "2")]);
    });
    let applied = run.apply(&["a/y"]).expect("applied");
    assert_eq!(applied, [PathBuf::from("a"), PathBuf::from("a/y")]);
    let found = snapshot(&run.fixture.source());
    assert!(found.contains_key(&b"a/y"[..]) && !found.contains_key(&b"a/x"[..]));
}

#[test]
fn a_selected_file_brings_the_right_to_write_in_its_directory() {
    let fixture = Fixture::in_memory(&[("sealed/a", "1"), ("sealed/b", "1")]);
    chmod(&fixture.source().join("sealed"), 0o555);
    let run = Finished::of(fixture, |root| {
        chmod(&root.join("sealed"), 0o755);
        build(root, &[("sealed/a", "2"), ("sealed/b", "2")]);
    });
    let applied = run.apply(&["sealed/b"]).expect("applied");
    assert_eq!(
        applied,
        [PathBuf::from("sealed"), PathBuf::from("sealed/b")]
    );
}

#[test]
fn unknown_paths_are_refused_before_anything_is_written() {
    let run = Finished::new(TREE, |root| {
        edit(root);
        build(root, &[("ignored", "2")]);
    });
    let before = snapshot(&run.fixture.source());
    for selected in [
        "nothing", "dir/sub", "di", "ignored", "/a", "../a", "", "a/b",
    ] {
        let error = run.apply(&["a", selected]).expect_err(selected);
        assert!(
            matches!(error, Error::UnknownChange { .. }),
            "{selected}: {error:?}"
        );
        assert_eq!(error.code(), ErrorCode::ValidationFailed);
        assert_eq!(snapshot(&run.fixture.source()), before, "{selected}");
    }
}

#[test]
fn a_source_that_is_another_directory_is_refused() {
    type Swap<'a> = (&'a str, &'a dyn Fn(&Path));
    let swaps: [Swap<'_>; 4] = [
        ("gone", &|source| {
            fs::rename(source, source.with_file_name("moved")).expect("moved");
        }),
        ("replaced", &|source| {
            fs::rename(source, source.with_file_name("moved")).expect("moved");
            build(source, TREE);
        }),
        ("a link to itself", &|source| {
            fs::rename(source, source.with_file_name("moved")).expect("moved");
            symlink("moved", source).expect("link");
        }),
        ("a file", &|source| {
            fs::rename(source, source.with_file_name("moved")).expect("moved");
            fs::write(source, "").expect("file");
        }),
    ];
    for (case, swap) in swaps {
        let run = Finished::new(TREE, edit);
        let parent = run.fixture.source().parent().expect("parent").to_owned();
        swap(&run.fixture.source());
        let before = snapshot(&parent);
        let error = run.apply(&[]).expect_err(case);
        assert!(
            matches!(error, Error::SourceReplaced { .. }),
            "{case}: {error:?}"
        );
        assert_eq!(error.code(), ErrorCode::WorkspaceConflict);
        assert_eq!(snapshot(&parent), before, "{case}");
    }
}

#[test]
fn a_stage_written_after_the_end_is_refused() {
    type Trick<'a> = (&'a str, &'a dyn Fn(&Path), &'a str);
    let same_size = |root: &Path| build(root, &[("a", "3")]);
    let tricks: [Trick<'_>; 6] = [
        ("content", &same_size, "a"),
        ("grown", &|root| build(root, &[("a", "22")]), "a"),
        (
            "removed",
            &|root| fs::remove_file(root.join("new/x")).expect("removed"),
            "new/x",
        ),
        (
            "link",
            &|root| {
                fs::remove_file(root.join("a")).expect("removed");
                symlink("dir/c", root.join("a")).expect("link");
            },
            "a",
        ),
        (
            "parent",
            &|root| {
                fs::rename(root.join("dir"), root.join("moved")).expect("moved");
                symlink("moved", root.join("dir")).expect("link");
            },
            "dir/c",
        ),
        (
            "merged file",
            &|root| build(root, &[("text", "1\n2\n3\n4\nFIVE\n6\n8\n")]),
            "text",
        ),
    ];
    for (case, trick, path) in tricks {
        let run = Finished::new(TREE, |root| {
            edit(root);
            build(root, &[("text", "1\n2\n3\n4\nFIVE\n6\n7\n")]);
        });
        build(
            &run.fixture.source(),
            &[("text", "one\n2\n3\n4\n5\n6\n7\n")],
        );
        let before = snapshot(&run.fixture.source());
        trick(&run.tree);
        let error = run.apply(&[]).expect_err(case);
        let Error::StageChanged { path: named } = &error else {
            panic!("{case}: {error:?}")
        };
        assert_eq!(named, Path::new(path), "{case}");
        assert_eq!(snapshot(&run.fixture.source()), before, "{case}");
    }
    let run = Finished::new(TREE, edit);
    let moved = run.tree.with_file_name("moved");
    fs::rename(&run.tree, &moved).expect("moved");
    symlink(&moved, &run.tree).expect("link");
    let error = run.apply(&[]).expect_err("a link instead of the tree");
    assert!(matches!(error, Error::StageDirectory { .. }), "{error:?}");
}

/// The source changes after planning: nothing is applied, and the change of the user stays.
#[test]
fn a_source_that_changes_between_plan_and_commit_is_left_alone() {
    type Meanwhile<'a> = (&'a str, &'a dyn Fn(&Path), &'a [&'a str]);
    let cases: [Meanwhile<'_>; 8] = [
        (
            "same size and time",
            &|source| {
                let path = source.join("a");
                let time = fs::metadata(&path).expect("stat").modified().expect("time");
                fs::write(&path, "9").expect("saved");
                let file = fs::File::options().write(true).open(&path).expect("file");
                file.set_modified(time).expect("time");
            },
            &["a"],
        ),
        (
            "mode only",
            &|source| chmod(&source.join("dir/c"), 0o600),
            &["dir/c"],
        ),
        (
            "the file of a mode change",
            &|source| fs::write(source.join("text"), "saved").expect("saved"),
            &["text"],
        ),
        (
            "deleted there, saved here",
            &|source| fs::write(source.join("b"), "9").expect("saved"),
            &["b"],
        ),
        (
            "created on both sides",
            &|source| build(source, &[("new/x", "9")]),
            &["new", "new/x"],
        ),
        (
            "removed",
            &|source| fs::remove_file(source.join("a")).expect("removed"),
            &["a"],
        ),
        (
            "D3 parent replaced by a link",
            &|source| {
                let outside = source.with_file_name("outside");
                fs::rename(source.join("dir"), &outside).expect("moved");
                symlink(&outside, source.join("dir")).expect("link");
            },
            &["dir/c"],
        ),
        (
            "replaced by an equal file and a link",
            &|source| {
                fs::rename(source.join("a"), source.join("other")).expect("moved");
                symlink("other", source.join("a")).expect("link");
            },
            &["a"],
        ),
    ];
    for (case, meanwhile, paths) in cases {
        let run = Finished::new(TREE, |root| {
            edit(root);
            chmod(&root.join("text"), 0o755);
        });
        let application = run.stage();
        meanwhile(&run.fixture.source());
        let mut expected = snapshot(&run.fixture.source());
        expected.retain(|path, _| !path.starts_with(b".abp-apply"));
        let error = application.commit().expect_err(case);
        let Error::SourceChanged { paths: named } = &error else {
            panic!("{case}: {error:?}")
        };
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        assert_eq!(named, &paths, "{case}");
        assert_eq!(error.code(), ErrorCode::WorkspaceConflict);
        assert_eq!(snapshot(&run.fixture.source()), expected, "{case}");
    }
}

#[test]
fn owner_and_attributes_of_a_replaced_file_stay() {
    let run = Finished::of(Fixture::new(TREE), |root| {
        edit(root);
        chmod(&root.join("a"), 0o640);
    });
    let path = run.fixture.source().join("a");
    if rustix::fs::setxattr(&path, "user.note", b"kept", XattrFlags::empty()).is_err() {
        return skip(
            "owner_and_attributes_of_a_replaced_file_stay",
            "the file system has no attributes",
        );
    }
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(&path, Some(65_534), Some(65_533)).expect("chown");
    }
    run.apply(&[]).expect("applied");
    let mut value = [0_u8; 16];
    let length = rustix::fs::getxattr(&path, "user.note", &mut value).expect("attribute");
    assert_eq!(&value[..length], b"kept");
    let stat = fs::metadata(&path).expect("stat");
    assert_eq!(stat.mode() & 0o7777, 0o640);
    assert_eq!(fs::read(&path).expect("content"), b"2");
    if is_root {
        assert_eq!((stat.uid(), stat.gid()), (65_534, 65_533));
    }
}

#[test]
fn a_path_on_another_file_system_is_refused() {
    let run = Finished::new(TREE, edit);
    let mounted = run.fixture.source().join("dir");
    fs::rename(&mounted, run.fixture.source().join("was")).expect("moved");
    let Some(_mount) = Mount::new(&mounted, "size=1m") else {
        return skip(
            "a_path_on_another_file_system_is_refused",
            "nothing can be mounted",
        );
    };
    fs::write(mounted.join("c"), "1").expect("file");
    let before = snapshot(&run.fixture.source());
    let error = run.apply(&[]).expect_err("another file system");
    let Error::OtherDevice { path } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(path, Path::new("dir/c"));
    assert_eq!(snapshot(&run.fixture.source()), before);
}

#[test]
fn one_application_at_a_time_works_in_a_source() {
    let run = Finished::new(TREE, edit);
    let first = run.begin().expect("planned");
    assert!(matches!(run.begin(), Err(Error::Busy { .. })));
    drop(first);
    let in_place = Fixture::new(TREE).in_place();
    let working = in_place.prepare();
    let changes = working.changes().expect("changes");
    let refused = apply_changes(&working, &changes, &[]);
    assert!(matches!(refused, Err(Error::NotStaged)), "{refused:?}");
    let staged = run.stage();
    let journal = staged.journal().clone();
    assert!(matches!(
        abp_workspace::recover(&journal),
        Err(Error::Busy { .. })
    ));
    staged.abandon().expect("abandoned");
    assert_eq!(run.apply(&[]).expect("applied").len(), 5);
}

/// Neither the stage nor the source is walked: only the changed paths have to be there.
#[test]
fn only_changed_paths_are_looked_at() {
    let files: Vec<String> = (0..600).map(|file| format!("other/{file}")).collect();
    let mut entries: Vec<(&str, &str)> = files.iter().map(|file| (file.as_str(), "x")).collect();
    entries.extend([("a", "1"), ("dir/b", "1")]);
    let run = Finished::new(&entries, |root| build(root, &[("a", "2"), ("dir/c", "2")]));
    for tree in [&run.tree, &run.fixture.source()] {
        fs::remove_dir_all(tree.join("other")).expect("removed");
        fs::write(tree.join("other"), "something else").expect("file");
    }
    run.apply(&[]).expect("applied");
    let source = run.fixture.source();
    assert_eq!(fs::read(source.join("a")).expect("file"), b"2");
    assert_eq!(fs::read(source.join("dir/c")).expect("file"), b"2");
}

#[test]
fn a_directory_gets_its_mode_back_where_the_source_lost_it() {
    let fixture = Fixture::new(&[("private/deep/a", "1"), ("b", "1")]);
    chmod(&fixture.source().join("private"), 0o700);
    chmod(&fixture.source().join("private/deep"), 0o750);
    let run = Finished::of(fixture, |root| build(root, &[("private/deep/new", "2")]));
    let source = run.fixture.source();
    fs::remove_dir_all(source.join("private")).expect("removed");
    run.apply(&[]).expect("applied");
    let mode = |path: &str| fs::metadata(source.join(path)).expect("stat").mode() & 0o7777;
    assert_eq!((mode("private"), mode("private/deep")), (0o700, 0o750));
    assert_eq!(mode("private/deep/new"), 0o644);
}

#[test]
fn read_only_directories_open_for_their_content_and_close_again() {
    let fixture = Fixture::new(&[("sealed/a", "1"), ("opened/a", "1")]);
    chmod(&fixture.source().join("opened"), 0o555);
    let run = Finished::of(fixture, |root| {
        chmod(&root.join("opened"), 0o755);
        build(
            root,
            &[("opened/new", "2"), ("sealed/new", "2"), ("made/x/y", "2")],
        );
        chmod(&root.join("sealed"), 0o555);
        chmod(&root.join("made/x"), 0o555);
    });
    run.apply(&[]).expect("applied");
    assert_eq!(snapshot(&run.fixture.source()), snapshot(&run.tree));
}

#[test]
fn paths_that_take_effect_on_the_host_are_named() {
    let entries = [(".gitignore", "*.log\n"), (".envrc", "1"), ("a", "1")];
    let run = Finished::new(&entries, |root| {
        fs::remove_file(root.join(".envrc")).expect("removed");
        build(
            root,
            &[
                ("a", "2"),
                (".claude/settings.json", "{}"),
                (".claude/x.log", ""),
                ("sub/.vscode/tasks.json", "{}"),
            ],
        );
    });
    let named: Vec<_> = run
        .set
        .host_executed()
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(
        named,
        [
            PathBuf::from(".claude/settings.json"),
            PathBuf::from("sub/.vscode/tasks.json")
        ]
    );
}
