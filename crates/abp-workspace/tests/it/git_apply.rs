//! The diff is a patch: real git, given the source and the diff, arrives at the stage.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use abp_testkit::skip;
use abp_workspace::ContentChange;
use proptest::prelude::*;

use crate::fixture::{
    Fixture, apply_changes, build, chmod, image_of, path, snapshot, stored_change_set,
};

const NAMES: [&[u8]; 12] = [
    b"plain",
    b"with space",
    b"tab\there",
    b"new\nline",
    b"quote\"d",
    b"back\\slash",
    "\u{fc}n\u{ef}code".as_bytes(),
    b"not\xffutf8",
    b"dir/file",
    b"dir/sub dir/deep",
    b"-dash",
    b"a b\t\"c\"",
];

/// A name and a change to a tree.
type Case<'a> = (&'a str, &'a dyn Fn(&Path));

/// What a path is to be.
#[derive(Debug, Clone)]
enum Node {
    Absent,
    File { content: Vec<u8>, executable: bool },
    Link(&'static str),
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(vec![
        "a",
        "b",
        "c",
        "",
        "long line of text",
        "\u{e9}t\u{e9}",
        "cr\r",
        "\\ No newline at end of file",
    ]);
    let lines = prop::collection::vec(line, 0..30);
    let text = (lines, any::<bool>()).prop_map(|(lines, newline)| {
        let mut text = lines.join("\n");
        if newline {
            text.push('\n');
        }
        text.into_bytes()
    });
    let binary = prop::collection::vec(any::<u8>(), 1..300);
    prop_oneof![8 => text, 2 => binary, 1 => Just(Vec::new())]
}

fn node() -> impl Strategy<Value = Node> {
    let file = (content(), any::<bool>()).prop_map(|(content, executable)| Node::File {
        content,
        executable,
    });
    let link = prop::sample::select(vec!["missing", "x/../y", "dir/file"]).prop_map(Node::Link);
    prop_oneof![2 => Just(Node::Absent), 6 => file, 1 => link]
}

fn make(root: &Path, name: &[u8], node: &Node) {
    let path = root.join(path(name));
    drop(fs::remove_file(&path));
    match node {
        Node::Absent => {}
        Node::File {
            content,
            executable,
        } => {
            fs::create_dir_all(path.parent().expect("parent")).expect("directories");
            fs::write(&path, content).expect("file");
            chmod(&path, if *executable { 0o755 } else { 0o644 });
        }
        Node::Link(target) => {
            fs::create_dir_all(path.parent().expect("parent")).expect("directories");
            symlink(target, &path).expect("link");
        }
    }
}

/// Applies a diff with git to a copy of the source; `None` where there is no git.
fn git_apply(directory: &Path, diff: &str) -> Option<Result<(), String>> {
    let mut git = Command::new("git");
    git.args([
        "-c",
        "core.quotePath=true",
        "apply",
        "--whitespace=nowarn",
        "--allow-empty",
        "-",
    ]);
    git.current_dir(directory)
        .env("GIT_CEILING_DIRECTORIES", directory.parent()?);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    let mut child = git
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    std::io::Write::write_all(&mut child.stdin.take()?, diff.as_bytes()).ok()?;
    let output = child.wait_with_output().ok()?;
    Some(if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    })
}

/// The tree without directories, which git does not know.
fn files(root: &Path) -> Vec<(Vec<u8>, String)> {
    snapshot(root)
        .into_iter()
        .filter(|(_, shown)| !shown.starts_with("dir "))
        .collect()
}

fn check(before: &dyn Fn(&Path), after: &dyn Fn(&Path)) -> Option<()> {
    let fixture = Fixture::new(&[]);
    before(&fixture.source());
    let workspace = fixture.prepare();
    after(workspace.root());
    let changes = workspace.changes().expect("changes");
    let diff = changes.git_diff();
    git_apply(&fixture.source(), &diff)?.unwrap_or_else(|error| panic!("{error}\n{diff}"));
    assert_eq!(files(&fixture.source()), files(workspace.root()), "{diff}");
    // A later process, without the baseline, shows the same patch.
    let (set, images) = stored_change_set(&workspace, &changes).expect("change set");
    let later = set
        .git_diff(workspace.root(), image_of(&images))
        .expect("diff");
    assert_eq!(later, diff);

    // Without git, too, and exactly.
    let twin = Fixture::new(&[]);
    before(&twin.source());
    let workspace = twin.prepare();
    after(workspace.root());
    let changes = workspace.changes().expect("changes");
    apply_changes(&workspace, &changes, &[]).expect("applied");
    assert_eq!(
        snapshot(&twin.source()),
        snapshot(workspace.root()),
        "{diff}"
    );
    Some(())
}

#[test]
fn git_takes_every_kind_of_change() {
    let old = |root: &Path| {
        build(
            root,
            &[
                ("f", "1\n2\n3\n"),
                ("d/x", "x"),
                ("l", "-> f"),
                ("e", ""),
                ("big", ""),
            ],
        );
        fs::write(root.join("bin"), b"\0\x01\x02").expect("file");
        fs::write(root.join("big"), "line\n".repeat(300_000)).expect("file");
    };
    let remove = |root: &Path, name: &str| fs::remove_file(root.join(name)).expect("removed");
    let cases: [Case<'_>; 10] = [
        ("mode and content", &|root| {
            build(root, &[("f", "1\n2\nthree")]);
            chmod(&root.join("f"), 0o755);
        }),
        ("link that is not text", &|root| {
            symlink(path(b"\xff\xfe"), root.join("odd")).expect("link");
        }),
        ("mode only", &|root| chmod(&root.join("f"), 0o755)),
        ("all deleted", &|root| {
            ["f", "d/x", "l", "e", "bin"]
                .iter()
                .for_each(|name| remove(root, name));
        }),
        ("file to link and back", &|root| {
            remove(root, "f");
            remove(root, "l");
            build(root, &[("f", "-> d/x"), ("l", "file now\n")]);
        }),
        ("file to directory", &|root| {
            remove(root, "f");
            build(root, &[("f/g", "1\n")]);
        }),
        ("directory to file", &|root| {
            fs::remove_dir_all(root.join("d")).expect("removed");
            build(root, &[("d", "1\n")]);
        }),
        ("empty and binary", &|root| {
            build(root, &[("bin", ""), ("e", "now text"), ("e2", "")]);
            fs::write(root.join("bin2"), [0; 200]).expect("file");
        }),
        ("large text", &|root| {
            let text = "line\n".repeat(150_000) + "other\n" + &"line\n".repeat(150_000) + "end";
            fs::write(root.join("big"), text).expect("file");
        }),
        ("large binary", &|root| {
            let noise: Vec<u8> = (0_u32..200_000)
                .flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes())
                .collect();
            fs::write(root.join("big"), noise).expect("file");
        }),
    ];
    for (case, change) in cases {
        if check(&old, change).is_none() {
            return skip(
                "git_takes_every_kind_of_change",
                &format!("git cannot be run (at {case})"),
            );
        }
    }
}

#[test]
fn a_large_file_is_replaced_only_where_it_differs() {
    let fixture = Fixture::new(&[]);
    let line = |number: u32| format!("line {number}\n");
    let text: String = (0..200_000).map(line).collect();
    fs::write(fixture.source().join("big"), &text).expect("file");
    let workspace = fixture.prepare();
    fs::write(
        workspace.root().join("big"),
        text.replace("line 100000\n", "changed\n"),
    )
    .expect("file");
    let changes = workspace.changes().expect("changes");
    let expected = ContentChange::Text {
        insertions: 1,
        deletions: 1,
    };
    assert_eq!(changes.files()[0].content, expected);
    assert_eq!(changes.git_diff().lines().count(), 12);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_trees_and_edits(
        before in prop::collection::vec(node(), NAMES.len()),
        after in prop::collection::vec(prop::option::weighted(0.6, node()), NAMES.len()),
    ) {
        let old = |root: &Path| NAMES.iter().zip(&before).for_each(|(name, node)| make(root, name, node));
        let new = |root: &Path| {
            for (name, node) in NAMES.iter().zip(&after) {
                if let Some(node) = node {
                    make(root, name, node);
                }
            }
        };
        if check(&old, &new).is_none() {
            // Said once, by the other test.
            return Ok(());
        }
    }
}
