//! Making the changes of a run in its source.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use abp_error::ErrorCode;
use abp_workspace::Error;

use crate::fixture::{Fixture, apply_changes, build, chmod, fifo, snapshot};

pub(crate) const TREE: &[(&str, &str)] = &[
    (".gitignore", "ignored\n"),
    ("a", "1"),
    ("b", "1"),
    ("text", "1\n2\n3\n4\n5\n6\n7\n"),
    ("dir/c", "1"),
    ("dir/sub/d", "1"),
    ("link", "-> a"),
    ("empty/", ""),
];

/// Changes a stage, then the source, and applies.
pub(crate) fn apply(
    change: impl Fn(&Path),
    meanwhile: impl Fn(&Path),
) -> (Fixture, Result<(), Error>, std::path::PathBuf) {
    let fixture = Fixture::new(TREE);
    let workspace = fixture.prepare();
    change(workspace.root());
    meanwhile(&fixture.source());
    let changes = workspace.changes().expect("changes");
    let result = apply_changes(&workspace, &changes, &[]).map(drop);
    let root = workspace.root().to_owned();
    (fixture, result, root)
}

#[test]
fn the_source_becomes_the_stage() {
    let check = |case: &str, change: &dyn Fn(&Path)| {
        let (fixture, result, root) = apply(change, |_| {});
        result.expect(case);
        assert_eq!(snapshot(&fixture.source()), snapshot(&root), "{case}");
    };
    let gone = |path: &Path| {
        if path.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        }
    };
    check("nothing", &|_| {});
    check("edit", &|root| build(root, &[("a", "2"), ("dir/c", "")]));
    check("add", &|root| {
        build(root, &[("new/deep/file", "2"), ("new/empty/", "")]);
    });
    check("delete", &|root| gone(&root.join("dir")).expect("gone"));
    check("empty a directory", &|root| {
        gone(&root.join("dir/sub/d")).expect("gone");
    });
    check("mode", &|root| chmod(&root.join("a"), 0o755));
    check("read-only directory", &|root| {
        build(root, &[("ro/x", "2")]);
        chmod(&root.join("ro"), 0o555);
    });
    check("links", &|root| {
        fs::remove_file(root.join("link")).expect("gone");
        build(root, &[("link", "-> dir/c"), ("dir/up", "-> ../b")]);
    });
    check("file to directory", &|root| {
        gone(&root.join("a")).expect("gone");
        build(
            root,
            &[("a/x/y", "2"), ("a/l", "-> ../b"), ("n/l", "-> ../b")],
        );
    });
    check("directory to file", &|root| {
        gone(&root.join("dir")).expect("gone");
        build(root, &[("dir", "2")]);
    });
    check("file to link", &|root| {
        gone(&root.join("b")).expect("gone");
        build(root, &[("b", "-> a")]);
    });
    check("large", &|root| {
        fs::write(root.join("a"), vec![7; 3 << 20]).expect("write");
    });
}

#[test]
fn what_is_no_content_stays_behind() {
    let (fixture, result, _) = apply(
        |root| {
            fifo(&root.join("pipe"));
            build(
                root,
                &[
                    (".git/config", "x"),
                    ("a", "2"),
                    ("ignored", "2"),
                    ("new/ignored", "2"),
                ],
            );
            chmod(&root.join("b"), 0o4755);
        },
        |source| build(source, &[("ignored", "kept"), ("unrelated", "kept")]),
    );
    result.expect("applied");
    let found = snapshot(&fixture.source());
    assert!(
        !found.contains_key(&b"pipe"[..]) && !found.contains_key(&b".git"[..]),
        "D5, D8"
    );
    assert_eq!(found[&b"b"[..]], "file 755 1", "D26 set-id");
    assert_eq!(found[&b"ignored"[..]], "file 644 kept");
    assert!(
        !found.contains_key(&b"new"[..]),
        "only ignored files are in it"
    );
}

#[test]
fn d3_links_that_lead_out_are_not_applied() {
    for target in ["/etc/passwd", "../../outside", "circle", "../to-etc/passwd"] {
        let link = |root: &Path| {
            build(root, &[("a", "2")]);
            symlink(target, root.join("dir/circle")).expect("link");
        };
        let unstaged = |source: &Path| build(source, &[("to-etc", "-> /etc")]);
        let (fixture, result, _) = apply(link, unstaged);
        let error = result.expect_err(target);
        assert_eq!(error.code(), ErrorCode::PolicyDenied, "D3 {target}");
        assert!(error.to_string().contains("dir/circle"), "{error}");
        assert_eq!(
            snapshot(&fixture.source())[&b"a"[..]],
            "file 644 1",
            "D3 {target}"
        );
    }
}
