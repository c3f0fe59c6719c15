//! The vendor's methods on both ways.

use abp_shim_gemini::wire::{
    Content, FinishReason, FunctionCallingMode, FunctionDeclaration, GenerateContentRequest,
    GenerationConfig, Part,
};
use abp_shim_gemini::{Client, Error, Principal};
use abp_testkit::{FakeVendor, Reply};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::documents::fixtures;

const MODEL: &str = "gemini-2.5-flash";

pub(crate) fn in_process(daemon: &Daemon) -> Client {
    Client::in_process(daemon.gateway.clone(), Principal::operator())
}

fn both_ways(daemon: &Daemon) -> [Client; 2] {
    let remote = Client::new(&daemon.url, &daemon.key).expect("a client");
    [in_process(daemon), remote]
}

pub(crate) fn request() -> GenerateContentRequest {
    GenerateContentRequest::text("one two three")
}

#[tokio::test]
async fn contents() {
    let daemon = Daemon::start().await;
    for client in both_ways(&daemon) {
        let models = client.models();
        let whole = models
            .generate_content(MODEL, &request())
            .await
            .expect("an answer");
        assert_eq!(whole.text(), "You said: one two three");
        assert_eq!(whole.candidates[0].finish_reason, Some(FinishReason::Stop));
        // A model may be named as the vendor lists it.
        let name = format!("models/{MODEL}");
        let pieces = models.generate_content_stream(&name, &request()).await;
        let mut pieces = pieces.expect("a stream");
        assert!(pieces.abp().run_id.is_some());
        let (mut text, mut count, mut usage) = (String::new(), 0, None);
        while let Some(piece) = pieces.next().await {
            let piece = piece.expect("a piece");
            text.push_str(&piece.text());
            count += 1;
            usage = piece.usage_metadata.or(usage);
        }
        assert_eq!(text, whole.text());
        assert!(count > 1);
        assert_eq!(usage, whole.usage_metadata);
    }
}

#[tokio::test]
async fn what_a_request_says_arrives() {
    let daemon = Daemon::start().await;
    let schema = json!({
        "type": "object",
        "properties": { "colour": { "type": "string", "enum": ["blue"] } },
        "required": ["colour"],
    });
    let image = Part::inline_data("image/png", "iVBORw0KGgo=");
    let looking = Content::new("user", [Part::text("look"), image]);
    let structured = GenerateContentRequest::new([looking])
        .generation_config(GenerationConfig::json_schema(schema.clone()));
    let forced = request()
        .functions([FunctionDeclaration::new("pick", "Picks.", schema)])
        .function_calling(FunctionCallingMode::Any);
    for client in both_ways(&daemon) {
        let answer = client.models().generate_content(MODEL, &structured).await;
        let value: Value = serde_json::from_str(&answer.expect("an answer").text()).expect("JSON");
        assert_eq!(value, json!({ "colour": "blue" }));
        let answer = client.models().generate_content(MODEL, &forced).await;
        let answer = answer.expect("an answer");
        let calls: Vec<_> = answer
            .function_calls()
            .map(|call| (&*call.name, &call.args))
            .collect();
        assert_eq!(calls, [("pick", &json!({ "colour": "blue" }))]);
    }
}

#[tokio::test]
async fn tokens_and_models() {
    let daemon = Daemon::start().await;
    let mut counts = Vec::new();
    for client in both_ways(&daemon) {
        let models = client.models();
        let short = models
            .count_tokens(MODEL, request().contents)
            .await
            .expect("a count");
        let longer = request().system_instruction("four five");
        let longer = models.count_tokens(MODEL, longer).await.expect("a count");
        assert!(longer.total_tokens > short.total_tokens, "{longer:?}");
        counts.push((short.total_tokens, longer.total_tokens));
        let list = models.list().await.expect("models");
        let expected = json!([{
            "name": "models/mock",
            "displayName": "mock",
            "supportedGenerationMethods":
                ["generateContent", "streamGenerateContent", "countTokens"],
        }]);
        assert_eq!(serde_json::to_value(&list.models).expect("JSON"), expected);
        for name in ["gemini-x", "models/gemini-x"] {
            let one = models.get(name).await.expect("a model");
            assert_eq!(one.name, "models/gemini-x");
        }
    }
    assert_eq!(counts[0], counts[1]);
    let daemon = Daemon::with_model("only").await;
    for client in both_ways(&daemon) {
        let error = client.models().get("models/other").await;
        let status = error.expect_err("nobody's").status();
        assert_eq!(status.map(|status| status.as_u16()), Some(404));
    }
}

#[tokio::test]
async fn errors_and_failures() {
    let daemon = Daemon::start().await;
    for client in both_ways(&daemon) {
        let refused = client
            .models()
            .generate_content("mock-error-403", &request())
            .await;
        let Err(Error::Api(error)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(error.body.error.status, "PERMISSION_DENIED");
        assert_eq!(error.status.map(|status| status.as_u16()), Some(403));
    }
    let (_, stream) = fixtures("gemini", "stream_text").remove(0);
    let (first, _) = stream.split_once("\r\n\r\n").expect("an event");
    let cut = Reply::events(format!("{first}\r\n\r\n"));
    let vendor = FakeVendor::start(cut).expect("a vendor");
    let daemon = Daemon::with_upstream("gemini", &vendor.url("")).await;
    for client in both_ways(&daemon) {
        let stream = client
            .models()
            .generate_content_stream(MODEL, &request())
            .await;
        let mut stream = stream.expect("a stream");
        assert!(matches!(stream.next().await, Some(Ok(_))));
        match stream.next().await {
            Some(Err(Error::Api(error))) => {
                assert!(error.to_string().contains("it has no end"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn the_model_is_one_part_of_the_address() {
    let vendor = Reply::fixture("gemini/response_text.json").expect("a file");
    let vendor = FakeVendor::start(vendor).expect("a vendor");
    let client = Client::new(&vendor.url("/v1beta"), "key").expect("a client");
    let answer = client
        .models()
        .generate_content("a/../b?key=c", &request())
        .await;
    answer.expect("an answer");
    let asked = vendor.requests().remove(0);
    assert_eq!(
        asked.path,
        "/v1beta/models/a%2F..%2Fb%3Fkey%3Dc:generateContent"
    );
    assert_eq!(asked.query, None);
    assert_eq!(asked.header("x-goog-api-key"), Some("key"));
}
