//! A model's API without a model: what it is asked, and how it replies.

mod answer;
mod deltas;
mod instance;

use std::pin::Pin;
use std::task::{Context, Poll};

use abp_backend_core::{
    BoxFuture, ModelBody, ModelCall, ModelOperation, ModelReply, Upstream, UpstreamDescriptor,
    UpstreamError,
};
use abp_core::ir::{IrConversation, IrError, IrErrorKind, IrResponse};
use abp_dialect::sse::{SseEncoder, SseForm};
use abp_dialect::{
    Dialect, DialectError, DialectValidator, DocumentKind, Exchange, IssueSeverity, Reader,
    TargetProfile, WireFamily,
};
use abp_json::{Limits, Tape};
use abp_translate::{TranslateError, codec, write_error, write_response, write_stream};
use bytes::Bytes;
use futures_core::Stream;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;
use sha2::{Digest, Sha256};

use answer::answer;
use deltas::deltas;

/// What the name of a model that fails starts with; the status follows.
const FAILING: &str = "mock-error-";

/// The model's API `mock`.
///
/// - It says `You said: …` with the last text of the user, and `The tool said: …` where a tool's
///   answer comes last.
/// - It calls a tool where it has to (`tool_choice`), or where the user says `use the tool NAME`,
///   with arguments that the tool's schema accepts. Where the answer should follow a schema, it
///   does.
/// - It honours stop sequences and limits of tokens; a token is a word.
/// - A model named `mock-error-429`, or with another status, answers with that error of the vendor.
#[derive(Debug)]
pub struct MockModel {
    descriptor: UpstreamDescriptor,
}

impl MockModel {
    /// The embedded model.
    #[must_use]
    pub fn new() -> Self {
        Self {
            descriptor: UpstreamDescriptor {
                name: "mock".to_owned(),
                dialects: Dialect::ALL.to_vec(),
                wire_version: None,
                address: None,
                is_demonstration: true,
            },
        }
    }
}

impl Default for MockModel {
    fn default() -> Self {
        Self::new()
    }
}

impl Upstream for MockModel {
    fn descriptor(&self) -> &UpstreamDescriptor {
        &self.descriptor
    }

    fn send(&self, call: ModelCall) -> BoxFuture<'_, Result<ModelReply, UpstreamError>> {
        Box::pin(async move {
            reply(&call).map_err(|error| UpstreamError::Unaskable(error.to_string()))
        })
    }
}

/// Why there is no answer.
enum Failed {
    /// The vendor would say so.
    Refused(Box<IrError>),
    /// Nobody here speaks the dialect.
    Unspoken(TranslateError),
}

impl From<Box<IrError>> for Failed {
    fn from(error: Box<IrError>) -> Self {
        Self::Refused(error)
    }
}

impl From<TranslateError> for Failed {
    fn from(error: TranslateError) -> Self {
        Self::Unspoken(error)
    }
}

fn reply(call: &ModelCall) -> Result<ModelReply, TranslateError> {
    let replied = match (&call.operation, call.dialect.family()) {
        (ModelOperation::Generate { stream }, _) => generate(call, *stream),
        (ModelOperation::CountTokens, WireFamily::Chat) => {
            let message = "there is no count of tokens in this dialect";
            Err(failure(IrErrorKind::NotFound, message).into())
        }
        (ModelOperation::CountTokens, _) => count_tokens(call),
        (ModelOperation::Other(other), _) => {
            let message = format!("the mock model has nothing at {}", other.path);
            Err(failure(IrErrorKind::NotFound, message).into())
        }
        (ModelOperation::Stored { id, .. }, _) => {
            let message = format!("the mock model keeps no answers, {id:?} neither");
            Err(failure(IrErrorKind::NotFound, message).into())
        }
    };
    replied.or_else(|failed| match failed {
        Failed::Refused(error) => refuse(&error, call.dialect),
        Failed::Unspoken(error) => Err(error),
    })
}

fn generate(call: &ModelCall, stream: bool) -> Result<ModelReply, Failed> {
    let conversation = read(call.dialect, &call.body, Check::AsVendor)?;
    let asked = conversation.settings.model.as_ref();
    let model = asked.map_or(call.model.as_str(), |model| model.as_str());
    if let Some(error) = asked_error(model) {
        return Err(error.into());
    }
    let response = answer(&conversation, model, call.dialect, &fingerprint(&call.body))?;
    let include_usage = conversation.settings.include_usage;
    let exchange = Exchange {
        legacy_functions: conversation.settings.legacy_functions,
        include_usage: Some(include_usage.is_some_and(|asked| asked.value)),
        ..Exchange::default()
    };
    if stream {
        return Ok(streamed(&response, call, &exchange)?);
    }
    let text = write_response(&response, call.dialect, &exchange)?;
    Ok(document(StatusCode::OK, text))
}

/// The answer in pieces, one event each.
fn streamed(
    response: &IrResponse,
    call: &ModelCall,
    exchange: &Exchange,
) -> Result<ModelReply, TranslateError> {
    let asks_events = |query: &String| query.split('&').any(|pair| pair == "alt=sse");
    let form = match call.dialect.family() {
        WireFamily::GenerateContent if !call.query.as_ref().is_some_and(asks_events) => {
            SseForm::JsonArray
        }
        _ => SseForm::Events,
    };
    let mut encoder = SseEncoder::new(form);
    let mut parts = Vec::new();
    for event in write_stream(&deltas(response), call.dialect, exchange)? {
        let mut part = Vec::new();
        encoder.event(event.name.as_deref(), &event.data, &mut part);
        parts.push(Bytes::from(part));
    }
    let mut end = Vec::new();
    encoder.finish(&mut end);
    if !end.is_empty() {
        parts.push(Bytes::from(end));
    }
    let kind = match form {
        SseForm::Events => "text/event-stream",
        SseForm::JsonArray => "application/json",
    };
    Ok(ModelReply {
        status: StatusCode::OK,
        headers: content_type(kind),
        body: ModelBody::stream(Parts(parts.into_iter())),
    })
}

fn count_tokens(call: &ModelCall) -> Result<ModelReply, Failed> {
    let conversation = read(call.dialect, &whole_request(&call.body), Check::Readable)?;
    let count = answer::input_tokens(&conversation);
    let text = match call.dialect.family() {
        WireFamily::GenerateContent => json!({ "totalTokens": count }),
        WireFamily::Responses => {
            json!({ "object": "response.input_tokens", "input_tokens": count })
        }
        _ => json!({ "input_tokens": count }),
    };
    Ok(document(StatusCode::OK, text.to_string()))
}

/// Gemini's count may hold the request it is about as a part.
fn whole_request(body: &Bytes) -> Bytes {
    let tape = Tape::parse(body, &Limits::default()).ok();
    let inner = tape
        .as_ref()
        .and_then(|tape| tape.root().get("generateContentRequest"));
    inner.map_or_else(
        || body.clone(),
        |inner| body.slice_ref(inner.raw().as_bytes()),
    )
}

/// How closely a request is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// What the vendor would refuse is refused.
    AsVendor,
    /// It has to be readable.
    Readable,
}

fn read(dialect: Dialect, body: &[u8], check: Check) -> Result<IrConversation, Failed> {
    let codec = codec(dialect).ok_or(TranslateError::NoCodec(dialect))?;
    let refused = |error: DialectError| failure(IrErrorKind::InvalidRequest, error.to_string());
    let tape = Tape::parse(body, &Limits::default());
    let tape = tape.map_err(|error| refused(error.into()))?;
    if check == Check::AsVendor {
        let tool_name = codec.rules(&TargetProfile::default()).tool_name;
        let validator = DialectValidator::new(dialect, tool_name);
        let issues = validator.validate(DocumentKind::Request, tape.root());
        let wrong = issues
            .iter()
            .find(|one| one.severity == IssueSeverity::Error);
        if let Some(issue) = wrong {
            let message = format!("{:?} {}", issue.pointer, issue.problem);
            return Err(failure(IrErrorKind::InvalidRequest, message).into());
        }
    }
    let conversation = codec.read_request(Reader::new(&tape).root());
    Ok(conversation.map_err(refused)?)
}

/// The error that a model's name asks for.
fn asked_error(model: &str) -> Option<Box<IrError>> {
    let status: u16 = model.strip_prefix(FAILING)?.parse().ok()?;
    let kind = match status {
        400 => IrErrorKind::InvalidRequest,
        401 => IrErrorKind::Authentication,
        402 => IrErrorKind::Billing,
        403 => IrErrorKind::Permission,
        404 => IrErrorKind::NotFound,
        409 => IrErrorKind::Conflict,
        413 => IrErrorKind::TooLarge,
        429 => IrErrorKind::RateLimit,
        500 => IrErrorKind::Server,
        503 | 529 => IrErrorKind::Overloaded,
        504 => IrErrorKind::Timeout,
        status if (400..600).contains(&status) => IrErrorKind::Other,
        _ => return None,
    };
    let mut error = failure(
        kind,
        format!("the model's name asks for the error {status}"),
    );
    error.status = Some(status);
    Some(error)
}

fn failure(kind: IrErrorKind, message: impl Into<String>) -> Box<IrError> {
    Box::new(IrError {
        kind,
        status: None,
        message: message.into().into(),
        native: None,
        code: None,
        param: None,
        request_id: None,
        vendor: Vec::new(),
    })
}

/// An error in the vendor's form; those that pass say when to try again.
fn refuse(error: &IrError, dialect: Dialect) -> Result<ModelReply, TranslateError> {
    let (status, body) = write_error(error, dialect)?;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut reply = document(status, body);
    if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
        reply
            .headers
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    Ok(reply)
}

fn document(status: StatusCode, text: String) -> ModelReply {
    ModelReply {
        status,
        headers: content_type("application/json"),
        body: ModelBody::whole(text),
    }
}

fn content_type(kind: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))])
}

/// What ids are made of: the same request gets the same.
fn fingerprint(body: &[u8]) -> String {
    let digest = Sha256::digest(body);
    digest
        .iter()
        .take(12)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A body whose parts are there already.
struct Parts(std::vec::IntoIter<Bytes>);

impl Stream for Parts {
    type Item = Result<Bytes, UpstreamError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.next().map(Ok))
    }
}
