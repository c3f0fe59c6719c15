//! Calling the model, and reading what it replies.

use abp_backend_core::{ModelCall, ModelOperation, ModelReply, Upstream};
use abp_backend_mock::MockModel;
use abp_core::ir::{IrContentBlock, IrConversation, IrDelta, IrFinishReason, IrResponse, IrUsage};
use abp_dialect::sse::{SseDecoder, SseEvent, SseLimits};
use abp_dialect::{
    Codec, Dialect, DialectValidator, DocumentKind, IssueSeverity, Reader, TargetProfile,
};
use abp_json::{Limits, Tape};
use abp_translate::{Accumulator, codec, write_request};
use http::{HeaderMap, StatusCode};

/// An answer, as far as whole and streamed ones have to agree.
#[derive(Debug, PartialEq)]
pub(crate) struct Said {
    pub(crate) id: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) choices: Vec<(Vec<IrContentBlock>, IrFinishReason, Option<String>)>,
    pub(crate) input: Option<u64>,
    pub(crate) output: Option<u64>,
}

impl From<IrResponse> for Said {
    fn from(response: IrResponse) -> Self {
        let IrUsage {
            input_tokens,
            output_tokens,
            ..
        } = response.usage.unwrap_or_default();
        let choices = response.choices.into_iter().map(|choice| {
            let finish = choice.finish.expect("a reason");
            let blocks = choice.message.content.into_iter().map(|block| block.body);
            let stop = finish.stop_sequence.map(|stop| stop.value);
            (blocks.collect(), finish.reason, stop)
        });
        Self {
            id: response.id.map(|id| id.value),
            model: response.model.map(|model| model.value),
            choices: choices.collect(),
            input: input_tokens.map(|count| count.value),
            output: output_tokens.map(|count| count.value),
        }
    }
}

impl Said {
    /// The text of the only answer.
    pub(crate) fn text(&self) -> &str {
        match self.choices.first().map(|(blocks, _, _)| blocks.as_slice()) {
            Some([IrContentBlock::Text { text, .. }]) => text,
            other => panic!("no text: {other:?}"),
        }
    }
}

pub(crate) fn codec_of(dialect: Dialect) -> &'static dyn Codec {
    codec(dialect).expect("a codec")
}

/// A request in a dialect.
pub(crate) fn body_of(conversation: &IrConversation, dialect: Dialect) -> String {
    let profile = TargetProfile::default();
    write_request(conversation.clone(), dialect, &profile)
        .unwrap()
        .output
}

/// Sends a body, and returns the parts of the answer's body as they come.
pub(crate) async fn send(
    dialect: Dialect,
    operation: ModelOperation,
    model: &str,
    query: Option<&str>,
    body: &str,
) -> (StatusCode, HeaderMap, Vec<String>) {
    let call = ModelCall {
        dialect,
        operation,
        model: model.to_owned(),
        query: query.map(str::to_owned),
        headers: HeaderMap::new(),
        body: body.to_owned().into(),
    };
    let model = MockModel::new();
    let ModelReply {
        status,
        headers,
        mut body,
    } = model.send(call).await.expect("an answer");
    let mut parts = Vec::new();
    while let Some(part) = body.next().await {
        parts.push(String::from_utf8(part.unwrap().to_vec()).unwrap());
    }
    (status, headers, parts)
}

/// A document that its vendor would have sent.
pub(crate) fn checked(dialect: Dialect, kind: DocumentKind, text: &str) {
    let tape = Tape::parse_str(text, &Limits::default()).unwrap();
    let tool_name = codec_of(dialect).rules(&TargetProfile::default()).tool_name;
    let issues = DialectValidator::new(dialect, tool_name).validate(kind, tape.root());
    let wrong = issues
        .iter()
        .find(|one| one.severity == IssueSeverity::Error);
    assert!(wrong.is_none(), "{dialect} {kind}: {wrong:?} in {text}");
}

/// The whole answer to a body.
pub(crate) async fn whole(dialect: Dialect, body: &str) -> Said {
    let operation = ModelOperation::Generate { stream: false };
    let (status, headers, parts) = send(dialect, operation, "mock", None, body).await;
    let text = parts.concat();
    assert_eq!(status, 200, "{dialect}: {text}");
    assert_eq!(headers["content-type"], "application/json");
    checked(dialect, DocumentKind::Response, &text);
    let tape = Tape::parse_str(&text, &Limits::default()).unwrap();
    let response = codec_of(dialect).read_response(Reader::new(&tape).root());
    response.unwrap().into()
}

/// The streamed answer to a body, and in how many pieces its content came.
pub(crate) async fn streamed(dialect: Dialect, query: Option<&str>, body: &str) -> (Said, usize) {
    let operation = ModelOperation::Generate { stream: true };
    let (status, headers, parts) = send(dialect, operation, "mock", query, body).await;
    assert_eq!(status, 200, "{parts:?}");
    let events = dialect != Dialect::Gemini || query == Some("alt=sse");
    let kind = if events {
        "text/event-stream"
    } else {
        "application/json"
    };
    assert_eq!(headers["content-type"], kind);
    let mut sse = SseDecoder::new(SseLimits::default());
    let mut decoder = codec_of(dialect).stream_decoder();
    let mut deltas = Vec::new();
    for part in &parts {
        let mut fed = sse.feed(part.as_bytes());
        while let Some(event) = fed.next_event().unwrap() {
            match event {
                SseEvent::Message { data: "[DONE]", .. } => decoder.terminator(&mut deltas),
                SseEvent::Message { name, data, .. } => {
                    checked(dialect, DocumentKind::StreamEvent, data);
                    let tape = Tape::parse_str(data, &Limits::default()).unwrap();
                    let reader = Reader::new(&tape);
                    decoder.event(name, reader.root(), &mut deltas).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
    }
    decoder.end(&mut deltas);
    let pieces = deltas
        .iter()
        .filter(|one| matches!(one, IrDelta::Append { .. }))
        .count();
    let mut sum = Accumulator::default();
    deltas.iter().for_each(|delta| sum.push(delta));
    assert!(sum.ended(), "{dialect}: {deltas:?}");
    (sum.finish().unwrap().into(), pieces)
}
