//! Policies against agents that do not ask: what they announce, what they hide, and what is recorded.

use serde_json::{Value, json};

use crate::desk::Desk;
use crate::sidecar::{desk, run};

const DONE: &str = r#"final '{"outcome":"complete"}'"#;

/// A desk whose sidecar does `script`, under a policy.
fn under(policy: &Value, script: &str) -> Desk {
    let desk = desk(&format!("hello; run; {script}"), "");
    desk.write("policy.json", policy.to_string());
    desk.write(".env", "SECRET=1\n");
    desk
}

fn denied(receipt: &Value, list: &str, pattern: &str) -> Value {
    rule(receipt, list, pattern)["denied"].clone()
}

pub(crate) fn rule<'r>(receipt: &'r Value, list: &str, pattern: &str) -> &'r Value {
    let rules = receipt["enforcement"]["rules"].as_array().unwrap();
    let found = |rule: &&Value| rule["list"] == list && rule["pattern"] == pattern;
    rules.iter().find(found).unwrap_or(&Value::Null)
}

/// D9, D15: a denied path that was written in silence is found by the host, whatever the agent says, and
/// nothing of the run is applied.
#[test]
fn a_silent_breach_is_found_and_nothing_is_applied() {
    let policy = json!({"deny_write": ["*.lock", "secret/**"]});
    let script = format!("echo x > Cargo.lock; echo fine > fine.txt; {DONE}");
    let desk = under(&policy, &script);
    let (status, receipt) = run(
        &desk,
        &["--policy", "policy.json", "--lane", "workspace-first"],
    );
    assert_eq!(status, 4, "{receipt:#}");
    assert_eq!(receipt["outcome"], "failed");
    assert_eq!(receipt["error"]["code"], "POLICY_DENIED");
    let message = receipt["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("Cargo.lock") && message.contains("*.lock"),
        "{message}"
    );
    assert_eq!(denied(&receipt, "deny_write", "*.lock"), 1);
    assert_eq!(denied(&receipt, "deny_write", "secret/**"), 0);
    assert_eq!(rule(&receipt, "deny_write", "*.lock")["by"], "verification");
    assert_eq!(receipt["verification"]["harness_ok"], false);
    let notes = receipt["workspace"]["notes"].to_string();
    assert!(notes.contains("not sandboxed"), "{notes}");
    assert!(!desk.path("fine.txt").exists() && !desk.path("Cargo.lock").exists());
    let refused = desk.abp(&["apply", "last"]);
    assert_eq!(refused.status, 4, "{}", refused.stderr);
    assert!(!desk.path("Cargo.lock").exists());
    let some = desk.abp(&["apply", "last", "fine.txt"]);
    assert_eq!(some.status, 0, "{}", some.stderr);
    assert!(desk.path("fine.txt").exists() && !desk.path("Cargo.lock").exists());
}

/// `deny_read` inside the workspace: the file is not there, is not shown as deleted, and is not applied
/// over.
#[test]
fn unreadable_files_are_not_staged() {
    let script = format!("ls -a > listing.txt; echo forged > .env; {DONE}");
    let desk = under(&json!({}), &script);
    let (status, receipt) = run(&desk, &[]);
    assert_eq!(status, 0, "{receipt:#}");
    assert_eq!(
        rule(&receipt, "deny_read", "**/.env")["enforced_by"],
        "host"
    );
    assert_eq!(rule(&receipt, "deny_read", "**/.env")["by"], "not staged");
    assert_eq!(receipt["verification"]["harness_ok"], true);
    let diff = receipt["verification"]["git_diff"].as_str().unwrap();
    assert!(
        !diff.contains("SECRET=1") && !diff.contains("-SECRET"),
        "{diff}"
    );
    let listing = diff.split("+++ b/listing.txt").nth(1).unwrap();
    assert!(
        listing.contains("+readme.txt") && !listing.contains("+.env\n"),
        "{listing}"
    );
    let refused = desk.abp(&["apply", "last", ".env"]);
    assert_eq!(refused.status, 8, "{}", refused.stderr);
    assert_eq!(
        std::fs::read_to_string(desk.path(".env")).unwrap(),
        "SECRET=1\n"
    );
}

/// Tool inputs that name denied paths and hosts are judged when they are seen.
#[test]
fn announced_breaches_end_the_run() {
    let call = |tool: &str, input: &str| {
        format!(
            r#"event '"type":"tool_call","tool_name":"{tool}","input":{input}'; sleep 5; {DONE}"#
        )
    };
    let policy = json!({
        "allowed_tools": ["Read", "WebFetch", "Write"],
        "deny_write": ["*.lock"],
        "deny_network": ["evil.example"],
    });
    let cases = [
        (
            call("Read", r#"{"file_path":".env"}"#),
            "deny_read",
            "**/.env",
        ),
        (
            call("Read", r#"{"file_path":"/somewhere/else/.env"}"#),
            "deny_read",
            "**/.env",
        ),
        (
            call("WebFetch", r#"{"url":"https://evil.example/x"}"#),
            "deny_network",
            "evil.example",
        ),
        (
            call("Write", r#"{"path":"a/b.lock"}"#),
            "deny_write",
            "*.lock",
        ),
        (call("Telnet", "{}"), "allowed_tools", "<not listed>"),
    ];
    for (script, list, pattern) in cases {
        let desk = under(&policy, &script);
        let (status, receipt) = run(&desk, &["--policy", "policy.json"]);
        assert_eq!(status, 4, "{list}: {receipt:#}");
        assert_eq!(receipt["error"]["code"], "POLICY_DENIED", "{list}");
        assert_eq!(denied(&receipt, list, pattern), 1, "{list}: {receipt:#}");
    }
}

/// Rules that nothing evaluates are no protection, and the receipt says so; a demand is checked by rule.
#[test]
fn d15_network_rules_on_a_sidecar_without_a_sandbox_are_held_by_nothing() {
    let policy = json!({"deny_network": ["*"]});
    let desk = under(&policy, DONE);
    let (status, receipt) = run(&desk, &["--policy", "policy.json"]);
    assert_eq!(status, 0, "{receipt:#}");
    let network = rule(&receipt, "deny_network", "*");
    assert_eq!(
        (&network["enforced_by"], &network["by"]),
        (&json!("none"), &json!(""))
    );
    let notes = receipt["plan"]["notes"].to_string();
    assert!(
        notes.contains("nothing enforces the rules of deny_network"),
        "{notes}"
    );
    let demand = ["--policy", "policy.json", "--param", "abp.enforcement=host"];
    let (status, _) = run(&desk, &demand);
    assert_eq!(status, 3);
}

/// What an agent says about itself is a claim: usage, a budget on it, and an outcome that is not complete.
#[test]
fn claims_are_called_claims() {
    let usage =
        r#"event '"type":"usage_updated","usage":{"input_tokens":5,"estimated_cost_usd":0.1}'"#;
    let desk = under(
        &json!({}),
        &format!(r#"{usage}; final '{{"outcome":"partial"}}'"#),
    );
    let (status, receipt) = run(&desk, &["--lane", "workspace-first"]);
    assert_eq!(
        (status, &receipt["outcome"]),
        (1, &json!("partial")),
        "{receipt:#}"
    );
    assert_eq!(receipt["usage_source"], "claimed");
    assert_eq!(receipt["task"], "say hello");
    let event = receipt["trace"].as_array().unwrap().iter();
    let event = event.clone().find(|event| event["type"] == "usage_updated");
    assert_eq!(event.unwrap()["origin"], "backend");
    let started = &receipt["trace"][0];
    assert_eq!(
        (&started["type"], &started["origin"]),
        (&json!("run_started"), &json!("host"))
    );
    desk.write(
        "prices.json",
        r#"{"*": {"input_usd_per_mtok": 1.0, "output_usd_per_mtok": 1.0}}"#,
    );
    let budget = ["--max-budget-usd", "1", "--prices", "prices.json"];
    let (status, _) = run(&desk, &budget);
    assert_eq!(status, 2, "nothing measures what the budget is about");
}

/// A policy file adds to the default protections; dropping them takes a flag.
#[test]
fn a_policy_adds_to_the_default_protections() {
    let desk = under(&json!({"deny_write": ["x"]}), DONE);
    let (_, receipt) = run(&desk, &["--policy", "policy.json"]);
    assert_ne!(rule(&receipt, "deny_read", "**/.env"), &Value::Null);
    assert_ne!(rule(&receipt, "deny_write", "x"), &Value::Null);
    let desk = under(&json!({"deny_write": ["x"]}), DONE);
    let (_, receipt) = run(&desk, &["--policy", "policy.json", "--no-default-policy"]);
    assert_eq!(rule(&receipt, "deny_read", "**/.env"), &Value::Null);
    assert_ne!(rule(&receipt, "deny_write", "x"), &Value::Null);
}

/// The state is never part of a workspace, also where the workspace is the user's home.
#[test]
fn the_state_is_never_staged() {
    let desk = Desk::new();
    desk.receipt();
    let home = desk.home();
    let root = home.to_str().unwrap();
    let ran = desk.abp(&["run", "--task", "t", "--root", root]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let stages = desk.stages();
    let staged = |stage: &std::path::PathBuf| stage.join("tree/.local/state/abp").exists();
    assert!(!stages.iter().any(staged), "{stages:?}");
    let place = [
        "run",
        "--task",
        "t",
        "--root",
        root,
        "--workspace-mode",
        "pass-through",
    ];
    let refused = desk.abp(&[&place[..], &["--approve", "*"]].concat());
    assert_ne!(refused.status, 0);
    assert!(
        refused.stdout.contains("contains the state of ABP"),
        "{}",
        refused.stdout
    );
}

/// A final that cannot be read, says nothing, or contradicts itself is no success.
#[test]
fn only_a_clear_final_is_complete() {
    let cases = [
        (
            r#"{"outcome":"PARTIAL"}"#,
            "failed",
            Some("PROTOCOL_INVALID_ENVELOPE"),
        ),
        (
            r#"{"outcome":7}"#,
            "failed",
            Some("PROTOCOL_INVALID_ENVELOPE"),
        ),
        (r#"{}"#, "partial", Some("RUN_INCOMPLETE")),
        (r#"{"outcome":null}"#, "partial", Some("RUN_INCOMPLETE")),
        (
            r#"{"outcome":"complete","error":{"code":"BACKEND_CRASHED","message":"x"}}"#,
            "failed",
            Some("BACKEND_CRASHED"),
        ),
        (r#"{"outcome":"complete"}"#, "complete", None),
    ];
    for (last, outcome, code) in cases {
        let desk = under(&json!({}), &format!("echo 1 > made.txt; final '{last}'"));
        let (_, receipt) = run(&desk, &["--lane", "workspace-first"]);
        assert_eq!(receipt["outcome"], outcome, "{last}");
        assert_eq!(receipt["error"]["code"].as_str(), code, "{last}");
        assert_eq!(
            desk.path("made.txt").exists(),
            outcome == "complete",
            "{last}"
        );
    }
}

/// A nested repository is content of the rule about repositories; the result of a run that broke its policy
/// is applied only path by path.
#[test]
fn a_breach_is_not_applied_as_a_whole() {
    let script = format!(
        "mkdir -p sub/.git/hooks; echo x > sub/.git/hooks/pre-commit; echo 1 > ok.txt; {DONE}"
    );
    let desk = under(&json!({}), &script);
    let (status, receipt) = run(&desk, &[]);
    assert_eq!(status, 4, "{receipt:#}");
    assert_eq!(denied(&receipt, "deny_write", "**/.git/**"), 1);
    let refused = desk.abp(&["apply", "last"]);
    assert_eq!(refused.status, 4, "{}", refused.stderr);
    assert!(!desk.path("ok.txt").exists());
    assert_eq!(desk.abp(&["apply", "last", "ok.txt"]).status, 0);
    assert!(desk.path("ok.txt").exists() && !desk.path("sub").exists());
}

/// The values of configured secrets are in no receipt, also where a file of the run holds them.
#[test]
fn b13_secrets_in_files_do_not_reach_the_receipt() {
    let desk = desk(
        &format!("hello; run; echo \"$MY_API_KEY\" > leak.txt; {DONE}"),
        "",
    );
    let config = std::fs::read_to_string(desk.path("operator.toml")).unwrap();
    desk.write(
        "operator.toml",
        format!("{config}MY_API_KEY = \"supersecretvalue123\"\n"),
    );
    let (status, receipt) = run(&desk, &[]);
    assert_eq!(status, 0, "{receipt:#}");
    assert!(
        receipt["verification"]["git_diff"]
            .to_string()
            .contains("leak.txt")
    );
    assert!(!receipt.to_string().contains("supersecretvalue123"));
}
