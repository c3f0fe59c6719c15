//! One test for each step of the pipeline, which fails when the step's result is ignored.

use abp_policy::Holders;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abp_backend_core::{Backend, RunEnd};
use abp_core::{
    AgentEventKind, CancelReason, Capability, CapabilityManifest, EnforcementLevel, Outcome,
    PermissionOutcome, Timestamp,
};
use abp_error::ErrorCode;
use abp_runtime::{Approvals, Approver, RunOptions};
use abp_store::{AnswerOutcome, ApprovalAnswer, ApprovalFilter, ApprovalVerdict, RunState};
use serde_json::{Value, json};

use crate::bench::{Bench, Probe, said, script};

/// Step 3 to 5: a capability that nobody provides is refused before the backend is opened.
#[tokio::test]
async fn a_missing_capability_is_refused_before_anything_happens() {
    let probe = Arc::new(Probe::new(|_| async { RunEnd::completed() }));
    let bench = Bench::new([Arc::clone(&probe) as Arc<dyn Backend>]);
    for required in [
        json!({"capability": "tool_bash", "min_support": "native"}),
        json!({"capability": "tool_bash"}),
        json!({"capability": "telepathy"}),
    ] {
        let order = bench.order(json!({"requirements": {"required": [required]}}));
        let error = bench
            .runtime
            .run_streaming("mock", order)
            .await
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::CapabilityUnsupported, "{error}");
    }
    let kernel = bench.order(json!({"policy": {"deny_write": ["a"]}, "config": {"vendor": {"abp": {"enforcement": "kernel"}}}}));
    assert_eq!(
        bench
            .runtime
            .run_streaming("mock", kernel)
            .await
            .unwrap_err()
            .code(),
        ErrorCode::CapabilityUnsupported
    );
    assert_eq!(probe.opened.load(Ordering::SeqCst), 0);
    assert_eq!(
        std::fs::read_dir(bench.state.path()).unwrap().count(),
        0,
        "nothing was written"
    );
}

/// Step 6 and 7: what the backend receives is the plan's payload, with the emulation in it.
#[tokio::test]
async fn the_backend_receives_exactly_the_plans_payload() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&received);
    let bench = Bench::new([Arc::new(Probe::new(move |context| {
        sink.lock()
            .unwrap()
            .push(context.payload().bytes().unwrap().into_owned());
        async { RunEnd::completed() }
    })) as Arc<dyn Backend>]);
    let context =
        json!({"files": ["kept.txt"], "snippets": [{"name": "note", "content": "mind the gap"}]});
    let orders = [
        bench.order(json!({"context": context})),
        bench.order(json!({"requirements": {"required": [{"capability": "extended_thinking"}]}})),
        bench.order(json!({"config": {"vendor": {"abp": {"mode": "passthrough", "request": "{ \"model\" : 1e5 }"}}}})),
    ];
    let mut receipts = Vec::new();
    for order in &orders {
        let handle = bench
            .runtime
            .run_streaming("mock", order.clone())
            .await
            .unwrap();
        receipts.push(handle.receipt.await.unwrap());
    }
    let received = received.lock().unwrap();
    for (order, bytes) in orders.iter().zip(received.iter()) {
        let plan = bench
            .runtime
            .plan("mock", order.clone(), &bench.options())
            .unwrap();
        let confirmed = plan
            .confirm("mock", &CapabilityManifest::new(), &Holders::HOST_TOOLS)
            .unwrap();
        assert_eq!(bytes, confirmed.payload().bytes().unwrap().as_ref());
    }
    let [plain, emulated, passthrough] =
        [0, 1, 2].map(|run| String::from_utf8(received[run].clone()).unwrap());
    assert!(
        plain.contains("mind the gap") && plain.contains("kept.txt"),
        "context reaches the backend: {plain}"
    );
    assert!(!plain.contains("step by step"));
    assert!(
        emulated.contains("Think step by step before answering."),
        "{emulated}"
    );
    assert_eq!(
        passthrough, "{ \"model\" : 1e5 }",
        "passthrough is byte for byte"
    );
    let applied = |run: usize| receipts[run].plan.as_ref().unwrap().emulation.applied.len();
    assert_eq!([applied(0), applied(1), applied(2)], [0, 1, 0]);
}

/// In passthrough nothing is injected, so what would need it is refused.
#[tokio::test]
async fn passthrough_refuses_what_it_would_have_to_emulate() {
    let bench = Bench::scripted(&json!([]));
    let passthrough = json!({"abp": {"mode": "passthrough", "request": "{}"}});
    let order = bench.order(json!({
        "requirements": {"required": [{"capability": "extended_thinking"}]},
        "config": {"vendor": passthrough},
    }));
    let error = bench
        .runtime
        .run_streaming("mock", order)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("passthrough adds nothing"),
        "{error}"
    );
}

/// The plan is confirmed on what the open backend really is; what it lacks then ends the run.
#[tokio::test]
async fn the_opened_backend_is_negotiated_again() {
    let lying = json!({
        "name": "a-liar", "priority": 9,
        "manifest": {"tool_bash": "native"}, "opened_manifest": {},
        "steps": [{"do": "say", "text": "never"}],
    });
    let honest = json!({"name": "honest", "manifest": {"tool_bash": "native"}, "steps": [{"do": "say", "text": "done"}]});
    let required = json!({"requirements": {"required": [{"capability": "tool_bash", "min_support": "native"}]}});

    let bench = Bench::new([script(lying.clone())]);
    let handle = bench
        .runtime
        .run_streaming("a-liar", bench.order(required.clone()))
        .await
        .unwrap();
    let (receipt, events) = bench.follow(handle).await;
    assert_eq!(
        (receipt.outcome, receipt.error.unwrap().code),
        (Outcome::Failed, ErrorCode::CapabilityUnsupported)
    );
    assert_eq!(said(&events), Vec::<&str>::new(), "it was given no work");
    assert!(receipt.plan.is_none());

    let bench = Bench::new([script(lying), script(honest)]);
    let handle = bench
        .runtime
        .run_streaming("auto", bench.order(required))
        .await
        .unwrap();
    let (receipt, events) = bench.follow(handle).await;
    assert_eq!(
        (receipt.outcome, receipt.backend.id.as_str()),
        (Outcome::Complete, "honest")
    );
    assert_eq!(said(&events), ["done"]);
    let warned = |kind: &AgentEventKind| matches!(kind, AgentEventKind::Warning { message } if message.contains("a-liar"));
    assert!(
        events.iter().any(|event| warned(&event.kind)),
        "the fallback is not silent"
    );
}

/// Step 8 to 10: a denied write leaves no file, whatever way its path is spelled.
#[tokio::test]
async fn a_denied_write_leaves_no_file() {
    let outside = tempfile::TempDir::new().unwrap();
    let paths = [
        "secret/a",
        "./secret/b",
        "x/../secret/c",
        "link/d",
        "../escape",
        "/abp-escape",
        "out/e",
    ];
    let steps: Vec<_> = paths
        .iter()
        .map(|path| json!({"do": "write", "path": path, "content": "x"}))
        .collect();
    let bench = Bench::scripted(&Value::Array(steps));
    std::fs::create_dir(bench.source.path().join("secret")).unwrap();
    std::os::unix::fs::symlink("secret", bench.source.path().join("link")).unwrap();
    std::os::unix::fs::symlink(outside.path(), bench.source.path().join("out")).unwrap();
    // In place, so that what was written would be seen.
    let (receipt, events) = bench
        .run(
            json!({"workspace": {"mode": "pass_through"}, "policy": {"deny_write": ["secret/**"]}}),
        )
        .await;
    assert_eq!(receipt.verification.git_diff.as_deref(), Some(""));
    assert_eq!(
        std::fs::read_dir(bench.source.path().join("secret"))
            .unwrap()
            .count(),
        0
    );
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    let refused = events.iter().filter(|event| {
        matches!(
            event.kind,
            AgentEventKind::ToolResult { is_error: true, .. }
        )
    });
    assert_eq!(refused.count(), paths.len());
    assert_eq!(
        receipt.enforcement.rules[0].denied, 4,
        "{:?}",
        receipt.enforcement
    );
    assert_eq!(
        receipt.enforcement.rules[0].enforced_by,
        EnforcementLevel::Host
    );
    assert_eq!(
        receipt.outcome,
        Outcome::Complete,
        "the agent was told and went on"
    );
}

#[tokio::test]
async fn reads_and_tools_are_denied_too() {
    let bench = Bench::scripted(&json!([
        {"do": "read", "path": "kept.txt"},
        {"do": "write", "path": "new.txt", "content": "x"},
    ]));
    let policy = json!({"policy": {"deny_read": ["*.txt"], "disallowed_tools": ["Wri*"]}});
    let (receipt, _) = bench.run(policy).await;
    let denied: Vec<_> = receipt
        .enforcement
        .rules
        .iter()
        .map(|rule| (rule.list.as_str(), rule.denied))
        .collect();
    assert_eq!(denied, [("disallowed_tools", 1), ("deny_read", 1)]);
    assert_eq!(receipt.workspace.unwrap().changes.unwrap().files_changed, 0);
}

fn ann(via: &str) -> Approver {
    Approver {
        name: "ann".to_owned(),
        via: via.to_owned(),
    }
}

/// What needs approval is denied where nobody can be asked, unless it was approved in advance.
#[tokio::test]
async fn approval_is_needed_and_recorded() {
    let cases = [
        (None, PermissionOutcome::Denied, ("default", None), 0),
        (
            Some("Wr*"),
            PermissionOutcome::Approved,
            ("ann", Some("--approve")),
            1,
        ),
    ];
    for (approved, expected, by, changed) in cases {
        let bench = Bench::scripted(&json!([{"do": "write", "path": "new.txt", "content": "x"}]));
        let patterns: Vec<_> = approved.into_iter().map(str::to_owned).collect();
        let options = RunOptions {
            approvals: Approvals::for_tools(&patterns, ann("--approve")).unwrap(),
            ..RunOptions::default()
        };
        let order = bench.order(json!({"policy": {"require_approval_for": ["Write"]}}));
        let (receipt, events) = bench.run_with(order, options).await;
        let resolved = events.iter().find_map(|event| match &event.kind {
            AgentEventKind::PermissionResolved {
                outcome,
                decided_by,
                decided_via,
                ..
            } => Some((*outcome, (decided_by.as_str(), decided_via.as_deref()))),
            _ => None,
        });
        assert_eq!(resolved, Some((expected, by)));
        assert!(
            events
                .iter()
                .any(|event| event.kind.name() == "permission_requested")
        );
        assert_eq!(
            receipt.workspace.unwrap().changes.unwrap().files_changed,
            changed
        );
    }
}

/// A question pauses the run; its answer, or the lack of one, is recorded with who and why.
#[tokio::test]
async fn questions_are_answered_or_time_out_to_deny() {
    let cases = [
        (
            Some((ApprovalVerdict::Approved, Some("looks fine"))),
            PermissionOutcome::Approved,
            "ann",
            "looks fine",
        ),
        (
            Some((ApprovalVerdict::Denied, Some("not today"))),
            PermissionOutcome::Denied,
            "ann",
            "not today",
        ),
        (
            Some((ApprovalVerdict::Denied, None)),
            PermissionOutcome::Denied,
            "ann",
            "denied when asked",
        ),
        (
            None,
            PermissionOutcome::Denied,
            "default",
            "nobody answered within 0.3 s",
        ),
    ];
    for (reply, expected, who, why) in cases {
        let bench = Bench::scripted(&json!([{"do": "write", "path": "new.txt", "content": "x"}]));
        let store = bench.runtime.store().await.unwrap().clone();
        let timeout = match reply {
            Some(_) => Duration::from_secs(30),
            None => Duration::from_millis(300),
        };
        let options = RunOptions {
            approvals: Approvals::default().or_ask(timeout),
            ..RunOptions::default()
        };
        let desk = tokio::spawn(async move {
            let asked = loop {
                let open = ApprovalFilter {
                    open: Some(true),
                    ..ApprovalFilter::default()
                };
                let asked = store.approvals(&open, 10).await.unwrap().pop();
                match asked {
                    Some(asked) => break asked,
                    None => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            };
            assert_eq!(
                (asked.tool.as_str(), asked.target.as_deref()),
                ("Write", Some("new.txt"))
            );
            assert_eq!(asked.rule.as_deref(), Some("require_approval_for: Write"));
            let state = store.run_state(asked.run_id).await.unwrap();
            assert_eq!(state, Some(RunState::AwaitingApproval));
            let Some((verdict, reason)) = reply else {
                return;
            };
            let answer = ApprovalAnswer {
                verdict,
                at: Timestamp::from_unix_millis(1),
                by: "ann".to_owned(),
                via: "terminal".to_owned(),
                reason: reason.map(str::to_owned),
            };
            let first = store.answer_approval(asked.id, answer.clone()).await;
            assert!(matches!(first.unwrap(), AnswerOutcome::Recorded(_)));
            let late = ApprovalAnswer {
                by: "bob".to_owned(),
                ..answer
            };
            let late = store.answer_approval(asked.id, late).await.unwrap();
            let AnswerOutcome::AlreadyAnswered(record) = late else {
                panic!("the first answer counts");
            };
            assert_eq!(record.answer.unwrap().by, "ann");
        });
        let order = bench.order(json!({"policy": {"require_approval_for": ["Write"]}}));
        let (receipt, events) = bench.run_with(order, options).await;
        desk.await.unwrap();
        let resolved = events.iter().find_map(|event| match &event.kind {
            AgentEventKind::PermissionResolved {
                outcome,
                decided_by,
                reason,
                ..
            } => Some((*outcome, decided_by.as_str(), reason.as_str())),
            _ => None,
        });
        let (outcome, by, reason) = resolved.unwrap();
        assert_eq!((outcome, by), (expected, who));
        assert!(reason.ends_with(why), "{reason}");
        let changed = u64::from(expected == PermissionOutcome::Approved);
        assert_eq!(
            receipt.workspace.unwrap().changes.unwrap().files_changed,
            changed
        );
    }
}

/// A backend that says it did what is denied is stopped.
#[tokio::test]
async fn an_observed_breach_ends_the_run() {
    let tool = json!({"type": "tool_call", "tool_name": "Bash", "input": {"command": "rm -rf /"}});
    let command = json!({"type": "command_executed", "command": "rm -rf /"});
    let file = json!({"type": "file_changed", "path": ".git/config", "summary": "s"});
    let escape = json!({"type": "file_changed", "path": "/etc/passwd", "summary": "s"});
    for event in [tool, command, file, escape] {
        let bench = Bench::scripted(
            &json!([{"do": "emit", "event": event}, {"do": "say", "text": "never"}]),
        );
        let policy =
            json!({"policy": {"disallowed_tools": ["Bash"], "deny_write": ["**/.git/**"]}});
        let (receipt, events) = bench.run(policy).await;
        assert_eq!(
            (receipt.outcome, receipt.cancel_reason),
            (Outcome::Failed, Some(CancelReason::Policy)),
            "{event}"
        );
        assert_eq!(receipt.error.unwrap().code, ErrorCode::PolicyDenied);
        assert_eq!(said(&events), Vec::<&str>::new());
    }
}

/// Post-processing is applied to the answer: what was promised is held, or the run fails.
#[tokio::test]
async fn an_emulated_schema_is_held_to() {
    let schema =
        json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
    let cases = [
        ("```json\n{\"n\": 1}\n```", None),
        (
            "{\"n\": \"one\"}",
            Some("does not follow the output schema"),
        ),
        ("it is one", Some("not JSON")),
    ];
    for (answer, problem) in cases {
        let bench = Bench::scripted(&json!([{"do": "say", "text": answer}]));
        let (receipt, _) = bench
            .run(json!({"config": {"vendor": {"abp": {"output_schema": schema}}}}))
            .await;
        let emulated = &receipt.plan.as_ref().unwrap().emulation.applied[0].capability;
        assert_eq!(emulated, &Capability::StructuredOutputJsonSchema);
        match problem {
            None => assert_eq!(receipt.outcome, Outcome::Complete),
            Some(problem) => {
                let error = receipt.error.unwrap();
                assert_eq!(error.code, ErrorCode::CapabilityEmulationFailed);
                assert!(error.message.contains(problem), "{}", error.message);
            }
        }
    }
    // A backend that is to hold the answer to it natively is held to it as well.
    let bench = Bench::new([script(json!({
        "name": "mock", "manifest": {"structured_output_json_schema": "native"},
        "steps": [{"do": "say", "text": "it is one"}],
    }))]);
    let order = json!({"config": {"vendor": {"abp": {"output_schema": schema}}}});
    let (receipt, _) = bench.run(order).await;
    let code = receipt.error.map(|error| error.code);
    let broken = Some(ErrorCode::BackendBrokenAnswer);
    assert_eq!((receipt.outcome, code), (Outcome::Failed, broken));
    let bench = Bench::scripted(&json!([]));
    let order = bench.order(json!({"config": {"vendor": {"abp": {"output_schema": {"type": 7}}}}}));
    let error = bench
        .runtime
        .run_streaming("mock", order)
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::ValidationFailed, "{error}");
}

/// Step 11: the lane decides what becomes of the result.
#[tokio::test]
async fn lanes() {
    let steps = json!([{"do": "write", "path": "new/file.txt", "content": "made\n"}]);
    for (lane, applied) in [("patch_first", false), ("workspace_first", true)] {
        let bench = Bench::scripted(&steps);
        let (receipt, _) = bench.run(json!({"lane": lane})).await;
        assert_eq!(
            bench.source.path().join("new/file.txt").exists(),
            applied,
            "{lane}"
        );
        assert_eq!(receipt.workspace.unwrap().applied, applied);
        assert!(receipt.verification.git_diff.unwrap().contains("+made"));
    }
    // The source changed under the run: nothing is applied.
    let source = Arc::new(Mutex::new(None::<std::path::PathBuf>));
    let place = Arc::clone(&source);
    let bench = Bench::new([Arc::new(Probe::new(move |context| {
        let source = place.lock().unwrap().clone().unwrap();
        async move {
            let (path, content) = ("kept.txt".to_owned(), b"agent\n".to_vec());
            context
                .use_tool(abp_backend_core::ToolInvocation::WriteFile { path, content })
                .await
                .unwrap();
            std::fs::write(source.join("kept.txt"), "person\n").unwrap();
            RunEnd::completed()
        }
    })) as Arc<dyn Backend>]);
    *source.lock().unwrap() = Some(bench.source.path().to_owned());
    let (receipt, _) = bench.run(json!({"lane": "workspace_first"})).await;
    assert_eq!(receipt.error.unwrap().code, ErrorCode::WorkspaceConflict);
    assert_eq!(
        std::fs::read_to_string(bench.source.path().join("kept.txt")).unwrap(),
        "person\n"
    );
}

/// Step 11: what is changed for the client is told before the run ends, and stands in the receipt,
/// however many kinds of blocks a backend makes up.
#[tokio::test]
async fn what_is_changed_for_the_client_is_recorded() {
    let block = |number: u32| {
        let name = format!("{number}_{}", "x".repeat(1000));
        json!({"do": "emit", "event": {"type": "content_block", "block_type": name, "data": {}}})
    };
    let mut steps = vec![json!({"do": "say", "text": "**hi**"})];
    steps.extend((0..400).map(block));
    let bench = Bench::scripted(&Value::from(steps));
    let client = json!({"prefers_markdown": false});
    let (receipt, events) = bench.run(json!({"client": client})).await;
    let told: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.kind {
            AgentEventKind::Adapted { adaptation } => Some(adaptation.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(receipt.adaptations, told);
    assert_eq!(told.iter().map(|one| one.count).sum::<u64>(), 401);
    assert!(told.len() <= 257 && told.iter().all(|one| one.event.len() < 300));
    let raw = events.iter().any(|event| {
        matches!(&event.kind, AgentEventKind::AssistantMessage { text } if text == "**hi**")
    });
    assert!(raw, "the journal keeps what was said");
    assert_eq!(
        events.last().map(|event| event.kind.name()),
        Some("run_completed")
    );

    let standard = Bench::scripted(&json!([{"do": "say", "text": "**hi**"}]));
    let (receipt, events) = standard.run(json!({})).await;
    assert_eq!((receipt.adaptations, &events[0].ext), (Vec::new(), &None));
}
