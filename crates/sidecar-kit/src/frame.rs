//! The messages, and reading one from a line.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// A message. The discriminator is `t`.
///
/// `ref_id` is optional on reading, so that its absence is a breach of the protocol that can be
/// named, and not a line that cannot be read.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum Frame {
    /// From the sidecar, first of all: who it is and what it can do.
    Hello(HelloFrame),
    /// To the sidecar: do this.
    Run {
        /// The run's id, repeated as `ref_id` in every answer.
        id: String,
        /// The work.
        work_order: Value,
    },
    /// From the sidecar: something happened.
    Event {
        /// The run.
        ref_id: Option<String>,
        /// What happened.
        event: Value,
    },
    /// From the sidecar: the work is done.
    Final {
        /// The run.
        ref_id: Option<String>,
        /// The sidecar's own record.
        receipt: Value,
    },
    /// From the sidecar: it cannot go on.
    Fatal {
        /// The run, where there is one.
        ref_id: Option<String>,
        /// What happened: a text, or an object with `message` and `code`.
        error: Value,
        /// A code for it.
        #[serde(skip_serializing_if = "Option::is_none")]
        error_code: Option<String>,
    },
    /// To the sidecar: end the run early.
    Cancel {
        /// The run.
        ref_id: String,
        /// Why.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// To the sidecar: say that you live.
    Ping {
        /// Comes back in the answer.
        seq: u64,
    },
    /// From the sidecar: it lives.
    Pong {
        /// That of the ping.
        seq: u64,
    },
    /// From the sidecar: its agent is about to use a tool, and waits.
    PermissionRequest {
        /// The run.
        ref_id: Option<String>,
        /// The question.
        #[serde(flatten)]
        request: PermissionRequest,
    },
    /// To the sidecar: the answer to a question.
    PermissionResponse {
        /// The run.
        ref_id: String,
        /// The answer.
        #[serde(flatten)]
        response: PermissionResponse,
    },
    /// A message this version does not know.
    #[serde(untagged)]
    Unknown(Value),
}

/// A question of a sidecar: whether its agent may use a tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PermissionRequest {
    /// The question's id, unique in the run; it comes back in the answer.
    pub id: String,
    /// The tool.
    pub tool_name: String,
    /// The id of the call, as the `tool_call` that follows will have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    /// The tool's input.
    pub input: Value,
}

/// The answer to a [`PermissionRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PermissionResponse {
    /// The id of the question.
    pub id: String,
    /// Whether the tool may be used.
    pub approved: bool,
    /// The reason of a denial, in words for the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Who a sidecar is and what it can do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HelloFrame {
    /// The contract version it speaks.
    pub contract_version: String,
    /// Who it is.
    pub backend: Value,
    /// What it can do.
    pub capabilities: Value,
    /// How it takes requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Value>,
}

impl Frame {
    /// The message as a line, with its newline.
    ///
    /// # Errors
    /// Fails where a payload cannot be serialised.
    pub fn to_line(&self) -> Result<String, serde_json::Error> {
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        Ok(line)
    }
}

/// What a line is. Events are by far the most frequent lines: they are not copied.
#[derive(Debug)]
pub enum Decoded<'a> {
    /// An event.
    Event(EventLine<'a>),
    /// Any other message.
    Frame(Frame),
}

/// An event whose payload was checked to be JSON and not been read yet.
#[derive(Debug)]
pub struct EventLine<'a> {
    /// The run.
    pub ref_id: Option<Cow<'a, str>>,
    /// The event's JSON.
    pub payload: &'a str,
}

/// Why a line is no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The line is not a JSON object with a text `t`.
    #[error("not a message: {problem}")]
    NotAFrame {
        /// What it is instead.
        problem: String,
    },
    /// The message is known, and its content is wrong.
    #[error("not a valid {kind} message: {problem}")]
    Invalid {
        /// The message's `t`.
        kind: String,
        /// What is wrong.
        problem: String,
    },
}

/// Every member a known message may have; whatever else there is, is passed over.
#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    t: Cow<'a, str>,
    #[serde(borrow, default)]
    ref_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    event: Option<&'a RawValue>,
    #[serde(borrow, default)]
    receipt: Option<&'a RawValue>,
    #[serde(borrow, default)]
    contract_version: Option<&'a RawValue>,
    #[serde(borrow, default)]
    backend: Option<&'a RawValue>,
    #[serde(borrow, default)]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, default)]
    mode: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    work_order: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error_code: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reason: Option<&'a RawValue>,
    #[serde(borrow, default)]
    seq: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_use_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    approved: Option<&'a RawValue>,
}

/// Reads a line.
///
/// # Errors
/// Says whether the line is no message at all, or a known one with wrong content.
pub fn decode(line: &str) -> Result<Decoded<'_>, FrameError> {
    let not_a_frame = |problem: String| FrameError::NotAFrame { problem };
    if !line.starts_with('{') {
        return Err(not_a_frame("not a JSON object".to_owned()));
    }
    let wire: Wire<'_> =
        serde_json::from_str(line).map_err(|error| not_a_frame(error.to_string()))?;
    let invalid = |problem: String| FrameError::Invalid {
        kind: wire.t.clone().into_owned(),
        problem,
    };
    if wire.t == "event" {
        let payload = wire
            .event
            .ok_or_else(|| invalid("member \"event\" is missing".to_owned()))?;
        let ref_id = wire.ref_id.map(text).transpose().map_err(invalid)?;
        let payload = payload.get();
        return Ok(Decoded::Event(EventLine { ref_id, payload }));
    }
    frame(&wire, line).map(Decoded::Frame).map_err(invalid)
}

fn frame(wire: &Wire<'_>, line: &str) -> Result<Frame, String> {
    let ref_id = || wire.ref_id.map(owned_text).transpose();
    Ok(match wire.t.as_ref() {
        "hello" => Frame::Hello(HelloFrame {
            contract_version: owned_text(needed(wire.contract_version, "contract_version")?)?,
            backend: value(needed(wire.backend, "backend")?)?,
            capabilities: wire.capabilities.map_or(Ok(Value::Null), value)?,
            mode: wire.mode.map(value).transpose()?,
        }),
        "run" => Frame::Run {
            id: owned_text(needed(wire.id, "id")?)?,
            work_order: value(needed(wire.work_order, "work_order")?)?,
        },
        "final" => Frame::Final {
            ref_id: ref_id()?,
            receipt: value(needed(wire.receipt, "receipt")?)?,
        },
        "fatal" => Frame::Fatal {
            ref_id: ref_id()?,
            error: value(needed(wire.error, "error")?)?,
            error_code: wire.error_code.map(owned_text).transpose()?,
        },
        "cancel" => Frame::Cancel {
            ref_id: owned_text(needed(wire.ref_id, "ref_id")?)?,
            reason: wire.reason.map(owned_text).transpose()?,
        },
        "ping" => Frame::Ping {
            seq: number(needed(wire.seq, "seq")?)?,
        },
        "pong" => Frame::Pong {
            seq: number(needed(wire.seq, "seq")?)?,
        },
        "permission_request" => Frame::PermissionRequest {
            ref_id: ref_id()?,
            request: PermissionRequest {
                id: owned_text(needed(wire.id, "id")?)?,
                tool_name: owned_text(needed(wire.tool_name, "tool_name")?)?,
                tool_use_id: wire.tool_use_id.map(owned_text).transpose()?,
                input: wire.input.map_or(Ok(Value::Null), value)?,
            },
        },
        "permission_response" => Frame::PermissionResponse {
            ref_id: owned_text(needed(wire.ref_id, "ref_id")?)?,
            response: PermissionResponse {
                id: owned_text(needed(wire.id, "id")?)?,
                approved: flag(needed(wire.approved, "approved")?)?,
                reason: wire.reason.map(owned_text).transpose()?,
            },
        },
        _ => Frame::Unknown(serde_json::from_str(line).map_err(|error| error.to_string())?),
    })
}

fn needed<'a>(member: Option<&'a RawValue>, name: &str) -> Result<&'a RawValue, String> {
    member.ok_or_else(|| format!("member {name:?} is missing"))
}

fn value(raw: &RawValue) -> Result<Value, String> {
    serde_json::from_str(raw.get()).map_err(|error| error.to_string())
}

fn number(raw: &RawValue) -> Result<u64, String> {
    serde_json::from_str(raw.get()).map_err(|error| format!("seq: {error}"))
}

fn flag(raw: &RawValue) -> Result<bool, String> {
    serde_json::from_str(raw.get()).map_err(|error| format!("approved: {error}"))
}

fn owned_text(raw: &RawValue) -> Result<String, String> {
    text(raw).map(Cow::into_owned)
}

/// A JSON text; it borrows where nothing in it is escaped.
fn text(raw: &RawValue) -> Result<Cow<'_, str>, String> {
    let quoted = raw.get();
    let inside = quoted
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    match inside {
        Some(plain) if !plain.contains('\\') => Ok(Cow::Borrowed(plain)),
        _ => serde_json::from_str(quoted)
            .map(Cow::Owned)
            .map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn frames_read_back_and_lines_that_are_none_are_named() {
        let frames = [
            Frame::Hello(HelloFrame {
                contract_version: "abp/v0.1".to_owned(),
                backend: json!({"id": "x"}),
                capabilities: json!({}),
                mode: Some(json!("mapped")),
            }),
            Frame::Run {
                id: "r".to_owned(),
                work_order: json!({"task": "t"}),
            },
            Frame::Final {
                ref_id: Some("r".to_owned()),
                receipt: json!({}),
            },
            Frame::Fatal {
                ref_id: None,
                error: json!("no"),
                error_code: Some("INTERNAL".to_owned()),
            },
            Frame::Cancel {
                ref_id: "r".to_owned(),
                reason: None,
            },
            Frame::Ping { seq: 1 },
            Frame::PermissionRequest {
                ref_id: Some("r".to_owned()),
                request: PermissionRequest {
                    id: "p".to_owned(),
                    tool_name: "Write".to_owned(),
                    tool_use_id: Some("c".to_owned()),
                    input: json!({"path": "a"}),
                },
            },
            Frame::PermissionResponse {
                ref_id: "r".to_owned(),
                response: PermissionResponse {
                    id: "p".to_owned(),
                    approved: false,
                    reason: Some("no".to_owned()),
                },
            },
            Frame::Pong { seq: 1 },
            Frame::Unknown(json!({"t": "later", "x": [1]})),
        ];
        for frame in frames {
            let line = frame.to_line().unwrap();
            match decode(line.trim_end()) {
                Ok(Decoded::Frame(read)) => assert_eq!(read, frame),
                other => panic!("{line}: {other:?}"),
            }
        }
        let not_frames = [
            "npm WARN deprecated",
            "[1]",
            "{\"level\":\"info\"}",
            "{\"t\":1}",
            "{\"t\":\"ping\",\"t\":\"pong\"}",
        ];
        for line in not_frames {
            let error = decode(line).expect_err(line);
            assert!(
                matches!(error, FrameError::NotAFrame { .. }),
                "{line}: {error}"
            );
        }
        for (line, problem) in [
            ("{\"t\":\"event\"}", "\"event\" is missing"),
            (
                "{\"t\":\"event\",\"ref_id\":7,\"event\":{}}",
                "expected a string",
            ),
            (
                "{\"t\":\"hello\",\"backend\":{}}",
                "\"contract_version\" is missing",
            ),
            ("{\"t\":\"pong\",\"seq\":\"1\"}", "seq: "),
            (
                "{\"t\":\"permission_request\",\"id\":\"p\"}",
                "\"tool_name\" is missing",
            ),
            (
                "{\"t\":\"permission_response\",\"ref_id\":\"r\",\"id\":\"p\",\"approved\":\"maybe\"}",
                "approved: ",
            ),
        ] {
            let error = decode(line).expect_err(line);
            assert!(
                matches!(error, FrameError::Invalid { .. }),
                "{line}: {error}"
            );
            assert!(error.to_string().contains(problem), "{line}: {error}");
        }
    }

    #[test]
    fn an_event_is_carried_as_it_came() {
        let payload = r#"{"type":"x", "n":1e5}"#;
        for (ref_id, read) in [
            ("\"r\"", Some("r")),
            ("\"\\u0072\"", Some("r")),
            ("null", None),
        ] {
            let line = format!(r#"{{"later":1,"event":{payload},"ref_id":{ref_id},"t":"event"}}"#);
            match decode(&line) {
                Ok(Decoded::Event(event)) => {
                    assert_eq!((event.ref_id.as_deref(), event.payload), (read, payload));
                }
                other => panic!("{line}: {other:?}"),
            }
        }
    }
}
