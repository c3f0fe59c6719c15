//! Streams.

use std::collections::BTreeMap;

use abp_claude_sdk::ClaudeCodec;
use abp_core::ir::{
    IrBlockStart, IrDelta, IrFinish, IrFinishReason, IrThinkingKind, IrUsage, Leaf,
};
use abp_dialect::sse::{SseDecoder, SseEvent, SseLimits};
use abp_dialect::{Codec, Dialect, EventSink, Exchange, Reader, TargetProfile};
use serde_json::{Value, json};

use crate::samples::{Sample, parse, samples};

type Event = (Option<String>, String);

/// Checks that deltas keep to their contract, and puts the answer together.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Checker {
    open: Vec<u32>,
    /// Every block: what it is and what it holds.
    pub(crate) blocks: BTreeMap<u32, (String, String)>,
    citations: usize,
    finish: Option<IrFinish>,
    usage: BTreeMap<&'static str, u64>,
    vendor: BTreeMap<String, String>,
    over: bool,
}

impl Checker {
    pub(crate) fn check(&mut self, delta: &IrDelta) {
        assert!(!self.over, "{delta:?} after the end");
        match delta {
            IrDelta::BlockStart { block, start, .. } => {
                assert_eq!(
                    *block as usize,
                    self.blocks.len(),
                    "blocks are numbered in order"
                );
                self.open.push(*block);
                self.blocks.insert(*block, (describe(start), String::new()));
            }
            IrDelta::Append { block, text, .. } => self.append(*block, text),
            IrDelta::Signature {
                block, signature, ..
            } => self.append(*block, signature),
            IrDelta::Citation { block, .. } => {
                self.append(*block, "");
                self.citations += 1;
            }
            IrDelta::BlockStop { block, .. } => {
                let at = self.open.iter().position(|open| open == block);
                self.open.remove(at.expect("a block is stopped once"));
            }
            IrDelta::Finish { finish, .. } => {
                assert!(self.open.is_empty(), "blocks are stopped before the end");
                self.finish = Some(finish.clone());
            }
            IrDelta::Usage(usage) => self.count(usage),
            IrDelta::Vendor(field) => {
                let value = field.value.text().to_owned();
                self.vendor.insert(field.name.clone(), value);
            }
            IrDelta::End => {
                assert!(self.finish.is_some(), "an answer ends for a reason");
                self.over = true;
            }
            IrDelta::Error(_) => self.over = true,
            _ => {}
        }
    }

    fn append(&mut self, block: u32, text: &str) {
        assert!(self.open.contains(&block), "block {block} is not open");
        self.blocks.get_mut(&block).unwrap().1.push_str(text);
    }

    fn count(&mut self, usage: &IrUsage) {
        let counts = [
            ("input", &usage.input_tokens),
            ("output", &usage.output_tokens),
            ("created", &usage.cache_creation_tokens),
            ("read", &usage.cache_read_tokens),
            ("reasoning", &usage.reasoning_tokens),
        ];
        for (name, count) in counts {
            if let Some(count) = count {
                self.usage.insert(name, count.value);
            }
        }
        for field in &usage.vendor {
            self.vendor
                .insert(field.name.clone(), field.value.text().to_owned());
        }
    }
}

/// What a block is, without regard to where it was read.
fn describe(start: &IrBlockStart) -> String {
    match start {
        IrBlockStart::ToolUse { id, name, .. } => {
            format!("call {:?} {}", id.as_deref(), name.value)
        }
        IrBlockStart::RedactedThinking { data } => format!("redacted {}", data.value),
        IrBlockStart::Opaque { kind, native } => {
            let value: Value = serde_json::from_str(native.text()).unwrap();
            format!("{kind} {value}")
        }
        IrBlockStart::Thinking { .. } => "thinking".to_owned(),
        _ => "text".to_owned(),
    }
}

fn events_of(text: &str) -> Vec<Event> {
    let mut decoder = SseDecoder::new(SseLimits::default());
    let mut events = Vec::new();
    let mut feed = decoder.feed(text.as_bytes());
    while let Some(event) = feed.next_event().unwrap() {
        if let SseEvent::Message { name, data, .. } = event {
            events.push((name.map(str::to_owned), data.to_owned()));
        }
    }
    events
}

/// Reads events, and writes them again in the same dialect.
fn translate(events: &[Event]) -> (Checker, Vec<Event>) {
    let mut decoder = ClaudeCodec.stream_decoder();
    let mut encoder = ClaudeCodec.stream_encoder(&Exchange::default());
    let profile = TargetProfile::default();
    let mut checker = Checker::default();
    let mut written = Vec::new();
    for (name, data) in events {
        let tape = parse(data);
        let reader = Reader::new(&tape);
        let mut deltas = Vec::new();
        decoder
            .event(name.as_deref(), reader.root(), &mut deltas)
            .unwrap();
        let source = Some((Dialect::Claude, &reader));
        let mut sink = EventSink::new(source, Dialect::Claude, &profile);
        for delta in &deltas {
            checker.check(delta);
            encoder.delta(delta, &mut sink);
        }
        written.extend(sink.finish().0);
    }
    let mut deltas = Vec::new();
    decoder.end(&mut deltas);
    let mut sink = EventSink::new(None, Dialect::Claude, &profile);
    for delta in &deltas {
        checker.check(delta);
        encoder.delta(delta, &mut sink);
    }
    written.extend(sink.finish().0);
    let event = |event: abp_dialect::WrittenEvent| (event.name.map(str::to_owned), event.data);
    (checker, written.into_iter().map(event).collect())
}

#[test]
fn streams_come_back_the_same() {
    for (name, text) in samples(Sample::Stream) {
        let (first, written) = translate(&events_of(&text));
        let (second, again) = translate(&written);
        assert!(first.over, "{name}");
        assert_eq!(first, second, "{name}");
        assert_eq!(written, again, "{name}");
    }
}

/// What clients rely on: named events, blocks one after the other, one end.
#[test]
fn written_streams_are_in_order() {
    for (name, text) in samples(Sample::Stream) {
        let (_, written) = translate(&events_of(&text));
        in_order(&written, &name);
    }
}

fn in_order(events: &[Event], name: &str) {
    let mut open = None;
    let mut next = 0;
    for (at, (event, data)) in events.iter().enumerate() {
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(event.as_deref(), data["type"].as_str(), "{name}");
        let last = at + 1 == events.len();
        match event.as_deref().unwrap() {
            "message_start" => assert_eq!(at, 0, "{name}"),
            "content_block_start" => {
                assert_eq!((open, data["index"].as_u64()), (None, Some(next)), "{name}");
                open = Some(next);
                next += 1;
            }
            "content_block_delta" => assert_eq!(data["index"].as_u64(), open, "{name}"),
            "content_block_stop" => {
                assert_eq!(data["index"].as_u64(), open.take(), "{name}");
            }
            "message_stop" | "error" => assert!(last, "{name}"),
            _ => {}
        }
    }
}

fn encode(deltas: &[IrDelta]) -> Vec<Event> {
    let mut encoder = ClaudeCodec.stream_encoder(&Exchange::default());
    let profile = TargetProfile::default();
    let mut sink = EventSink::new(None, Dialect::Claude, &profile);
    for delta in deltas {
        encoder.delta(delta, &mut sink);
    }
    let event = |event: abp_dialect::WrittenEvent| (event.name.map(str::to_owned), event.data);
    sink.finish().0.into_iter().map(event).collect()
}

fn start(block: u32, start: IrBlockStart) -> IrDelta {
    IrDelta::BlockStart {
        choice: 0,
        block,
        start,
    }
}

fn call(name: &str, custom: bool) -> IrBlockStart {
    IrBlockStart::ToolUse {
        id: Some(Leaf::from(name)),
        name: Leaf::from(name),
        custom,
        item_id: None,
    }
}

fn append(block: u32, text: &str) -> IrDelta {
    IrDelta::Append {
        choice: 0,
        block,
        text: text.into(),
    }
}

fn stop(block: u32) -> IrDelta {
    IrDelta::BlockStop { choice: 0, block }
}

fn finish(reason: IrFinishReason) -> IrDelta {
    IrDelta::Finish {
        choice: 0,
        finish: IrFinish::new(reason, None),
    }
}

#[test]
fn blocks_that_overlap_are_written_one_after_the_other() {
    let thinking = IrBlockStart::Thinking {
        kind: IrThinkingKind::Raw,
        item_id: None,
        encrypted: None,
    };
    let events = encode(&[
        start(0, thinking),
        start(1, call("f", false)),
        append(1, r#"{"a":"#),
        start(2, call("g", true)),
        append(2, "say \"hi\""),
        append(0, "hm"),
        stop(0),
        append(1, "1}"),
        stop(2),
        stop(1),
        finish(IrFinishReason::ToolUse),
        IrDelta::End,
    ]);
    in_order(&events, "overlapping");
    let (answer, _) = translate(&events);
    let blocks: Vec<_> = answer.blocks.into_values().collect();
    let expected = [
        ("thinking", "hm"),
        ("call Some(\"f\") f", r#"{"a":1}"#),
        ("call Some(\"g\") g", r#"{"input":"say \"hi\""}"#),
    ];
    assert_eq!(
        blocks,
        expected.map(|(what, text)| (what.to_owned(), text.to_owned()))
    );
}

#[test]
fn an_answer_that_broke_off_does_not_look_complete() {
    let (answer, events) = translate(&events_of(
        "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\"}}\n\n\
         data: {\"type\":\"content_block_start\",\"index\":0,\
                \"content_block\":{\"type\":\"text\",\"text\":\"half\"}}\n\n",
    ));
    assert_eq!(answer.finish.unwrap().reason, IrFinishReason::Incomplete);
    let reasons: Vec<Value> = events
        .iter()
        .map(|(_, data)| serde_json::from_str::<Value>(data).unwrap())
        .filter_map(|data| data.pointer("/delta/stop_reason").cloned())
        .collect();
    assert_eq!(reasons, [json!("max_tokens")]);
}

#[test]
fn an_error_is_the_last_event() {
    let (_, events) = translate(&events_of(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\"}}\n\n\
         event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\
         \"message\":\"Overloaded\"}}\n\n\
         event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ));
    let names: Vec<_> = events
        .iter()
        .map(|(name, _)| name.as_deref().unwrap())
        .collect();
    assert_eq!(names, ["message_start", "error"]);
    let error: Value = serde_json::from_str(&events[1].1).unwrap();
    assert_eq!(error["error"]["type"], "overloaded_error");
}

/// One event of every kind.
pub(crate) fn event_samples() -> [Value; 10] {
    let block = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    [
        json!({"type": "message_start", "message": {"id": "m", "model": "c", "role": "assistant",
               "usage": {"input_tokens": 1, "cache_read_input_tokens": 2}}}),
        block(0, json!({"type": "text", "text": "a", "citations": []})),
        block(
            1,
            json!({"type": "tool_use", "id": "t", "name": "f", "input": {}}),
        ),
        block(
            2,
            json!({"type": "server_tool_use", "id": "s", "name": "w", "input": {}}),
        ),
        delta(0, json!({"type": "text_delta", "text": "b"})),
        delta(
            1,
            json!({"type": "input_json_delta", "partial_json": "{\"a\":1}"}),
        ),
        delta(
            2,
            json!({"type": "input_json_delta", "partial_json": "{\"q\""}),
        ),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
               "usage": {"output_tokens": 3}}),
        json!({"type": "message_stop"}),
    ]
}
