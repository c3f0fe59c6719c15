//! Events to messages and back.

use abp_error::ErrorCode;

use super::*;

/// Events that Claude Code's messages can say, each in one.
fn sayable() -> Vec<AgentEventKind> {
    let text = "Hi".to_owned();
    vec![
        AgentEventKind::SessionStarted {
            session_id: "s-1".to_owned(),
        },
        AgentEventKind::ThinkingDelta { text: text.clone() },
        AgentEventKind::AssistantDelta { text: text.clone() },
        AgentEventKind::AssistantMessage { text },
        AgentEventKind::ToolCall {
            tool_name: "Write".to_owned(),
            tool_use_id: Some("c".to_owned()),
            parent_tool_use_id: Some("p".to_owned()),
            input: json!({"file_path": "a"}),
        },
        AgentEventKind::ToolResult {
            tool_name: "Write".to_owned(),
            tool_use_id: Some("c".to_owned()),
            output: json!("done"),
            is_error: true,
        },
    ]
}

#[test]
fn events_survive_the_way_through_messages() {
    let mut writer = MessageWriter::default();
    for event in sayable() {
        let message = writer.write(&event).unwrap();
        let line = serde_json::to_string(&message).unwrap();
        let read: ClaudeMessage = serde_json::from_str(&line).unwrap();
        assert_eq!(read, message, "{line}");
        let name = |id: &str| (id == "c").then(|| "Write".to_owned());
        assert_eq!(events_of(&read, name), [event], "{line}");
    }
}

#[test]
fn messages_have_the_form_that_claude_code_gives_them() {
    let mut writer = MessageWriter::default();
    let written: Vec<_> = sayable()
        .iter()
        .filter_map(|event| writer.write(event))
        .collect();
    let expected = json!([
        {"type": "system", "subtype": "init", "session_id": "s-1"},
        {"type": "stream_event", "parent_tool_use_id": null, "session_id": "s-1",
         "event": {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hi"}}},
        {"type": "stream_event", "parent_tool_use_id": null, "session_id": "s-1",
         "event": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}},
        {"type": "assistant", "parent_tool_use_id": null, "session_id": "s-1",
         "message": {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}},
        {"type": "assistant", "parent_tool_use_id": "p", "session_id": "s-1",
         "message": {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "Write", "input": {"file_path": "a"}}]}},
        {"type": "user", "parent_tool_use_id": null, "session_id": "s-1",
         "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "done", "is_error": true}]}},
    ]);
    assert_eq!(serde_json::to_value(written).unwrap(), expected);
    let question = writer.question("q", "Bash", Some("c"), &json!({"command": "ls"}));
    assert_eq!(
        serde_json::to_value(question).unwrap(),
        json!({"type": "control_request", "request_id": "q", "request": {
            "subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "c"}})
    );
}

#[test]
fn the_last_message_has_the_answer_and_the_usage() {
    let usage = ClaudeUsage {
        input_tokens: 7,
        output_tokens: 5,
        cache_read_input_tokens: 2,
        cache_creation_input_tokens: 1,
    };
    let run = || {
        let mut writer = MessageWriter::default();
        for event in sayable() {
            writer.write(&event);
        }
        let usage = UsageNormalized::from(usage);
        assert_eq!(writer.write(&AgentEventKind::UsageUpdated { usage }), None);
        writer
    };
    let failure = AbpError::new(ErrorCode::BackendUnavailable, "no model");
    for (end, subtype, result) in [
        (Ok(()), "success", "Hi"),
        (Err(&failure), "error_during_execution", "no model"),
    ] {
        let expected = ClaudeMessage::Result {
            subtype: subtype.to_owned(),
            is_error: end.is_err(),
            result: result.to_owned(),
            session_id: "s-1".to_owned(),
            usage,
        };
        assert_eq!(run().finish(end), expected);
    }
}

#[test]
fn unknown_members_and_blocks_are_passed_over() {
    let line = json!({"type": "assistant", "uuid": "u", "message": {"id": "m", "role": "assistant", "model": "x",
        "content": [{"type": "thinking", "thinking": "Hm", "signature": "s"}, {"type": "image", "source": {}},
            {"type": "tool_use", "id": "t", "name": "TodoWrite", "input": {"todos": [{"content": "one", "status": "pending"}]}}]}});
    let message: ClaudeMessage = serde_json::from_value(line).unwrap();
    let events = events_of(&message, |_| None);
    let kinds: Vec<_> = events.iter().map(AgentEventKind::name).collect();
    assert_eq!(kinds, ["tool_call", "plan_updated"]);
}
