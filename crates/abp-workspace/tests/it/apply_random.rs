//! Random trees and edits: after an application the source is the stage, also in parts, and beside
//! whatever the user did elsewhere.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;

use crate::fixture::{Fixture, apply_set, build, chmod, path, snapshot, stored_change_set};

const NAMES: [&[u8]; 12] = [
    b"a",
    b"a/b",
    b"a/b/c",
    b"a/d",
    b"a.txt",
    b"e",
    b"e/f",
    b"e/not\xffutf8",
    b"g/h/i",
    b"g/h",
    b"g-j",
    b"k",
];

#[derive(Debug, Clone)]
enum Node {
    Absent,
    File { content: Vec<u8>, mode: u32 },
    Link(&'static str),
    Directory { mode: u32 },
}

fn node() -> impl Strategy<Value = Node> {
    let mode = prop::sample::select(vec![0o644, 0o600, 0o755, 0o444]);
    let content = prop::collection::vec(prop::sample::select(b"ab\n\0".to_vec()), 0..6);
    // Only root puts a file into a directory that is read-only before and after.
    let last = if rustix::process::geteuid().is_root() {
        0o555
    } else {
        0o750
    };
    let directory = prop::sample::select(vec![0o755, 0o700, last]);
    prop_oneof![
        2 => Just(Node::Absent),
        5 => (content, mode).prop_map(|(content, mode)| Node::File { content, mode }),
        1 => prop::sample::select(vec!["missing", "missing/x"]).prop_map(Node::Link),
        2 => directory.prop_map(|mode| Node::Directory { mode }),
    ]
}

fn edits() -> impl Strategy<Value = Vec<(usize, Node)>> {
    prop::collection::vec((0..NAMES.len(), node()), 0..14)
}

/// Makes a path what it is to be, removing whatever stands in the way.
fn make(root: &Path, name: &[u8], node: &Node) {
    let target = root.join(path(name));
    let beneath = path(name).ancestors().skip(1);
    for above in beneath.collect::<Vec<_>>().into_iter().rev() {
        let above = root.join(above);
        let is_directory = fs::symlink_metadata(&above).is_ok_and(|stat| stat.is_dir());
        if !is_directory {
            drop(fs::remove_file(&above));
            if matches!(node, Node::Absent) {
                return;
            }
            fs::create_dir(&above).expect("directory");
        } else if above != root {
            chmod(&above, 0o755);
        }
    }
    let stat = fs::symlink_metadata(&target);
    match (&stat, node) {
        (Ok(stat), Node::Directory { mode }) if stat.is_dir() => return chmod(&target, *mode),
        (Ok(stat), _) if stat.is_dir() => open_and_remove(&target),
        (Ok(_), _) => fs::remove_file(&target).expect("removed"),
        (Err(_), _) => {}
    }
    match node {
        Node::Absent => {}
        Node::File { content, mode } => {
            fs::write(&target, content).expect("file");
            chmod(&target, *mode);
        }
        Node::Link(to) => symlink(to, &target).expect("link"),
        Node::Directory { mode } => {
            fs::create_dir(&target).expect("directory");
            chmod(&target, *mode);
        }
    }
}

fn open_and_remove(directory: &Path) {
    chmod(directory, 0o755);
    for (name, shown) in snapshot(directory) {
        if shown.starts_with("dir ") {
            chmod(&directory.join(path(&name)), 0o755);
        }
    }
    fs::remove_dir_all(directory).expect("removed");
}

fn make_all(root: &Path, edits: &[(usize, Node)]) {
    for (name, node) in edits {
        make(root, NAMES[*name], node);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_source_becomes_the_stage(before in edits(), after in edits(), parts in prop::collection::vec(any::<prop::sample::Index>(), 0..3)) {
        let fixture = Fixture::in_memory(&[("user/own", "1")]);
        make_all(&fixture.source(), &before);
        let workspace = fixture.prepare();
        make_all(workspace.root(), &after);
        let changes = workspace.changes().expect("changes");
        let (set, images) = stored_change_set(&workspace, &changes).expect("change set");
        // The user goes on meanwhile.
        build(&fixture.source(), &[("user/own", "2"), ("user/new", "2")]);
        let mut expected = snapshot(workspace.root());
        expected.insert(b"user/own".to_vec(), "file 644 2".to_owned());
        expected.insert(b"user/new".to_vec(), "file 644 2".to_owned());

        let all = set.applicable_paths();
        for part in parts {
            let Some(path) = all.get(part.index(all.len().max(1))) else { continue };
            let Some(path) = path.to_str() else { continue };
            let applied = apply_set(workspace.root(), &set, &[path], &images).expect("a part");
            prop_assert!(applied.iter().any(|applied| applied.starts_with(path)));
        }
        let applied = apply_set(workspace.root(), &set, &[], &images).expect("applied");
        prop_assert_eq!(applied, all);
        prop_assert_eq!(snapshot(&fixture.source()), expected);
    }
}
