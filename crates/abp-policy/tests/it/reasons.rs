//! The reason of a decision names what was asked and the rule that decided, in a form in which nothing of
//! it can pass for something else: it is shown to people and stands in receipts.

use std::path::Path;

use abp_core::PolicyProfile;
use abp_policy::{Decision, PolicyEngine, Rule};

fn engine() -> PolicyEngine {
    let owned = |patterns: &[&str]| patterns.iter().map(|one| (*one).to_owned()).collect();
    let profile = PolicyProfile {
        allowed_tools: owned(&["Read", "Bash*"]),
        disallowed_tools: owned(&["Kill", "Write*"]),
        deny_read: owned(&["secret"]),
        deny_write: owned(&["a", "locked"]),
        allow_network: owned(&["good.example"]),
        deny_network: owned(&["bad.example"]),
        require_approval_for: owned(&["Bash"]),
    };
    PolicyEngine::new(&profile).expect("profile compiles")
}

/// What a reason has to say: the subject as it is shown, and the rule or the list.
#[track_caller]
fn check(decision: &Decision, subject: &str, rule: &str) {
    let reason = &decision.reason;
    assert!(reason.contains(subject), "{reason:?} names {subject:?}");
    assert!(reason.contains(rule), "{reason:?} names {rule:?}");
    if let Some(rule) = &decision.rule {
        // What an allow list does not name is denied by the list, not by one of its patterns.
        let told = match rule.pattern.as_str() {
            Rule::NOT_LISTED => rule.list.to_string(),
            _ => rule.to_string(),
        };
        assert!(reason.contains(&told), "{reason:?}: {rule}");
    }
}

#[test]
fn every_kind_of_decision_names_its_subject_and_its_rule() {
    let engine = engine();
    let tool = |name: &str| engine.judge_tool(name);
    check(&tool("Read"), "\"Read\"", "allowed_tools[0] \"Read\"");
    check(&tool("BashX"), "\"BashX\"", "allowed_tools[1] \"Bash*\"");
    check(
        &tool("Bash"),
        "\"Bash\"",
        "require_approval_for[0] \"Bash\"",
    );
    check(
        &tool("WriteX"),
        "\"WriteX\"",
        "disallowed_tools[1] \"Write*\"",
    );
    check(&tool("Other"), "\"Other\"", "allowed_tools");
    let read = |path: &str| engine.can_read_path(Path::new(path));
    let write = |path: &str| engine.can_write_path(Path::new(path));
    check(&read("secret/x"), "\"secret/x\"", "deny_read[0] \"secret\"");
    check(&write("locked"), "\"locked\"", "deny_write[1] \"locked\"");
    check(&read("other"), "\"other\"", "");
    let host = |target: &str| engine.can_reach_network(target);
    check(
        &host("bad.example"),
        "\"bad.example\"",
        "deny_network[0] \"bad.example\"",
    );
    check(
        &host("good.example"),
        "\"good.example\"",
        "allow_network[0]",
    );
    check(&host("else.example"), "\"else.example\"", "allow_network");
    check(&host("http://x"), "\"http://x\"", "");
}

/// Names come from agents: quotes, line ends and colours are shown as what they are, and long names are
/// cut where a person can see it.
#[test]
fn a_name_cannot_write_the_reason() {
    let engine = engine();
    for (name, shown) in [
        ("x\" is allowed by \"y", r#""x\" is allowed by \"y""#),
        ("x\nallowed", r#""x\nallowed""#),
        ("\u{1b}[32mok", r#""\u{1b}[32mok""#),
        ("", "\"\""),
    ] {
        for decision in [
            engine.judge_tool(name),
            engine.can_use_tool(name),
            engine.needs_approval(name),
            engine.can_reach_network(name),
        ] {
            check(&decision, shown, "");
            assert!(!decision.reason.contains(['\n', '\u{1b}']), "{decision:?}");
        }
    }
    let shown = |length: usize| engine.judge_tool(&"é".repeat(length)).reason;
    assert!(shown(200).contains(&format!("\"{}\"", "é".repeat(200))));
    assert!(shown(201).contains(&format!("\"{}…\"", "é".repeat(200))));
    assert!(shown(100_000).chars().count() < 300);
}
