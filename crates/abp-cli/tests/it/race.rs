//! Checks of results, and races: one order on several backends.

use serde_json::{Value, json};

use crate::desk::Desk;
use crate::sidecar::desk_with;
use crate::stages::{edited, lacks_overlays, run};

const EDIT: &str = r#"hello; run
echo more >> kept.txt; rm gone.txt; echo new > made.txt
final '{"outcome":"complete"}'
"#;
/// Passes on the result of `EDIT` alone, and spoils everything it can reach.
const SPOILING: &str = "set -e; grep -q more kept.txt; test ! -e gone.txt; test -f made.txt; \
                        echo spoilt > made.txt; rm kept.txt; echo x > added.txt; mkdir -p target/deep";

/// The check sees what the run left, in both forms of stages, and the result stays what it was.
#[test]
fn a_check_sees_the_result_and_changes_nothing_of_it() {
    let desk = desk_with(EDIT, "", "");
    edited(&desk);
    if lacks_overlays(&desk, "checks of results") {
        return;
    }
    for form in [&[][..], &["--snapshot"]] {
        let (_, plain) = run(&desk, form);
        let (status, mut checked) = run(&desk, &[form, &["--check", SPOILING]].concat());
        assert_eq!(status, 0, "{checked:#}");
        let check = checked["verification"].as_object_mut().unwrap();
        let check = check.remove("check").unwrap();
        assert_eq!(
            (&check["passed"], &check["exit_code"]),
            (&json!(true), &json!(0))
        );
        assert_eq!(checked["verification"], plain["verification"], "{form:?}");
        assert_eq!(checked["workspace"]["paths"], plain["workspace"]["paths"]);
        let id = checked["meta"]["run_id"].as_str().unwrap();
        let stage = desk.stages().into_iter().find(|stage| stage.ends_with(id));
        assert!(
            !stage.unwrap().join("check").exists(),
            "its layers are gone"
        );
    }
    assert_eq!(
        std::fs::read_to_string(desk.path("kept.txt")).unwrap(),
        "one\n"
    );
}

/// A result that does not pass is partial, so a lane that applies does not apply it.
#[test]
fn a_result_that_does_not_pass_is_partial_and_not_applied() {
    let desk = Desk::new();
    let failing = [
        "--check",
        "echo why >&2; exit 3",
        "--lane",
        "workspace-first",
    ];
    let (status, summary) = desk.json(&[&["run", "--task", "t"][..], &failing].concat());
    if summary["check"]["output_tail"]
        .as_str()
        .unwrap()
        .starts_with("not run: ")
    {
        return abp_testkit::skip("checks of results", "no sandbox can be had");
    }
    assert_eq!(
        (status, &summary["outcome"]),
        (1, &json!("partial")),
        "{summary:#}"
    );
    assert_eq!(summary["error"]["code"], "RUN_INCOMPLETE");
    assert_eq!(summary["check"]["exit_code"], 3);
    assert_eq!(summary["check"]["output_tail"], "why\n");
    assert!(!desk.path("abp-hello.md").exists());
    let passing = [
        "--check",
        "test -f abp-hello.md",
        "--lane",
        "workspace-first",
    ];
    let (status, summary) = desk.json(&[&["run", "--task", "t"][..], &passing].concat());
    assert_eq!(
        (status, &summary["applied"]),
        (0, &json!(true)),
        "{summary:#}"
    );
    assert!(desk.path("abp-hello.md").exists());
}

/// A desk with three backends: one does it right, one wrong, one fails.
fn racers() -> Desk {
    let desk = Desk::new();
    let write = |content: &str| json!({"do": "write", "path": "answer.txt", "content": content});
    let fail = json!({"do": "fail", "code": "BACKEND_CRASHED", "message": "gone"});
    for (name, step) in [
        ("right", write("42\n")),
        ("wrong", write("41\n")),
        ("broken", fail),
    ] {
        let script = json!({"name": name, "manifest": {"streaming": "native"}, "steps": [step]});
        desk.write(&format!("{name}.json"), script.to_string());
    }
    desk
}

fn race(desk: &Desk, more: &[&str]) -> (i32, Value) {
    let scripts = ["right.json", "wrong.json", "broken.json"];
    let mut arguments = vec!["run", "--task", "t"];
    arguments.extend(scripts.iter().flat_map(|script| ["--mock-script", script]));
    arguments.extend(more);
    desk.json(&arguments)
}

#[test]
fn a_race_compares_and_applies_the_winner() {
    let desk = racers();
    let check = ["--check", "grep -qx 42 answer.txt"];
    let names = ["--race", "broken,wrong,right"];
    let (status, ended) = race(&desk, &[&names[..], &check].concat());
    let runs = ended["runs"].as_array().unwrap();
    let is_skipped = |run: &Value| {
        let tail = run["check"]["output_tail"].as_str();
        tail.is_some_and(|tail| tail.starts_with("not run: "))
    };
    if runs.iter().any(is_skipped) {
        return abp_testkit::skip("races", "no sandbox can be had");
    }
    let found = |name: &str| runs.iter().find(|run| run["backend"] == name).unwrap();
    let outcomes = ["right", "wrong", "broken"].map(|name| found(name)["outcome"].clone());
    assert_eq!(outcomes, ["complete", "partial", "failed"], "{ended:#}");
    assert_eq!(found("right")["check"]["passed"], true);
    assert_eq!(found("wrong")["check"]["passed"], false);
    assert_eq!(found("broken")["check"], Value::Null, "nothing to check");
    assert_eq!(runs[0]["backend"], "right", "the winner comes first");
    assert_eq!(ended["winner"], runs[0]["run_id"]);
    assert_eq!((status, &ended["applied"]), (0, &json!(false)));
    assert!(
        !desk.path("answer.txt").exists(),
        "nothing is applied by itself"
    );

    // Any of them can be applied, as the result of any run.
    let run_id = found("wrong")["run_id"].as_str().unwrap();
    assert_eq!(desk.abp(&["apply", run_id]).status, 0);
    let answer = || std::fs::read_to_string(desk.path("answer.txt")).unwrap();
    assert_eq!(answer(), "41\n");

    let winner = [&names[..], &check, &["--apply-winner"]].concat();
    let (status, ended) = race(&desk, &winner);
    assert_eq!((status, &ended["applied"]), (0, &json!(true)), "{ended:#}");
    assert_eq!(answer(), "42\n");

    let nobody = [
        "--race",
        "wrong,broken",
        "--check",
        "false",
        "--apply-winner",
    ];
    let (status, ended) = race(&desk, &nobody);
    assert_eq!((status, &ended["winner"]), (1, &Value::Null), "{ended:#}");
    assert_eq!(answer(), "42\n");
}

#[test]
fn the_table_names_every_racer() {
    let desk = racers();
    let arguments = ["run", "--task", "t", "--race", "right,wrong"];
    let scripts = ["--mock-script", "right.json", "--mock-script", "wrong.json"];
    let ran = desk.abp(&[&arguments[..], &scripts].concat());
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let head = ran
        .stdout
        .lines()
        .position(|line| line.starts_with("backend "));
    let rows: Vec<&str> = ran.stdout.lines().skip(head.unwrap() + 1).take(2).collect();
    for name in ["right", "wrong"] {
        let row = rows.iter().find(|row| row.starts_with(name)).unwrap();
        assert!(
            row.contains("complete") && row.contains("1 files +1 −0"),
            "{row}"
        );
    }
    assert!(ran.stdout.contains("abp apply "), "{}", ran.stdout);
}

/// A race that cannot be held is refused before anything starts.
#[test]
fn a_race_that_makes_no_sense_is_refused() {
    let desk = racers();
    let cases = [
        (&["--race", "right"][..], "2 to 8 different backends"),
        (&["--race", "right,right"], "2 to 8 different backends"),
        (&["--race", "right,nobody"], "nobody"),
        (&["--race", "right,claude"], "abp agents install claude"),
        (
            &["--race", "right,wrong", "--lane", "workspace-first"],
            "abp apply",
        ),
        (
            &["--check", "true", "--workspace-mode", "pass-through"],
            "staged copy",
        ),
    ];
    for (arguments, expected) in cases {
        let (status, refused) = race(&desk, arguments);
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{arguments:?}: {message}");
        assert_ne!(status, 0);
    }
    for arguments in [
        &["--race", "right,wrong", "--apply-winner"][..],
        &["--check", "true", "--apply-winner"],
        &["--race", "right,wrong", "--backend", "right"],
    ] {
        let ran = desk.abp(&[&["run", "--task", "t"][..], arguments].concat());
        assert_eq!(ran.status, 2, "{arguments:?}");
    }
    assert_eq!(desk.receipts().len(), 0);
}
