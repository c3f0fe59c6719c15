//! Permission requests, and agents that do not send any.

use abp_core::{AgentEventKind, EnforcementLevel, Outcome, PolicyProfile, Receipt};
use abp_error::ErrorCode;
use abp_runtime::{Approvals, Approver, RunOptions};

use crate::lab::{Lab, names};

fn disallow(tool: &str) -> PolicyProfile {
    PolicyProfile {
        disallowed_tools: vec![tool.to_owned()],
        ..PolicyProfile::default()
    }
}

fn deny_write(pattern: &str) -> PolicyProfile {
    PolicyProfile {
        deny_write: vec![pattern.to_owned()],
        ..PolicyProfile::default()
    }
}

fn changed(receipt: &Receipt) -> &str {
    receipt
        .verification
        .git_status
        .as_deref()
        .unwrap_or_default()
}

#[tokio::test]
async fn what_the_policy_says_of_a_write_is_what_happens() {
    // behaviour, policy, outcome, what changed, denials
    let cases = [
        (
            "good",
            PolicyProfile::default(),
            Outcome::Complete,
            "?? new.txt\n",
            0,
        ),
        ("good", disallow("Write"), Outcome::Complete, "", 1),
        ("good", deny_write("new.txt"), Outcome::Complete, "", 1),
        (
            "silent",
            PolicyProfile::default(),
            Outcome::Complete,
            "?? new.txt\n",
            0,
        ),
        // An agent that does not ask is seen when it says what it did, and its run fails.
        (
            "silent",
            disallow("Write"),
            Outcome::Failed,
            "?? new.txt\n",
            1,
        ),
        (
            "silent",
            deny_write("new.txt"),
            Outcome::Failed,
            "?? new.txt\n",
            1,
        ),
        // One that does not care about the answer, too.
        (
            "stubborn",
            disallow("Write"),
            Outcome::Failed,
            "?? new.txt\n",
            1,
        ),
        (
            "through-host",
            PolicyProfile::default(),
            Outcome::Complete,
            "?? new.txt\n",
            0,
        ),
        (
            "through-host",
            deny_write("new.txt"),
            Outcome::Complete,
            "",
            1,
        ),
        ("through-host", disallow("Write"), Outcome::Complete, "", 1),
    ];
    for (behaviour, policy, outcome, change, denials) in cases {
        let case = format!("{behaviour} {policy:?}");
        let lab = Lab::new(behaviour);
        let receipt = lab.run(policy).await;
        assert_eq!(receipt.outcome, outcome, "{case}: {:?}", receipt.error);
        assert_eq!(changed(&receipt), change, "{case}");
        let denied: u64 = receipt
            .enforcement
            .rules
            .iter()
            .map(|rule| rule.denied)
            .sum();
        assert_eq!(denied, denials, "{case}");
        let code = receipt.error.as_ref().map(|error| error.code);
        let expected = (outcome == Outcome::Failed).then_some(ErrorCode::PolicyDenied);
        assert_eq!(code, expected, "{case}");
        assert!(!lab.source().join("new.txt").exists(), "{case}");
    }
}

#[tokio::test]
async fn an_approval_in_advance_lets_the_agent_go_on_and_is_asked_for_once() {
    let policy = PolicyProfile {
        require_approval_for: vec!["Write".to_owned()],
        ..PolicyProfile::default()
    };
    for (behaviour, approve, change) in [
        ("good", true, "?? new.txt\n"),
        ("good", false, ""),
        ("through-host", true, "?? new.txt\n"),
        ("through-host", false, ""),
    ] {
        let lab = Lab::new(behaviour);
        let mut options = RunOptions::default();
        if approve {
            let by = Approver {
                name: "ann".to_owned(),
                via: "--approve".to_owned(),
            };
            options.approvals = Approvals::for_tools(&["Write".to_owned()], by).unwrap();
        }
        let receipt = lab.run_with(lab.order(policy.clone()), options).await;
        let case = format!("{behaviour} {approve}");
        assert_eq!(
            receipt.outcome,
            Outcome::Complete,
            "{case}: {:?}",
            receipt.error
        );
        assert_eq!(changed(&receipt), change, "{case}");
        let asked = receipt.trace.iter();
        let asked =
            asked.filter(|event| matches!(event.kind, AgentEventKind::PermissionRequested { .. }));
        assert_eq!(asked.count(), 1, "{case}");
    }
}

#[tokio::test]
async fn a_rule_is_held_by_permission_requests_only_where_the_agent_asks() {
    let policy = PolicyProfile {
        disallowed_tools: vec!["Write".to_owned(), "Read".to_owned()],
        ..PolicyProfile::default()
    };
    let levels = |receipt: &Receipt| {
        let rules = receipt.enforcement.rules.iter();
        let rules = rules.map(|rule| (rule.pattern.clone(), rule.enforced_by, rule.by.clone()));
        rules.collect::<Vec<_>>()
    };
    let held = |pattern: &str, level, by: &str| (pattern.to_owned(), level, by.to_owned());
    let announced = |pattern| held(pattern, EnforcementLevel::Advisory, "announced actions");
    let asked = Lab::new("good").run(policy.clone()).await;
    assert_eq!(
        levels(&asked),
        [
            held("Write", EnforcementLevel::Host, "permission request"),
            announced("Read"),
        ]
    );
    let silent = Lab::new("silent").run(policy).await;
    assert_eq!(levels(&silent), [announced("Write"), announced("Read")]);
}

#[tokio::test]
async fn events_come_in_the_order_in_which_things_happen() {
    let receipt = Lab::new("good").run(PolicyProfile::default()).await;
    let expected = [
        "run_started",
        "session_started",
        "tool_call",
        "tool_result",
        "file_changed",
        "assistant_delta",
        "usage_updated",
        "run_completed",
    ];
    assert_eq!(names(&receipt), expected);
    assert_eq!(receipt.usage.input_tokens, Some(3));
    assert_eq!(
        receipt.backend.backend_version.as_deref(),
        Some("scripted 1.0.0")
    );
}
