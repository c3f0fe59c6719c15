//! One request to a control route, and the answers that handlers make.

use std::sync::Arc;

use abp_control::TraceContext;
use abp_error::{AbpError, ErrorCode};
use abp_gateway::Refusal;
use abp_gateway_http::{ExtraCall, HttpReply, PathParams, UploadBody};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::caller::Caller;
use crate::face::Face;
use crate::query::read_query;

/// A request whose caller is known and whose body was read.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) face: Arc<Face>,
    pub(crate) caller: Caller,
    pub(crate) params: PathParams,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) upload: Option<UploadBody>,
    query: Option<String>,
}

impl Call {
    pub(crate) fn new(face: Arc<Face>, call: ExtraCall) -> Self {
        Self {
            face,
            caller: Caller::new(call.principal),
            params: call.params,
            headers: call.parts.headers,
            body: call.body,
            upload: call.upload,
            query: call.query,
        }
    }

    /// The query.
    pub(crate) fn query<Q: DeserializeOwned + JsonSchema>(&self) -> Result<Q, Refusal> {
        read_query(self.query.as_deref())
    }

    /// The body.
    pub(crate) fn body<B: DeserializeOwned>(&self) -> Result<B, Refusal> {
        read_json(&self.body)
    }

    /// The run of the path. An id that is none is as unknown as one that nobody has.
    pub(crate) fn run_id(&self) -> Result<Uuid, Refusal> {
        let text = self.params.get("run_id");
        text.parse().map_err(|_| no_run(text))
    }

    /// The text of a header; `None` where it is absent.
    pub(crate) fn header(&self, name: &str) -> Result<Option<&str>, Refusal> {
        header(&self.headers, name)
    }

    /// The place of the caller in a trace; a header that says nothing usable is as good as none.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        let header = self.headers.get("traceparent")?;
        TraceContext::parse(header.to_str().ok()?)
    }

    /// The value of the Accept headers.
    pub(crate) fn accept(&self) -> String {
        let values = self.headers.get_all(http::header::ACCEPT).iter();
        let values: Vec<_> = values.filter_map(|value| value.to_str().ok()).collect();
        values.join(",")
    }
}

/// The text of a header; `None` where it is absent.
pub(crate) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Refusal> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_| {
        let message = format!("the header {name} is not plain text");
        Refusal::new(ErrorCode::ValidationFailed, message).at(name)
    })?;
    Ok(Some(text))
}

/// The refusal for a run that does not exist, or that belongs to another principal.
pub(crate) fn no_run(text: &str) -> Refusal {
    let shown: String = text.chars().take(64).collect();
    Refusal::new(ErrorCode::NotFound, format!("no run is {shown:?}")).at("run_id")
}

/// Reads a JSON document, and says where it is wrong.
pub(crate) fn read_json<B: DeserializeOwned>(bytes: &[u8]) -> Result<B, Refusal> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let place = pointer(error.path());
        Refusal::new(ErrorCode::ValidationFailed, error.inner().to_string()).at(place)
    })?;
    match reader.end() {
        Ok(()) => Ok(read),
        Err(error) => Err(Refusal::new(ErrorCode::ValidationFailed, error.to_string()).at("")),
    }
}

/// A path of serde as a JSON pointer.
fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut text = String::new();
    for segment in path {
        let key = match segment {
            Segment::Seq { index } => index.to_string(),
            Segment::Map { key } => key.replace('~', "~0").replace('/', "~1"),
            Segment::Enum { variant } => variant.clone(),
            Segment::Unknown => "?".to_owned(),
        };
        text.push('/');
        text.push_str(&key);
    }
    text
}

/// An answer in JSON. Answers of the control plane are never cached.
pub(crate) fn json_reply<T: Serialize>(
    status: StatusCode,
    value: &T,
) -> Result<HttpReply, Refusal> {
    let body = serde_json::to_vec(value)
        .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?;
    Ok(HttpReply::whole(
        status,
        media("application/json"),
        Bytes::from(body),
    ))
}

/// The headers of an answer of this media type.
pub(crate) fn media(media_type: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers
}
