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

/// A dry run shows what holds each rule on the chosen backend, the limits, and the workspace without links.
#[test]
fn a_dry_run_shows_policy_limits_and_workspace() {
    let desk = Desk::new();
    desk.write(
        "operator.toml",
        format!(
            "state_dir = {:?}\n[backends.agent]\ntype = \"sidecar\"\ncommand = \"sh\"\ntimeout_secs = 7\n",
            desk.state("")
        ),
    );
    desk.write(
        "p.json",
        r#"{"deny_write": ["*.lock"], "disallowed_tools": ["Bash"]}"#,
    );
    std::fs::create_dir(desk.path("real")).unwrap();
    std::os::unix::fs::symlink("real", desk.path("link")).unwrap();
    let plan = |more: &[&str]| {
        let run = [
            "run",
            "--task",
            "t",
            "--dry-run",
            "--config",
            "operator.toml",
        ];
        let flags = [
            "--policy",
            "p.json",
            "--no-default-policy",
            "--root",
            "link",
            "--include",
            "*.rs",
            "--exclude",
            "x/**",
            "--max-turns",
            "3",
            "--timeout",
            "90s",
        ];
        [&run[..], &flags, more]
            .concat()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let shown = |more: &[&str]| {
        let arguments = plan(more);
        desk.json(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let rule = |list: &str, pattern: &str, level: &str, by: &str| json!({"list": list, "pattern": pattern, "enforced_by": level, "by": by});
    // What holds a rule depends on the backend and on the mode of the workspace.
    let cases = [
        (
            "mock",
            "staged",
            ("host", "tool proxy"),
            ("host", "tool proxy"),
            None,
        ),
        (
            "agent",
            "staged",
            ("advisory", "announced actions"),
            ("host", "verification"),
            Some(7),
        ),
        (
            "agent",
            "pass-through",
            ("advisory", "announced actions"),
            ("advisory", "announced actions"),
            Some(7),
        ),
    ];
    for (backend, mode, tools, writes, backend_timeout) in cases {
        let (status, plan) = shown(&["--backend", backend, "--workspace-mode", mode]);
        assert_eq!(status, 0, "{plan:#}");
        let rules = json!([
            rule("disallowed_tools", "Bash", tools.0, tools.1),
            rule("deny_write", "*.lock", writes.0, writes.1),
        ]);
        assert_eq!(plan["policy"]["rules"], rules, "{backend} {mode}");
        let limits = json!({
            "timeout_secs": 90.0, "backend_timeout_secs": backend_timeout,
            "max_budget_usd": null, "max_turns": 3,
        });
        assert_eq!(plan["limits"], limits);
        let root = desk.path("real").canonicalize().unwrap();
        let workspace = json!({
            "root": root, "mode": mode.replace('-', "_"), "lane": "patch_first",
            "include": ["*.rs"], "exclude": ["x/**"], "respect_gitignore": true,
        });
        assert_eq!(plan["workspace"], workspace);
    }
    let arguments = plan(&["--backend", "agent"]);
    let text = desk
        .abp(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
        .stdout;
    for part in [
        "/real, on a copy\n",
        "limits     90 s, 7 s on this backend, 3 turns\n",
        "  deny_write \"*.lock\"  held by the host: verification\n",
        "  disallowed_tools \"Bash\"  advisory, by announced actions\n",
        "include    *.rs\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert!(!desk.state("").exists(), "a dry run leaves nothing behind");
}

/// A workspace that a run could not open is refused with the status of such a run.
#[test]
fn a_dry_run_refuses_a_root_that_cannot_be_opened() {
    let desk = Desk::new();
    for root in ["not-there", "readme.txt"] {
        let run = ["run", "--task", "t", "--root", root];
        let (ran, receipt) = desk.json(&run);
        let (planned, refused) = desk.json(&[&run[..], &["--dry-run"]].concat());
        assert_eq!(
            refused["error"]["code"], "WORKSPACE_INIT_FAILED",
            "{refused}"
        );
        assert_eq!(refused["error"]["code"], receipt["error"]["code"]);
        assert_eq!((planned, planned == 0), (ran, false), "{root}");
    }
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
