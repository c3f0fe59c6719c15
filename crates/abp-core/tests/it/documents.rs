//! Work orders and events from other hands.

use abp_core::{
    AgentEvent, AgentEventKind, ContractError, ExecutionLane, WorkOrder, WorkOrderBuilder,
    WorkspaceMode, read_document, validate_work_order,
};
use serde_json::{Value, json};

#[test]
fn a_task_alone_is_a_work_order_and_is_written_completely() {
    let order: WorkOrder = read_document(br#"{"task":"say hello","from_the_future":1}"#).unwrap();
    validate_work_order(&order).unwrap();
    let built = WorkOrderBuilder::new("say hello").id(order.id).build();
    assert_eq!(order, built);
    assert_eq!(
        (order.lane, order.workspace.mode),
        (ExecutionLane::PatchFirst, WorkspaceMode::Staged)
    );
    let written = serde_json::to_value(&order).unwrap();
    let lists = [
        "/workspace/include",
        "/context/files",
        "/policy/deny_read",
        "/requirements/required",
    ];
    for pointer in lists {
        assert_eq!(written.pointer(pointer), Some(&json!([])), "{pointer}");
    }
    for pointer in ["/config/vendor", "/config/env"] {
        assert_eq!(written.pointer(pointer), Some(&json!({})), "{pointer}");
    }
    assert_eq!(
        read_document::<WorkOrder>(written.to_string().as_bytes()).unwrap(),
        order
    );
}

#[test]
fn wrong_documents_are_refused_with_their_place() {
    let deep = format!(
        "{{\"task\":\"t\",\"config\":{{\"vendor\":{{\"x\":{}1{}}}}}}}",
        "[".repeat(500),
        "]".repeat(500)
    );
    let cases: [(&[u8], &str); 11] = [
        (b"", "not valid JSON at line 1, column 1"),
        (b"{\"task\":\n  oops}", "not valid JSON at line 2, column 3"),
        (
            b"\xef\xbb\xbf{\"task\":\"t\"}",
            "not valid JSON at line 1, column 1",
        ),
        (
            b"{\"task\":\"\xff\"}",
            "not valid JSON at line 1, column 10",
        ),
        (b"[\"a\", \"task\"]", "at the top level: expected an object"),
        (b"{}", "at the top level: missing field `task`"),
        (
            b"{\"task\":7}",
            "at /task: invalid type: integer `7`, expected a string",
        ),
        (
            br#"{"task":"t","lane":"fast"}"#,
            "at /lane: unknown variant `fast`",
        ),
        (
            br#"{"task":"t","config":{"env":{"A":1}}}"#,
            "at /config/env/A: invalid type",
        ),
        // B22: two readers could see two tasks.
        (br#"{"task":"a","t\u0061sk":"b"}"#, "duplicate key at /task"),
        (deep.as_bytes(), "not valid JSON at line 1"),
    ];
    for (document, expected) in cases {
        let error = read_document::<WorkOrder>(document)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(expected),
            "{error:?} does not start with {expected:?}"
        );
    }
}

#[test]
fn all_problems_of_an_order_are_reported_at_once() {
    let order: WorkOrder = read_document(
        br#"{"task":"  ","workspace":{"root":""},
            "config":{"max_budget_usd":-1,"max_turns":0,"env":{"A=B":"x"},"vendor":{"abp":{"mode":"fast"}}}}"#,
    )
    .unwrap();
    let problems: Vec<_> = validate_work_order(&order)
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect();
    let places: Vec<_> = problems
        .iter()
        .filter_map(|problem| problem.split(':').next())
        .collect();
    let expected = [
        "/task",
        "/workspace/root",
        "/config/max_budget_usd",
        "/config/max_turns",
        "/config/env/A=B",
        "/config/vendor/abp/mode",
    ];
    assert_eq!(places, expected, "{problems:#?}");
}

#[test]
fn settings_are_found_nested_and_flat() {
    for vendor in [
        json!({"abp": {"mode": "passthrough"}}),
        json!({"abp.mode": "passthrough"}),
    ] {
        let order: WorkOrder =
            serde_json::from_value(json!({"task": "t", "config": {"vendor": vendor}})).unwrap();
        assert_eq!(
            order.config.execution_mode().unwrap(),
            abp_core::ExecutionMode::Passthrough
        );
    }
}

/// Every kind in its wire form: read and written back as it was.
#[test]
fn events_round_trip() {
    let ts = "2024-01-15T10:30:00.000Z";
    let kinds = [
        json!({"type": "run_started", "message": "m"}),
        json!({"type": "run_completed", "message": "m"}),
        json!({"type": "assistant_delta", "text": "Hello"}),
        json!({"type": "assistant_message", "text": "Hello"}),
        json!({"type": "thinking_delta", "text": "hm"}),
        json!({"type": "tool_call", "tool_name": "Read", "tool_use_id": "1", "parent_tool_use_id": null, "input": {"a": [1]}}),
        json!({"type": "tool_result", "tool_name": "Read", "tool_use_id": null, "output": "x", "is_error": false}),
        json!({"type": "file_changed", "path": "a", "summary": "s"}),
        json!({"type": "command_executed", "command": "ls", "exit_code": 0, "output_preview": null}),
        json!({"type": "warning", "message": "m"}),
        json!({"type": "error", "message": "m"}),
        json!({"type": "error", "message": "m", "error_code": "BACKEND_TIMEOUT"}),
        json!({"type": "plan_updated", "entries": [{"content": "c", "status": "pending"}]}),
        json!({"type": "permission_requested", "tool_name": "Bash", "tool_use_id": null, "target": "ls", "reason": "r"}),
        json!({"type": "permission_resolved", "tool_name": "Bash", "tool_use_id": null, "target": null,
               "outcome": "denied", "decided_by": "policy", "reason": "r"}),
        json!({"type": "session_started", "session_id": "s"}),
        json!({"type": "content_block", "block_type": "CITATION_BLOCK", "data": {"citations": []}}),
        json!({"type": "network_connection", "host": "h", "port": 443, "allowed": true, "rule": "r", "bytes_up": 1, "bytes_down": 2}),
        json!({"type": "adapted", "adaptation": {"event": "e", "from": "f", "to": "t", "reason": "r"}}),
        json!({"type": "from_the_future", "payload": {"deep": [1, 2.5, null]}}),
    ];
    for mut wire in kinds {
        wire["ts"] = json!(ts);
        for ext in [None, Some(json!({"raw_message": {"a": 1}}))] {
            if let Some(ext) = ext {
                wire["ext"] = ext;
            }
            let event: AgentEvent = serde_json::from_value(wire.clone()).unwrap();
            assert_eq!(serde_json::to_value(&event).unwrap(), wire);
            assert_eq!(event.kind.name(), wire["type"]);
        }
    }
}

#[test]
fn events_are_read_strictly_where_they_are_known() {
    let cases: [(Value, Result<&str, &str>); 6] = [
        (
            json!({"ts": "2024-01-15T12:30:00+02:00", "type": "warning", "message": "m"}),
            Ok("2024-01-15T10:30:00.000Z"),
        ),
        (
            json!({"ts": "2024-01-15T10:30:00.123987Z", "type": "warning", "message": "m"}),
            Ok("2024-01-15T10:30:00.123Z"),
        ),
        (
            json!({"ts": "yesterday", "type": "warning", "message": "m"}),
            Err("ts: "),
        ),
        (
            json!({"type": "warning", "message": "m"}),
            Err("missing field `ts`"),
        ),
        (
            json!({"ts": "2024-01-15T10:30:00Z"}),
            Err("missing field `type`"),
        ),
        (
            json!({"ts": "2024-01-15T10:30:00Z", "type": "tool_call", "input": {}}),
            Err("missing field `tool_name`"),
        ),
    ];
    for (wire, expected) in cases {
        let read = serde_json::from_value::<AgentEvent>(wire).map(|event| event.ts.to_string());
        match (read, expected) {
            (Ok(ts), Ok(expected)) => assert_eq!(ts, expected),
            (Err(error), Err(expected)) => {
                assert!(error.to_string().starts_with(expected), "{error}");
            }
            (read, expected) => panic!("{read:?}, expected {expected:?}"),
        }
    }
}

/// A number of an unknown event beyond what JSON readers agree on must not pass for another.
#[test]
fn unsafe_numbers_do_not_hash() {
    let event = AgentEvent::new(
        abp_core::Timestamp::from_unix_millis(0),
        AgentEventKind::ToolCall {
            tool_name: "t".into(),
            tool_use_id: None,
            parent_tool_use_id: None,
            input: json!({"n": 9_007_199_254_740_993_u64}),
        },
    );
    let error = abp_core::EventDigest::default().push(&event).unwrap_err();
    assert!(matches!(error, ContractError::Canonical(_)), "{error:?}");
}
