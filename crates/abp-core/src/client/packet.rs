//! The packets an answer is streamed in.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{Timestamp, ValidationError};

/// One packet of a stream. A [`PacketWriter`] makes them in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamPacket {
    /// The stream it belongs to.
    pub stream_id: Uuid,
    /// Its place; strictly increasing within a stream.
    pub seq: u64,
    /// What it carries.
    pub op: PacketOp,
    /// When it was made.
    pub t: Timestamp,
    /// What is carried: a string for `DELTA`, an object for `EVENT` and `ERROR`.
    #[serde(default)]
    pub p: Value,
}

/// What a packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PacketOp {
    /// A piece of text.
    Delta,
    /// An event.
    Event,
    /// A [`StreamError`].
    Error,
    /// Nothing: it is the last packet.
    Close,
}

/// What a packet says about something that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamError {
    /// The error's code.
    pub code: String,
    /// In words.
    pub message: String,
    /// Whether the stream goes on.
    pub severity: ErrorSeverity,
}

/// Whether a stream goes on after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorSeverity {
    /// It may go on.
    Transient,
    /// It ends.
    Fatal,
}

impl StreamPacket {
    /// Checks a packet against the one before it.
    ///
    /// # Errors
    /// Says what is wrong: another stream, a place that is not after the last one, something after
    /// the end, or a payload that does not fit what the packet carries.
    pub fn check(&self, previous: Option<&Self>) -> Result<(), ValidationError> {
        if let Some(previous) = previous {
            if self.stream_id != previous.stream_id {
                return Err(wrong("/stream_id", "is of another stream"));
            }
            if self.seq <= previous.seq {
                return Err(wrong("/seq", "is not after the packet before"));
            }
            if previous.op == PacketOp::Close {
                return Err(wrong("/op", "comes after the stream was closed"));
            }
        }
        let fits = match self.op {
            PacketOp::Delta => self.p.is_string(),
            PacketOp::Event | PacketOp::Error => self.p.is_object(),
            PacketOp::Close => true,
        };
        if fits {
            Ok(())
        } else {
            Err(wrong("/p", "is not what such a packet carries"))
        }
    }
}

fn wrong(pointer: &str, problem: &str) -> ValidationError {
    ValidationError::Field {
        pointer: pointer.to_owned(),
        problem: problem.to_owned(),
    }
}

/// Makes the packets of one stream, in order.
#[derive(Debug, Clone)]
pub struct PacketWriter {
    stream_id: Uuid,
    next: u64,
}

impl PacketWriter {
    /// A writer for a new stream.
    #[must_use]
    pub fn new(stream_id: Uuid) -> Self {
        Self { stream_id, next: 0 }
    }

    /// A piece of text.
    pub fn delta(&mut self, t: Timestamp, text: &str) -> StreamPacket {
        self.packet(PacketOp::Delta, t, Value::from(text))
    }

    /// An event.
    pub fn event(&mut self, t: Timestamp, event: Map<String, Value>) -> StreamPacket {
        self.packet(PacketOp::Event, t, Value::Object(event))
    }

    /// Something that failed.
    pub fn error(&mut self, t: Timestamp, error: &StreamError) -> StreamPacket {
        let payload = serde_json::json!({
            "code": error.code, "message": error.message, "severity": error.severity
        });
        self.packet(PacketOp::Error, t, payload)
    }

    /// The last packet.
    pub fn close(&mut self, t: Timestamp) -> StreamPacket {
        self.packet(PacketOp::Close, t, Value::Null)
    }

    fn packet(&mut self, op: PacketOp, t: Timestamp, p: Value) -> StreamPacket {
        let seq = self.next;
        self.next += 1;
        StreamPacket {
            stream_id: self.stream_id,
            seq,
            op,
            t,
            p,
        }
    }
}
