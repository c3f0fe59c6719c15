//! JSON-RPC messages, read within limits and written.
//!
//! Parameters and results are views of the text they came in: what is handed on is handed on byte for
//! byte. A message in which a key occurs twice is refused, because two readers could take it for two
//! different messages.

mod write;

use std::borrow::Cow;
use std::fmt;

use abp_json::{JsonError, Kind, Limits, Tape, View, push_string};

pub use write::{error, notification, request, result};

use crate::method::Method;
use crate::refusal::RpcRefusal;
use crate::version::{Era, ProtocolVersion};

/// What one message may measure: 16 MiB, 128 levels, a million keys and values.
pub const MESSAGE_LIMITS: Limits = Limits {
    max_bytes: 16 << 20,
    max_depth: 128,
    max_nodes: 1 << 20,
};

/// The id of a request: a string, or an integer in the digits it came in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestId {
    /// An integer of any size.
    Integer(String),
    /// A string.
    Text(String),
}

/// A message.
#[derive(Clone, Debug)]
pub enum Message<'t> {
    /// Wants an answer.
    Request(Request<'t>),
    /// Wants none.
    Notification(Notification<'t>),
    /// Is an answer.
    Response(Response<'t>),
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request<'t> {
    /// Its id.
    pub id: RequestId,
    /// Its method, known or not.
    pub method: Cow<'t, str>,
    /// Its parameters, an object.
    pub params: Option<View<'t>>,
}

/// A notification.
#[derive(Clone, Debug)]
pub struct Notification<'t> {
    /// Its method, known or not.
    pub method: Cow<'t, str>,
    /// Its parameters, an object.
    pub params: Option<View<'t>>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Response<'t> {
    /// The request it answers; an error may not know it.
    pub id: Option<RequestId>,
    /// The result, an object, or the error.
    pub outcome: Result<View<'t>, RpcError<'t>>,
}

/// An error that a peer answered with.
#[derive(Clone, Debug)]
pub struct RpcError<'t> {
    /// Its code.
    pub code: i64,
    /// Its words.
    pub message: Cow<'t, str>,
    /// What else it says.
    pub data: Option<View<'t>>,
}

/// What a text holds.
#[derive(Clone, Debug)]
pub enum Incoming<'t> {
    /// One message.
    Single(Message<'t>),
    /// Several, each by itself.
    Batch(Vec<Result<Message<'t>, Malformed>>),
}

/// Whether several messages may come as one array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batches {
    /// They may, in 2025-03-26.
    Read,
    /// They may not.
    Refused,
}

/// Something that came and is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Why.
    pub refusal: RpcRefusal,
    /// The id it had, where that could be told.
    pub id: Option<RequestId>,
    /// Whether it may be answered. What looks like an answer is not.
    pub is_answerable: bool,
}

/// Parses a text.
///
/// # Errors
/// Says why it is not JSON, or that it is over a limit.
pub fn parse<'s>(bytes: &'s [u8], limits: &Limits) -> Result<Tape<'s>, Malformed> {
    Tape::parse(bytes, limits).map_err(|error| {
        let why = error.to_string();
        let refusal = match error {
            JsonError::TooDeep { .. }
            | JsonError::TooLarge { .. }
            | JsonError::TooManyNodes { .. } => RpcRefusal::TooMuch { why },
            _ => RpcRefusal::NotJson { why },
        };
        Malformed::answerable(refusal, None)
    })
}

/// Reads what a text holds.
///
/// # Errors
/// Says why it is no message, and how that may be answered.
pub fn read<'t>(tape: &'t Tape<'_>, batches: Batches) -> Result<Incoming<'t>, Malformed> {
    let root = tape.root();
    if !tape.duplicates().is_empty() {
        return Err(ambiguous(tape));
    }
    if root.kind() != Kind::Array {
        return read_one(root).map(Incoming::Single);
    }
    match batches {
        Batches::Refused => Err(Malformed::answerable(RpcRefusal::Batch, None)),
        Batches::Read if root.is_empty() => Err(not_a_message("the array is empty", None)),
        Batches::Read => Ok(Incoming::Batch(root.items().map(read_one).collect())),
    }
}

fn read_one(view: View<'_>) -> Result<Message<'_>, Malformed> {
    if view.kind() != Kind::Object {
        return Err(not_a_message("it is not an object", None));
    }
    let id = view.get("id");
    let known_id = id.and_then(RequestId::read);
    let is_two = view.get("jsonrpc").and_then(View::as_str).as_deref() == Some("2.0");
    let method = view.get("method");
    if !is_two {
        let what = "jsonrpc is not \"2.0\"";
        return Err(Malformed {
            is_answerable: !looks_like_answer(view),
            ..not_a_message(what, known_id)
        });
    }
    let Some(method) = method else {
        return read_response(view, known_id);
    };
    let Some(method) = method.as_str() else {
        return Err(not_a_message("method is not a string", known_id));
    };
    if view.get("result").or(view.get("error")).is_some() {
        let what = "it is a request and an answer";
        return Err(not_a_message(what, known_id));
    }
    let params = view.get("params").filter(|params| !params.is_null());
    if params.is_some_and(|params| params.kind() != Kind::Object) {
        let refusal = RpcRefusal::invalid_params("params is not an object");
        return Err(Malformed {
            is_answerable: id.is_some(),
            ..Malformed::answerable(refusal, known_id)
        });
    }
    match (id, known_id) {
        (None, _) => Ok(Message::Notification(Notification { method, params })),
        (Some(_), Some(id)) => Ok(Message::Request(Request { id, method, params })),
        (Some(_), None) => Err(not_a_message("id is neither string nor integer", None)),
    }
}

fn read_response(view: View<'_>, id: Option<RequestId>) -> Result<Message<'_>, Malformed> {
    let malformed = |what| {
        Err(Malformed {
            is_answerable: false,
            ..not_a_message(what, id.clone())
        })
    };
    let outcome = match (view.get("result"), view.get("error")) {
        (Some(result), None) if result.kind() != Kind::Object => {
            return malformed("result is not an object");
        }
        (Some(_), None) if id.is_none() => return malformed("a result without an id"),
        (Some(result), None) => Ok(result),
        (None, Some(error)) => match RpcError::read(error) {
            Some(error) => Err(error),
            None => return malformed("error has no code or no message"),
        },
        (Some(_), Some(_)) => return malformed("it is a result and an error"),
        (None, None) => {
            return Err(not_a_message(
                "it has no method, no result and no error",
                id,
            ));
        }
    };
    Ok(Message::Response(Response { id, outcome }))
}

/// Keys that occur twice leave only the id to be told, and that only if it occurs once.
fn ambiguous(tape: &Tape<'_>) -> Malformed {
    let root = tape.root();
    let mut objects = tape.duplicates().iter().map(|one| one.object);
    let is_clear = !objects.any(|object| object == root.id());
    let id = root.get("id").filter(|_| is_clear);
    Malformed {
        is_answerable: !looks_like_answer(root),
        ..not_a_message("a key occurs twice", id.and_then(RequestId::read))
    }
}

/// Answers are not answered, or two peers could keep each other busy with their errors.
fn looks_like_answer(view: View<'_>) -> bool {
    let has = |key| view.get(key).is_some();
    !has("method") && (has("result") || has("error"))
}

fn not_a_message(what: &'static str, id: Option<RequestId>) -> Malformed {
    Malformed::answerable(RpcRefusal::NotAMessage { what }, id)
}

impl Malformed {
    fn answerable(refusal: RpcRefusal, id: Option<RequestId>) -> Self {
        Self {
            refusal,
            id,
            is_answerable: true,
        }
    }

    /// The answer to it, in the version that was agreed on; `None` where it gets none.
    #[must_use]
    pub fn answer(&self, version: Option<ProtocolVersion>) -> Option<String> {
        let era = version.map_or(Era::Legacy, ProtocolVersion::era);
        self.is_answerable
            .then(|| write::refusal(self.id.as_ref(), version, &self.refusal, era))
    }
}

impl RequestId {
    /// Reads an id; `None` for what is neither string nor integer.
    #[must_use]
    pub fn read(view: View<'_>) -> Option<Self> {
        if view.is_integer() {
            return Some(Self::Integer(view.raw().to_owned()));
        }
        view.as_str().map(|text| Self::Text(text.into_owned()))
    }

    /// The id as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        match self {
            Self::Integer(digits) => digits.clone(),
            Self::Text(text) => {
                let mut json = String::new();
                push_string(&mut json, text);
                json
            }
        }
    }
}

impl From<u64> for RequestId {
    fn from(number: u64) -> Self {
        Self::Integer(number.to_string())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json())
    }
}

impl Request<'_> {
    /// The method, if any version has it as a request.
    #[must_use]
    pub fn known_method(&self) -> Option<Method> {
        Method::parse(&self.method).filter(|method| !method.is_notification())
    }
}

impl Notification<'_> {
    /// The method, if any version has it as a notification.
    #[must_use]
    pub fn known_method(&self) -> Option<Method> {
        Method::parse(&self.method).filter(|method| method.is_notification())
    }
}

impl<'t> RpcError<'t> {
    fn read(view: View<'t>) -> Option<Self> {
        Some(Self {
            code: view.get("code")?.as_i64()?,
            message: view.get("message")?.as_str_lossy()?,
            data: view.get("data"),
        })
    }
}
