//! Nothing that the vendor says gets lost in a type, and no stream that is cut ends well.

use abp_shim_openai::Client;
use abp_shim_openai::wire::{
    ChatCompletion, ChatCompletionChunk, ChatCompletionRequest, Content, ContentPart,
    ErrorResponse, Response, ResponseContent, ResponseInput, ResponseItem, ResponsePart,
    ResponseRequest, ResponseStreamEvent, Tool,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::{chat_request, response_request};
use crate::documents::{check_cuts, ends, events, fixtures, kept, recorded};

#[test]
fn documents_are_kept_whole() {
    for (name, text) in fixtures("openai", "request") {
        kept::<ChatCompletionRequest>(&name, &text);
    }
    for (name, text) in fixtures("openai", "response") {
        kept::<ChatCompletion>(&name, &text);
    }
    for (name, text) in fixtures("openai", "error") {
        kept::<ErrorResponse>(&name, &text);
    }
    for (name, text) in fixtures("codex", "request") {
        kept::<ResponseRequest>(&name, &text);
    }
    for (name, text) in fixtures("codex", "response") {
        kept::<Response>(&name, &text);
    }
    for (name, text) in fixtures("openai", "stream") {
        for event in events(&text)
            .iter()
            .filter(|event| !event.contains("\"error\""))
        {
            kept::<ChatCompletionChunk>(&name, event);
        }
    }
    for (name, text) in fixtures("codex", "stream") {
        for event in events(&text) {
            kept::<ResponseStreamEvent>(&name, &event);
        }
    }
}

/// A known thing that is read as `Other` would be kept as well, but be of no use.
#[test]
fn what_is_known_has_its_type() {
    let media: ChatCompletionRequest = fixture("openai", "request_media");
    let Some(Content::Parts(parts)) = &media.messages[0].content else {
        panic!("{:?}", media.messages);
    };
    assert!(matches!(parts[0], ContentPart::Text { .. }), "{parts:?}");
    assert!(
        matches!(parts[1], ContentPart::ImageUrl { .. }),
        "{parts:?}"
    );
    let tools: ChatCompletionRequest = fixture("openai", "request_tools");
    assert!(matches!(tools.tools[0], Tool::Function { .. }), "{tools:?}");

    let round: ResponseRequest = fixture("codex", "request_tool_round");
    let ResponseInput::Items(items) = round.input else {
        panic!("{round:?}");
    };
    // The first one is a message that does not say so.
    let known = |item: &ResponseItem| !matches!(item, ResponseItem::Other(_));
    assert!(items.iter().skip(1).all(known), "{items:?}");
    let calls: Response = fixture("codex", "response_calls");
    assert_eq!(calls.function_calls().count(), 1);
    let refusal: Response = fixture("codex", "response_refusal");
    let Some(ResponseItem::Message(message)) = refusal.output.first() else {
        panic!("{refusal:?}");
    };
    let ResponseContent::Parts(parts) = &message.content else {
        panic!("{message:?}");
    };
    assert!(
        matches!(parts[0], ResponsePart::Refusal { .. }),
        "{parts:?}"
    );
}

fn fixture<T: Serialize + DeserializeOwned>(dialect: &str, name: &str) -> T {
    let (name, text) = fixtures(dialect, name).remove(0);
    kept(&name, &text)
}

fn client(url: &str) -> Client {
    Client::new(url, "key").expect("a client")
}

#[tokio::test]
async fn a_chat_that_is_cut_anywhere_ends_in_an_error() {
    let (_, stream) = fixtures("openai", "stream_text").remove(0);
    check_cuts(
        &stream,
        "\"finish_reason\":\"stop\"",
        client,
        async |client| {
            let stream = client.chat().completions().stream(chat_request("m")).await;
            stream.expect("a stream")
        },
    )
    .await;
}

#[tokio::test]
async fn a_response_that_is_cut_anywhere_ends_in_an_error() {
    let (_, stream) = fixtures("codex", "stream_whole_items").remove(0);
    check_cuts(&stream, "\"response.completed\"", client, async |client| {
        let stream = client.responses().stream(response_request("m")).await;
        stream.expect("a stream")
    })
    .await;
}

#[tokio::test]
async fn recorded_chats_are_read() {
    let Some([answers, streams]) = recorded("openai-chat") else {
        return;
    };
    for (name, text) in answers {
        if text.contains("\"choices\"") {
            kept::<ChatCompletion>(&name, &text);
        } else {
            kept::<ErrorResponse>(&name, &text);
        }
    }
    let bytes = streams.iter().map(|(_, text)| text.clone().into_bytes());
    let ends = ends(bytes.collect(), client, async |client| {
        let stream = client.chat().completions().stream(chat_request("m")).await;
        stream.expect("a stream")
    });
    for ((name, text), end) in streams.iter().zip(ends.await) {
        // Some vendors set the error beside a chunk's other members.
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let mut events = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
        let failed = events.any(|event| event["error"].is_object());
        assert_eq!(end.is_some(), failed, "{name}: {end:?}");
    }
}

#[tokio::test]
async fn recorded_responses_are_read() {
    let Some([answers, streams]) = recorded("openai-responses") else {
        return;
    };
    for (name, text) in answers {
        let value: Value = serde_json::from_str(&text).expect("JSON");
        if value["object"] == "response" {
            kept::<Response>(&name, &text);
        } else if value["error"].is_object() {
            kept::<ErrorResponse>(&name, &text);
        }
    }
    let bytes = streams.iter().map(|(_, text)| text.clone().into_bytes());
    let ends = ends(bytes.collect(), client, async |client| {
        let stream = client.responses().stream(response_request("m")).await;
        stream.expect("a stream")
    });
    for ((name, text), end) in streams.iter().zip(ends.await) {
        let has = |kind: &str| text.contains(&format!("event: response.{kind}\n"));
        let complete = has("completed") || has("incomplete");
        assert_eq!(end.is_none(), complete, "{name}: {end:?}");
    }
}
