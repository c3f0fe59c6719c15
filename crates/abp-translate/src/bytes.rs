//! Streams as bytes: what comes from one vendor's socket, as it goes to another vendor's client.

use abp_core::ir::IrError;
use abp_dialect::sse::{SseDecoder, SseEncoder, SseEvent, SseForm, SseLimits};
use abp_dialect::{Dialect, DialectError, Exchange, WireFamily};
use abp_json::{Limits, Tape};

use crate::{Ledger, Options, StreamEvent, StreamTranslator, TranslateError};

/// Translates the bytes of a stream, however they are split.
#[derive(Debug)]
pub struct ByteTranslator {
    decoder: SseDecoder,
    translator: StreamTranslator,
    encoder: SseEncoder,
    /// Whether clients of the target pass over comments.
    has_comments: bool,
}

impl ByteTranslator {
    /// Starts a stream; `exchange` is what its request's translation left to undo, `form` the form in
    /// which the caller wants it.
    ///
    /// # Errors
    /// Fails where the hub does not know a dialect.
    pub fn new(
        from: Dialect,
        to: Dialect,
        exchange: &Exchange,
        form: SseForm,
        options: &Options,
    ) -> Result<Self, TranslateError> {
        Ok(Self {
            decoder: SseDecoder::new(SseLimits::default()),
            translator: StreamTranslator::new(from, to, exchange, options)?,
            encoder: SseEncoder::new(form),
            // Google's client for Python takes a comment for an answer.
            has_comments: to.family() != WireFamily::GenerateContent,
        })
    }

    /// Takes bytes of the source, and appends what they mean to the target's.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let (translator, encoder) = (&mut self.translator, &mut self.encoder);
        each_event(&mut self.decoder, bytes, translator, |event| {
            encoder.event(event.name.as_deref(), &event.data, out);
        });
    }

    /// The source has ended: appends the end of the target. A source that did not come to its own end
    /// ends in an error.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let (translator, encoder) = (&mut self.translator, &mut self.encoder);
        let mut sink = |event: StreamEvent| {
            encoder.event(event.name.as_deref(), &event.data, out);
        };
        unfinished_events(&mut self.decoder, translator, &mut sink);
        translator.end().into_iter().for_each(sink);
        self.encoder.finish(out);
    }

    /// The source does not go on: appends the error in the target's form.
    pub fn interrupt(&mut self, error: IrError, out: &mut Vec<u8>) {
        for event in self.translator.interrupt(error) {
            self.encoder.event(event.name.as_deref(), &event.data, out);
        }
        self.encoder.finish(out);
    }

    /// Appends a sign of life that says nothing.
    pub fn keep_alive(&mut self, out: &mut Vec<u8>) {
        if self.has_comments {
            self.encoder.comment("keep-alive", out);
        } else {
            self.encoder.blank(out);
        }
    }

    /// Appends a comment, where clients of the target pass over comments.
    pub fn comment(&mut self, text: &str, out: &mut Vec<u8>) {
        if self.has_comments {
            self.encoder.comment(text, out);
        }
    }

    /// The translator of the events.
    #[must_use]
    pub fn events(&self) -> &StreamTranslator {
        &self.translator
    }

    /// The translator of the events, to be told more.
    pub fn events_mut(&mut self) -> &mut StreamTranslator {
        &mut self.translator
    }

    /// What became of every part of the events so far.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.translator.ledger()
    }
}

/// Translates a whole stream into the events of the target, with the ledger.
///
/// # Errors
/// Fails where the hub does not know a dialect. A source that breaks off or cannot be read ends in
/// an event that says so.
pub fn translate_stream(
    source: &[u8],
    from: Dialect,
    to: Dialect,
    exchange: &Exchange,
    options: &Options,
) -> Result<(Vec<StreamEvent>, Ledger), TranslateError> {
    let mut decoder = SseDecoder::new(SseLimits::default());
    let mut translator = StreamTranslator::new(from, to, exchange, options)?;
    let mut events = Vec::new();
    each_event(&mut decoder, source, &mut translator, |event| {
        events.push(event);
    });
    unfinished_events(&mut decoder, &mut translator, |event| events.push(event));
    events.extend(translator.end());
    Ok((events, translator.ledger()))
}

fn each_event(
    decoder: &mut SseDecoder,
    bytes: &[u8],
    translator: &mut StreamTranslator,
    mut sink: impl FnMut(StreamEvent),
) {
    let mut fed = decoder.feed(bytes);
    loop {
        let events = match fed.next_event() {
            Ok(Some(event)) => one(&event, translator),
            Ok(None) => return,
            Err(error) => {
                translator.fail(&error).into_iter().for_each(sink);
                return;
            }
        };
        events.into_iter().for_each(&mut sink);
    }
}

/// The event that the bytes broke off in, where it is whole all the same.
fn unfinished_events(
    decoder: &mut SseDecoder,
    translator: &mut StreamTranslator,
    mut sink: impl FnMut(StreamEvent),
) {
    let mut rest = decoder.finish();
    while let Ok(Some(event)) = rest.next_event() {
        one(&event, translator).into_iter().for_each(&mut sink);
    }
}

fn one(event: &SseEvent<'_>, translator: &mut StreamTranslator) -> Vec<StreamEvent> {
    match event {
        // The connection was cut in the middle of an event: the answer broke off before it.
        SseEvent::Message {
            data,
            unterminated: true,
            ..
        } if data.trim() != "[DONE]" && Tape::parse_str(data, &Limits::default()).is_err() => {
            Vec::new()
        }
        SseEvent::Message { name, data, .. } => translator.event(*name, data),
        SseEvent::Comment(_) => Vec::new(),
        SseEvent::NotUtf8 { offset } => {
            let problem = format!("an event that ends at byte {offset} is no UTF-8");
            translator.fail(&DialectError::Stream(problem))
        }
    }
}
