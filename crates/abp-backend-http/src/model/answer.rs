//! A model's answer as events of a run.

use std::collections::BTreeMap;

use abp_core::AgentEventKind;
use abp_core::ir::{IrBlockStart, IrDelta, IrFinishReason, IrResponse};
use abp_dialect::sse::{SseDecoder, SseEvent, SseLimits};
use abp_dialect::{Codec, Dialect, DialectError, Exchange, Reader, StreamDecoder};
use abp_error::{AbpError, ErrorCode};
use abp_json::{Limits, Tape};
use abp_translate::{
    Accumulator, Undo, Undone, codec, map_response, normalized_usage, restore_response,
};

use super::broken;
use super::failure;
use super::usage::VendorUsage;

/// Reads a stream: its pieces as they come, and at the end what they were together.
pub(super) struct AnswerReader {
    sse: SseDecoder,
    decoder: Box<dyn StreamDecoder>,
    undo: Undo,
    answer: Accumulator,
    /// What the blocks are that pieces may still be appended to.
    blocks: BTreeMap<u32, Spoken>,
}

/// How a piece of a block is told.
#[derive(Debug, Clone, Copy)]
enum Spoken {
    Aloud,
    Thought,
}

impl AnswerReader {
    /// Reads a stream; `exchange` is what the request's translation left to undo.
    pub(super) fn new(dialect: Dialect, exchange: &Exchange) -> Result<Self, AbpError> {
        Ok(Self {
            sse: SseDecoder::new(SseLimits::default()),
            decoder: known(dialect)?.stream_decoder(),
            undo: Undo::new(exchange),
            answer: Accumulator::default(),
            blocks: BTreeMap::new(),
        })
    }

    /// Whether the answer came to its end, its own or that of its bytes.
    pub(super) fn is_over(&self) -> bool {
        self.answer.ended()
    }

    /// Takes bytes, however they are split.
    ///
    /// # Errors
    /// Fails where the stream tells of an error or cannot be read on. What was read before it is in
    /// `events`.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        usage: &mut VendorUsage,
        events: &mut Vec<AgentEventKind>,
    ) -> Result<(), AbpError> {
        let mut deltas = Vec::new();
        let read = read_events(self.sse.feed(bytes), &mut *self.decoder, usage, &mut deltas);
        self.take(deltas, events)?;
        events.extend(read?);
        Ok(())
    }

    /// The bytes have ended.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(super) fn end(
        &mut self,
        usage: &mut VendorUsage,
        events: &mut Vec<AgentEventKind>,
    ) -> Result<(), AbpError> {
        let mut deltas = Vec::new();
        let read = read_events(self.sse.finish(), &mut *self.decoder, usage, &mut deltas);
        self.decoder.end(&mut deltas);
        self.take(deltas, events)?;
        events.extend(read?);
        Ok(())
    }

    /// What the pieces were together: one message, the calls, and what the reader should know.
    ///
    /// # Errors
    /// Fails where the answer broke off.
    pub(super) fn conclude(self) -> Result<Vec<AgentEventKind>, AbpError> {
        let response = self.answer.finish();
        let response = response.map_err(|error| failure::of_error(&error))?;
        let thought =
            |event: &AgentEventKind| matches!(event, AgentEventKind::ThinkingDelta { .. });
        let mut events = whole(&response)?;
        events.retain(|event| !thought(event));
        Ok(events)
    }

    /// The usage that was told before the answer broke off.
    pub(super) fn usage_so_far(self) -> Option<AgentEventKind> {
        let usage = normalized_usage(&self.answer.finish().ok()?.usage?);
        Some(AgentEventKind::UsageUpdated { usage })
    }

    fn take(
        &mut self,
        deltas: Vec<IrDelta>,
        events: &mut Vec<AgentEventKind>,
    ) -> Result<(), AbpError> {
        for delta in deltas {
            if let IrDelta::Error(error) = &delta {
                return Err(failure::of_error(error));
            }
            // A run's receipt lists what was lost of the request; of the answer, the trace shows all.
            for delta in self.undo.delta(delta, &mut Undone::default()) {
                events.extend(self.piece(&delta));
                self.answer.push(&delta);
            }
        }
        Ok(())
    }

    /// A piece of what is said. Only the first choice counts: a run asks for one.
    fn piece(&mut self, delta: &IrDelta) -> Option<AgentEventKind> {
        match delta {
            IrDelta::BlockStart {
                choice: 0,
                block,
                start,
            } => {
                let spoken = match start {
                    IrBlockStart::Text | IrBlockStart::Refusal => Spoken::Aloud,
                    IrBlockStart::Thinking { .. } => Spoken::Thought,
                    _ => return None,
                };
                self.blocks.insert(*block, spoken);
                None
            }
            IrDelta::BlockStop { choice: 0, block } => {
                self.blocks.remove(block);
                None
            }
            IrDelta::Append {
                choice: 0,
                block,
                text,
            } if !text.is_empty() => {
                let text = text.value.clone();
                Some(match self.blocks.get(block)? {
                    Spoken::Aloud => AgentEventKind::AssistantDelta { text },
                    Spoken::Thought => AgentEventKind::ThinkingDelta { text },
                })
            }
            _ => None,
        }
    }
}

/// Reads what is in the bytes; the warnings about what could not be read.
fn read_events(
    mut fed: abp_dialect::sse::SseEvents<'_, '_>,
    decoder: &mut dyn StreamDecoder,
    usage: &mut VendorUsage,
    deltas: &mut Vec<IrDelta>,
) -> Result<Vec<AgentEventKind>, AbpError> {
    let unreadable = |error: DialectError| broken(format!("the stream cannot be read: {error}"));
    let mut warnings = Vec::new();
    while let Some(event) = fed.next_event().map_err(unreadable)? {
        let (name, data, cut) = match event {
            SseEvent::Message {
                name,
                data,
                unterminated,
                ..
            } => (name, data, unterminated),
            SseEvent::Comment(_) => continue,
            SseEvent::NotUtf8 { offset } => {
                warnings.push(skipped(&format!(
                    "it is no UTF-8 (it ends at byte {offset})"
                )));
                continue;
            }
        };
        if data.trim() == "[DONE]" {
            decoder.terminator(deltas);
            continue;
        }
        let tape = match Tape::parse_str(data, &Limits::default()) {
            Ok(tape) => tape,
            // The connection was cut in the middle of it: the answer broke off before.
            Err(_) if cut => continue,
            Err(error) => {
                warnings.push(skipped(&error.to_string()));
                continue;
            }
        };
        usage.observe(tape.root());
        let reader = Reader::new(&tape);
        let read = decoder.event(name, reader.root(), deltas);
        read.map_err(unreadable)?;
    }
    Ok(warnings)
}

fn skipped(problem: &str) -> AgentEventKind {
    AgentEventKind::Warning {
        message: format!("an event of the vendor's stream was skipped: {problem}"),
    }
}

/// Reads an answer that came in one piece.
///
/// # Errors
/// Fails where it is none, or tells of an error.
pub(super) fn read_whole(
    dialect: Dialect,
    exchange: &Exchange,
    body: &[u8],
    usage: &mut VendorUsage,
) -> Result<Vec<AgentEventKind>, AbpError> {
    let unreadable = |error: DialectError| broken(format!("the answer cannot be read: {error}"));
    let tape = Tape::parse(body, &Limits::default()).map_err(|error| unreadable(error.into()))?;
    let root = tape.root();
    usage.observe(root);
    if root.get("error").is_some_and(|error| !error.is_null()) {
        let told = failure::read(dialect, body, None);
        return Err(told.map_or_else(
            || broken("the vendor answers with an error that cannot be read"),
            |told| failure::of_error(&told),
        ));
    }
    let reader = Reader::new(&tape);
    let response = known(dialect)?.read_response(reader.root());
    let mut response = response.map_err(unreadable)?;
    restore_response(&mut response, exchange);
    whole(&response)
}

/// The events of a whole answer. Its texts are one message, however many blocks they came in: a
/// message is a turn.
fn whole(response: &IrResponse) -> Result<Vec<AgentEventKind>, AbpError> {
    let Some(choice) = response.choices.first() else {
        return Err(broken("the vendor's answer holds no answer"));
    };
    let finish = choice.finish.as_ref().map(|finish| finish.reason);
    if finish == Some(IrFinishReason::Incomplete) {
        return Err(broken("the answer broke off before its end"));
    }
    let mut said: Option<String> = None;
    let (mut thoughts, mut others) = (Vec::new(), Vec::new());
    for event in map_response(response) {
        match event {
            AgentEventKind::AssistantMessage { text } => {
                said.get_or_insert_default().push_str(&text);
            }
            AgentEventKind::ThinkingDelta { .. } => thoughts.push(event),
            other => others.push(other),
        }
    }
    let message = said.map(|text| AgentEventKind::AssistantMessage { text });
    Ok(thoughts.into_iter().chain(message).chain(others).collect())
}

fn known(dialect: Dialect) -> Result<&'static dyn Codec, AbpError> {
    codec(dialect).ok_or_else(|| {
        let message = format!("{dialect} is not read yet");
        AbpError::new(ErrorCode::DialectUnknown, message)
    })
}
