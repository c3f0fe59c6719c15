//! Results that survive: crashes, decisions, and a log that shows tampering.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use abp_core::{AgentEvent, Outcome, verify_receipt_document};
use abp_error::ErrorCode;
use serde_json::{Value, json};

use crate::desk::{Desk, text};

/// F1: whenever the host is killed, every run it accepted has exactly one receipt after the next
/// start, with every event that was shown, and the log holds.
#[test]
fn a_killed_host_loses_nothing_that_was_shown() {
    let desk = Desk::new();
    let steps = json!([
        {"do": "say", "text": "one\n"}, {"do": "write", "path": "a.txt", "content": "a"},
        {"do": "say", "text": "two\n"}, {"do": "read", "path": "readme.txt"},
        {"do": "sleep", "ms": 30}, {"do": "say", "text": "three\n"},
    ]);
    desk.write(
        "s.json",
        json!({"name": "slow", "steps": steps}).to_string(),
    );
    let mut shown = Vec::new();
    let arguments = [
        "run",
        "--task",
        "t",
        "--backend",
        "slow",
        "--mock-script",
        "s.json",
        "--jsonl",
    ];
    let start = Instant::now();
    assert!(
        desk.command(&arguments)
            .stdout(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    let whole = start.elapsed();
    // From before anything is accepted to after the end.
    for delay in (0..16).map(|step| whole * step / 14) {
        let mut child = desk
            .command(&arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(delay);
        child.kill().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let events: Vec<AgentEvent> = lines
            .map_while(|line| serde_json::from_str(&line.ok()?).ok())
            .collect();
        child.wait().unwrap();
        shown.push(events);
    }
    let (_, listed) = desk.json(&["runs", "list", "--limit", "100"]);
    let (_, receipts) = desk.json(&["receipt", "list", "--limit", "100"]);
    let runs = listed["runs"].as_array().unwrap();
    assert_eq!(
        runs.len(),
        receipts["receipts"].as_array().unwrap().len(),
        "one receipt each"
    );
    assert!(
        runs.iter().all(|run| run["outcome"].is_string()),
        "every run has ended: {listed}"
    );
    let traces: Vec<Vec<AgentEvent>> = runs
        .iter()
        .map(|run| {
            let path = desk
                .state("receipts")
                .join(format!("{}.json", run["run_id"].as_str().unwrap()));
            let receipt = verify_receipt_document(&std::fs::read(path).unwrap()).unwrap();
            if receipt.outcome != Outcome::Complete {
                assert_eq!(receipt.error.unwrap().code, ErrorCode::RunInterrupted);
            }
            receipt.trace
        })
        .collect();
    for events in shown.iter().filter(|events| !events.is_empty()) {
        assert!(
            traces.iter().any(|trace| trace.starts_with(events)),
            "what was shown is recorded: {events:?}"
        );
    }
    assert_eq!(desk.abp(&["receipt", "verify", "--log"]).status, 0);
    // A stage stays for a run that is known, never for one that nobody can name.
    for stage in desk.stages() {
        let name = text(&stage).rsplit('/').next().unwrap().to_owned();
        assert!(
            runs.iter().any(|run| run["run_id"] == json!(name)),
            "{name} is in no list"
        );
    }
}

/// E13, F1: the host dies at each step of a run, and the next command finds exactly one receipt.
#[test]
fn a_host_that_dies_at_any_step_leaves_one_receipt() {
    let steps = [
        "accepted",
        "staged",
        "engaged",
        "ended",
        "kept",
        "verified",
        "disposed",
        "recorded",
        "committed",
    ];
    for step in steps {
        let desk = Desk::new();
        let died = desk
            .command(&["run", "--task", "t"])
            .env("ABP_TEST_DIE_AT", step)
            .output()
            .unwrap();
        assert_eq!(
            died.status.code(),
            None,
            "{step}: the process should have died"
        );
        let (_, listed) = desk.json(&["runs", "list"]);
        let expected = if step == "committed" {
            "complete"
        } else {
            "failed"
        };
        let outcomes: Vec<_> = listed["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| run["outcome"].clone())
            .collect();
        assert_eq!(outcomes, [json!(expected)], "{step}");
        let (_, receipts) = desk.json(&["receipt", "list"]);
        assert_eq!(receipts["receipts"].as_array().unwrap().len(), 1, "{step}");
        let [copy] = desk.receipts().try_into().unwrap();
        assert_eq!(
            desk.abp(&["receipt", "verify", text(&copy)]).status,
            0,
            "{step}"
        );
        assert_eq!(
            desk.abp(&["receipt", "verify", "--log"]).status,
            0,
            "{step}"
        );
        let is_kept = !matches!(step, "accepted" | "staged" | "engaged" | "ended");
        let diff = desk.abp(&["diff", "last"]);
        assert_eq!(diff.status, 0, "{step}: {}", diff.stderr);
        assert_eq!(
            diff.stdout.contains("+++ b/abp-hello.md"),
            is_kept,
            "{step}: a result that was kept stays"
        );
        assert_eq!(desk.abp(&["apply", "last"]).status, 0, "{step}");
        assert_eq!(desk.path("abp-hello.md").exists(), is_kept, "{step}");
    }
}

#[test]
fn a_result_waits_until_it_is_decided_about() {
    let desk = Desk::new();
    desk.receipt();
    let diff = desk.abp(&["diff", "last"]).stdout;
    assert!(diff.contains("+++ b/abp-hello.md"), "{diff}");
    assert!(!desk.path("abp-hello.md").exists());
    let undecided = || {
        let (_, listed) = desk.json(&["runs", "list", "--undecided"]);
        let runs = listed["runs"].as_array().unwrap();
        runs.iter()
            .map(|run| run["task"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(undecided(), [json!("say hello")]);
    let (status, applied) = desk.json(&["apply", "last"]);
    assert_eq!(
        (status, &applied["decision"]),
        (0, &json!("applied")),
        "{applied}"
    );
    assert!(desk.path("abp-hello.md").exists());
    let (status, again) = desk.json(&["apply", "last"]);
    let decision = (status, &again["decision"]);
    assert_eq!(decision, (0, &json!("already_applied")), "{again}");

    desk.write("abp-hello.md", "something else\n");
    desk.abp(&["run", "--task", "another task"]);
    desk.abp(&["run", "--task", "a third task"]);
    let waiting = [json!("a third task"), json!("another task")];
    assert_eq!(
        undecided(),
        waiting,
        "newest first; what was applied is gone"
    );
    assert_eq!(desk.abp(&["discard", "last"]).status, 0);
    assert_eq!(undecided(), waiting[1..]);
    let refused = desk.abp(&["apply", "last"]);
    assert_ne!(refused.status, 0, "it is gone");
    assert!(refused.stderr.contains("discarded"), "{}", refused.stderr);
    assert_eq!(
        std::fs::read_to_string(desk.path("abp-hello.md")).unwrap(),
        "something else\n"
    );
}

/// On conflict nothing changes, and what is in the way is named.
#[test]
fn a_conflict_changes_nothing() {
    let desk = Desk::new();
    desk.receipt();
    desk.write("abp-hello.md", "made by somebody else\n");
    let ran = desk.abp(&["apply", "last"]);
    assert_eq!(ran.status, 8, "{}", ran.stderr);
    assert!(ran.stderr.contains("abp-hello.md"), "{}", ran.stderr);
    assert_eq!(
        std::fs::read_to_string(desk.path("abp-hello.md")).unwrap(),
        "made by somebody else\n"
    );
    assert_eq!(
        desk.abp(&["diff", "last"]).status,
        0,
        "the result still waits"
    );
}

/// E3: an older copy of the store is whole in itself; a checkpoint kept elsewhere shows what is gone.
#[test]
fn truncation_shows_against_a_kept_checkpoint() {
    let desk = Desk::new();
    desk.receipt();
    let copy = desk.path("older");
    let copied = std::process::Command::new("cp")
        .args(["-a", text(&desk.state("")), text(&copy)])
        .status()
        .unwrap();
    assert!(copied.success());
    desk.abp(&["run", "--task", "once more"]);
    let kept = desk.abp(&["receipt", "checkpoint"]).stdout;
    desk.write("kept.txt", &kept);
    let verify = ["receipt", "verify", "--log", "--checkpoint", "kept.txt"];
    assert_eq!(desk.abp(&verify).status, 0);
    std::fs::remove_dir_all(desk.state("")).unwrap();
    std::fs::rename(copy, desk.state("")).unwrap();
    assert_eq!(desk.abp(&["receipt", "verify", "--log"]).status, 0);
    let (status, verdict) = desk.json(&verify);
    assert_eq!(
        (status, &verdict["problems"][0]["failed"]),
        (7, &json!("truncation")),
        "{verdict}"
    );
}

/// E2, E18, E19: an exported receipt is proven anywhere with the public key alone, also an old key.
#[test]
fn an_exported_receipt_proves_itself() {
    let desk = Desk::new();
    desk.receipt();
    desk.write("old.pub", desk.abp(&["receipt", "key"]).stdout);
    assert_eq!(desk.abp(&["receipt", "key", "--rotate"]).status, 0);
    desk.abp(&["run", "--task", "after the rotation"]);
    let exported = desk.abp(&["receipt", "export", "last"]).stdout;
    let stranger = Desk::new();
    stranger
        .write("proof.json", &exported)
        .write("trusted.pub", std::fs::read(desk.path("old.pub")).unwrap());
    let verify = ["receipt", "verify", "proof.json", "--key", "trusted.pub"];
    let ran = stranger.abp(&verify);
    assert_eq!(ran.status, 0, "{}", ran.stdout);
    assert_eq!(
        stranger.abp(&verify[..3]).status,
        9,
        "nothing is proven without a key"
    );

    let other = Desk::new();
    other.receipt();
    stranger.write("trusted.pub", other.abp(&["receipt", "key"]).stdout);
    assert_eq!(
        stranger.abp(&verify).status,
        7,
        "another log's key proves nothing"
    );
    stranger.write("trusted.pub", std::fs::read(desk.path("old.pub")).unwrap());
    let mut forged: Value = serde_json::from_str(&exported).unwrap();
    forged["proof"]["entry"]["seq"] = json!(1);
    stranger.write("proof.json", forged.to_string());
    assert_eq!(stranger.abp(&verify).status, 7);
    assert_eq!(
        desk.abp(&["receipt", "verify", "--log", "--key", "old.pub"])
            .status,
        0
    );
}

/// E2: one receipt and one forgery of it, with the log that has the run and without it.
#[test]
fn e2_a_receipt_is_proven_consistent_or_wrong() {
    let desk = Desk::new();
    let real = std::fs::read(desk.receipt()).unwrap();
    let mut forged: abp_core::Receipt = serde_json::from_slice(&real).unwrap();
    forged.backend.id = "claude".to_owned();
    let forged = forged.with_hash().unwrap().to_document().unwrap();
    let elsewhere = Desk::new();
    for desk in [&desk, &elsewhere] {
        desk.write("real.json", &real).write("forged.json", &forged);
    }
    let cases = [
        (&desk, "real.json", 0, "proven"),
        (&desk, "forged.json", 7, "wrong"),
        (&elsewhere, "real.json", 9, "self_consistent"),
        (&elsewhere, "forged.json", 9, "self_consistent"),
    ];
    for (desk, file, status, word) in cases {
        let (found, verdict) = desk.json(&["receipt", "verify", file]);
        assert_eq!(
            (found, &verdict["verdict"]),
            (status, &json!(word)),
            "{verdict}"
        );
        let told = desk.abp(&["receipt", "verify", file]);
        assert_eq!(told.status, status);
        assert!(
            !told.stdout.to_lowercase().contains("valid"),
            "{}",
            told.stdout
        );
        let receipt = &verdict["receipts"][0];
        assert_eq!(
            receipt["proven_by"]["type"] == "log",
            word == "proven",
            "{verdict}"
        );
        assert_eq!(
            receipt["unproven_because"].is_string(),
            status == 9,
            "{verdict}"
        );
        assert_eq!(
            receipt["problems"].as_array().unwrap().len(),
            usize::from(status == 7)
        );
    }
    // The worst of several decides.
    let both = ["receipt", "verify", "real.json", "forged.json"];
    assert_eq!(
        (desk.abp(&both).status, elsewhere.abp(&both).status),
        (7, 9)
    );
    let names = |place: &Path| {
        let entries = std::fs::read_dir(place).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(
        names(&elsewhere.path(".")),
        ["forged.json", "readme.txt", "real.json"]
    );
    let before = names(&desk.state(""));
    desk.abp(&["receipt", "verify", "--log"]);
    desk.abp(&both);
    assert_eq!(
        names(&desk.state("")),
        before,
        "reading leaves nothing behind"
    );
}

/// E1: an edit of the stored order, in the bytes of the database, is found by a check of the log.
#[test]
fn e1_an_edited_order_is_found_by_the_log() {
    let desk = Desk::new();
    desk.receipt();
    // The next process empties the write-ahead file into the database.
    assert_eq!(desk.abp(&["receipt", "key"]).status, 0);
    for leftover in ["store.db-wal", "store.db-shm"] {
        drop(std::fs::remove_file(desk.state("").join(leftover)));
    }
    let path = desk.state("store.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let (task, edited) = (br#""task":"say hello""#, br#""task":"say jello""#);
    let places: Vec<usize> = bytes
        .windows(task.len())
        .enumerate()
        .filter_map(|(place, found)| (found == task).then_some(place))
        .collect();
    assert!(!places.is_empty(), "the order is stored as text");
    for place in places {
        bytes[place..place + task.len()].copy_from_slice(edited);
    }
    std::fs::write(&path, bytes).unwrap();
    let (status, report) = desk.json(&["receipt", "verify", "--log"]);
    assert_eq!((status, &report["valid"]), (7, &json!(false)), "{report}");
    let problems = report["problems"].as_array().unwrap();
    let is_named = |problem: &Value| {
        let message = problem["message"].as_str().unwrap();
        problem["failed"] == "run_changed" && message.contains("not the logged stored order")
    };
    assert!(problems.iter().any(is_named), "{report}");
}

#[test]
fn runs_and_receipts_are_found_again() {
    let desk = Desk::new();
    desk.receipt();
    desk.abp(&["run", "--task", "second task"]);
    let (_, listed) = desk.json(&["runs", "list"]);
    let tasks: Vec<_> = listed["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["task"].clone())
        .collect();
    assert_eq!(
        tasks,
        [json!("second task"), json!("say hello")],
        "newest first"
    );
    let id = listed["runs"][1]["run_id"].as_str().unwrap().to_owned();
    let (_, shown) = desk.json(&["runs", "show", &id]);
    assert_eq!(shown["receipt"]["meta"]["run_id"], json!(id));
    let events = desk
        .abp(&["runs", "show", "last", "--events", "--json"])
        .stdout;
    let kinds: Vec<Value> = events
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone())
        .collect();
    assert_eq!(kinds.last(), Some(&json!("run_completed")));
    assert_eq!(desk.abp(&["runs", "show", "ffffffff"]).status, 2);

    let receipts = desk.receipts();
    let (_, difference) = desk.json(&["receipt", "diff", text(&receipts[0]), text(&receipts[1])]);
    assert!(
        difference["changes"]
            .as_array()
            .unwrap()
            .iter()
            .any(|change| change["field"] == "meta.run_id")
    );
}

/// Two commands at once share one log.
#[test]
fn two_processes_share_a_state_directory() {
    let desk = Desk::new();
    let children: Vec<_> = (0..4)
        .map(|_| {
            desk.command(&["run", "--task", "t"])
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let (_, receipts) = desk.json(&["receipt", "list"]);
    assert_eq!(receipts["receipts"].as_array().unwrap().len(), 4);
    assert_eq!(desk.abp(&["receipt", "verify", "--log"]).status, 0);
}

#[test]
fn configuration_is_checked_shown_and_obeyed() {
    let desk = Desk::new();
    desk.write(
        "backplane.toml",
        "state_dir = \"elsewhere\"\n[restrictions]\ndeny_write = [\"*.md\"]\n",
    );
    let checked = desk.abp(&["config", "check"]);
    assert_eq!(checked.status, 0, "{}", checked.stdout);
    assert!(
        checked.stdout.contains("state_dir"),
        "a project may not move the state: {}",
        checked.stdout
    );
    let ran = desk.abp(&["run", "--task", "t"]);
    assert!(
        ran.stdout.contains("denied     by deny_write \"*.md\""),
        "{}",
        ran.stdout
    );
    assert!(desk.state("").exists() && !desk.path("elsewhere").exists());

    desk.write(
        "operator.toml",
        "state_dir = \"kept\"\ndefault_policy = \"strict\"\ndefault_backend = \"quiet\"\n\
         [policies.strict]\ndisallowed_tools = [\"Write\"]\n[backends.quiet]\ntype = \"mock\"\n",
    );
    let ran = desk.abp(&["run", "--task", "t", "--config", "operator.toml"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.contains("on quiet") && ran.stdout.contains("by disallowed_tools \"Write\""),
        "{}",
        ran.stdout
    );
    assert!(desk.path("kept").exists());
    let shown = desk
        .abp(&["config", "show", "--origin", "--config", "operator.toml"])
        .stdout;
    assert!(shown.contains("operator.toml:1"), "{shown}");

    desk.write(
        "more.toml",
        "default_prices = \"p\"\n[prices.p.\"*\"]\noutput_usd_per_mtok = 1000000.0\n\
         [emulation.code_execution]\ntype = \"system_prompt_injection\"\nprompt = \"Pretend to run it.\"\n",
    );
    let flags = ["--config", "more.toml", "--require", "code_execution"];
    let (status, plan) = desk.json(&[&["run", "--task", "t", "--dry-run"], &flags[..]].concat());
    assert_eq!(status, 0, "{plan}");
    assert_eq!(
        plan["emulation"]["applied"][0]["strategy"]["prompt"],
        "Pretend to run it."
    );
    let priced = [&["run", "--task", "t", "--max-budget-usd", "1"], &flags[..]].concat();
    assert_eq!(
        desk.abp(&priced).status,
        5,
        "the configured price stops the run"
    );

    desk.write("broken.toml", "default_backend = 7\nstate_dri = \"x\"\n");
    let broken = desk.abp(&["config", "check", "--strict", "--config", "broken.toml"]);
    assert_eq!(broken.status, 2);
    for part in ["broken.toml:1", "broken.toml:2", "state_dir"] {
        assert!(
            broken.stdout.contains(part),
            "{part} is not in {}",
            broken.stdout
        );
    }
    assert_eq!(
        desk.abp(&["run", "--task", "t", "--config", "broken.toml"])
            .status,
        2
    );
}

#[test]
fn init_makes_a_file_that_loads_and_never_replaces_one() {
    let desk = Desk::new();
    assert_eq!(desk.abp(&["init"]).status, 0);
    assert_eq!(desk.abp(&["config", "check", "--strict"]).status, 0);
    assert_eq!(desk.abp(&["init"]).status, 2);
}
