//! Runs that outlive whoever submitted them and whoever carried them out.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use abp_core::{AgentEvent, AgentEventKind, Outcome, Receipt, verify_receipt_document};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::desk::Desk;
use crate::served::Served;

/// A desk whose servers have three backends: `again` can take up a session, `once` cannot, and `slow` can
/// and takes a second.
fn desk() -> Desk {
    let desk = Desk::new();
    let manifest = json!({
        "streaming": "native", "tool_read": "native", "tool_write": "native",
        "session_resume": "native",
    });
    let steps = json!([
        {"do": "say", "text": "one\n"}, {"do": "write", "path": "a.txt", "content": "a"},
        {"do": "say", "text": "two\n"},
    ]);
    let slow = json!([
        {"do": "say", "text": "one\n"}, {"do": "sleep", "ms": 700}, {"do": "say", "text": "two\n"},
        {"do": "sleep", "ms": 300}, {"do": "say", "text": "three\n"},
    ]);
    let scripts = [
        (
            "again",
            json!({"name": "again", "manifest": manifest, "steps": steps}),
        ),
        ("once", json!({"name": "once", "steps": steps})),
        (
            "slow",
            json!({"name": "slow", "manifest": manifest, "steps": slow}),
        ),
    ];
    let mut config = String::new();
    for (name, script) in scripts {
        let file = format!("{name}.json");
        desk.write(&file, script.to_string());
        let path = desk.path(&file);
        config += &format!("[backends.{name}]\ntype = \"mock\"\nscript = {path:?}\n");
    }
    let user = desk.home().join(".config/abp");
    std::fs::create_dir_all(&user).unwrap();
    std::fs::write(user.join("backplane.toml"), config).unwrap();
    std::fs::create_dir(desk.path("work")).unwrap();
    desk
}

/// Queues a run, and returns its id.
fn submit(desk: &Desk, backend: &str, more: &[&str]) -> String {
    let run = [
        "run",
        "--detach",
        "--task",
        "t",
        "--root",
        "work",
        "--backend",
    ];
    let (status, told) = desk.json(&[&run[..], &[backend], more].concat());
    assert_eq!(status, 0, "{told}");
    told["run_id"].as_str().unwrap().to_owned()
}

fn serve(desk: &Desk, variables: &[(&str, &str)]) -> Served {
    let mut command = desk.command(&["serve", "--listen", "127.0.0.1:0", "--json"]);
    command.envs(variables.iter().copied());
    Served::spawn(&mut command)
}

/// A server that dies at a step, perhaps before it told its address.
fn serve_until_death(desk: &Desk, step: &str) -> Child {
    let mut command = desk.command(&["serve", "--listen", "127.0.0.1:0", "--json"]);
    command.env("ABP_TEST_DIE_AT", step).stdout(Stdio::null());
    command.spawn().unwrap()
}

/// A follower of a run in a process of its own.
struct Follower {
    child: Child,
}

impl Follower {
    fn start(desk: &Desk, run: &str) -> Self {
        let mut command = desk.command(&["logs", run, "-f", "--jsonl"]);
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        Self { child }
    }

    /// What it saw until the run had ended: every event once, in order.
    fn seen(mut self) -> Vec<AgentEvent> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                self.child.kill().unwrap();
                panic!("the run did not end");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut text = String::new();
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        let events = text.lines().enumerate().map(|(place, line)| {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["seq"], place, "gapless: {text}");
            serde_json::from_value(line["event"].clone()).unwrap()
        });
        events.collect()
    }
}

/// The one receipt of a run, which the store knows as ended.
fn receipt(desk: &Desk, run: &str) -> Receipt {
    let (_, shown) = desk.json(&["runs", "list", "--all", "--limit", "100"]);
    let listed = shown["runs"].as_array().unwrap();
    let mut listed = listed.iter().filter(|one| one["run_id"] == *run);
    let row = listed
        .next()
        .unwrap_or_else(|| panic!("{run} is lost: {shown}"));
    assert!(listed.next().is_none());
    assert_eq!(row["state"], row["outcome"], "{row}");
    let path = desk.state("receipts").join(format!("{run}.json"));
    let receipt = verify_receipt_document(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(json!(receipt.outcome), row["outcome"]);
    receipt
}

/// What must hold whatever happened: the log is whole, a receipt each, and no stage that nobody can name.
fn check_desk(desk: &Desk, runs: &[String]) {
    let verified = desk.abp(&["receipt", "verify", "--log"]);
    assert_eq!(verified.status, 0, "{}{}", verified.stdout, verified.stderr);
    assert_eq!(desk.receipts().len(), runs.len(), "one receipt each");
    let known: BTreeSet<&str> = runs.iter().map(String::as_str).collect();
    for stage in desk.stages() {
        let name = stage.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(known.contains(name.as_str()), "{name} is nobody's");
        let undecided = desk.json(&["runs", "list", "--all", "--undecided"]).1;
        let undecided = undecided["runs"].as_array().unwrap().clone();
        assert!(undecided.iter().any(|run| run["run_id"] == name), "{name}");
    }
}

/// F1, F2, F4, E13: the server is killed at each step of a run, and the next one brings every run that was
/// acknowledged to exactly one end, with every event, for followers that were there all the time.
fn kill_at(step: &str, backend: &str, is_interrupted: bool) {
    kill_at_each(&[step], backend, is_interrupted);
}

/// As [`kill_at`], with one server after the other that dies.
fn kill_at_each(steps: &[&str], backend: &str, is_interrupted: bool) {
    let desk = desk();
    let step = steps[0];
    let policy = json!({"require_approval_for": ["Write"]});
    desk.write("ask.json", policy.to_string());
    let asks = matches!(step, "parked" | "answered");
    let more: &[&str] = if asks { &["--policy", "ask.json"] } else { &[] };
    let runs: Vec<String> = (0..2).map(|_| submit(&desk, backend, more)).collect();
    let followers: Vec<Follower> = runs.iter().map(|run| Follower::start(&desk, run)).collect();
    let mut first = serve_until_death(&desk, step);
    if step == "answered" {
        approve_all(&desk, 1);
    }
    assert!(!first.wait().unwrap().success(), "{step}: the server dies");
    for step in &steps[1..] {
        let mut next = serve_until_death(&desk, step);
        let deadline = Instant::now() + Duration::from_secs(30);
        while next.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                next.kill().unwrap();
                panic!("{step}: the server does not die");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let second = serve(&desk, &[]);
    if asks {
        let answering = std::thread::scope(|scope| {
            let approving = scope.spawn(|| approve_until_ended(&desk, &runs));
            approving.join()
        });
        answering.unwrap();
    }
    for (run, follower) in runs.iter().zip(followers) {
        let seen = follower.seen();
        let receipt = receipt(&desk, run);
        assert_eq!(
            receipt.trace, seen,
            "{step}: what was followed is what is recorded"
        );
        match &receipt.error {
            None => assert_eq!(receipt.outcome, Outcome::Complete),
            Some(error) => {
                let code = error.code.as_str();
                assert_eq!(code, "RUN_INTERRUPTED", "{step}: {error:?}");
                assert!(is_interrupted, "{step} {backend}");
            }
        }
    }
    drop(second);
    check_desk(&desk, &runs);
}

/// Approves the next question that is open, that many times.
fn approve_all(desk: &Desk, count: usize) {
    let mut approved = 0;
    let deadline = Instant::now() + Duration::from_secs(30);
    while approved < count {
        assert!(Instant::now() < deadline, "nobody asked");
        for approval in open_approvals(desk) {
            let id = approval["id"].as_str().unwrap();
            let answered = desk.abp(&["approve", id, "--reason", "fine"]);
            approved += usize::from(answered.status == 0);
        }
    }
}

fn open_approvals(desk: &Desk) -> Vec<Value> {
    let (_, told) = desk.json(&["approvals"]);
    told["approvals"].as_array().unwrap().clone()
}

fn approve_until_ended(desk: &Desk, runs: &[String]) {
    let deadline = Instant::now() + Duration::from_secs(40);
    loop {
        assert!(Instant::now() < deadline, "the runs do not end");
        let (_, shown) = desk.json(&["runs", "list", "--all", "--limit", "100"]);
        let listed = shown["runs"].as_array().unwrap();
        let ended = listed.iter().filter(|run| run["outcome"].is_string());
        if ended.count() == runs.len() {
            return;
        }
        for approval in open_approvals(desk) {
            desk.abp(&["approve", approval["id"].as_str().unwrap()]);
        }
    }
}

/// Steps at which the server dies: before the run began, while it goes on, and at its end.
const EARLY: [&str; 3] = ["claimed", "accepted", "staged"];
const MIDDLE: [&str; 4] = ["engaged", "ended", "kept", "verified"];
const LATE: [&str; 3] = ["disposed", "recorded", "committed"];

/// The steps inside an append of events: before the store has them, on their way to the disk, durable, and
/// told to those who follow.
const APPEND: [&str; 4] = [
    "event_appending",
    "event_queued",
    "event_durable",
    "event_published",
];

#[test]
fn f1_a_server_that_dies_inside_an_append_loses_nothing() {
    for step in APPEND {
        kill_at(step, "again", false);
    }
}

/// A server that dies while it takes over the runs of one that died leaves them to the next.
#[test]
fn f1_a_server_that_dies_while_it_takes_over_loses_nothing() {
    for (backend, is_interrupted) in [("again", false), ("once", true)] {
        kill_at_each(&["engaged", "taken_over"], backend, is_interrupted);
    }
}

#[test]
fn f1_a_server_that_dies_before_a_run_began_loses_nothing() {
    for step in EARLY {
        kill_at(step, "again", false);
    }
}

#[test]
fn f1_a_server_that_dies_in_a_run_loses_nothing() {
    for step in MIDDLE {
        kill_at(step, "again", false);
    }
}

#[test]
fn f1_a_server_that_dies_at_the_end_of_a_run_loses_nothing() {
    for step in LATE {
        kill_at(step, "again", false);
    }
}

#[test]
fn f1_a_server_that_dies_while_a_person_is_asked_loses_nothing() {
    for step in ["parked", "answered"] {
        kill_at(step, "again", false);
    }
}

/// A backend that cannot take up a session is not begun again: its run ends, and the receipt says why.
#[test]
fn f1_a_run_that_cannot_be_begun_again_ends_truthfully() {
    for step in ["claimed", "engaged", "parked", "recorded"] {
        kill_at(step, "once", true);
    }
}

/// F2: what was acknowledged is there, also where the submitter dies right after; F3: and sending it again
/// with the same key is the same run.
#[test]
fn f2_f3_a_submission_survives_its_submitter() {
    let desk = desk();
    let run = [
        "run",
        "--detach",
        "--task",
        "t",
        "--root",
        "work",
        "--backend",
        "again",
        "--idempotency-key",
        "k",
        "--json",
    ];
    let mut dying = desk.command(&run);
    dying
        .env("ABP_TEST_DIE_AT", "submitted")
        .stderr(Stdio::null());
    assert!(!dying.status().unwrap().success());
    let (_, shown) = desk.json(&["runs", "list", "--all"]);
    let listed = shown["runs"].as_array().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["state"], "queued");
    let again: Value = serde_json::from_str(&desk.abp(&run).stdout).unwrap();
    assert_eq!(again["is_new"], false);
    assert_eq!(again["run_id"], listed[0]["run_id"]);
    let mut other = run;
    other[3] = "another task";
    let refused = desk.abp(&other);
    assert!(
        refused.stdout.contains("IDEMPOTENCY_KEY_REUSED"),
        "{}",
        refused.stdout
    );
    let run_id = again["run_id"].as_str().unwrap().to_owned();
    let follower = Follower::start(&desk, &run_id);
    let served = serve(&desk, &[]);
    let seen = follower.seen();
    assert_eq!(receipt(&desk, &run_id).trace, seen);
    drop(served);
    check_desk(&desk, &[run_id]);
}

/// F1 under load: the server is killed at any time, again and again, while runs are submitted.
#[test]
fn f1_kills_at_any_time_lose_nothing() {
    let desk = desk();
    let mut runs = Vec::new();
    let mut followers = Vec::new();
    for round in 0..6_u64 {
        let served = serve(&desk, &[]);
        for backend in ["again", "slow", "once"] {
            let run = submit(&desk, backend, &[]);
            followers.push(Follower::start(&desk, &run));
            runs.push(run);
        }
        std::thread::sleep(Duration::from_millis(round * 130));
        // Dropping it kills it.
        drop(served);
    }
    let last = serve(&desk, &[]);
    for (run, follower) in runs.iter().zip(followers) {
        let seen = follower.seen();
        let receipt = receipt(&desk, run);
        assert_eq!(receipt.trace, seen);
        if let Some(error) = &receipt.error {
            assert_eq!(error.code.as_str(), "RUN_INTERRUPTED", "{error:?}");
        }
    }
    drop(last);
    check_desk(&desk, &runs);
}

/// F5: a server that is told to stop gives back what can be begun again, and ends the rest with a receipt.
#[test]
fn f5_a_server_that_stops_gives_runs_back() {
    let desk = desk();
    let steps = json!([
        {"do": "session", "id": "first"}, {"do": "say", "text": "one\n"},
        {"do": "sleep", "ms": 20_000},
    ]);
    let manifest = json!({"streaming": "native", "session_resume": "native"});
    let long = json!({"name": "slow", "manifest": manifest, "steps": steps});
    desk.write("slow.json", long.to_string());
    let run = submit(&desk, "slow", &[]);
    let mut served = serve(&desk, &[]);
    wait_for(&desk, &run, "running");
    served.terminate();
    assert!(served.wait().success(), "it stops in order");
    drop(served);
    wait_for(&desk, &run, "queued");
    // A session of its own would have another id: the agent goes on with the one it is given.
    let steps = json!([{"do": "session", "id": "second"}, {"do": "say", "text": "two\n"}]);
    let short = json!({"name": "slow", "manifest": manifest, "steps": steps});
    desk.write("slow.json", short.to_string());
    let follower = Follower::start(&desk, &run);
    let served = serve(&desk, &[]);
    let seen = follower.seen();
    let receipt = receipt(&desk, &run);
    assert_eq!(
        (receipt.outcome, &receipt.trace),
        (Outcome::Complete, &seen)
    );
    let resumed = seen
        .iter()
        .filter(|event| event.kind.name() == "run_resumed");
    assert_eq!(resumed.count(), 1);
    let sessions: Vec<_> = seen
        .iter()
        .filter_map(|event| match &event.kind {
            AgentEventKind::SessionStarted { session_id } => Some(session_id.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(sessions, ["first", "first"]);
    drop(served);
    let (_, listed) = desk.json(&["sessions"]);
    let listed = &listed["sessions"][0];
    assert_eq!(
        (
            &listed["session_id"],
            &listed["run_id"],
            &listed["is_resumable"]
        ),
        (&json!("first"), &json!(run), &json!(true))
    );
    check_desk(&desk, &[run]);
}

fn wait_for(desk: &Desk, run: &str, state: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let (_, shown) = desk.json(&["runs", "list", "--all", "--limit", "100"]);
        let listed = shown["runs"].as_array().unwrap();
        let row = listed.iter().find(|one| one["run_id"] == *run).unwrap();
        if row["state"] == state {
            return;
        }
        assert!(Instant::now() < deadline, "{row} is not {state}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A server that is stopped for longer than its lease has lost its runs: another carries them out, and
/// nothing that the first one does when it wakes up is taken.
#[test]
fn a_server_that_sleeps_past_its_lease_writes_nothing_more() {
    let desk = desk();
    let run = submit(&desk, "slow", &[]);
    let follower = Follower::start(&desk, &run);
    let variables = [("ABP_TEST_LEASE_MS", "1500")];
    let first = serve(&desk, &variables);
    wait_for(&desk, &run, "running");
    let pid = Pid::from_raw(first.id().cast_signed()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let second = serve(&desk, &variables);
    let seen = follower.seen();
    let before = receipt(&desk, &run);
    assert_eq!((before.outcome, &before.trace), (Outcome::Complete, &seen));
    assert!(seen.iter().any(|event| event.kind.name() == "run_resumed"));
    kill_process(pid, Signal::CONT).unwrap();
    // Its agent goes on, and would end its run within a second.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(receipt(&desk, &run), before);
    let later = Follower::start(&desk, &run).seen();
    assert_eq!(later, seen, "no stale event");
    drop((first, second));
    check_desk(&desk, &[run]);
}

/// Cancelling and answering from another process, and what the receipt says of it.
#[test]
fn runs_are_cancelled_and_answered_from_elsewhere() {
    let desk = desk();
    desk.write(
        "ask.json",
        json!({"require_approval_for": ["Write"]}).to_string(),
    );
    let queued = submit(&desk, "again", &[]);
    let cancelled = desk.abp(&["cancel", &queued, "--reason", "not needed"]);
    assert_eq!(cancelled.status, 0, "{}", cancelled.stderr);
    let ended = receipt(&desk, &queued);
    assert_eq!(ended.outcome, Outcome::Cancelled);
    let message = ended.error.unwrap().message;
    assert!(message.contains("(cli): not needed"), "{message}");
    let again = desk.abp(&["cancel", &queued]);
    assert!(
        again.stdout.contains("had ended already"),
        "{}",
        again.stdout
    );

    let served = serve(&desk, &[]);
    let asking = submit(&desk, "again", &["--policy", "ask.json"]);
    wait_for(&desk, &asking, "awaiting_approval");
    let open = open_approvals(&desk);
    let id = open[0]["id"].as_str().unwrap();
    let denied = desk.abp(&["deny", id, "--reason", "not today"]);
    assert_eq!(denied.status, 0, "{}", denied.stderr);
    let late = desk.abp(&["approve", id]);
    assert_eq!(late.status, 2, "{}", late.stdout);
    assert!(late.stderr.contains("not today"), "{}", late.stderr);
    let seen = Follower::start(&desk, &asking).seen();
    let resolved = seen
        .iter()
        .find(|event| event.kind.name() == "permission_resolved");
    let resolved = json!(resolved.unwrap());
    assert_eq!(resolved["outcome"], "denied");
    assert_eq!(resolved["decided_via"], "cli");
    assert_eq!(resolved["approval_id"], *id);
    assert!(resolved["reason"].as_str().unwrap().ends_with("not today"));

    let slow = submit(&desk, "slow", &[]);
    wait_for(&desk, &slow, "running");
    assert_eq!(desk.abp(&["cancel", &slow, "--reason", "enough"]).status, 0);
    Follower::start(&desk, &slow).seen();
    let ended = receipt(&desk, &slow);
    assert_eq!(ended.outcome, Outcome::Cancelled);
    assert!(ended.error.unwrap().message.contains("(cli): enough"));
    drop(served);
    check_desk(&desk, &[queued, asking, slow]);
}

/// B13: what a run was submitted with is on the disk only sealed, and gone when the run has ended.
#[test]
fn b13_secrets_of_a_submission_are_sealed_and_forgotten() {
    const SECRET: &str = "canary-0123456789-canary";
    let desk = desk();
    let variable = format!("A_TOKEN={SECRET}");
    let run = submit(&desk, "again", &["--env", &variable]);
    let holds = |name: &str| {
        let bytes = std::fs::read(desk.state(name)).unwrap_or_default();
        bytes
            .windows(SECRET.len())
            .any(|part| part == SECRET.as_bytes())
    };
    let files = ["store.db", "store.db-wal"];
    assert!(files.iter().all(|name| !holds(name)));
    let key = std::fs::metadata(desk.state("keys/submissions.seal")).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&key.permissions()) & 0o777,
        0o600
    );
    let follower = Follower::start(&desk, &run);
    let served = serve(&desk, &[]);
    follower.seen();
    drop(served);
    assert_eq!(receipt(&desk, &run).outcome, Outcome::Complete);
    assert!(files.iter().all(|name| !holds(name)));
    check_desk(&desk, &[run]);
}
