//! The vendor's methods on both ways.

use abp_core::Outcome;
use abp_shim_openai::wire::{
    ChatCompletionRequest, ChatMessage, ContentPart, FinishReason, ResponseFormat, ResponseItem,
    ResponseRequest, ResponseStreamEvent, ToolChoice,
};
use abp_shim_openai::{Client, Error, Principal};
use abp_testkit::{FakeVendor, Reply, Script};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::documents::fixtures;

pub(crate) fn in_process(daemon: &Daemon) -> Client {
    Client::in_process(daemon.gateway.clone(), Principal::operator())
}

fn both_ways(daemon: &Daemon) -> [Client; 2] {
    let url = format!("{}/v1", daemon.url);
    let remote = Client::new(&url, &daemon.key).expect("a client");
    [in_process(daemon), remote]
}

pub(crate) fn chat_request(model: &str) -> ChatCompletionRequest {
    ChatCompletionRequest::new(model, [ChatMessage::user("one two three")])
}

pub(crate) fn response_request(model: &str) -> ResponseRequest {
    ResponseRequest::new(model, "one two three")
}

#[tokio::test]
async fn chat_completions() {
    let daemon = Daemon::start().await;
    for client in both_ways(&daemon) {
        let completions = client.chat().completions();
        // What only a stream may have does no harm.
        let request = chat_request("gpt-4o").include_usage();
        let whole = completions
            .create(request.clone())
            .await
            .expect("an answer");
        assert_eq!(whole.text(), "You said: one two three");
        assert_eq!(whole.choices[0].finish_reason, Some(FinishReason::Stop));
        let mut pieces = completions.stream(request).await.expect("a stream");
        let run_id = pieces.abp().run_id.expect("an exchange");
        let (mut text, mut usage) = (String::new(), None);
        while let Some(piece) = pieces.next().await {
            let piece = piece.expect("a piece");
            text.push_str(piece.text());
            usage = piece.usage.or(usage);
        }
        assert_eq!(text, whole.text());
        assert_eq!(usage, whole.usage);
        let receipt = daemon.gateway.receipt(&Principal::operator(), run_id).await;
        let receipt = receipt.expect("a store").expect("a receipt");
        assert_eq!(receipt.outcome, Outcome::Complete);
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
    let pick = abp_shim_openai::wire::Tool::function("pick", "Picks.", schema.clone());
    let image = ContentPart::image("image/png", "iVBORw0KGgo=");
    let looking = vec![ContentPart::text("look"), image];
    let structured = ChatCompletionRequest::new("m", [ChatMessage::user(looking)])
        .response_format(ResponseFormat::json_schema("sky", schema));
    let forced = chat_request("m").tools([pick]);
    for client in both_ways(&daemon) {
        let completions = client.chat().completions();
        let answer = completions
            .create(structured.clone())
            .await
            .expect("an answer");
        let value: Value = serde_json::from_str(&answer.text()).expect("JSON");
        assert_eq!(value, json!({ "colour": "blue" }));
        for choice in [ToolChoice::Required, ToolChoice::function("pick")] {
            let request = forced.clone().tool_choice(choice);
            let answer = completions.create(request).await.expect("an answer");
            let call = answer.message().expect("a message").tool_calls[0].clone();
            let function = call.function.expect("a function");
            assert_eq!(function.name, "pick");
            assert_eq!(function.arguments, r#"{"colour":"blue"}"#);
        }
    }
}

#[tokio::test]
async fn responses() {
    let daemon = Daemon::start().await;
    for client in both_ways(&daemon) {
        let request = response_request("gpt-5");
        let whole = client
            .responses()
            .create(request.clone())
            .await
            .expect("an answer");
        assert_eq!(whole.output_text(), "You said: one two three");
        let mut pieces = client.responses().stream(request).await.expect("a stream");
        let (mut text, mut last) = (String::new(), None);
        while let Some(piece) = pieces.next().await {
            match piece.expect("a piece") {
                ResponseStreamEvent::OutputTextDelta(piece) => text.push_str(&piece.delta),
                ResponseStreamEvent::Completed(end) => last = Some(end.response.output),
                _ => {}
            }
        }
        assert_eq!(text, whole.output_text());
        assert_eq!(last.as_ref().map(Vec::len), Some(whole.output.len()));
    }
}

#[tokio::test]
async fn responses_that_are_kept() {
    let (_, answer) = fixtures("claude", "response_text").remove(0);
    let named = |number: usize| Reply::json(answer.replace("msg_1", &format!("msg_{number}")));
    let vendor = FakeVendor::start(Script::InOrder((1..=4).map(named).collect()));
    let vendor = vendor.expect("a vendor");
    let daemon = Daemon::with_upstream("claude", &vendor.url("")).await;
    for client in both_ways(&daemon) {
        let responses = client.responses();
        let first = responses
            .create(response_request("claude-sonnet-4-5"))
            .await;
        let first = first.expect("an answer");
        let again = responses.retrieve(&first.id).await.expect("the same");
        assert_eq!(again.output, first.output);
        let items = vec![ResponseItem::user("and then?")];
        let next = ResponseRequest::new("claude-sonnet-4-5", items).previous_response(&first.id);
        responses.create(next).await.expect("an answer");
        let sent = vendor.requests().pop().expect("a request").body;
        let sent: Value = serde_json::from_slice(&sent).expect("JSON");
        assert_eq!(sent["messages"].as_array().map(Vec::len), Some(3), "{sent}");
        let asked = responses.input_items(&first.id).await.expect("items");
        assert_eq!(asked.data[0]["content"][0]["text"], "one two three");
        let error = responses.cancel(&first.id).await.expect_err("it is over");
        assert_eq!(error.status().map(|status| status.as_u16()), Some(400));
        assert!(responses.delete(&first.id).await.expect("gone").deleted);
        let error = responses.retrieve(&first.id).await.expect_err("gone");
        assert_eq!(error.status().map(|status| status.as_u16()), Some(404));
    }
}

#[tokio::test]
async fn errors_and_failures() {
    let daemon = Daemon::start().await;
    for client in both_ways(&daemon) {
        let completions = client.chat().completions();
        let refused = completions.stream(chat_request("mock-error-403")).await;
        let Err(Error::Api(error)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(error.body.error.kind.as_deref(), Some("permission_error"));
        assert_eq!(error.status.map(|status| status.as_u16()), Some(403));
    }
    let failing = [
        ("openai/stream_error.sse", "the model is overloaded"),
        ("openai/stream_broken_off.sse", "it has no end"),
    ];
    for (stream, problem) in failing {
        let vendor = FakeVendor::start(Reply::fixture(stream).expect("a file")).expect("a vendor");
        let daemon = Daemon::with_upstream("openai", &vendor.url("/v1")).await;
        for client in both_ways(&daemon) {
            let stream = client.chat().completions().stream(chat_request("m")).await;
            let mut stream = stream.expect("a stream");
            assert!(matches!(stream.next().await, Some(Ok(_))));
            match stream.next().await {
                Some(Err(Error::Api(error))) => {
                    assert!(error.to_string().contains(problem), "{error}");
                    assert_eq!(error.status, None);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A response that fails is told as the vendor tells it, and then as the error that it is.
#[tokio::test]
async fn a_response_that_fails() {
    let stream = Reply::fixture("codex/stream_failed.sse").expect("a file");
    let vendor = FakeVendor::start(stream).expect("a vendor");
    let client = Client::new(&vendor.url("/v1"), "key").expect("a client");
    let mut stream = client
        .responses()
        .stream(response_request("m"))
        .await
        .expect("a stream");
    let mut failed = false;
    loop {
        match stream.next().await {
            Some(Ok(event)) => failed = matches!(event, ResponseStreamEvent::Failed(_)),
            Some(Err(Error::Api(error))) => {
                assert_eq!(error.body.error.message, "Slow down.");
                assert!(failed, "the event comes before the error");
                return;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn models() {
    let daemon = Daemon::start().await;
    for client in both_ways(&daemon) {
        let models = client.models().list().await.expect("models");
        let models: Vec<_> = models
            .data
            .iter()
            .map(|model| (&*model.id, &*model.owned_by))
            .collect();
        assert_eq!(models, [("mock", "mock")]);
        let one = client.models().retrieve("any name").await.expect("a model");
        assert_eq!((&*one.id, &*one.owned_by), ("any name", "mock"));
        let request = response_request("m");
        let count = client.responses().count_input_tokens(request).await;
        assert!(count.expect("a count").input_tokens > 0);
    }
    let daemon = Daemon::with_model("only").await;
    for client in both_ways(&daemon) {
        let models = client.models();
        assert_eq!(models.retrieve("only").await.expect("a model").id, "only");
        let error = models.retrieve("other").await.expect_err("nobody's");
        assert_eq!(error.status().map(|status| status.as_u16()), Some(404));
    }
}
