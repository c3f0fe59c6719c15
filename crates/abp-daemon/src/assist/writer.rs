//! The pieces of an answer, in the form that is wanted.

use abp_core::{AgentEvent, Receipt, StreamPacket};
use abp_error::AbpError;
use abp_gateway::current_time;
use abp_stream::{AgUi, Conversation, Packets, Transcript};
use bytes::Bytes;
use serde_json::Value;
use uuid::Uuid;

use super::accept::{Framing, Profile};

/// Writes the events of a run.
#[derive(Debug)]
pub(super) struct Writer {
    kind: WriterKind,
    framing: Framing,
}

#[derive(Debug)]
enum WriterKind {
    Packets(Packets),
    /// In a box: it is much larger than the others.
    AgUi(Box<AgUi>),
    Text(Transcript),
}

impl Writer {
    pub(super) fn new(
        profile: Profile,
        framing: Framing,
        run_id: Uuid,
        conversation: Conversation,
    ) -> Self {
        let kind = match (framing, profile) {
            (Framing::Text(_), _) => WriterKind::Text(Transcript::default()),
            (_, Profile::Packets) => WriterKind::Packets(Packets::new(run_id)),
            (_, Profile::AgUi) => WriterKind::AgUi(Box::new(AgUi::new(run_id, conversation))),
        };
        Self { kind, framing }
    }

    pub(super) fn event(&mut self, event: &AgentEvent) -> Vec<Bytes> {
        let framing = self.framing;
        match &mut self.kind {
            WriterKind::Packets(packets) => vec![packet(framing, &packets.packet(event))],
            WriterKind::AgUi(agui) => all(framing, &agui.event(event)),
            WriterKind::Text(transcript) => vec![transcript.say(&event.kind).into()],
        }
    }

    /// How the run ended, and that nothing follows.
    pub(super) fn end(&mut self, receipt: &Result<Receipt, AbpError>) -> Vec<Bytes> {
        let framing = self.framing;
        match &mut self.kind {
            WriterKind::Packets(packets) => {
                let last = match receipt {
                    Ok(receipt) => packets.end(receipt),
                    Err(error) => packets
                        .lost(current_time(), error.code(), error.message())
                        .to_vec(),
                };
                last.iter().map(|last| packet(framing, last)).collect()
            }
            WriterKind::AgUi(agui) => all(framing, &agui.end(receipt)),
            WriterKind::Text(transcript) => vec![transcript.end().into()],
        }
    }

    /// A sign of life that means nothing.
    pub(super) fn keep_alive(&self) -> Bytes {
        match self.framing {
            Framing::Events => Bytes::from_static(b": keep-alive\n\n"),
            Framing::Collected | Framing::Text(_) => Bytes::new(),
        }
    }
}

fn packet(framing: Framing, packet: &StreamPacket) -> Bytes {
    // A packet has no part that could not be written.
    let json = serde_json::to_string(packet).unwrap_or_default();
    match framing {
        Framing::Events => format!(
            "event: stream.packet\nid: {}\ndata: {json}\n\n",
            packet.stream_id
        )
        .into(),
        Framing::Collected | Framing::Text(_) => json.into(),
    }
}

fn all(framing: Framing, events: &[Value]) -> Vec<Bytes> {
    let one = |event: &Value| match framing {
        Framing::Events => format!("data: {event}\n\n").into(),
        Framing::Collected | Framing::Text(_) => event.to_string().into(),
    };
    events.iter().map(one).collect()
}
