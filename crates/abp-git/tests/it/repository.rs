//! What becomes of a directory.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use abp_git::{Error, Git};
use abp_testkit::skip;
use proptest::prelude::*;

const LIMIT: Duration = Duration::from_secs(30);

fn build(root: &Path, entries: &[(&str, &str)]) {
    for (name, content) in entries {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("parent")).expect("directories");
        fs::write(path, content).expect("file");
    }
}

/// Asks the repository the way an agent does.
fn ask(git: &Git, root: &Path, arguments: &[&str]) -> String {
    let output = Command::new(git.path())
        .args(arguments)
        .current_dir(root)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .expect("git");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("utf-8")
}

#[test]
fn a_directory_becomes_a_clean_repository() {
    let Ok(git) = Git::find() else {
        return skip(
            "a_directory_becomes_a_clean_repository",
            "there is no trusted git",
        );
    };
    let commits = [(), ()].map(|()| {
        let temp = tempfile::tempdir().expect("directory");
        let root = temp.path();
        build(
            root,
            &[
                (".gitignore", "*.log\n"),
                ("a.txt", "one\r\n"),
                ("d/e/b", ""),
                ("x.log", ""),
            ],
        );
        git.ensure_git_repo(root, LIMIT).expect("repository");
        assert_eq!(ask(&git, root, &["status", "--porcelain=v1"]), "");
        assert_eq!(ask(&git, root, &["ls-files"]), ".gitignore\na.txt\nd/e/b\n");
        assert_eq!(ask(&git, root, &["show", "HEAD:a.txt"]), "one\r\n");
        let shown = ask(
            &git,
            root,
            &["log", "--format=%an <%ae> %ad %s %D", "--date=iso"],
        );
        assert_eq!(
            shown,
            "abp <abp@localhost> 2000-01-01 00:00:00 +0000 baseline HEAD -> main\n"
        );
        assert!(!root.join(".git/hooks").exists());
        build(root, &[("a.txt", "two\n")]);
        assert_eq!(ask(&git, root, &["status", "--porcelain=v1"]), " M a.txt\n");
        let again = git.ensure_git_repo(root, LIMIT);
        assert!(matches!(again, Err(Error::NotFresh { .. })), "D8 {again:?}");
        ask(&git, root, &["rev-parse", "HEAD"])
    });
    assert_eq!(
        commits[0], commits[1],
        "the same content is the same commit"
    );
    let empty = tempfile::tempdir().expect("directory");
    git.ensure_git_repo(empty.path(), LIMIT)
        .expect("an empty one too");
}

#[test]
fn d8_content_and_environment_run_nothing() {
    let Ok(git) = Git::find() else {
        return skip(
            "d8_content_and_environment_run_nothing",
            "there is no trusted git",
        );
    };
    let temp = tempfile::tempdir().expect("directory");
    let (root, mark) = (temp.path().join("root"), temp.path().join("mark"));
    let trap = format!("touch {}", mark.display());
    let config = format!(
        "[filter \"x\"]\n\tclean = {trap}\n\tprocess = {trap}\n[core]\n\tfsmonitor = {trap}\n[include]\n\tpath = config\n"
    );
    build(
        &root,
        &[
            (
                ".gitattributes",
                "* filter=x diff=x merge=x text eol=crlf\n",
            ),
            (".gitconfig", &config),
            (
                ".gitmodules",
                "[submodule \"s\"]\n\tpath = d\n\turl = ext::sh -c 'touch mark'\n\tupdate = !touch mark\n",
            ),
            ("config", &config),
            ("HEAD", "ref: refs/heads/main\n"),
            ("objects/x", ""),
            ("refs/x", ""),
            ("hooks/pre-commit", &format!("#!/bin/sh\n{trap}\n")),
            ("git", &format!("#!/bin/sh\n{trap}\n")),
        ],
    );
    for script in ["hooks/pre-commit", "git"] {
        fs::set_permissions(
            root.join(script),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .expect("chmod");
    }
    git.ensure_git_repo(&root, LIMIT).expect("repository");
    assert!(!mark.exists() && !root.join("mark").exists(), "D8");
    assert_eq!(ask(&git, &root, &["ls-files"]).lines().count(), 9);
}

#[test]
fn what_git_refuses_leaves_nothing() {
    let Ok(git) = Git::find() else {
        return skip("what_git_refuses_leaves_nothing", "there is no trusted git");
    };
    let temp = tempfile::tempdir().expect("directory");
    build(temp.path(), &[(".GIT/config", "[core]\n")]);
    let error = git
        .ensure_git_repo(temp.path(), LIMIT)
        .expect_err("refused");
    assert!(
        matches!(error, Error::Failed { step: "add", .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains(".GIT"), "{error}");
    assert!(!temp.path().join(".git").exists());
    for place in ["relative", "/nowhere/at/all"] {
        let error = git.ensure_git_repo(Path::new(place), LIMIT);
        assert!(matches!(error, Err(Error::NotFresh { .. })), "{error:?}");
    }
    let dangling = temp.path().join("new");
    fs::create_dir(&dangling).expect("directory");
    std::os::unix::fs::symlink("nowhere", dangling.join(".git")).expect("link");
    let error = git.ensure_git_repo(&dangling, LIMIT);
    assert!(matches!(error, Err(Error::NotFresh { .. })), "D8 {error:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// D22: no name, of the directory or in it, is taken for an option or a pattern.
    #[test]
    fn names_are_never_options(names in prop::collection::btree_set("(-|--|:|!|\\*|@)?[a-z= -]{1,12}", 2..6)) {
        let Ok(git) = Git::find() else { return Ok(()) };
        let temp = tempfile::tempdir().expect("directory");
        let mut names = names.into_iter();
        let root = temp.path().join(names.next().expect("name"));
        let files: Vec<String> = names.collect();
        fs::create_dir(&root).expect("directory");
        for name in &files {
            fs::write(root.join(name), name).expect("file");
        }
        git.ensure_git_repo(&root, LIMIT).expect("repository");
        let listed = ask(&git, &root, &["ls-files", "-z"]);
        prop_assert_eq!(listed.split_terminator('\0').map(str::to_owned).collect::<Vec<_>>(), files);
    }
}
