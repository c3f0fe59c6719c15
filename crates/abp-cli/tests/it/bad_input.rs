//! Bad input: one clear error with its place and code, and nothing half done.

use proptest::prelude::*;
use serde_json::json;

use crate::desk::Desk;

/// Flags of `abp run`, the exit status, and how the message begins.
const WRONG_RUNS: [(&[&str], i32, &str); 14] = [
    (
        &["--order", "missing.json"],
        2,
        "error[CONFIG_INVALID]: cannot read missing.json: No such file",
    ),
    (
        &["--order", "order.json"],
        2,
        "error[CONTRACT_SCHEMA_VIOLATION]: order.json: at /config/max_turns: invalid type",
    ),
    (
        &["--order", "broken.json"],
        2,
        "error[CONTRACT_SCHEMA_VIOLATION]: broken.json: not valid JSON at line 2, column 2",
    ),
    (
        &["--order", "deep.json"],
        2,
        "error[CONTRACT_SCHEMA_VIOLATION]: deep.json: not valid JSON at line 1",
    ),
    (
        &["--task", " "],
        2,
        "error[VALIDATION_FAILED]: the work order is not valid: /task: must not be empty",
    ),
    (
        &["--task", "t", "--policy", "policy.json"],
        2,
        "error[POLICY_INVALID]: policy.json: unknown key at /deny_wirte; did you mean \"deny_write\"?",
    ),
    (
        &["--task", "t", "--policy", "glob.json"],
        2,
        "error[POLICY_INVALID]: ",
    ),
    (
        &["--task", "t", "--policy", "bomb.json"],
        2,
        "error[POLICY_INVALID]: ",
    ),
    (
        &["--task", "t", "--require", "streeming"],
        2,
        "error[CONFIG_INVALID]: --require streeming: unknown capability \"streeming\"; did you mean \"streaming\"?",
    ),
    (
        &["--task", "t", "--require", "streaming:some"],
        2,
        "error[CONFIG_INVALID]: --require streaming:some: \"some\" is no level",
    ),
    (
        &["--task", "t", "--backend", "mook"],
        2,
        "error[BACKEND_NOT_FOUND]: no backend is named \"mook\"; registered: mock",
    ),
    (
        &["--task", "t", "--max-budget-usd", "1"],
        2,
        "error[CONFIG_INVALID]: max_budget_usd is set, but there is no price",
    ),
    (
        &["--task", "t", "--prices", "prices.json"],
        2,
        "error[CONFIG_INVALID]: prices.json: a price of \"m\"",
    ),
    (
        &["--task", "t", "--mock-script", "script.json"],
        2,
        "error[CONTRACT_SCHEMA_VIOLATION]: script.json: at /steps/0",
    ),
];

#[test]
fn errors_name_the_place() {
    let desk = Desk::new();
    desk.write(
        "order.json",
        "{\"task\": \"t\",\n \"config\": {\"max_turns\": \"many\"}}",
    );
    desk.write("broken.json", "{\"task\": \"t\",\n oops}");
    desk.write("policy.json", r#"{"deny_wirte": ["x"]}"#);
    desk.write("glob.json", r#"{"deny_write": ["ok", "a[b"]}"#);
    desk.write(
        "bomb.json",
        json!({"deny_write": ["{a,b}".repeat(200)]}).to_string(),
    );
    desk.write("prices.json", r#"{"m": {"output_usd_per_mtok": -1}}"#);
    desk.write(
        "script.json",
        r#"{"name": "s", "steps": [{"do": "dance"}]}"#,
    );
    desk.write(
        "deep.json",
        format!("{{\"task\":{}1{}}}", "[".repeat(9000), "]".repeat(9000)),
    );
    for (flags, status, expected) in WRONG_RUNS {
        let ran = desk.abp(&[&["run"], flags].concat());
        assert_eq!(ran.status, status, "{flags:?}: {}", ran.stderr);
        assert!(
            ran.stderr.starts_with(expected),
            "{flags:?}:\n{}\ndoes not start with\n{expected}",
            ran.stderr
        );
        assert_eq!(ran.stdout, "");
        let (_, object) = desk.json(&[&["run"], flags].concat());
        assert!(object["error"]["message"].is_string(), "{object}");
    }
    assert!(!desk.state("").exists(), "nothing was written");
}

#[test]
fn validate_tells_documents_apart() {
    let desk = Desk::new();
    let receipt = desk.receipt();
    desk.write("order.json", r#"{"task": "t", "polciy": {}}"#);
    desk.write(
        "bad-order.json",
        r#"{"task": "", "policy": {"deny_read": ["[x"]}, "config": {"max_turns": 0}}"#,
    );
    desk.write("policy.json", r#"{"deny_read": [".env"]}"#);
    desk.write(
        "bad-policy.json",
        r#"{"deny_read": [".env"], "deny_raed": []}"#,
    );
    desk.write("run.jsonl", "{\"t\":\"hello\",\"contract_version\":\"abp/v0.1\",\"backend\":{\"id\":\"x\"}}\n{\"t\":\"new\"}\n");
    desk.write("bad.jsonl", "{\"t\":\"hello\"}\n");
    desk.write("what.json", "{}");
    let cases: [(&str, i32, &str, usize, usize); 7] = [
        (receipt.to_str().unwrap(), 0, "receipt", 0, 0),
        ("order.json", 0, "work-order", 0, 1),
        ("bad-order.json", 2, "work-order", 3, 0),
        ("policy.json", 0, "policy", 0, 0),
        ("bad-policy.json", 2, "policy", 1, 0),
        ("run.jsonl", 0, "transcript", 0, 1),
        ("bad.jsonl", 1, "transcript", 1, 0),
    ];
    for (file, status, kind, problems, warnings) in cases {
        let (ended, verdict) = desk.json(&["validate", file]);
        let count = |key: &str| verdict[key].as_array().unwrap().len();
        let found = (
            ended,
            verdict["kind"].as_str().unwrap(),
            count("problems"),
            count("warnings"),
        );
        assert_eq!(
            found,
            (status, kind, problems, warnings),
            "{file}: {verdict}"
        );
        assert_eq!(desk.abp(&["validate", file]).status, status);
    }
    assert_eq!(desk.abp(&["validate", "what.json"]).status, 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever a file holds, the command ends with an exit status of its own and no panic.
    #[test]
    fn arbitrary_files_are_survived(bytes in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        r#"\{"(task|policy|config|workspace|requirements|meta)": ?(\[|\{|"|-?[0-9e.]{1,9}|null|\{"[a-z]{1,4}":\[?)[\]\}"]{0,3}"#
            .prop_map(String::into_bytes),
    ]) {
        let desk = Desk::new();
        desk.write("file.json", &bytes);
        let commands: [&[&str]; 4] = [
            &["validate", "file.json"],
            &["receipt", "verify", "file.json"],
            &["inspect", "file.json"],
            &["run", "--dry-run", "--task", "t", "--policy", "file.json"],
        ];
        for command in commands {
            let ran = desk.abp(command);
            prop_assert!((0..=9).contains(&ran.status), "{command:?}: {} {}", ran.status, ran.stderr);
            prop_assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        }
    }
}
