//! A model's answer as events of a run.

use std::collections::BTreeMap;

use abp_backend_core::Emission;
use abp_core::AgentEventKind;
use abp_core::ir::{IrBlockStart, IrContentBlock, IrDelta, IrFinish, IrFinishReason, IrResponse};
use abp_dialect::sse::{SseDecoder, SseEvent, SseLimits};
use abp_dialect::{Codec, Dialect, DialectError, Exchange, Reader, StreamDecoder};
use abp_error::{AbpError, ErrorCode};
use abp_json::{Limits, Tape};
use abp_translate::{
    Accumulator, Undo, Undone, codec, map_response, normalized_usage, restore_response,
};
use bytes::Bytes;
use serde_json::Value;

use super::broken;
use super::failure;
use super::leftovers::Leftovers;
use super::sound::Sound;
use super::usage::{VendorUsage, told};

/// The parts of a request that the reader of its answer needs.
#[derive(Debug)]
pub(super) struct AnswerContext {
    /// The dialect of question and answer.
    pub(super) dialect: Dialect,
    /// What the request's translation left to undo.
    pub(super) exchange: Exchange,
    /// The request's body.
    pub(super) request: Bytes,
}

impl AnswerContext {
    /// What the answer holds besides its content; what it only repeats of the request is none of that.
    fn leftovers(&self) -> Result<Leftovers, AbpError> {
        let codec = known(self.dialect)?;
        // A request that is no JSON is the vendor's to judge.
        let tape = Tape::parse(&self.request, &Limits::default()).ok();
        let echo = tape.map(|tape| codec.echo(tape.root())).unwrap_or_default();
        Ok(Leftovers::without(echo.into_iter().map(|(name, _)| name)))
    }

    fn sound(&self) -> Sound {
        let tape = Tape::parse(&self.request, &Limits::default()).ok();
        tape.map(|tape| Sound::asked_by(tape.root()))
            .unwrap_or_default()
    }
}

/// An answer that was read to its end.
#[derive(Debug)]
pub(super) struct ReadAnswer {
    /// Its events, without the pieces that were told before.
    pub(super) events: Vec<Emission>,
    /// What was said in words.
    pub(super) text: Option<String>,
    /// The model that the vendor names.
    pub(super) model: Option<String>,
}

/// Reads a stream: its pieces as they come, and at the end what they were together.
pub(super) struct AnswerReader {
    sse: SseDecoder,
    decoder: Box<dyn StreamDecoder>,
    undo: Undo,
    answer: Accumulator,
    /// What the blocks are that pieces may still be appended to.
    blocks: BTreeMap<u32, Spoken>,
    model: Option<String>,
    leftovers: Leftovers,
    sound: Sound,
}

/// How a piece of a block is told.
#[derive(Debug, Clone, Copy)]
enum Spoken {
    Aloud,
    Thought,
}

impl AnswerReader {
    /// Reads the stream that answers a request.
    pub(super) fn new(asked: &AnswerContext) -> Result<Self, AbpError> {
        Ok(Self {
            sse: SseDecoder::new(SseLimits::default()),
            decoder: known(asked.dialect)?.stream_decoder(),
            undo: Undo::new(&asked.exchange),
            answer: Accumulator::default(),
            blocks: BTreeMap::new(),
            model: None,
            leftovers: asked.leftovers()?,
            sound: asked.sound(),
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
        let read = EventReader {
            decoder: &mut *self.decoder,
            usage,
            leftovers: &mut self.leftovers,
            sound: &mut self.sound,
        };
        let read = read.read(self.sse.feed(bytes), &mut deltas);
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
        let read = EventReader {
            decoder: &mut *self.decoder,
            usage,
            leftovers: &mut self.leftovers,
            sound: &mut self.sound,
        };
        let read = read.read(self.sse.finish(), &mut deltas);
        self.decoder.end(&mut deltas);
        self.take(deltas, events)?;
        events.extend(read?);
        Ok(())
    }

    /// The model that the vendor names, as soon as it does.
    pub(super) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// What the pieces were together: one message, the calls, and what the reader should know.
    ///
    /// # Errors
    /// Fails where the answer broke off.
    pub(super) fn conclude(self) -> Result<ReadAnswer, AbpError> {
        let response = self.answer.finish();
        let response = response.map_err(|error| failure::of_error(&error))?;
        let thought =
            |event: &AgentEventKind| matches!(event, AgentEventKind::ThinkingDelta { .. });
        let mut events = whole(&response)?;
        events.retain(|event| !thought(event));
        events.extend(self.sound.into_event());
        let mut leftovers = self.leftovers;
        leftovers.add(beside(&response));
        Ok(ReadAnswer::new(events, self.model, leftovers))
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
            if let IrDelta::Start {
                model: Some(model), ..
            } = &delta
            {
                self.model = Some(model.value.clone());
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

/// Reads events of a stream.
struct EventReader<'r> {
    decoder: &'r mut dyn StreamDecoder,
    usage: &'r mut VendorUsage,
    leftovers: &'r mut Leftovers,
    sound: &'r mut Sound,
}

impl EventReader<'_> {
    /// Reads what is in the bytes; returns the warnings about what could not be read.
    fn read(
        self,
        mut fed: abp_dialect::sse::SseEvents<'_, '_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<Vec<AgentEventKind>, AbpError> {
        let unreadable =
            |error: DialectError| broken(format!("the stream cannot be read: {error}"));
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
                    let problem = format!("it is no UTF-8 (it ends at byte {offset})");
                    warnings.push(skipped(&problem));
                    continue;
                }
            };
            if data.trim() == "[DONE]" {
                self.decoder.terminator(deltas);
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
            self.usage.observe(tape.root());
            let reader = Reader::new(&tape);
            let read = self.decoder.event(name, reader.root(), deltas);
            read.map_err(unreadable)?;
            let kept = [told(tape.root()), self.sound.observe(tape.root())];
            self.leftovers
                .observe(&reader, kept.into_iter().flatten(), name);
        }
        Ok(warnings)
    }
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
    asked: &AnswerContext,
    body: &[u8],
    usage: &mut VendorUsage,
) -> Result<ReadAnswer, AbpError> {
    let unreadable = |error: DialectError| broken(format!("the answer cannot be read: {error}"));
    let tape = Tape::parse(body, &Limits::default()).map_err(|error| unreadable(error.into()))?;
    let root = tape.root();
    usage.observe(root);
    if root.get("error").is_some_and(|error| !error.is_null()) {
        let told = failure::read(asked.dialect, body, None);
        return Err(told.map_or_else(
            || broken("the vendor answers with an error that cannot be read"),
            |told| failure::of_error(&told),
        ));
    }
    let reader = Reader::new(&tape);
    let response = known(asked.dialect)?.read_response(reader.root());
    let mut response = response.map_err(unreadable)?;
    let model = response.model.as_ref().map(|model| model.value.clone());
    restore_response(&mut response, &asked.exchange);
    let (mut leftovers, mut sound) = (asked.leftovers()?, asked.sound());
    let kept = [told(root), sound.observe(root)];
    leftovers.observe(&reader, kept.into_iter().flatten(), None);
    leftovers.add(beside(&response));
    let mut events = whole(&response)?;
    events.extend(sound.into_event());
    Ok(ReadAnswer::new(events, model, leftovers))
}

impl ReadAnswer {
    /// Attaches the vendor's fields to what was said, or to the last event where nothing was.
    fn new(
        mut kinds: Vec<AgentEventKind>,
        model: Option<String>,
        mut leftovers: Leftovers,
    ) -> Self {
        let said = kinds.iter().find_map(|kind| match kind {
            AgentEventKind::AssistantMessage { text } => Some(text.clone()),
            _ => None,
        });
        let is_message =
            |kind: &AgentEventKind| matches!(kind, AgentEventKind::AssistantMessage { .. });
        kinds.extend(leftovers.warnings());
        let place = kinds.iter().position(is_message);
        let place = place.unwrap_or_else(|| kinds.len().saturating_sub(1));
        let events = kinds.into_iter().map(|kind| Emission { kind, ext: None });
        let mut events: Vec<_> = events.collect();
        if let Some(fields) = leftovers.take_fields() {
            if events.is_empty() {
                let message = "the vendor's answer says nothing but fields of its own".to_owned();
                let kind = AgentEventKind::Warning { message };
                events.push(Emission { kind, ext: None });
            }
            if let Some(event) = events.get_mut(place) {
                event.ext = Some(BTreeMap::from([("vendor".to_owned(), fields)]));
            }
        }
        Self {
            events,
            text: said,
            model,
        }
    }
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

/// What an answer has besides its content: its id, what is said about its end where that is no reason
/// to warn, and the proofs by which the vendor knows its own reasoning again.
fn beside(response: &IrResponse) -> Vec<(&'static str, Value)> {
    let choice = response.choices.first();
    let finish = choice.and_then(|choice| choice.finish.as_ref());
    let is_usual = |finish: &&IrFinish| {
        use IrFinishReason::{Stop, StopSequence, ToolUse};
        matches!(finish.reason, Stop | StopSequence | ToolUse)
    };
    let details = finish.filter(is_usual).and_then(|end| end.details.as_ref());
    let details = details.and_then(|details| serde_json::from_str(details.text()).ok());
    let blocks = choice.map(|choice| choice.message.content.iter());
    let proofs = blocks.into_iter().flatten().filter_map(|block| {
        let (IrContentBlock::Thinking { signature, .. }
        | IrContentBlock::ToolUse { signature, .. }) = &block.body
        else {
            return None;
        };
        Some(Value::String(signature.as_ref()?.value.clone()))
    });
    let proofs: Vec<_> = proofs.collect();
    let id = response
        .id
        .as_ref()
        .map(|id| Value::String(id.value.clone()));
    let proofs = (!proofs.is_empty()).then_some(Value::Array(proofs));
    let stop = finish.and_then(|end| end.stop_sequence.as_ref());
    let stop = stop.map(|stop| Value::String(stop.value.clone()));
    let found = [
        ("id", id),
        ("finish_details", details),
        ("stop_sequence", stop),
        ("proofs", proofs),
    ];
    let found = found.into_iter();
    found
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

pub(super) fn known(dialect: Dialect) -> Result<&'static dyn Codec, AbpError> {
    codec(dialect).ok_or_else(|| {
        let message = format!("{dialect} is not read yet");
        AbpError::new(ErrorCode::DialectUnknown, message)
    })
}
