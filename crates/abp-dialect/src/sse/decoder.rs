//! Reading a stream.
//!
//! An event that lies whole in the bytes of one [`feed`](SseDecoder::feed) is handed out where it
//! lies. One that does not is gathered line by line; the bytes after it are again read in place.

use memchr::memchr2;

use super::element::{ElementScan, Enclosure};
use super::line::{Fields, Line, Span};
use super::{SseEvent, SseLimits};
use crate::DialectError;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// What a buffer may keep between events; thousands of streams are open at a time.
const KEPT_CAPACITY: usize = 16 << 10;

/// Reads the events of one stream.
#[derive(Debug)]
pub struct SseDecoder {
    limits: SseLimits,
    form: Form,
    /// The start of the event that is being read, where it came with earlier bytes.
    carried: Vec<u8>,
    /// How much of the stream is before that event.
    offset: u64,
    /// Where in the event the line starts that is being read.
    line_start: usize,
    /// The last line ended with a CR: a LF that follows belongs to it.
    after_cr: bool,
    fields: Fields,
    scan: ElementScan,
    /// The event was handed out, or holds nothing.
    spent: bool,
}

/// How the stream is written.
#[derive(Debug)]
enum Form {
    /// Nothing but white space was seen.
    Undecided,
    /// Lines.
    Events,
    /// Elements of an array.
    Json(Enclosure),
    /// Over a limit, or neither: nothing can be read any more.
    Broken(DialectError),
}

/// The events in the bytes that were fed.
///
/// Read until there are none left: bytes that were not looked at are lost.
#[derive(Debug)]
#[must_use]
pub struct SseEvents<'d, 'b> {
    decoder: &'d mut SseDecoder,
    /// From the start of the event that is being read; from where it was carried to, if it was.
    input: &'b [u8],
    /// How much of the input was looked at.
    at: usize,
    ending: bool,
}

enum Step {
    /// On to the next line or byte.
    Again,
    /// There is nothing more to read.
    Starved,
    Found(Found),
}

#[derive(Clone, Copy)]
enum Found {
    Message,
    Comment(Span),
}

impl SseDecoder {
    /// Starts to read a stream.
    #[must_use]
    pub fn new(limits: SseLimits) -> Self {
        Self {
            limits,
            form: Form::Undecided,
            carried: Vec::new(),
            offset: 0,
            line_start: 0,
            after_cr: false,
            fields: Fields::default(),
            scan: ElementScan::default(),
            spent: false,
        }
    }

    /// Reads on: the events that are complete with these bytes.
    pub fn feed<'b>(&mut self, bytes: &'b [u8]) -> SseEvents<'_, 'b> {
        self.read(bytes, false)
    }

    /// The stream has ended: the event that it broke off in, if any.
    pub fn finish(&mut self) -> SseEvents<'_, 'static> {
        self.read(&[], true)
    }

    fn read<'b>(&mut self, input: &'b [u8], ending: bool) -> SseEvents<'_, 'b> {
        SseEvents {
            decoder: self,
            input,
            at: 0,
            ending,
        }
    }
}

impl<'b> SseEvents<'_, 'b> {
    /// Returns the next event, `None` where more bytes are needed.
    ///
    /// # Errors
    /// Fails where the stream is over a limit or no stream at all. Nothing can be read from then on.
    pub fn next_event(&mut self) -> Result<Option<SseEvent<'_>>, DialectError> {
        let found = loop {
            self.release();
            match self.step()? {
                Step::Again => {}
                Step::Found(found) => break found,
                Step::Starved => {
                    self.carry();
                    return Ok(None);
                }
            }
        };
        Ok(Some(self.show(found)))
    }

    fn step(&mut self) -> Result<Step, DialectError> {
        match &self.decoder.form {
            Form::Undecided => Ok(self.decide()),
            Form::Events => self.line(),
            Form::Json(enclosure) => {
                let enclosure = *enclosure;
                self.element(enclosure)
            }
            Form::Broken(problem) => Err(problem.clone()),
        }
    }

    /// Looks at the first bytes: a byte order mark, white space, then what tells the form.
    fn decide(&mut self) -> Step {
        let Some(&byte) = self.rest().first() else {
            return Step::Starved;
        };
        let seen = self.event().len();
        if self.decoder.offset == 0 && BYTE_ORDER_MARK.get(seen) == Some(&byte) {
            self.absorb(1);
            self.decoder.spent = self.event() == BYTE_ORDER_MARK;
            return Step::Again;
        }
        match byte {
            // A part of a mark is part of a line.
            _ if seen > 0 => self.decoder.form = Form::Events,
            b' ' | b'\t' | b'\r' | b'\n' => self.skip(),
            b'[' => {
                self.decoder.form = Form::Json(Enclosure::Open);
                self.skip();
            }
            b'{' => self.decoder.form = Form::Json(Enclosure::None),
            _ => self.decoder.form = Form::Events,
        }
        Step::Again
    }

    fn line(&mut self) -> Result<Step, DialectError> {
        let rest = self.rest();
        if self.decoder.after_cr && !rest.is_empty() {
            self.decoder.after_cr = false;
            if rest.first() == Some(&b'\n') {
                self.absorb(1);
                self.decoder.line_start += 1;
                return Ok(Step::Again);
            }
        }
        let end = memchr2(b'\n', b'\r', rest);
        let length = end.unwrap_or(rest.len());
        self.check_line(length)?;
        self.absorb(length);
        let line = Span {
            start: self.decoder.line_start,
            end: self.event().len(),
        };
        if let Some(end) = end {
            self.decoder.after_cr = rest.get(end) == Some(&b'\r');
            self.absorb(1);
        } else if !self.ending {
            return Ok(Step::Starved);
        } else if line.is_empty() {
            return Ok(self.end_event());
        }
        self.decoder.line_start = self.event().len();
        Ok(self.take(Line::read(self.event(), line)))
    }

    fn take(&mut self, line: Line) -> Step {
        let decoder = &mut *self.decoder;
        let fields = &mut decoder.fields;
        match line {
            Line::Blank => return self.end_event(),
            Line::Comment(text) => {
                decoder.spent = fields.is_empty();
                return Step::Found(Found::Comment(text));
            }
            Line::Data(line) => {
                fields.add_data(gathered(&decoder.carried, self.input, self.at), line);
            }
            Line::Name(name) => fields.name = Some(name).filter(|name| !name.is_empty()),
            Line::Id(id) => fields.id = Some(id),
            Line::Retry(milliseconds) => fields.retry = Some(milliseconds),
            Line::Ignored => {}
        }
        decoder.spent = fields.is_empty();
        Step::Again
    }

    fn end_event(&mut self) -> Step {
        let nothing_left = self.event().is_empty();
        self.decoder.spent = true;
        if self.decoder.fields.has_data() {
            Step::Found(Found::Message)
        } else if nothing_left {
            Step::Starved
        } else {
            Step::Again
        }
    }

    fn element(&mut self, enclosure: Enclosure) -> Result<Step, DialectError> {
        let rest = self.rest();
        if self.event().is_empty() && !matches!(rest.first(), Some(b'{' | b'[')) {
            return self.between(enclosure);
        }
        if enclosure == Enclosure::Closed {
            return Err(self.broken("there is more after the end of the JSON array".to_owned()));
        }
        let end = self.decoder.scan.end(rest);
        let length = end.unwrap_or(rest.len());
        self.check(length)?;
        self.absorb(length);
        if end.is_none() && !self.ending {
            return Ok(Step::Starved);
        }
        let element = Span {
            start: 0,
            end: self.event().len(),
        };
        let decoder = &mut *self.decoder;
        let event = gathered(&decoder.carried, self.input, self.at);
        decoder.fields.add_data(event, element);
        decoder.spent = true;
        Ok(Step::Found(Found::Message))
    }

    fn between(&mut self, enclosure: Enclosure) -> Result<Step, DialectError> {
        let Some(&byte) = self.rest().first() else {
            return Ok(Step::Starved);
        };
        match (byte, enclosure) {
            (b' ' | b'\t' | b'\r' | b'\n', _) | (b',', Enclosure::Open) => {}
            (b']', Enclosure::Open) => self.decoder.form = Form::Json(Enclosure::Closed),
            _ => {
                let offset = self.decoder.offset;
                return Err(self.broken(format!("byte {offset} starts no JSON object")));
            }
        }
        self.skip();
        Ok(Step::Again)
    }

    /// Checks the limits as if the line came byte by byte: the one that is reached first counts.
    fn check_line(&mut self, more: usize) -> Result<(), DialectError> {
        let SseLimits {
            max_event,
            max_line,
        } = self.decoder.limits;
        let end = self.event().len() + more;
        // The line end before a blank line is not of the event, whenever it arrives.
        if end == self.decoder.line_start {
            return Ok(());
        }
        let line_limit = self.decoder.line_start.saturating_add(max_line);
        if end > line_limit && line_limit <= max_event {
            return Err(self.broken(format!("a line is longer than {max_line} bytes")));
        }
        self.check(more)
    }

    fn check(&mut self, more: usize) -> Result<(), DialectError> {
        let limit = self.decoder.limits.max_event;
        if self.event().len() + more > limit {
            return Err(self.broken(format!("an event is longer than {limit} bytes")));
        }
        Ok(())
    }

    fn broken(&mut self, problem: String) -> DialectError {
        let problem = DialectError::Stream(problem);
        self.decoder.carried = Vec::new();
        self.decoder.fields = Fields::default();
        self.decoder.form = Form::Broken(problem.clone());
        problem
    }

    /// The bytes that were not looked at.
    fn rest(&self) -> &'b [u8] {
        self.input.get(self.at..).unwrap_or_default()
    }

    /// The bytes of the event that is being read, as far as they were looked at.
    fn event(&self) -> &[u8] {
        gathered(&self.decoder.carried, self.input, self.at)
    }

    /// Counts the next bytes to the event.
    fn absorb(&mut self, count: usize) {
        if self.decoder.carried.is_empty() {
            self.at += count;
        } else {
            let (taken, rest) = self.input.split_at(count);
            self.decoder.carried.extend_from_slice(taken);
            self.input = rest;
        }
    }

    /// Leaves out a byte that is of no event.
    fn skip(&mut self) {
        self.absorb(1);
        self.decoder.spent = true;
    }

    /// Keeps what was read of an event for when there are more bytes.
    fn carry(&mut self) {
        let read = self.input.get(..self.at).unwrap_or_default();
        self.decoder.carried.extend_from_slice(read);
        self.input = self.rest();
        self.at = 0;
    }

    /// Forgets the event once it was handed out.
    fn release(&mut self) {
        if !std::mem::take(&mut self.decoder.spent) {
            return;
        }
        let length = self.event().len();
        self.input = self.rest();
        self.at = 0;
        let decoder = &mut *self.decoder;
        decoder.offset += length as u64;
        decoder.line_start = 0;
        decoder.fields = Fields::default();
        decoder.carried.clear();
        if decoder.carried.capacity() > KEPT_CAPACITY {
            decoder.carried = Vec::new();
        }
    }

    fn show(&self, found: Found) -> SseEvent<'_> {
        let text = match found {
            Found::Comment(text) => str::from_utf8(text.of(self.event())).map(SseEvent::Comment),
            Found::Message => self.message(),
        };
        text.unwrap_or_else(|_| {
            let valid = str::from_utf8(self.event()).map_or_else(|e| e.valid_up_to(), str::len);
            SseEvent::NotUtf8 {
                offset: self.decoder.offset + valid as u64,
            }
        })
    }

    fn message(&self) -> Result<SseEvent<'_>, std::str::Utf8Error> {
        let event = self.event();
        let fields = &self.decoder.fields;
        let text = |span: Option<Span>| span.map(|span| str::from_utf8(span.of(event))).transpose();
        Ok(SseEvent::Message {
            name: text(fields.name)?,
            data: str::from_utf8(fields.data(event))?,
            id: text(fields.id)?,
            retry: fields.retry,
            unterminated: self.ending,
        })
    }
}

/// The bytes of an event: where they were gathered, or else where they came.
fn gathered<'e>(carried: &'e [u8], input: &'e [u8], at: usize) -> &'e [u8] {
    if carried.is_empty() {
        input.get(..at).unwrap_or_default()
    } else {
        carried
    }
}
