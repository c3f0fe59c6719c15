//! Nothing that the vendor says gets lost in a type, and no stream that is cut ends well.

use abp_shim_gemini::Client;
use abp_shim_gemini::wire::{
    CountTokensResponse, ErrorResponse, GenerateContentRequest, GenerateContentResponse,
};
use serde_json::Value;

use crate::api::request;
use crate::documents::{check_cuts, ends, events, fixtures, kept, recorded};

#[test]
fn documents_are_kept_whole() {
    for (name, text) in fixtures("gemini", "request") {
        // The vendor takes a single value for a list; whoever writes with types has lists.
        if name != "request_single_values.json" {
            kept::<GenerateContentRequest>(&name, &text);
        }
    }
    for (name, text) in fixtures("gemini", "response") {
        if name == "response_pieces.json" {
            kept::<Vec<GenerateContentResponse>>(&name, &text);
        } else {
            kept::<GenerateContentResponse>(&name, &text);
        }
    }
    for (name, text) in fixtures("gemini", "stream") {
        for event in events(&text) {
            kept::<GenerateContentResponse>(&name, &event);
        }
    }
}

#[test]
fn what_is_said_is_found() {
    let cases = [
        ("response_text", "Lima.", 0),
        ("response_thinking", "Done.", 0),
        ("response_tool_calls", "", 2),
        ("response_blocked", "", 0),
    ];
    for (name, text, calls) in cases {
        let (name, document) = fixtures("gemini", name).remove(0);
        let answer: GenerateContentResponse = kept(&name, &document);
        assert_eq!(
            (answer.text().as_str(), answer.function_calls().count()),
            (text, calls)
        );
    }
}

fn client(url: &str) -> Client {
    Client::new(url, "key").expect("a client")
}

#[tokio::test]
async fn an_answer_that_is_cut_anywhere_ends_in_an_error() {
    for name in ["stream_text", "stream_tool_calls"] {
        let (_, stream) = fixtures("gemini", name).remove(0);
        check_cuts(&stream, "\"finishReason\"", client, async |client| {
            let request = request();
            let stream = client.models().generate_content_stream("m", &request);
            stream.await.expect("a stream")
        })
        .await;
    }
}

#[tokio::test]
async fn recorded_traffic_is_read() {
    let Some([answers, streams]) = recorded("gemini") else {
        return;
    };
    for (name, text) in answers {
        let value: Value = serde_json::from_str(&text).expect("JSON");
        if value.is_array() {
            kept::<Vec<GenerateContentResponse>>(&name, &text);
        } else if value["error"].is_object() {
            kept::<ErrorResponse>(&name, &text);
        } else if value["totalTokens"].is_u64() {
            kept::<CountTokensResponse>(&name, &text);
        } else {
            kept::<GenerateContentResponse>(&name, &text);
        }
    }
    let bytes = streams.iter().map(|(_, text)| text.clone().into_bytes());
    let ends = ends(bytes.collect(), client, async |client| {
        let request = request();
        let stream = client.models().generate_content_stream("m", &request);
        stream.await.expect("a stream")
    });
    for ((name, _), end) in streams.iter().zip(ends.await) {
        assert_eq!(end, None, "{name}");
    }
}
