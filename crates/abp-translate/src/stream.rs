//! Streams: one event of the source becomes no, one or several events of the target.

use std::borrow::Cow;

use abp_core::ir::{IrDelta, IrError, IrErrorKind, IrFinishReason, IrUsage};
use abp_dialect::{
    Dialect, DialectError, EventSink, Exchange, MAX_OPEN_BLOCKS, Reader, StreamDecoder,
    StreamEncoder, TargetProfile, WrittenEvent,
};
use abp_json::{Limits, Tape};

use crate::accumulate::merge_usage;
use crate::check::CheckedText;
use crate::ledger::StreamLedger;
use crate::mint::Minting;
use crate::translate::expected;
use crate::undo::{Undo, Undone};
use crate::{Accumulator, Ledger, Options, TextCheck, TranslateError, codec};

/// An event of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEvent {
    /// Its name, where the dialect has names.
    pub name: Option<Cow<'static, str>>,
    /// Its data: JSON, or a terminator.
    pub data: String,
}

/// Translates a stream, event by event. State is constant per open block.
pub struct StreamTranslator {
    from: Dialect,
    to: Dialect,
    decoder: Box<dyn StreamDecoder>,
    encoder: Box<dyn StreamEncoder>,
    profile: TargetProfile,
    limits: Limits,
    minting: Minting,
    undo: Undo,
    ledger: StreamLedger,
    /// Source and target are the same, and nothing has to be undone: events pass as they are.
    native: bool,
    over: bool,
    /// How many blocks are open.
    open: usize,
    summary: StreamSummary,
    /// Puts the answer together besides, where somebody wants to keep it.
    gathered: Option<Accumulator>,
    /// Judges the answer's text, where somebody wants that.
    checked: Option<CheckedText>,
}

/// What is known of a stream besides its events.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamSummary {
    /// The answer's id.
    pub id: Option<String>,
    /// How many events there were.
    pub events: u64,
    /// The token counts so far.
    pub usage: Option<IrUsage>,
    /// The source told of its end, and it was no error.
    pub complete: bool,
    /// The error it ended in.
    pub error: Option<IrError>,
}

impl StreamSummary {
    /// Takes a piece of the source into account.
    pub(crate) fn see(&mut self, delta: &IrDelta) {
        match delta {
            IrDelta::Start { id, .. } => self.id = id.as_ref().map(|id| id.value.clone()),
            IrDelta::Usage(usage) => merge_usage(self.usage.get_or_insert_default(), usage),
            IrDelta::End => self.complete = true,
            IrDelta::Error(error) => self.error = Some(error.clone()),
            _ => {}
        }
    }
}

impl std::fmt::Debug for StreamTranslator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamTranslator")
            .field("from", &self.from)
            .field("to", &self.to)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

impl StreamTranslator {
    /// Starts a stream; `exchange` is what its request's translation left to undo.
    ///
    /// # Errors
    /// Fails where the hub does not know a dialect.
    pub fn new(
        from: Dialect,
        to: Dialect,
        exchange: &Exchange,
        options: &Options,
    ) -> Result<Self, TranslateError> {
        let reading = codec(from).ok_or(TranslateError::NoCodec(from))?;
        let writing = codec(to).ok_or(TranslateError::NoCodec(to))?;
        Ok(Self {
            from,
            to,
            decoder: reading.stream_decoder(),
            encoder: writing.stream_encoder(exchange),
            profile: options.profile.clone(),
            limits: options.limits,
            minting: Minting::new(
                &writing.rules(&options.profile),
                &expected(exchange, from, to),
            ),
            undo: Undo::new(exchange),
            ledger: StreamLedger::new(to),
            native: from == to && *exchange == Exchange::default(),
            over: false,
            open: 0,
            summary: StreamSummary::default(),
            gathered: None,
            checked: None,
        })
    }

    /// Also puts the answer together, as the source gave it, with an id for every call.
    pub fn gather(&mut self) {
        self.gathered = Some(Accumulator::default());
    }

    /// Judges the text of the answer before its end is told: where `check` finds something wrong, the
    /// stream ends in that error.
    pub fn check_text(&mut self, check: TextCheck) {
        self.checked = Some(CheckedText::new(check));
    }

    /// The answer put together so far, where that was asked for.
    pub fn take_gathered(&mut self) -> Option<Accumulator> {
        self.gathered.take()
    }

    /// What is known of the stream so far.
    #[must_use]
    pub fn summary(&self) -> &StreamSummary {
        &self.summary
    }

    /// Translates one event: its name, where it has one, and its data.
    ///
    /// Data that is no JSON is left out, and the ledger says so. What is no event of the dialect ends
    /// the stream: the caller gets the target's error, and [`StreamTranslator::is_over`] tells so.
    pub fn event(&mut self, name: Option<&str>, data: &str) -> Vec<StreamEvent> {
        if self.over {
            return Vec::new();
        }
        self.summary.events += 1;
        if self.native {
            self.ledger.enter_native();
            return vec![StreamEvent {
                name: name.map(|name| Cow::Owned(name.to_owned())),
                data: data.to_owned(),
            }];
        }
        if data.trim() == "[DONE]" {
            let mut deltas = Vec::new();
            self.decoder.terminator(&mut deltas);
            return self.write(None, deltas);
        }
        let limits = self.limits;
        let Ok(tape) = Tape::parse_str(data, &limits) else {
            self.ledger.enter_malformed("the event's data is not JSON");
            return Vec::new();
        };
        let reader = Reader::lenient(&tape);
        let mut deltas = Vec::new();
        let read = self.decoder.event(name, reader.root(), &mut deltas);
        match read.and_then(|()| self.count_open(&deltas)) {
            Ok(()) => self.write(Some(&reader), deltas),
            Err(error) => {
                self.ledger.enter_malformed(error.to_string());
                let mut events = self.write(None, deltas);
                events.extend(self.fail(&error));
                events
            }
        }
    }

    /// Everything that is open has to be remembered, by us and by the caller.
    fn count_open(&mut self, deltas: &[IrDelta]) -> Result<(), DialectError> {
        for delta in deltas {
            match delta {
                IrDelta::BlockStart { .. } => self.open += 1,
                IrDelta::BlockStop { .. } => self.open = self.open.saturating_sub(1),
                _ => {}
            }
            if self.open > MAX_OPEN_BLOCKS {
                return Err(DialectError::too_many_open("blocks"));
            }
        }
        Ok(())
    }

    /// The source's bytes have ended. A source that did not come to its own end ends in an error, so
    /// that nobody takes what there is of it for an answer.
    pub fn end(&mut self) -> Vec<StreamEvent> {
        let deltas = self.last_deltas();
        if deltas.iter().any(breaks_off) {
            self.ledger.enter_broken_off();
            return self.interrupt(server_error("the upstream's stream broke off".to_owned()));
        }
        self.end_with(deltas)
    }

    fn last_deltas(&mut self) -> Vec<IrDelta> {
        let mut deltas = Vec::new();
        if !self.native && !self.over {
            self.decoder.end(&mut deltas);
        }
        deltas
    }

    fn end_with(&mut self, deltas: Vec<IrDelta>) -> Vec<StreamEvent> {
        if self.over {
            return Vec::new();
        }
        let events = self.write(None, deltas);
        self.over = true;
        events
    }

    /// The source cannot be read on: ends the stream with an error in the target's form.
    pub fn fail(&mut self, problem: &DialectError) -> Vec<StreamEvent> {
        if self.over {
            return Vec::new();
        }
        let message = format!("the upstream's stream cannot be read: {problem}");
        self.interrupt(server_error(message))
    }

    /// The answer does not go on: ends the stream with this error in the target's form.
    pub fn interrupt(&mut self, error: IrError) -> Vec<StreamEvent> {
        if self.over {
            return Vec::new();
        }
        let events = self.write(None, vec![IrDelta::Error(error)]);
        self.over = true;
        events
    }

    /// Whether nothing will follow.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// What became of every part of the events so far, by the pattern of its place.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.ledger.ledger()
    }

    fn write(&mut self, reader: Option<&Reader<'_>>, deltas: Vec<IrDelta>) -> Vec<StreamEvent> {
        let source = reader.map(|reader| (self.from, reader));
        let mut sink = EventSink::new(source, self.to, &self.profile);
        let mut undone = Undone::default();
        for mut delta in self.minting.with_start(deltas, &mut sink) {
            self.minting.delta(&mut delta);
            self.summary.see(&delta);
            if let Some(gathered) = &mut self.gathered {
                gathered.push(&delta);
            }
            for delta in self.undo.delta(delta, &mut undone) {
                let delta = match &mut self.checked {
                    Some(checked) => checked.piece(delta),
                    None => Some(delta),
                };
                let Some(delta) = delta else { continue };
                if let IrDelta::Error(error) = &delta {
                    self.over = true;
                    self.summary.error = Some(error.clone());
                }
                self.encoder.delta(&delta, &mut sink);
            }
        }
        let (events, remarks, mut held) = sink.finish();
        let mut notes = undone.notes(reader);
        notes.extend(remarks);
        held.extend(undone.held());
        self.ledger.enter(reader, &events, &notes, &held);
        events
            .into_iter()
            .map(|WrittenEvent { name, data, .. }| StreamEvent {
                name: name.map(Cow::Borrowed),
                data,
            })
            .collect()
    }
}

/// Whether a decoder closes what its source left open.
fn breaks_off(delta: &IrDelta) -> bool {
    matches!(delta, IrDelta::Finish { finish, .. }
        if finish.reason == IrFinishReason::Incomplete && finish.native.is_none())
}

fn server_error(message: String) -> IrError {
    IrError {
        kind: IrErrorKind::Server,
        status: None,
        message: message.into(),
        native: None,
        code: None,
        param: None,
        request_id: None,
        vendor: Vec::new(),
    }
}
