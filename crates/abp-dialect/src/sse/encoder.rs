//! Writing a stream.

/// The form of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SseForm {
    /// Server-sent events.
    Events,
    /// One JSON array, an element to an event: Gemini's form without `alt=sse`.
    JsonArray,
}

/// Writes a stream into buffers that the caller sends.
#[derive(Debug)]
pub struct SseEncoder {
    form: SseForm,
    /// Whether the array was opened.
    opened: bool,
}

impl SseEncoder {
    /// Starts a stream.
    #[must_use]
    pub fn new(form: SseForm) -> Self {
        Self {
            form,
            opened: false,
        }
    }

    /// Writes an event, or a terminator such as `[DONE]`, which is an event without a name.
    ///
    /// Data of several lines becomes several `data:` lines; whichever way a line ended, it is read
    /// back with a line feed. An array has elements only: they have no names, and the data has to
    /// be JSON.
    pub fn event(&mut self, name: Option<&str>, data: &str, out: &mut Vec<u8>) {
        match self.form {
            SseForm::Events => {
                // A line end in a name would let its rest pass for another field.
                if let Some(name) = name.and_then(|name| lines(name).next()) {
                    field("event: ", name, out);
                }
                lines(data).for_each(|line| field("data: ", line, out));
                out.push(b'\n');
            }
            SseForm::JsonArray => {
                let before = if self.opened { ",\r\n" } else { "[" };
                self.opened = true;
                out.extend_from_slice(before.as_bytes());
                out.extend_from_slice(data.as_bytes());
            }
        }
    }

    /// Writes a comment, one for each line. An array has no place for it.
    pub fn comment(&mut self, text: &str, out: &mut Vec<u8>) {
        if self.form == SseForm::Events {
            lines(text).for_each(|line| field(": ", line, out));
            out.push(b'\n');
        }
    }

    /// Writes an empty line, which means nothing between events and between the items of an array.
    pub fn blank(&mut self, out: &mut Vec<u8>) {
        out.push(b'\n');
    }

    /// Ends the stream: an array is closed, events have no end of their own. Nothing may follow.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if self.form == SseForm::JsonArray {
            let end = if self.opened { "]" } else { "[]" };
            out.extend_from_slice(end.as_bytes());
        }
    }
}

fn field(start: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(start.as_bytes());
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}

/// The lines of a text as the standard counts them: ended by LF, CR or both; at least one.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.find(['\n', '\r']) else {
            rest = None;
            return Some(text);
        };
        let (line, ended) = text.split_at(end);
        rest = ended.strip_prefix("\r\n").or_else(|| ended.get(1..));
        Some(line)
    })
}
