//! Lines to messages and back.

use std::io::{BufRead, Read as _};

use abp_json::{Limits, Tape, View};

use crate::{Envelope, ProtocolError};

/// The longest line accepted when nothing else is said.
const DEFAULT_MAX_LINE: usize = 16 * 1024 * 1024;

/// Encodes and decodes messages, one JSON object per line.
#[derive(Debug, Clone, Copy)]
pub struct JsonlCodec;

impl JsonlCodec {
    /// A message as a line, with its newline.
    ///
    /// # Errors
    /// Fails where the message cannot be serialised.
    pub fn encode(envelope: &Envelope) -> Result<String, ProtocolError> {
        let mut line = serde_json::to_string(envelope)
            .map_err(|error| ProtocolError::InvalidJson(error.to_string()))?;
        line.push('\n');
        Ok(line)
    }

    /// A line as a message. White space around it does not matter.
    ///
    /// # Errors
    /// Says whether the line is no JSON, a known message with wrong content, or an unknown one.
    pub fn decode(line: &str) -> Result<Envelope, ProtocolError> {
        let limits = Limits::default();
        let tape = Tape::parse(line.trim().as_bytes(), &limits)
            .map_err(|error| ProtocolError::InvalidJson(error.to_string()))?;
        if let Some(key) = tape
            .duplicates()
            .first()
            .and_then(|duplicate| tape.view(duplicate.key))
        {
            return Err(ProtocolError::InvalidJson(format!(
                "duplicate key at {}",
                key.pointer()
            )));
        }
        let kind = match tape.root().get("t").map(View::as_str) {
            Some(Some(kind)) => kind.into_owned(),
            Some(None) => {
                return Err(ProtocolError::InvalidJson(
                    "member \"t\" is not a string".to_owned(),
                ));
            }
            None => {
                return Err(ProtocolError::InvalidJson(
                    "member \"t\" is missing".to_owned(),
                ));
            }
        };
        if !Envelope::KINDS.contains(&kind.as_str()) {
            return Err(ProtocolError::UnknownEnvelope { kind });
        }
        serde_json::from_str(tape.source()).map_err(|error| ProtocolError::InvalidEnvelope {
            kind,
            problem: error.to_string(),
        })
    }

    /// The messages of a reader, with the default limit on line length.
    pub fn decode_stream<R: BufRead>(reader: R) -> EnvelopeStream<R> {
        Self::decode_stream_with_limit(reader, DEFAULT_MAX_LINE)
    }

    /// The messages of a reader. The limit is checked while a line is read, so that a line without
    /// an end cannot fill the memory.
    pub fn decode_stream_with_limit<R: BufRead>(reader: R, max_line: usize) -> EnvelopeStream<R> {
        EnvelopeStream {
            reader,
            max_line,
            line: 0,
            failed: false,
        }
    }
}

/// The messages of a reader; blank lines are passed over. Ends after an error of the stream itself.
#[derive(Debug)]
pub struct EnvelopeStream<R> {
    reader: R,
    max_line: usize,
    line: u64,
    failed: bool,
}

impl<R: BufRead> EnvelopeStream<R> {
    /// The number of the line read last, from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    fn next_line(&mut self) -> Result<Option<String>, ProtocolError> {
        let mut bytes = Vec::new();
        // One byte more than allowed tells a line at the limit from one beyond it.
        let allowed = u64::try_from(self.max_line)
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        self.reader
            .by_ref()
            .take(allowed)
            .read_until(b'\n', &mut bytes)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        self.line += 1;
        if bytes.last() != Some(&b'\n') && bytes.len() > self.max_line {
            return Err(ProtocolError::LineTooLong {
                line: self.line,
                limit: self.max_line,
            });
        }
        String::from_utf8(bytes)
            .map(Some)
            .map_err(|error| ProtocolError::InvalidUtf8 {
                line: self.line,
                offset: error.utf8_error().valid_up_to(),
            })
    }
}

impl<R: BufRead> Iterator for EnvelopeStream<R> {
    type Item = Result<Envelope, ProtocolError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed {
            match self.next_line() {
                Ok(Some(line)) if line.trim().is_empty() => {}
                Ok(Some(line)) => return Some(JsonlCodec::decode(&line)),
                Ok(None) => return None,
                Err(error) => {
                    self.failed = matches!(
                        error,
                        ProtocolError::LineTooLong { .. } | ProtocolError::Io(_)
                    );
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
