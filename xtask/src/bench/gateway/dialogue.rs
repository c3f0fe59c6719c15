//! What callers ask and what the upstream answers: the same short exchange in two dialects.
//!
//! The name of the model says how the upstream answers, so that this arrives whatever is between.

use std::net::SocketAddr;
use std::time::Duration;

use abp_dialect::Dialect;
use bytes::Bytes;
use serde_json::{Value, json};

/// How many pieces a streamed answer has.
pub(super) const CHUNKS: usize = 100;

/// A whole answer, of sixteen tokens.
pub(super) const ANSWER: &str =
    "The backplane answers in sixteen tokens, which is short enough to count them.";

/// One piece of a streamed answer.
pub(super) const PIECE: &str = " piece";

/// In front of the microseconds that a piece of a paced answer was held back.
const HELD: &str = "held=";

/// How the upstream answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// In one piece, at once.
    Whole,
    /// In one piece, after a while.
    Late,
    /// Piece by piece, as fast as they are taken.
    Unpaced,
    /// Piece by piece, as a fast model does.
    Paced,
    /// Piece by piece, so slowly that only being open counts.
    Slow,
}

/// When the pieces of an answer come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rhythm {
    pub(super) first: Duration,
    pub(super) between: Duration,
}

impl Pace {
    const ALL: [Self; 5] = [
        Self::Whole,
        Self::Late,
        Self::Unpaced,
        Self::Paced,
        Self::Slow,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Late => "late",
            Self::Unpaced => "unpaced",
            Self::Paced => "paced",
            Self::Slow => "slow",
        }
    }

    /// The pace that a request asks for.
    pub(super) fn of(request: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|pace| {
            let end = format!("-{}\"", pace.name());
            memchr::memmem::find(request, end.as_bytes()).is_some()
        })
    }

    pub(super) fn streams(self) -> bool {
        match self {
            Self::Whole | Self::Late => false,
            Self::Unpaced | Self::Paced | Self::Slow => true,
        }
    }

    /// When the pieces come; `None` where nothing is waited for.
    pub(super) fn rhythm(self) -> Option<Rhythm> {
        let (first, between) = match self {
            Self::Whole | Self::Unpaced => return None,
            Self::Late => (100, 0),
            Self::Paced => (20, 5),
            Self::Slow => (0, 1_000),
        };
        Some(Rhythm {
            first: Duration::from_millis(first),
            between: Duration::from_millis(between),
        })
    }
}

/// Who asks in which dialect, and in which dialect the upstream answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub(super) caller: Dialect,
    pub(super) upstream: Dialect,
}

impl Pair {
    /// The bytes of a request to `address`.
    pub(super) fn request(self, address: SocketAddr, key: &str, pace: Pace) -> Bytes {
        let model = match self.upstream {
            Dialect::Claude => "claude-sonnet-4-5",
            _ => "gpt-4o",
        };
        let mut body = json!({
            "model": format!("{model}-{}", pace.name()),
            "max_tokens": 256,
            "messages": [{"role": "user", "content": "Say something that has sixteen tokens."}],
        });
        if pace.streams() {
            insert(&mut body, "stream", json!(true));
        }
        let system = "You are a helpful assistant that answers briefly.";
        let (path, credentials) = match self.caller {
            Dialect::Claude => {
                insert(&mut body, "system", json!(system));
                let version = "anthropic-version: 2023-06-01";
                ("/v1/messages", format!("x-api-key: {key}\r\n{version}"))
            }
            _ => {
                if let Some(messages) = body.get_mut("messages").and_then(Value::as_array_mut) {
                    messages.insert(0, json!({"role": "system", "content": system}));
                }
                let key = format!("authorization: Bearer {key}");
                ("/v1/chat/completions", key)
            }
        };
        let body = body.to_string();
        Bytes::from(format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\n{credentials}\r\nuser-agent: bench\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len(),
        ))
    }
}

fn insert(object: &mut Value, key: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), value);
    }
}

/// A whole answer.
pub(super) fn whole(dialect: Dialect) -> Bytes {
    let answer = match dialect {
        Dialect::Claude => json!({
            "id": "msg_01XFDUDYJgAACzvnptvVoYEL", "type": "message", "role": "assistant",
            "model": "claude-sonnet-4-5", "content": [{"type": "text", "text": ANSWER}],
            "stop_reason": "end_turn", "stop_sequence": null,
            "usage": {"input_tokens": 25, "output_tokens": 16, "cache_read_input_tokens": 0,
                "cache_creation_input_tokens": 0, "service_tier": "standard"},
        }),
        _ => json!({
            "id": "chatcmpl-9f3c2e7a51d84c0b", "object": "chat.completion", "created": 1_763_210_000,
            "model": "gpt-4o-2024-08-06", "choices": [{"index": 0, "logprobs": null,
                "message": {"role": "assistant", "content": ANSWER, "refusal": null},
                "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 25, "completion_tokens": 16, "total_tokens": 41},
            "service_tier": "default", "system_fingerprint": "fp_8bda4d3a2c",
        }),
    };
    Bytes::from(answer.to_string())
}

/// What comes before the first piece of a streamed answer, in the same bytes.
pub(super) fn opening(dialect: Dialect) -> String {
    match dialect {
        Dialect::Claude => {
            let message = json!({"type": "message_start", "message": {
                "id": "msg_01XFDUDYJgAACzvnptvVoYEL", "type": "message", "role": "assistant",
                "model": "claude-sonnet-4-5", "content": [], "stop_reason": null,
                "stop_sequence": null, "usage": {"input_tokens": 25, "output_tokens": 1}}});
            let block = json!({"type": "content_block_start", "index": 0,
                "content_block": {"type": "text", "text": ""}});
            named_event(&message) + &named_event(&block)
        }
        _ => chunk(
            &json!({"role": "assistant", "content": "", "refusal": null}),
            None,
        ),
    }
}

/// One piece of a streamed answer.
pub(super) fn piece(dialect: Dialect, text: &str) -> String {
    match dialect {
        Dialect::Claude => named_event(&json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": text}})),
        _ => chunk(&json!({"content": text}), None),
    }
}

/// What comes after the last piece of a streamed answer.
pub(super) fn closing(dialect: Dialect) -> String {
    match dialect {
        Dialect::Claude => {
            let message = json!({"type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": null},
                "usage": {"output_tokens": CHUNKS}});
            named_event(&json!({"type": "content_block_stop", "index": 0}))
                + &named_event(&message)
                + &named_event(&json!({"type": "message_stop"}))
        }
        _ => {
            let usage = json!({"id": "chatcmpl-9f3c2e7a51d84c0b", "object": "chat.completion.chunk",
                "created": 1_763_210_000, "model": "gpt-4o-2024-08-06", "choices": [],
                "usage": {"prompt_tokens": 25, "completion_tokens": CHUNKS, "total_tokens": 125}});
            chunk(&json!({}), Some("stop")) + &format!("data: {usage}\n\ndata: [DONE]\n\n")
        }
    }
}

fn named_event(data: &Value) -> String {
    let name = data.get("type").and_then(Value::as_str).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n")
}

fn chunk(delta: &Value, finish: Option<&str>) -> String {
    let data = json!({
        "id": "chatcmpl-9f3c2e7a51d84c0b", "object": "chat.completion.chunk", "created": 1_763_210_000,
        "model": "gpt-4o-2024-08-06", "service_tier": "default", "system_fingerprint": "fp_8bda4d3a2c",
        "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}],
    });
    format!("data: {data}\n\n")
}

/// The text of a piece that was held back for so long after the request came.
pub(super) fn held_text(held: Duration) -> String {
    format!("{HELD}{:010};", held.as_micros())
}

/// How long each piece in these events was held back.
pub(super) fn held_in(events: &[u8]) -> impl Iterator<Item = Duration> {
    memchr::memmem::find_iter(events, HELD).filter_map(|at| {
        let digits = events.get(at + HELD.len()..)?.get(..10)?;
        let micros = std::str::from_utf8(digits).ok()?.parse().ok()?;
        Some(Duration::from_micros(micros))
    })
}
