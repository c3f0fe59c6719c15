//! Updates, one by one.

use serde_json::json;

use super::*;

/// The events of updates as `name tool text`, for comparison.
fn told(asks: bool, updates: &[Value]) -> Vec<String> {
    let mut mapper = UpdateMapper::new(asks, "/w".into());
    let mut events: Vec<Emission> = Vec::new();
    for update in updates {
        events.extend(mapper.map(update));
    }
    events.extend(mapper.unfinished());
    events.iter().map(describe).collect()
}

fn describe(event: &Emission) -> String {
    let name = event.kind.name();
    match &event.kind {
        AgentEventKind::AssistantDelta { text } | AgentEventKind::ThinkingDelta { text } => {
            format!("{name} {text}")
        }
        AgentEventKind::ToolCall {
            tool_name, input, ..
        } => format!("{name} {tool_name} {input}"),
        AgentEventKind::ToolResult {
            tool_name,
            output,
            is_error,
            ..
        } => format!("{name} {tool_name} {output} {is_error}"),
        AgentEventKind::FileChanged { path, summary } => format!("{name} {path} {summary}"),
        AgentEventKind::PlanUpdated { entries } => {
            let entry = &entries[0];
            format!("{name} {} {}", entry.content, entry.status)
        }
        AgentEventKind::Opaque(event) => format!("{name} {}", Value::Object(event.fields.clone())),
        _ => name.to_owned(),
    }
}

fn call(status: &str, more: Value) -> Value {
    let mut update = json!({
        "sessionUpdate": "tool_call_update", "toolCallId": "1", "status": status,
    });
    if let (Value::Object(update), Value::Object(more)) = (&mut update, more) {
        update.extend(more);
    }
    update
}

#[test]
fn updates_become_events() {
    let text =
        |kind: &str| json!({ "sessionUpdate": kind, "content": { "type": "text", "text": "t" } });
    let cases = [
        (text("agent_message_chunk"), "assistant_delta t"),
        (text("agent_thought_chunk"), "thinking_delta t"),
        (
            json!({ "sessionUpdate": "plan", "entries": [
                { "content": "c", "priority": "high", "status": "in_progress" },
            ] }),
            "plan_updated c in_progress",
        ),
        (
            json!({ "sessionUpdate": "available_commands_update", "availableCommands": [
                { "name": "a", "description": "d" },
            ] }),
            r#"available_commands {"names":["a"]}"#,
        ),
        (
            json!({ "sessionUpdate": "new_thing", "x": 1 }),
            r#"acp_update {"update":"new_thing","content":{"sessionUpdate":"new_thing","x":1}}"#,
        ),
        (
            json!("nonsense"),
            r#"acp_update {"update":"unnamed","content":"nonsense"}"#,
        ),
    ];
    for (update, expected) in cases {
        assert_eq!(
            told(true, std::slice::from_ref(&update)),
            [expected],
            "{update}"
        );
    }
    for silent in ["user_message_chunk", "session_info_update"] {
        assert_eq!(told(true, &[text(silent)]), [""; 0], "{silent}");
    }
}

#[test]
fn a_call_is_told_once_its_fate_is_known() {
    let command = json!({ "kind": "execute", "title": "ls", "rawInput": { "command": "ls" } });
    let running = call("in_progress", command.clone());
    let done = call("completed", json!({ "rawOutput": "a" }));
    let called = r#"tool_call Bash {"command":"ls"}"#;
    let result = r#"tool_result Bash "a" false"#;
    // An agent that asks may still ask about a call that it says is under way.
    assert_eq!(
        told(true, std::slice::from_ref(&running)),
        [called],
        "at the end of the turn"
    );
    assert_eq!(
        told(true, &[running.clone(), done.clone()]),
        [called, result]
    );
    assert_eq!(
        told(false, &[running, done.clone(), done]),
        [called, result]
    );
    let failed = call("failed", command);
    let result = r#"tool_result Bash "" true"#;
    assert_eq!(told(true, &[failed]), [called, result]);
}

#[test]
fn a_tool_has_the_name_that_policies_know() {
    let diff =
        |old: Value| json!([{ "type": "diff", "path": "/p", "oldText": old, "newText": "n" }]);
    let cases = [
        (json!({ "name": "Glob", "kind": "search" }), "Glob"),
        (json!({ "name": "exec_command", "kind": "execute" }), "Bash"),
        (
            json!({ "kind": "edit", "content": diff(Value::Null) }),
            "Write",
        ),
        (
            json!({ "kind": "edit", "content": diff(json!("")) }),
            "Write",
        ),
        (
            json!({ "kind": "edit", "content": diff(json!("o")) }),
            "Edit",
        ),
        (json!({ "kind": "fetch" }), "WebFetch"),
        (json!({ "name": "mcp__s__t" }), "mcp__s__t"),
        (json!({ "name": "odd" }), "odd"),
        (json!({}), "Other"),
        (
            json!({ "_meta": { "claudeCode": { "toolName": "TodoWrite" } } }),
            "TodoWrite",
        ),
    ];
    for (fields, expected) in cases {
        let mut mapper = UpdateMapper::new(true, "/w".into());
        let update = call("pending", fields.clone());
        mapper.map(&update);
        let question = mapper.question(&json!({ "toolCallId": "1" })).unwrap();
        assert_eq!(question.tool_name, expected, "{update}");
    }
}

#[test]
fn a_question_names_the_paths_and_the_command_that_the_agent_tells_beside_the_input() {
    let mut mapper = UpdateMapper::new(true, "/w".into());
    mapper.map(&call(
        "pending",
        json!({
            "kind": "edit", "title": "Writing", "locations": [{ "path": "/w/a" }],
            "content": [{ "type": "diff", "path": "/w/b", "newText": "n" }],
            "rawInput": { "file_path": "/w/a" },
        }),
    ));
    let question = mapper.question(&json!({ "toolCallId": "1" })).unwrap();
    assert_eq!(question.input, json!({ "file_path": "a", "paths": ["b"] }));
    assert_eq!(mapper.call_of_path(Path::new("/w/b")).as_deref(), Some("1"));
    assert_eq!(mapper.call_of_path(Path::new("/w/c")), None);
    mapper.answered("1");
    assert_eq!(
        mapper.call_of_path(Path::new("/w/b")),
        None,
        "it is settled"
    );
    let shell = call("pending", json!({ "kind": "execute", "title": "rm x" }));
    let shell_question = {
        let mut mapper = UpdateMapper::new(true, "/w".into());
        mapper.map(&shell);
        mapper.question(&json!({ "toolCallId": "1" })).unwrap()
    };
    assert_eq!(shell_question.input, json!({ "command": "rm x" }));
}

#[test]
fn a_change_is_told_with_the_call_that_made_it_and_long_texts_are_cut() {
    let long = "x".repeat(MAX_TEXT + 10);
    let diff = json!([{ "type": "diff", "path": "/p", "oldText": "old", "newText": long }]);
    let update = call("completed", json!({ "kind": "edit", "content": diff }));
    let mut mapper = UpdateMapper::new(true, "/w".into());
    let events = mapper.map(&update);
    let names: Vec<&str> = events.iter().map(|event| event.kind.name()).collect();
    assert_eq!(names, ["tool_call", "tool_result", "file_changed"]);
    let ext = events[0].ext.as_ref().unwrap();
    let kept = ext["diffs"][0]["new_text"].as_str().unwrap();
    assert!(kept.ends_with("[10 bytes more]") && kept.len() < MAX_TEXT + 100);
}
