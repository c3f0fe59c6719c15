//! The forms of stages: what a run sees of the source, and what its receipt says of it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::desk::{Desk, text};
use crate::sidecar::desk_with;

/// Says plainly that a test is skipped because sandboxes have no overlays here.
pub(crate) fn lacks_overlays(desk: &Desk, what: &str) -> bool {
    let (_, report) = desk.json(&["doctor", "--config", "operator.toml"]);
    let checks = report["checks"].as_array().unwrap().iter();
    let overlay = checks.clone().find(|check| check["name"] == "overlay");
    let is_there = overlay.unwrap()["status"] == "ok";
    if !is_there {
        abp_testkit::skip(what, "no overlay can be mounted");
    }
    !is_there
}

/// Runs the agent, and returns the receipt of exactly this run.
pub(crate) fn run(desk: &Desk, more: &[&str]) -> (i32, Value) {
    let before = desk.receipts();
    let (status, _) = crate::sidecar::run(desk, more);
    let mut receipts = desk.receipts();
    receipts.retain(|path| !before.contains(path));
    let receipt = std::fs::read(receipts.pop().unwrap()).unwrap();
    (status, serde_json::from_slice(&receipt).unwrap())
}

fn form(receipt: &Value) -> (&Value, &Value) {
    (
        &receipt["workspace"]["stage"],
        &receipt["workspace"]["source"],
    )
}

const EDIT: &str = r#"hello; SEEN=/tmp/seen; run
echo more >> kept.txt; rm gone.txt; echo new > made.txt; mkdir -p d/e; mv d/e f; cat .env > seen 2>/dev/null || true
final '{"outcome":"complete"}'
"#;

pub(crate) fn edited(desk: &Desk) {
    desk.write("kept.txt", "one\n")
        .write("gone.txt", "x\n")
        .write(".env", "SECRET=1\n");
}

#[test]
fn a_run_in_a_sandbox_works_on_an_overlay_and_a_snapshot_is_a_copy() {
    let desk = desk_with(EDIT, "", "");
    edited(&desk);
    if lacks_overlays(&desk, "runs on overlays") {
        return;
    }
    let (status, over) = run(&desk, &[]);
    assert_eq!(status, 0, "{over:#}");
    assert_eq!(form(&over), (&json!("overlay"), &json!("live")));
    let workspace = &over["workspace"];
    assert_eq!(
        workspace["baseline_sha256"],
        Value::Null,
        "nothing was hashed"
    );
    assert_eq!(workspace["stage_reason"], Value::Null);
    let (status, copy) = run(&desk, &["--snapshot"]);
    assert_eq!(status, 0, "{copy:#}");
    assert_eq!(form(&copy), (&json!("copy"), &json!("snapshot")));
    assert!(copy["workspace"]["baseline_sha256"].is_string());
    let reason = copy["workspace"]["stage_reason"].as_str().unwrap();
    assert!(reason.contains("snapshot"), "{reason}");
    assert_eq!(over["verification"], copy["verification"]);
    assert_eq!(workspace["paths"], copy["workspace"]["paths"]);
    assert_eq!(workspace["left_out"], copy["workspace"]["left_out"]);

    // Diff, apply and discard work from the top layer as from a copy.
    let [first, second] = [&over, &copy].map(|receipt| {
        let id = receipt["meta"]["run_id"].as_str().unwrap();
        id.to_owned()
    });
    let diff = |id: &str| desk.abp(&["diff", "--config", "operator.toml", id]).stdout;
    assert!(diff(&first).contains("+more"), "{}", diff(&first));
    assert_eq!(diff(&first), diff(&second));
    let applied = desk.abp(&["apply", "--config", "operator.toml", &first]);
    assert_eq!(applied.status, 0, "{}", applied.stderr);
    let read = |name: &str| std::fs::read_to_string(desk.path(name)).unwrap();
    assert_eq!(
        (read("kept.txt"), read("made.txt")),
        ("one\nmore\n".into(), "new\n".into())
    );
    assert!(!desk.path("gone.txt").exists());
    let discarded = desk.abp(&["discard", "--config", "operator.toml", &second]);
    assert_eq!(discarded.status, 0, "{}", discarded.stderr);
    assert_eq!(desk.stages().len(), 0, "{:?}", desk.stages());
}

#[test]
fn a_backend_without_a_sandbox_works_on_a_copy_and_the_receipt_says_why() {
    let desk = desk_with(EDIT, "", "engine = \"none\"");
    edited(&desk);
    let (_, receipt) = run(&desk, &[]);
    assert_eq!(
        form(&receipt),
        (&json!("copy"), &json!("snapshot")),
        "{receipt:#}"
    );
    let reason = receipt["workspace"]["stage_reason"].as_str().unwrap();
    assert!(reason.contains("agent has no sandbox"), "{reason}");
}

/// The kernel refuses an overlay over a directory with a mount in it that it must not take away.
#[test]
fn an_overlay_that_cannot_be_mounted_is_replaced_by_a_copy() {
    let desk = desk_with(EDIT, "", "");
    edited(&desk);
    if lacks_overlays(&desk, "refused overlays") {
        return;
    }
    for directory in ["d/inner", "elsewhere"] {
        std::fs::create_dir_all(desk.path(directory)).unwrap();
    }
    desk.write("elsewhere/file", "x\n");
    let inner = desk.path("d/inner");
    let mount = |words: &[&str]| Command::new(words[0]).args(&words[1..]).output();
    let mounted = mount(&[
        "mount",
        "--bind",
        text(&desk.path("elsewhere")),
        text(&inner),
    ]);
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        return abp_testkit::skip("refused overlays", "it takes root to mount");
    }
    let (status, receipt) = run(&desk, &[]);
    mount(&["umount", "--lazy", text(&inner)]).unwrap();
    assert_eq!(status, 0, "{receipt:#}");
    assert_eq!(
        form(&receipt),
        (&json!("copy"), &json!("snapshot")),
        "{receipt:#}"
    );
    let reason = receipt["workspace"]["stage_reason"].as_str().unwrap();
    assert!(reason.contains("overlay"), "{reason}");
}

/// A path that both sides change is a conflict; nothing of the run is applied by itself.
#[test]
fn a_run_that_changes_what_the_user_changes_meanwhile_is_not_applied_by_itself() {
    let script = r#"hello; SEEN=/tmp/seen; run
event '"type":"assistant_message","text":"ready"'
while ! grep -q user kept.txt; do sleep 0.02; done
echo agent >> kept.txt; echo new > made.txt
final '{"outcome":"complete"}'
"#;
    let desk = desk_with(script, "", "");
    edited(&desk);
    if lacks_overlays(&desk, "conflicts with a live source") {
        return;
    }
    let kept = desk.path("kept.txt");
    let saver = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(700));
        std::fs::write(kept, "user\n").unwrap();
    });
    let (status, receipt) = run(&desk, &["--lane", "workspace-first"]);
    saver.join().unwrap();
    assert_ne!(status, 0);
    assert_eq!(
        receipt["error"]["code"], "WORKSPACE_CONFLICT",
        "{receipt:#}"
    );
    let notes = receipt["workspace"]["notes"].to_string();
    assert!(notes.contains("not applied: kept.txt"), "{notes}");
    let changed = receipt["workspace"]["paths"].as_array().unwrap().iter();
    let before = changed
        .clone()
        .find(|path| path["path"] == "kept.txt")
        .unwrap();
    assert_eq!(before["before"]["kind"], "changed_in_source");
    assert_eq!(
        std::fs::read_to_string(desk.path("kept.txt")).unwrap(),
        "user\n"
    );
    assert!(!desk.path("made.txt").exists());
}

/// Nothing stays mounted and no process stays alive, whichever process is killed.
#[test]
fn d23_nothing_is_left_of_an_overlay_after_kill_9_of_any_process() {
    let script = "hello; SEEN=/tmp/seen; run; echo new > made.txt; sleep 1000";
    let desk = desk_with(script, "", "");
    if lacks_overlays(&desk, "kill -9 of runs on overlays") {
        return;
    }
    for victim in ["abp", "launcher", "init", "agent"] {
        let arguments = [
            "run",
            "--config",
            "operator.toml",
            "--backend",
            "agent",
            "--task",
            "x",
        ];
        let mut host = desk
            .command(&arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let line = wait_for(|| {
            let line = descendants(i32::try_from(host.id()).unwrap());
            let made = desk
                .stages()
                .iter()
                .any(|stage| stage.join("tree/made.txt").exists());
            (made && line.len() >= 3).then_some(line)
        });
        let pid = match victim {
            "abp" => i32::try_from(host.id()).unwrap(),
            "launcher" => line[0],
            "init" => line[1],
            _ => line[2],
        };
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        host.wait().unwrap();
        wait_for(|| {
            let gone = |pid: &i32| !Path::new(&format!("/proc/{pid}")).exists();
            line.iter().all(gone).then_some(())
        });
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(text(&desk.path(""))), "{victim}: {mounts}");
        // The next command sweeps what the killed host left.
        desk.abp(&["runs", "list", "--config", "operator.toml"]);
        let (status, _) = run(&desk, &["--timeout", "1"]);
        assert_ne!(status, 0, "{victim}");
    }
}

/// The children of a process, one level after the other.
fn descendants(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut level = vec![pid];
    while !level.is_empty() {
        let children = level.iter().flat_map(|pid| {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
                .into_iter()
                .flatten();
            let lists = tasks.filter_map(|task| {
                std::fs::read_to_string(task.ok()?.path().join("children")).ok()
            });
            lists.collect::<Vec<_>>()
        });
        level = children
            .flat_map(|list| {
                let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
                pids.collect::<Vec<i32>>()
            })
            .collect();
        found.extend(&level);
    }
    found
}

fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "it did not happen"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
