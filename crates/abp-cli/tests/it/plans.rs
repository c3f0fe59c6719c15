//! Plans, policies and limits from the command line.

use serde_json::json;

use crate::desk::Desk;

/// Three backends and one changed manifest entry: another choice, and another printed reason.
#[test]
fn the_plan_explains_its_choice() {
    let desk = Desk::new();
    let script = |name: &str, edit: &str| {
        json!({"name": name, "manifest": {"streaming": "native", "tool_edit": edit}, "steps": []})
            .to_string()
    };
    desk.write("a.json", script("a", "emulated"))
        .write("b.json", script("b", "native"));
    let plan = |desk: &Desk| {
        desk.abp(&[
            "run",
            "--task",
            "t",
            "--dry-run",
            "--backend",
            "auto",
            "--require",
            "tool_edit",
            "--require",
            "streaming:native",
            "--mock-script",
            "a.json",
            "--mock-script",
            "b.json",
        ])
    };
    let before = plan(&desk);
    assert_eq!(before.status, 0, "{}", before.stderr);
    for line in [
        "backend    b",
        "why        chosen because it can do everything that is required, and its score of 0.800 is the highest",
        "fallback   a",
        "  chosen because it can do everything that is required, and its score of 0.800 is the highest",
        "  tool_edit is emulated by the backend (adapter)",
        "  not chosen because its score of 0.785 is below the 0.800 of b",
        "  tool_edit is not offered by the backend and not emulated: No emulation available for ToolEdit",
    ] {
        assert!(
            before.stdout.lines().any(|printed| printed == line),
            "{line:?} is not in:\n{}",
            before.stdout
        );
    }
    assert!(!desk.state("").exists(), "a dry run leaves nothing behind");

    desk.write("b.json", script("b", "unsupported"));
    let after = plan(&desk);
    assert!(after.stdout.contains("backend    a\n"), "{}", after.stdout);
    assert!(!after.stdout.contains("fallback"), "{}", after.stdout);
}

#[test]
fn a_dry_run_as_json_is_the_whole_plan() {
    let desk = Desk::new();
    let (status, plan) = desk.json(&[
        "run",
        "--task",
        "t",
        "--dry-run",
        "--require",
        "extended_thinking",
    ]);
    assert_eq!(status, 0);
    assert_eq!(plan["selection"]["selected"], "mock");
    assert_eq!(
        plan["negotiation"]["unsupported"],
        json!(["extended_thinking"])
    );
    assert_eq!(
        plan["emulation"]["applied"][0]["capability"],
        "extended_thinking"
    );
    let system = &plan["payload"]["conversation"]["messages"][0];
    assert_eq!(
        (&system["role"], &system["content"][0]["text"]),
        (
            &json!("system"),
            &json!("Think step by step before answering.")
        )
    );
    assert_eq!(plan["work_order"]["task"], "t");
}

/// Each way to end has its exit status, and the JSON says the same.
#[test]
fn exit_statuses() {
    let desk = Desk::new();
    desk.write(
        "prices.json",
        r#"{"*": {"output_usd_per_mtok": 1000000.0}}"#,
    );
    desk.write("deny.json", r#"{"disallowed_tools": ["Bash"]}"#);
    let usage = json!({"do": "usage", "usage": {"output_tokens": 5}});
    let tool =
        json!({"do": "emit", "event": {"type": "tool_call", "tool_name": "Bash", "input": {}}});
    let fail = |code: &str| json!({"do": "fail", "code": code, "message": "m"});
    let scripts = [
        ("pays", json!([usage])),
        ("breaches", json!([tool])),
        ("fails", json!([fail("BACKEND_CRASHED")])),
        ("absent", json!([fail("BACKEND_UNAVAILABLE")])),
        ("sleeps", json!([{"do": "sleep", "ms": 60_000}])),
        (
            "talks",
            json!([{"do": "say", "text": "1"}, {"do": "say", "text": "2"}]),
        ),
    ];
    for (name, steps) in scripts {
        desk.write(
            &format!("{name}.json"),
            json!({"name": name, "steps": steps}).to_string(),
        );
    }
    let cases: [(&str, &[&str], i32, &str); 9] = [
        ("mock", &[], 0, ""),
        ("fails", &[], 1, "BACKEND_CRASHED"),
        ("mock", &["--workspace-mode", "flat"], 2, ""),
        (
            "mock",
            &["--require", "tool_bash:native"],
            3,
            "CAPABILITY_UNSUPPORTED",
        ),
        ("breaches", &["--policy", "deny.json"], 4, "POLICY_DENIED"),
        (
            "pays",
            &["--max-budget-usd", "4", "--prices", "prices.json"],
            5,
            "BUDGET_EXCEEDED",
        ),
        ("talks", &["--max-turns", "1"], 5, "TURN_LIMIT_EXCEEDED"),
        ("absent", &[], 6, "BACKEND_UNAVAILABLE"),
        ("sleeps", &["--timeout", "100ms"], 6, "BACKEND_TIMEOUT"),
    ];
    for (backend, flags, expected, code) in cases {
        let script = format!("{backend}.json");
        let mut arguments = vec!["run", "--task", "t", "--backend", backend];
        if backend != "mock" {
            arguments.extend(["--mock-script", &script]);
        }
        arguments.extend(flags);
        let ran = desk.abp(&arguments);
        assert_eq!(
            ran.status, expected,
            "{arguments:?}: {}{}",
            ran.stdout, ran.stderr
        );
        assert!(
            (ran.stdout.clone() + &ran.stderr).contains(code),
            "{arguments:?}: {}{}",
            ran.stdout,
            ran.stderr
        );
        if !code.is_empty() {
            let (status, object) = desk.json(&arguments);
            assert_eq!((status, &object["error"]["code"]), (expected, &json!(code)));
            assert_eq!(object["exit_code"], json!(expected));
        }
    }
}

#[test]
fn a_policy_denies_and_the_summary_says_so() {
    let desk = Desk::new();
    desk.write("policy.json", r#"{"deny_write": ["*.md"]}"#);
    let ran = desk.abp(&[
        "run",
        "--task",
        "t",
        "--policy",
        "policy.json",
        "--no-default-policy",
        "--workspace-mode",
        "pass-through",
    ]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(!desk.path("abp-hello.md").exists());
    assert!(
        ran.stdout.contains("denied     by deny_write \"*.md\""),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout
            .contains("I could not write abp-hello.md: denied: "),
        "{}",
        ran.stdout
    );
}

/// In place, the default policy wants approval; on a copy a write is only a proposal.
#[test]
fn writing_in_place_needs_approval() {
    for (flags, written) in [(&[][..], false), (&["--approve", "Write"][..], true)] {
        let desk = Desk::new();
        let arguments = [
            &["run", "--task", "t", "--workspace-mode", "pass-through"][..],
            flags,
        ]
        .concat();
        let ran = desk.abp(&arguments);
        assert_eq!(ran.status, 0);
        assert_eq!(desk.path("abp-hello.md").exists(), written, "{flags:?}");
        let approved = ran.stdout.contains("(--approve): approved in advance");
        assert_eq!(approved, written, "how it was approved: {}", ran.stdout);
    }
}

#[test]
fn orders_come_from_files_and_flags_override_them() {
    let desk = Desk::new();
    desk.write(
        "order.json",
        r#"{"task": "from the file", "lane": "workspace_first", "tusk": 1}"#,
    );
    let ran = desk.abp(&["run", "--order", "order.json", "--task", "from the flag"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.contains("You asked: from the flag"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("applied to the source") && desk.path("abp-hello.md").exists());
    assert_eq!(
        ran.stderr,
        "warning: order.json: unknown key at /tusk; did you mean \"task\"? (ignored)\n"
    );
}
