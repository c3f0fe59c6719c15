//! `--remote`: a run on another machine looks like one on this.

use std::process::Command;

use serde_json::{Value, json};

use crate::desk::{Desk, Ran};
use crate::served::Served;

/// A command at a desk, on a server.
fn remote(desk: &Desk, served: &Served, arguments: &[&str]) -> Ran {
    let mut command = desk.command(arguments);
    command
        .env("ABP_REMOTE", &served.base)
        .env("ABP_REMOTE_KEY", &served.key);
    Ran::new(command.output().unwrap())
}

fn remote_json(desk: &Desk, served: &Served, arguments: &[&str]) -> (i32, Value) {
    let ran = remote(desk, served, &[arguments, &["--json"]].concat());
    let value = serde_json::from_str(&ran.stdout);
    (
        ran.status,
        value.unwrap_or_else(|error| panic!("{error}: {} {}", ran.stdout, ran.stderr)),
    )
}

/// What a person sees, without ids, times and places.
fn masked(text: &str) -> String {
    let words = text.split_inclusive(char::is_whitespace).map(|word| {
        let bare = word.trim_end();
        let is_id = bare.len() >= 13
            && bare
                .chars()
                .all(|c| c.is_ascii_hexdigit() || "-,".contains(c));
        let is_number = bare.parse::<f64>().is_ok();
        match is_id || is_number || bare.contains('/') {
            true => format!("X{}", &word[bare.len()..]),
            false => word.to_owned(),
        }
    });
    let text: String = words.collect();
    let lines = text.lines().filter(|line| !line.contains("uploaded"));
    lines.map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_remote_run_prints_what_a_local_one_prints() {
    let (server, local, away) = (Desk::new(), Desk::new(), Desk::new());
    let served = Served::start(&server, &[]);
    let run = ["run", "--task", "say hello"];
    let here = local.abp(&run);
    let there = remote(&away, &served, &run);
    assert_eq!(there.status, 0, "{}", there.stderr);
    assert_eq!(masked(&there.stdout), masked(&here.stdout));
    let (status, listed) = remote_json(&away, &served, &["runs", "list"]);
    assert_eq!(
        (status, listed["runs"].as_array().map(Vec::len)),
        (0, Some(1))
    );
    let shown = remote(&away, &served, &["runs", "show", "last"]);
    assert!(shown.stdout.contains("complete"), "{}", shown.stdout);
    let events = remote(&away, &served, &["runs", "show", "last", "--events"]);
    assert!(!events.stdout.is_empty());
    // Nothing of the run is in the state directory of the one who asked.
    assert!(away.receipts().is_empty());
}

#[test]
fn only_what_changed_is_uploaded_and_secrets_never_are() {
    let (server, desk) = (Desk::new(), Desk::new());
    let served = Served::start(&server, &[]);
    std::fs::create_dir(desk.path("many")).unwrap();
    for number in 0..200 {
        desk.write(&format!("many/{number}.txt"), format!("file {number}\n"));
    }
    desk.write(".env", "CANARY_SECRET=1\n");
    desk.write(".gitignore", "ignored.txt\n")
        .write("ignored.txt", "CANARY_IGNORED\n");
    let run = |expected: &str| {
        let ran = remote(&desk, &served, &["run", "--task", "say hello"]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{expected}: {}", ran.stderr);
    };
    // 200 files, the readme and the .gitignore.
    run("uploaded 202 of 202 files");
    run("uploaded 0 of 202 files");
    desk.write("many/7.txt", "changed\n");
    run("uploaded 1 of 202 files");
    let found = Command::new("grep")
        .args(["-rl", "CANARY"])
        .arg(server.home())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[test]
fn changes_of_a_remote_run_are_applied_here_three_way() {
    let (server, desk) = (Desk::new(), Desk::new());
    let served = Served::start(&server, &[]);
    let run = || {
        let (status, summary) = remote_json(&desk, &served, &["run", "--task", "say hello"]);
        assert_eq!(status, 0, "{summary}");
        summary["run_id"].as_str().unwrap().to_owned()
    };
    let first = run();
    let patch = remote(&desk, &served, &["diff", &first]);
    assert!(
        patch.stdout.contains("+++ b/abp-hello.md"),
        "{}",
        patch.stdout
    );
    assert!(!desk.path("abp-hello.md").exists());
    // Something else changed here meanwhile.
    desk.write("readme.txt", "hello again\n");
    let applied = remote(&desk, &served, &["apply", &first]);
    assert_eq!(applied.status, 0, "{}", applied.stderr);
    let made = std::fs::read_to_string(desk.path("abp-hello.md")).unwrap();
    assert!(!made.is_empty());
    assert_eq!(
        std::fs::read_to_string(desk.path("readme.txt")).unwrap(),
        "hello again\n"
    );

    // The same path changed here: nothing is applied.
    std::fs::remove_file(desk.path("abp-hello.md")).unwrap();
    let second = run();
    desk.write("abp-hello.md", "mine\n");
    let conflict = remote(&desk, &served, &["apply", &second]);
    assert_eq!(conflict.status, 8, "{}", conflict.stderr);
    assert_eq!(
        std::fs::read_to_string(desk.path("abp-hello.md")).unwrap(),
        "mine\n"
    );

    let (status, discarded) = remote_json(&desk, &served, &["discard", &second]);
    assert_eq!((status, &discarded["decision"]), (0, &json!("discarded")));
    let (_, again) = remote_json(&desk, &served, &["discard", &second]);
    assert_eq!(again["decision"], "nothing_to_discard");
    // A run that was not uploaded from here is not applied to whatever directory this is.
    let elsewhere = Desk::new();
    assert_eq!(remote(&elsewhere, &served, &["apply", &first]).status, 2);
}

#[test]
fn what_stands_in_the_way_is_told_with_the_exit_status_of_its_code() {
    let (server, desk) = (Desk::new(), Desk::new());
    let (_, weak) = crate::keys::create(&server, &[]);
    let served = Served::start(&server, &[]);
    let with = |key: Option<&str>, url: &str| {
        let mut command = desk.command(&["run", "--task", "x", "--remote", url]);
        match key {
            Some(key) => command.env("ABP_REMOTE_KEY", key),
            None => command.env_remove("ABP_REMOTE_KEY"),
        };
        Ran::new(command.output().unwrap())
    };
    for (key, url, status, word) in [
        (None, served.base.as_str(), 2, "ABP_REMOTE_KEY"),
        (
            Some("abp_wrong_key_of_nobody"),
            served.base.as_str(),
            4,
            "key",
        ),
        (Some(weak.as_str()), served.base.as_str(), 4, "upload"),
        (Some("k"), "http://127.0.0.1:1", 6, "does not answer"),
        (Some("k"), "http://me:secret@127.0.0.1:1", 2, "password"),
        (Some("k"), "ftp://example.com", 2, "http"),
    ] {
        let ran = with(key, url);
        assert_eq!(ran.status, status, "{url}: {}", ran.stderr);
        assert!(ran.stderr.contains(word), "{url}: {}", ran.stderr);
        assert!(!ran.stderr.contains("secret@"), "{}", ran.stderr);
    }
}

#[test]
fn a_detached_run_is_answered_cancelled_and_read_from_elsewhere() {
    let (server, desk) = (Desk::new(), Desk::new());
    let served = Served::start(&server, &[]);
    desk.write("policy.json", r#"{"require_approval_for":["Write"]}"#);
    let submit = || {
        let run = [
            "run",
            "--task",
            "write",
            "--policy",
            "policy.json",
            "--detach",
        ];
        let (status, told) = remote_json(&desk, &served, &run);
        assert_eq!(status, 0, "{told}");
        told["run_id"].as_str().unwrap().to_owned()
    };
    let question = |run: &str| loop {
        let (_, listed) = remote_json(&desk, &served, &["approvals", "--run", run]);
        if let Some(first) = listed["approvals"].as_array().and_then(|list| list.first()) {
            return first["id"].as_str().unwrap().to_owned();
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    let run = submit();
    let id = question(&run);
    let answered = remote(&desk, &served, &["approve", &id, "--reason", "looks right"]);
    assert_eq!(answered.status, 0, "{}", answered.stderr);
    assert!(
        answered.stdout.contains("approved by"),
        "{}",
        answered.stdout
    );
    let log = remote(&desk, &served, &["logs", &run, "-f"]);
    assert_eq!(log.status, 0, "{}", log.stderr);
    let late = remote(&desk, &served, &["deny", &id]);
    assert_eq!(late.status, 2, "{}", late.stderr);
    assert!(late.stderr.contains("APPROVAL_ANSWERED"), "{}", late.stderr);

    let run = submit();
    question(&run);
    // What is stored so far, without waiting for the end.
    let stored = remote(&desk, &served, &["logs", &run, "--jsonl"]);
    assert!(
        stored.stdout.contains("permission_requested"),
        "{}",
        stored.stdout
    );
    let cancelled = remote(&desk, &served, &["cancel", &run, "--reason", "enough"]);
    assert!(
        cancelled.stdout.contains("is being cancelled"),
        "{}",
        cancelled.stdout
    );
    remote(&desk, &served, &["logs", &run, "-f"]);
    let (_, shown) = remote_json(&desk, &served, &["runs", "show", &run]);
    assert_eq!(shown["run"]["state"], "cancelled");
    assert!(shown["receipt"].to_string().contains("enough"), "{shown}");
    let again = remote(&desk, &served, &["cancel", &run]);
    assert!(
        again.stdout.contains("had ended already"),
        "{}",
        again.stdout
    );
}

/// F5: an application of a remote run that dies between any two steps is brought to its end by the next
/// command, whatever it is.
#[test]
fn f5_an_interrupted_application_of_a_remote_run_is_finished_by_the_next_command() {
    let (server, desk) = (Desk::new(), Desk::new());
    let served = Served::start(&server, &[]);
    for place in ["remote-apply-committing", "remote-apply-committed"] {
        let (status, summary) = remote_json(&desk, &served, &["run", "--task", "say hello"]);
        assert_eq!(status, 0, "{summary}");
        let run = summary["run_id"].as_str().unwrap();
        let mut dying = desk.command(&["apply", run]);
        dying
            .env("ABP_REMOTE", &served.base)
            .env("ABP_REMOTE_KEY", &served.key)
            .env("ABP_TEST_DIE_AT", place);
        assert!(!dying.output().unwrap().status.success(), "{place}");
        let next = desk.abp(&["runs", "list"]);
        assert!(
            next.stderr.contains("it is applied now"),
            "{place}: {}",
            next.stderr
        );
        assert!(desk.path("abp-hello.md").exists(), "{place}");
        let again = desk.abp(&["runs", "list"]);
        assert!(
            !again.stderr.contains("interrupted"),
            "{place}: {}",
            again.stderr
        );
        std::fs::remove_file(desk.path("abp-hello.md")).unwrap();
    }
}

/// Receipts of a server are listed and judged from elsewhere.
#[test]
fn receipts_of_a_server_are_listed_and_judged_from_elsewhere() {
    let (server, desk) = (Desk::new(), Desk::new());
    let served = Served::start(&server, &[]);
    let (_, summary) = remote_json(&desk, &served, &["run", "--task", "say hello"]);
    let run = summary["run_id"].as_str().unwrap();
    let (_, listed) = remote_json(&desk, &served, &["receipt", "list"]);
    assert_eq!(listed["receipts"][0]["run_id"], json!(run), "{listed}");
    let (_, shown) = remote_json(&desk, &served, &["runs", "show", run]);
    for (outcome, status) in [("complete", 0), ("failed", 7)] {
        let mut receipt = shown["receipt"].clone();
        receipt["outcome"] = json!(outcome);
        desk.write("receipt.json", receipt.to_string());
        let judged = remote(&desk, &served, &["receipt", "verify", "receipt.json"]);
        assert_eq!(
            judged.status, status,
            "{outcome}: {} {}",
            judged.stdout, judged.stderr
        );
    }
    let checkpoint = remote(&desk, &served, &["receipt", "checkpoint"]);
    assert_eq!(checkpoint.status, 0, "{}", checkpoint.stderr);
    assert!(
        checkpoint.stdout.lines().count() > 3,
        "{}",
        checkpoint.stdout
    );
    let deleted = remote(&desk, &served, &["runs", "delete", run]);
    assert_eq!(deleted.status, 0, "{}", deleted.stderr);
    assert_eq!(remote(&desk, &served, &["sessions"]).status, 0);
}
