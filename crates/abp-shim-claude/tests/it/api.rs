//! The vendor's methods on both ways.

use abp_shim_claude::wire::{
    ContentBlock, CountTokensRequest, MessageParam, MessageRequest, MessageStreamEvent, StopReason,
    Tool, ToolChoice,
};
use abp_shim_claude::{Client, Error, Principal};
use abp_testkit::{FakeVendor, Reply};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::documents::fixtures;

pub(crate) fn in_process(daemon: &Daemon) -> Client {
    Client::in_process(daemon.gateway.clone(), Principal::operator())
}

fn both_ways(daemon: &Daemon) -> [Client; 2] {
    let remote = Client::new(&daemon.url, &daemon.key).expect("a client");
    [in_process(daemon), remote]
}

pub(crate) fn request(model: &str) -> MessageRequest {
    MessageRequest::new(model, 64, [MessageParam::user("one two three")])
}

#[tokio::test]
async fn messages() {
    let daemon = Daemon::start().await;
    for client in both_ways(&daemon) {
        let asked = request("claude-sonnet-4-5");
        let whole = client
            .messages()
            .create(asked.clone())
            .await
            .expect("an answer");
        assert_eq!(whole.text(), "You said: one two three");
        assert_eq!(whole.stop_reason, Some(StopReason::EndTurn));
        let mut pieces = client.messages().stream(asked).await.expect("a stream");
        assert!(pieces.abp().run_id.is_some());
        let (mut text, mut usage) = (String::new(), None);
        while let Some(piece) = pieces.next().await {
            let piece = piece.expect("a piece");
            text.push_str(piece.text());
            if let MessageStreamEvent::MessageDelta { usage: told, .. } = piece {
                usage = Some(told.output_tokens);
            }
        }
        assert_eq!(text, whole.text());
        assert_eq!(usage, Some(whole.usage.output_tokens));
    }
}

#[tokio::test]
async fn what_a_request_says_arrives() {
    let daemon = Daemon::start().await;
    let schema = json!({
        "type": "object",
        "properties": { "colour": { "enum": ["blue"] } },
        "required": ["colour"],
        "additionalProperties": false,
    });
    let image = ContentBlock::image("image/png", "iVBORw0KGgo=");
    let looking = MessageParam::user(vec![ContentBlock::text("look"), image]);
    let structured = MessageRequest::new("claude-opus-4-8", 64, [looking]).json_schema(&schema);
    let forced = request("m").tools([Tool::new("pick", "Picks.", schema)]);
    for client in both_ways(&daemon) {
        let answer = client
            .messages()
            .create(structured.clone())
            .await
            .expect("an answer");
        let value: Value = serde_json::from_str(&answer.text()).expect("JSON");
        assert_eq!(value, json!({ "colour": "blue" }));
        for choice in [ToolChoice::any(), ToolChoice::tool("pick")] {
            let answer = client
                .messages()
                .create(forced.clone().tool_choice(choice))
                .await;
            let answer = answer.expect("an answer");
            let called = answer.content.iter().any(|block| {
                matches!(block, ContentBlock::ToolUse { name, input, .. }
                    if name == "pick" && *input == json!({ "colour": "blue" }))
            });
            assert!(called, "{answer:?}");
        }
    }
}

#[tokio::test]
async fn tokens_and_models() {
    let daemon = Daemon::start().await;
    let mut counts = Vec::new();
    for client in both_ways(&daemon) {
        let short = client
            .messages()
            .count_tokens(request("m"))
            .await
            .expect("a count");
        let longer: CountTokensRequest = request("m").system("four five").into();
        let longer = client
            .messages()
            .count_tokens(longer)
            .await
            .expect("a count");
        assert!(longer.input_tokens > short.input_tokens, "{longer:?}");
        counts.push((short.input_tokens, longer.input_tokens));
        let models = client.models().list().await.expect("models");
        let names: Vec<_> = models.data.iter().map(|model| &*model.id).collect();
        assert_eq!((names, models.has_more), (vec!["mock"], false));
        assert_eq!(models.first_id, models.last_id);
        assert_eq!(models.data[0].created_at, "1970-01-01T00:00:00Z");
        let one = client.models().retrieve("claude-x").await.expect("a model");
        assert_eq!((&*one.id, &*one.display_name), ("claude-x", "claude-x"));
    }
    assert_eq!(counts[0], counts[1]);
    let daemon = Daemon::with_model("only").await;
    for client in both_ways(&daemon) {
        let error = client.models().retrieve("other").await;
        let status = error.expect_err("nobody's").status();
        assert_eq!(status.map(|status| status.as_u16()), Some(404));
    }
}

#[tokio::test]
async fn errors_and_failures() {
    let daemon = Daemon::start().await;
    for client in both_ways(&daemon) {
        let refused = client.messages().create(request("mock-error-403")).await;
        let Err(Error::Api(error)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(error.body.error.kind, "permission_error");
        assert_eq!(error.status.map(|status| status.as_u16()), Some(403));
    }
    let (_, stream) = fixtures("claude", "stream_text").remove(0);
    let (start, _) = stream.split_once("\n\n").expect("an event");
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Too much"}}"#;
    let failed = format!("{start}\n\nevent: error\ndata: {error}\n\n");
    let cut = format!("{start}\n\n");
    let cases = [
        (failed, "overloaded_error: Too much"),
        (cut, "it has no end"),
    ];
    for (stream, problem) in cases {
        let vendor = FakeVendor::start(Reply::events(stream)).expect("a vendor");
        let daemon = Daemon::with_upstream("claude", &vendor.url("")).await;
        for client in both_ways(&daemon) {
            let mut stream = client
                .messages()
                .stream(request("m"))
                .await
                .expect("a stream");
            assert!(matches!(stream.next().await, Some(Ok(_))));
            match stream.next().await {
                Some(Err(Error::Api(error))) => {
                    assert!(error.to_string().contains(problem), "{error}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn requests_say_their_version_and_what_else_they_should() {
    let vendor = Reply::fixture("claude/response_text.json").expect("a file");
    let vendor = FakeVendor::start(vendor).expect("a vendor");
    let beta = ("anthropic-beta", "files-api-2025-04-14");
    let client = Client::new(&vendor.url("/v1"), "secret")
        .expect("a client")
        .header(
            http::HeaderName::from_static(beta.0),
            http::HeaderValue::from_static(beta.1),
        );
    client
        .messages()
        .create(request("m"))
        .await
        .expect("an answer");
    let asked = vendor.requests().remove(0);
    assert_eq!(asked.path, "/v1/messages");
    for (name, value) in [
        ("anthropic-version", "2023-06-01"),
        ("x-api-key", "secret"),
        beta,
    ] {
        assert_eq!(asked.header(name), Some(value), "{name}");
    }
}
