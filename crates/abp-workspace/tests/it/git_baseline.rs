//! The repository a stage starts with.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use abp_testkit::skip;
use abp_workspace::{GitBaseline, GitLimits};

use crate::fixture::{Fixture, apply_changes, build, snapshot};

const TREE: &[(&str, &str)] = &[
    (".gitignore", "*.log\n"),
    (".gitattributes", "* filter=lfs text=auto\n"),
    (".git/config", "[core]\n\tfsmonitor = false\n"),
    ("a.txt", "one\r\n"),
    ("d/run.sh", "#!/bin/sh\n"),
];

fn git(root: &Path, arguments: &[&str]) -> String {
    let identity = ["-c", "user.name=agent", "-c", "user.email=agent@localhost"];
    let mut git = Command::new("git");
    let output = git
        .args(identity)
        .args(arguments)
        .current_dir(root)
        .output();
    String::from_utf8(output.expect("git").stdout).expect("utf-8")
}

#[test]
fn a_stage_starts_as_a_repository_that_is_no_change() {
    let fixture = Fixture::new(TREE).with_git();
    let workspace = fixture.prepare();
    if let GitBaseline::Skipped { reason } = workspace.git_baseline() {
        return skip("a_stage_starts_as_a_repository_that_is_no_change", reason);
    }
    let root = workspace.root().to_owned();
    assert_eq!(git(&root, &["status", "--porcelain=v1"]), "");
    assert_eq!(git(&root, &["log", "--format=%an %s"]), "abp baseline\n");
    assert!(workspace.changes().expect("changes").is_empty());
    let without = Fixture::new(TREE).prepare().baseline().sha256();
    assert_eq!(
        workspace.baseline().sha256(),
        without,
        "it is no part of the workspace"
    );

    build(&root, &[("a.txt", "two\r\n"), ("d/.git/HEAD", "x")]);
    git(
        &root,
        &["commit", "--quiet", "--all", "--message", "by the agent"],
    );
    let status = " M a.txt\n?? d/.git\n";
    let changes = workspace.changes().expect("changes");
    assert_eq!(changes.git_status(), status);
    apply_changes(&workspace, &changes, &[]).expect("applied");
    let source = snapshot(&fixture.source());
    assert_eq!(
        source[&b".git/config"[..]],
        "file 644 [core]\\n\\tfsmonitor = false\\n",
        "D8"
    );
    assert_eq!(source[&b"a.txt"[..]], "file 644 two\\r\\n");

    // Gone altogether, it is still no change, and the source keeps its own.
    fs::remove_dir_all(root.join(".git")).expect("removed");
    let changes = workspace.changes().expect("changes");
    assert_eq!(changes.git_status(), status);
    apply_changes(&workspace, &changes, &[]).expect("applied");
    assert_eq!(snapshot(&fixture.source()), source);
}

#[test]
fn a_stage_without_a_repository_says_why() {
    let check = |case: &str, limits: GitLimits, entries: &[(&str, &str)], expected: &str| {
        let mut fixture = Fixture::new(entries);
        fixture.manager = fixture.manager.with_git_limits(limits);
        let workspace = fixture.prepare();
        let GitBaseline::Skipped { reason } = workspace.git_baseline() else {
            panic!("{case}")
        };
        assert!(reason.contains(expected), "{case}: {reason}");
        assert!(!workspace.root().join(".git").exists(), "{case}");
        build(workspace.root(), &[(".git/HEAD", "")]);
        let status = workspace.changes().expect(case).git_status();
        assert_eq!(
            status, "?? .git\n",
            "one that appears later is a change: {case}"
        );
    };
    let limits = GitLimits::default();
    check(
        "files",
        GitLimits {
            max_files: 3,
            ..limits
        },
        TREE,
        "4 files are more than 3",
    );
    check(
        "bytes",
        GitLimits {
            max_bytes: 9,
            ..limits
        },
        TREE,
        "bytes are more than 9",
    );
    if abp_git::Git::find().is_ok() {
        check(
            "time",
            GitLimits {
                max_time: Duration::ZERO,
                ..limits
            },
            TREE,
            "took longer than 0 ms",
        );
        check("refused", limits, &[(".GIT/x", "")], "git add failed");
    }
    let off = Fixture::new(TREE).prepare();
    let reason = "it is switched off".to_owned();
    assert_eq!(off.git_baseline(), &GitBaseline::Skipped { reason });
}
