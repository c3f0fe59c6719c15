//! The events of a run as packets of a stream.

use abp_core::{
    AgentEvent, AgentEventKind, ErrorSeverity, PacketWriter, PresentationType, Receipt,
    StreamError, StreamPacket, Timestamp,
};
use abp_error::ErrorCode;
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// Puts events into packets: text as deltas, blocks as presentation events, errors as errors, and
/// every other event as it is.
#[derive(Debug)]
pub struct Packets {
    stream_id: Uuid,
    blocks: u128,
    writer: PacketWriter,
}

impl Packets {
    /// Packets of a new stream.
    #[must_use]
    pub fn new(stream_id: Uuid) -> Self {
        Self {
            stream_id,
            blocks: 0,
            writer: PacketWriter::new(stream_id),
        }
    }

    /// The packet for an event.
    pub fn packet(&mut self, event: &AgentEvent) -> StreamPacket {
        match &event.kind {
            AgentEventKind::AssistantDelta { text } => self.writer.delta(event.ts, text),
            AgentEventKind::ContentBlock { block_type, data } => {
                let kind = PresentationType::parse(block_type);
                let payload = json!({
                    "id": self.next_id(), "timestamp": event.ts, "type": kind.as_str(), "data": data
                });
                self.writer.event(event.ts, object(payload))
            }
            AgentEventKind::Error {
                message,
                error_code,
            } => {
                let error = StreamError {
                    code: error_code
                        .map_or_else(|| "AGENT_ERROR".to_owned(), |code| code.to_string()),
                    message: message.clone(),
                    severity: ErrorSeverity::Transient,
                };
                self.writer.error(event.ts, &error)
            }
            _ => {
                let payload = serde_json::to_value(event).unwrap_or_default();
                self.writer.event(event.ts, object(payload))
            }
        }
    }

    /// The last packet.
    pub fn close(&mut self, t: Timestamp) -> StreamPacket {
        self.writer.close(t)
    }

    /// The last packets of a run: its receipt, what it failed of, and the end.
    pub fn end(&mut self, receipt: &Receipt) -> Vec<StreamPacket> {
        let at = receipt.meta.finished_at;
        let told = json!({
            "type": "receipt", "run_id": receipt.meta.run_id, "outcome": receipt.outcome,
            "receipt_sha256": receipt.receipt_sha256,
        });
        let mut last = vec![self.writer.event(at, object(told))];
        match &receipt.error {
            Some(error) => last.extend(self.lost(at, error.code, &error.message)),
            None => last.push(self.close(at)),
        }
        last
    }

    /// The last packets of a stream that cannot go on.
    pub fn lost(&mut self, t: Timestamp, code: ErrorCode, message: &str) -> [StreamPacket; 2] {
        let error = StreamError {
            code: code.to_string(),
            message: message.to_owned(),
            severity: ErrorSeverity::Fatal,
        };
        [self.writer.error(t, &error), self.close(t)]
    }

    /// An id that follows from the stream's own, so that the same run has the same ids again.
    fn next_id(&mut self) -> Uuid {
        self.blocks += 1;
        Uuid::from_u128(self.stream_id.as_u128() ^ self.blocks)
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}
