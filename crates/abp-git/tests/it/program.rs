//! Which git is run.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use abp_git::{Error, Git};

/// A program of this test's own, in a directory only its user can write to.
fn program(directory: &Path, script: &str) -> std::path::PathBuf {
    let path = directory.join("git");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("script");
    chmod(&path, 0o755);
    path
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

/// A directory that nobody else can write to, nor to anything above it.
fn home() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("abp-git-")
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("directory")
}

#[test]
fn d18_only_a_program_that_nobody_could_plant_is_run() {
    let temp = tempfile::tempdir().expect("directory");
    let planted = program(temp.path(), "true");
    let refused = |path: &Path, expected: &str| {
        let error = Git::at(path).expect_err(expected);
        assert!(error.to_string().contains(expected), "D18 {error}");
    };
    refused(Path::new("git"), "not absolute");
    refused(Path::new("./git"), "not absolute");
    refused(&temp.path().join("missing"), "not installed");
    chmod(&planted, 0o777);
    refused(&planted, "others can write");
    chmod(&planted, 0o644);
    refused(&planted, "not a program");
    chmod(&planted, 0o755);
    // The system's temporary directory is everybody's.
    if fs::metadata(temp.path().parent().expect("parent"))
        .expect("stat")
        .permissions()
        .mode()
        & 0o002
        != 0
    {
        refused(&planted, "others can write");
        let home = home();
        let link = home.path().join("git");
        symlink(&planted, &link).expect("link");
        refused(&link, "others can write");
    }
    if let Ok(git) = Git::find() {
        assert!(
            git.path().is_absolute() && git.path().starts_with("/"),
            "D18"
        );
        assert!(!git.path().starts_with(temp.path()), "D18");
    }
}

#[test]
fn a_program_in_the_directory_itself_is_refused() {
    let home = home();
    let Ok(git) = Git::at(&program(home.path(), "true")) else {
        return abp_testkit::skip(
            "a_program_in_the_directory_itself_is_refused",
            "the target directory is not this user's alone",
        );
    };
    let error = git.ensure_git_repo(home.path(), Duration::from_secs(5));
    assert!(
        matches!(error, Err(Error::NotFresh { .. })),
        "D18 {error:?}"
    );
}

#[test]
fn a_program_that_does_not_end_is_ended() {
    let (home, root) = (home(), home());
    let child = root.path().join("child");
    let script = format!(
        "mkdir -p .git\nsleep 60 & echo $! > {}\nsleep 60",
        child.display()
    );
    let Ok(git) = Git::at(&program(home.path(), &script)) else {
        return abp_testkit::skip(
            "a_program_that_does_not_end_is_ended",
            "the target directory is not this user's alone",
        );
    };
    let started = Instant::now();
    let error = git.ensure_git_repo(root.path(), Duration::from_millis(500));
    assert!(
        matches!(error, Err(Error::TimedOut { step: "init", .. })),
        "{error:?}"
    );
    assert!(started.elapsed() < Duration::from_secs(20));
    assert!(!root.path().join(".git").exists());
    let pid = fs::read_to_string(child).expect("pid");
    let stat = Path::new("/proc").join(pid.trim()).join("stat");
    let gone = || fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z "));
    while !gone() {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "it left a child"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_a_failing_program_says_is_kept_to_its_end() {
    let (home, root) = (home(), home());
    let script = "i=0; while [ $i -lt 20000 ]; do echo noise; i=$((i+1)); done >&2\nprintf 'fatal:\\033[31m it\\n broke\\n' >&2\nexit 3";
    let Ok(git) = Git::at(&program(home.path(), script)) else {
        return abp_testkit::skip(
            "what_a_failing_program_says_is_kept_to_its_end",
            "the target directory is not this user's alone",
        );
    };
    let error = git
        .ensure_git_repo(root.path(), Duration::from_secs(60))
        .expect_err("it fails");
    let Error::Failed {
        step: "init",
        stderr,
    } = error
    else {
        panic!("{error:?}")
    };
    assert!(stderr.ends_with("noise fatal: [31m it broke"), "{stderr}");
    assert!(stderr.len() <= 2048);
}
