//! Streams that recordings do not show.

use serde_json::{Value, json};

use crate::same::recode;

fn stream(events: &[Value]) -> Vec<(Option<String>, String)> {
    events
        .iter()
        .map(|event| (None, event.to_string()))
        .collect()
}

fn names(written: &[(Option<String>, String)]) -> Vec<&str> {
    written
        .iter()
        .filter_map(|(name, _)| name.as_deref())
        .collect()
}

#[test]
fn an_output_that_comes_at_the_end_only_is_streamed() {
    let call = json!({"type": "function_call", "call_id": "c", "id": "fc", "name": "f", "arguments": "{}"});
    let (answer, written) = recode(&stream(&[
        json!({"type": "response.created", "response": {"id": "r", "model": "m"}}),
        json!({"type": "response.completed",
               "response": {"id": "r", "status": "completed", "output": [call]}}),
    ]))
    .expect("readable");
    assert_eq!(answer.blocks.len(), 1);
    assert_eq!(answer.blocks[0].1, "{}");
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(names(&written), expected);
}

#[test]
fn a_stream_that_breaks_off_ends_incomplete() {
    let (_, written) = recode(&stream(&[
        json!({"type": "response.created", "response": {"id": "r", "model": "m"}}),
        json!({"type": "response.output_text.delta", "output_index": 0, "delta": "Hel"}),
    ]))
    .expect("readable");
    let (name, data) = written.last().expect("an end");
    let last: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(name.as_deref(), Some("response.incomplete"));
    assert_eq!(last["response"]["output"][0]["content"][0]["text"], "Hel");
}

#[test]
fn an_error_in_any_form_is_a_failed_answer_and_the_last_event() {
    let nested = json!({"type": "error", "error": {"type": "server_error", "message": "no", "code": "server_error"}});
    let flat = json!({"type": "error", "message": "no", "code": "server_error", "param": null});
    let failed = json!({"type": "response.failed",
        "response": {"status": "failed", "error": {"code": "server_error", "message": "no"}, "output": []}});
    for event in [nested, flat, failed.clone()] {
        let begun = json!({"type": "response.created", "response": {"id": "r"}});
        let (answer, written) = recode(&stream(&[begun, event, failed.clone()])).expect("readable");
        assert_eq!(answer.error.as_deref(), Some("no"));
        let (name, data) = written.last().expect("an end");
        let last: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(name.as_deref(), Some("response.failed"));
        let told = json!({"code": "server_error", "message": "no"});
        assert_eq!(last["response"]["error"], told);
    }
}

#[test]
fn events_are_numbered_and_name_their_item() {
    let (_, written) = recode(&stream(&[
        json!({"type": "response.created", "response": {"id": "r", "model": "m"}}),
        json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0,
               "item_id": "rs_1", "delta": "hm"}),
        json!({"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "a"}),
        json!({"type": "response.refusal.delta", "output_index": 1, "content_index": 1, "delta": "no"}),
        json!({"type": "response.completed", "response": {"status": "completed", "output": []}}),
    ]))
    .expect("readable");
    let events: Vec<Value> = written
        .iter()
        .map(|(_, data)| serde_json::from_str(data).expect("JSON"))
        .collect();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
    }
    let last = events.last().expect("an end");
    for event in events.iter().filter(|event| event.get("item_id").is_some()) {
        let index = event["output_index"].as_u64().expect("a number") as usize;
        assert_eq!(
            event["item_id"], last["response"]["output"][index]["id"],
            "{event}"
        );
    }
    let output = last["response"]["output"].as_array().expect("items");
    assert_eq!(output.len(), 2, "the text and the refusal are one message");
    assert_eq!(output[0]["id"], "rs_1");
}
