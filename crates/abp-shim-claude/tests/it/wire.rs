//! Nothing that the vendor says gets lost in a type, and no stream that is cut ends well.

use abp_shim_claude::Client;
use abp_shim_claude::wire::{
    Content, ContentBlock, ErrorResponse, Message, MessageRequest, MessageStreamEvent,
    MessageTokensCount,
};
use serde_json::Value;

use crate::api::request;
use crate::documents::{check_cuts, ends, events, fixtures, kept, recorded};

#[test]
fn documents_are_kept_whole() {
    for (name, text) in fixtures("claude", "request") {
        kept::<MessageRequest>(&name, &text);
    }
    for (name, text) in fixtures("claude", "response") {
        if name.contains("error") {
            kept::<ErrorResponse>(&name, &text);
        } else {
            kept::<Message>(&name, &text);
        }
    }
    for (name, text) in fixtures("claude", "stream") {
        for event in events(&text) {
            let event = kept::<MessageStreamEvent>(&name, &event);
            // One that is read as `Other` would be kept as well, but be of no use.
            assert!(!matches!(event, MessageStreamEvent::Other(_)), "{event:?}");
        }
    }
}

#[test]
fn what_is_known_has_its_type() {
    let cases: [(&str, &[&str]); 4] = [
        ("request_media", &["image", "image", "document", "document"]),
        (
            "request_thinking",
            &["thinking", "redacted_thinking", "text"],
        ),
        ("request_tools", &["text", "tool_use", "tool_use"]),
        ("request_system_blocks", &["text"]),
    ];
    for (name, expected) in cases {
        let (name, text) = fixtures("claude", name).remove(0);
        let request: MessageRequest = kept(&name, &text);
        let blocks = request
            .messages
            .iter()
            .find_map(|message| match &message.content {
                Content::Blocks(blocks) => Some(blocks),
                Content::Text(_) => None,
            });
        let kinds: Vec<_> = blocks.expect("blocks").iter().map(kind).collect();
        assert!(kinds.starts_with(expected), "{name}: {kinds:?}");
    }
}

fn kind(block: &ContentBlock) -> &'static str {
    match block {
        ContentBlock::Text { .. } => "text",
        ContentBlock::Image { .. } => "image",
        ContentBlock::Document { .. } => "document",
        ContentBlock::ToolUse { .. } => "tool_use",
        ContentBlock::ToolResult { .. } => "tool_result",
        ContentBlock::Thinking { .. } => "thinking",
        ContentBlock::RedactedThinking { .. } => "redacted_thinking",
        ContentBlock::Other(_) => "other",
    }
}

fn client(url: &str) -> Client {
    Client::new(url, "key").expect("a client")
}

#[tokio::test]
async fn an_answer_that_is_cut_anywhere_ends_in_an_error() {
    let (_, stream) = fixtures("claude", "stream_text").remove(0);
    check_cuts(
        &stream,
        "{\"type\": \"message_stop\"",
        client,
        async |client| {
            let stream = client.messages().stream(request("m")).await;
            stream.expect("a stream")
        },
    )
    .await;
}

#[tokio::test]
async fn recorded_traffic_is_read() {
    let Some([answers, streams]) = recorded("anthropic") else {
        return;
    };
    for (name, text) in answers {
        let value: Value = serde_json::from_str(&text).expect("JSON");
        match value["type"].as_str() {
            Some("message") => drop(kept::<Message>(&name, &text)),
            Some("error") => drop(kept::<ErrorResponse>(&name, &text)),
            // A proxy's own words.
            _ if value["error"].is_string() => {}
            _ => drop(kept::<MessageTokensCount>(&name, &text)),
        }
    }
    let bytes = streams.iter().map(|(_, text)| text.clone().into_bytes());
    let ends = ends(bytes.collect(), client, async |client| {
        let stream = client.messages().stream(request("m")).await;
        stream.expect("a stream")
    });
    for ((name, _), end) in streams.iter().zip(ends.await) {
        assert_eq!(end, None, "{name}");
    }
}
