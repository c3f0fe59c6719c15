//! The host's state and other stages are out of a hostile sidecar's reach.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use abp_core::StateAccess;
use abp_host::{Confinement, Containment, Launcher, SidecarClient, SidecarSpec};
use uuid::Uuid;

use crate::support::{order, shell, sidecar};

const CANARY: &str = "canary-of-the-state";
const NOBODY: u32 = 65534;

/// A state directory and two stages, in a directory of their own.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        for (path, content) in [
            ("state/key", CANARY),
            ("cache/stages/run-1/tree/file", "mine"),
            ("cache/stages/run-1/record", CANARY),
            ("cache/stages/run-2/tree/file", CANARY),
        ] {
            let path = home.at(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        home
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(path)
    }

    fn spec(&self, mut spec: SidecarSpec) -> SidecarSpec {
        spec.directory = self.at("cache/stages/run-1/tree");
        spec.confinement = Confinement::Hidden(vec![self.at("state"), self.at("cache/stages")]);
        spec
    }

    /// Every file and its content, but the workspace's own.
    fn content(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut directories = vec![self.at("")];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
                let path = entry.path();
                // The workspace, and what shows everything once more.
                let skipped = ["cache/stages/run-1/tree", "alias", "part"];
                if skipped.iter().any(|skipped| path == self.at(skipped)) {
                    continue;
                }
                if path.is_dir() && !path.is_symlink() {
                    files.insert(path.clone(), Vec::new());
                    directories.push(path);
                } else {
                    files.insert(path.clone(), fs::read(&path).unwrap());
                }
            }
        }
        files
    }
}

/// Runs a sidecar to its end; says whether it could reach the state.
async fn finish(spec: SidecarSpec) -> StateAccess {
    let client = SidecarClient::spawn(spec).await.unwrap();
    let access = client.state_access().unwrap();
    println!("{:?}", client.exposure());
    let mut run = client.run(Uuid::new_v4(), &order()).unwrap();
    while run.next_events().await.is_some() {}
    let ended = run.finish().await;
    assert!(ended.result.is_ok(), "{ended:?}");
    access
}

/// The hostile sidecar, in whatever process this is.
async fn attack(home: &Home, alias: Option<&Path>) -> BTreeMap<String, String> {
    let (spec, mark) = sidecar("/usr/bin/python3", &["-c", include_str!("hostile.py")]);
    let mut spec = home.spec(spec);
    let program = std::env::current_exe().unwrap();
    let is_root = rustix::process::geteuid().is_root();
    for (name, value) in [
        ("STATE", home.at("state").display().to_string()),
        ("STAGES", home.at("cache/stages").display().to_string()),
        ("HOST_PID", std::process::id().to_string()),
        ("HOST_PROGRAM", program.display().to_string()),
        ("BOUNDED", "1".to_owned()),
        ("HOME", "/".to_owned()),
    ] {
        spec.env.insert(name.to_owned(), value);
    }
    if let Some(alias) = alias {
        let alias = alias.display().to_string();
        spec.env.insert("ALIAS".to_owned(), alias);
    }
    let results = spec.directory.join("results.json");
    let before = home.content();
    let access = finish(spec).await;
    assert_eq!(access, StateAccess::Hidden, "root: {is_root}");
    assert_eq!(
        home.content(),
        before,
        "the state or another stage was changed"
    );
    assert_eq!(mark.processes(), []);
    let results = fs::read(results).expect("the workspace can be written");
    serde_json::from_slice(&results).unwrap()
}

fn assert_denied(results: &BTreeMap<String, String>) {
    for (name, outcome) in results {
        println!("{name}: {outcome}");
    }
    assert!(results.len() > 50, "only {} attempts", results.len());
    let reached: Vec<_> = results
        .iter()
        .filter(|(_, outcome)| !outcome.starts_with("denied: "))
        .collect();
    assert!(reached.is_empty(), "{reached:#?}");
}

fn has_python() -> bool {
    Path::new("/usr/bin/python3").exists()
}

#[tokio::test]
async fn d16_no_attempt_reaches_the_state() {
    if !has_python() {
        return abp_testkit::skip("hostile sidecars", "there is no /usr/bin/python3");
    }
    let home = Home::new();
    assert_denied(&attack(&home, None).await);
}

/// The same from a process that the tests below start: without privileges, or with other mounts.
#[tokio::test]
async fn the_same_elsewhere() {
    let Ok(place) = std::env::var("ABP_TEST_ELSEWHERE") else {
        return;
    };
    let home = Home::new();
    let alias = home.at("alias");
    if place == "mounts" {
        fs::create_dir(&alias).unwrap();
        let part = home.at("part");
        fs::create_dir(&part).unwrap();
        // The mounts are this process's own and end with it.
        for (from, to) in [(home.at(""), &alias), (home.at("state"), &part)] {
            let done = Command::new("mount")
                .arg("--bind")
                .args([&from, to])
                .status();
            assert!(done.unwrap().success());
        }
        assert_denied(&attack(&home, Some(&alias)).await);
    } else {
        assert_denied(&attack(&home, None).await);
    }
}

fn elsewhere(place: &str, command: &mut Command) -> Output {
    let name = "state::the_same_elsewhere";
    command
        .args(["--exact", name, "--nocapture"])
        .env("ABP_TEST_ELSEWHERE", place)
        .output()
        .unwrap()
}

fn assert_passed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{text}");
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{errors}"
    );
}

#[test]
fn d16_no_attempt_of_a_user_without_privileges_reaches_the_state() {
    if !rustix::process::geteuid().is_root() || !has_python() {
        return abp_testkit::skip("another user", "it takes root to become one");
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let temporary = tempfile::tempdir().unwrap();
    chown(temporary.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    command
        .uid(NOBODY)
        .gid(NOBODY)
        .env("TMPDIR", temporary.path());
    command.current_dir("/");
    assert_passed(&elsewhere("nobody", &mut command));
}

#[test]
fn d16_another_mount_of_the_state_is_hidden_too() {
    if !rustix::process::geteuid().is_root() || !has_python() {
        return abp_testkit::skip("other mounts", "it takes root to make them");
    }
    let mut command = Command::new("unshare");
    command.arg("-m").arg(std::env::current_exe().unwrap());
    assert_passed(&elsewhere("mounts", &mut command));
}

/// Where there is no mount namespace the run goes on and says so; privileges are gone all the same.
#[tokio::test]
async fn without_a_namespace_the_state_is_said_to_be_reachable() {
    let home = Home::new();
    let script = "hello; run; grep -E 'Cap|NoNewPrivs' /proc/self/status > status; cat $STATE/key > seen; final; exit 0";
    let (spec, _) = shell(script);
    let mut spec = home.spec(spec);
    let launcher = Launcher::at(env!("CARGO_BIN_EXE_abp-launcher"));
    spec.launcher = launcher.contained_by(Containment::Subreaper);
    let state = home.at("state").display().to_string();
    spec.env.insert("STATE".to_owned(), state);
    let workspace = spec.directory.clone();
    assert_eq!(finish(spec).await, StateAccess::Reachable);
    assert_eq!(fs::read_to_string(workspace.join("seen")).unwrap(), CANARY);
    let status = fs::read_to_string(workspace.join("status")).unwrap();
    for line in status.lines() {
        let (name, value) = line.split_once(":\t").unwrap();
        let expected = if name == "NoNewPrivs" {
            "1"
        } else {
            "0000000000000000"
        };
        // The bounding set can only be emptied with privileges.
        if name != "CapBnd" || rustix::process::geteuid().is_root() {
            assert_eq!(value, expected, "{status}");
        }
    }
}

/// Directories that cannot be covered: one that is not there yet, and one that is the workspace.
#[tokio::test]
async fn a_directory_that_cannot_be_hidden_is_said_to_be_reachable() {
    let home = Home::new();
    let workspace = home.at("cache/stages/run-1/tree");
    for hidden in [home.at("not-yet"), workspace.clone()] {
        let (spec, _) = shell("hello; run; : > written; final; exit 0");
        let mut spec = home.spec(spec);
        spec.confinement = Confinement::Hidden(vec![home.at("state"), hidden]);
        assert_eq!(finish(spec).await, StateAccess::Reachable);
        assert!(workspace.join("written").exists());
    }
}

/// State inside the workspace, and a workspace inside of a hidden directory inside of another one.
#[tokio::test]
async fn nested_directories_are_hidden_and_the_workspace_stays() {
    let home = Home::new();
    let workspace = home.at("cache/stages/run-1/tree");
    fs::create_dir(workspace.join("state")).unwrap();
    fs::write(workspace.join("state/key"), CANARY).unwrap();
    let script = "hello; run; ls -A state .. ../.. ../../.. > seen; echo x > file; final; exit 0";
    let (spec, _) = shell(script);
    let mut spec = home.spec(spec);
    spec.confinement = Confinement::Hidden(vec![
        workspace.join("state"),
        home.at("cache/stages"),
        home.at("cache"),
        home.at("cache/stages/run-1"),
    ]);
    assert_eq!(finish(spec).await, StateAccess::Hidden);
    let seen = fs::read_to_string(workspace.join("seen")).unwrap();
    let expected = "..:\ntree\n\n../..:\nrun-1\n\n../../..:\nstages\n\nstate:\n";
    assert_eq!(seen, expected);
    assert_eq!(fs::read_to_string(workspace.join("file")).unwrap(), "x\n");
    assert_eq!(
        fs::read_to_string(workspace.join("state/key")).unwrap(),
        CANARY
    );
}

/// A link on the way to a hidden directory that is replaced cannot be used to have something else
/// covered: the directory is named by its real path.
#[tokio::test]
async fn a_hidden_directory_may_be_named_by_a_link() {
    let home = Home::new();
    let link = home.at("link-to-state");
    std::os::unix::fs::symlink(home.at("state"), &link).unwrap();
    let (spec, _) = shell("hello; run; cat $STATE/key > seen 2>/dev/null; final; exit 0");
    let mut spec = home.spec(spec);
    let state = home.at("state").display().to_string();
    spec.env.insert("STATE".to_owned(), state);
    spec.confinement = Confinement::Hidden(vec![link]);
    let seen = spec.directory.join("seen");
    assert_eq!(finish(spec).await, StateAccess::Hidden);
    assert_eq!(fs::read_to_string(seen).unwrap(), "");
    let mode = home.at("state").metadata().unwrap().permissions().mode();
    assert_ne!(mode & 0o200, 0, "the directory itself was changed");
}
