//! One line of a stream, and the fields that lines make up.

use memchr::memchr;

/// Bytes of the event that is being read, counted from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Span {
    pub(super) fn is_empty(self) -> bool {
        self.start == self.end
    }

    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start..self.end).unwrap_or_default()
    }
}

/// What a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    Blank,
    Comment(Span),
    Data(Span),
    Name(Span),
    Id(Span),
    Retry(u64),
    /// A field that the standard tells readers to ignore.
    Ignored,
}

impl Line {
    /// Reads the line of `event` at `line`.
    pub(super) fn read(event: &[u8], line: Span) -> Self {
        if line.is_empty() {
            return Self::Blank;
        }
        let bytes = line.of(event);
        let colon = memchr(b':', bytes).unwrap_or(bytes.len());
        let (name, rest) = bytes.split_at(colon);
        let skipped = match rest {
            [b':', b' ', ..] => 2,
            [b':', ..] => 1,
            _ => 0,
        };
        let value = Span {
            start: line.start + colon + skipped,
            end: line.end,
        };
        match name {
            b"" => Self::Comment(value),
            b"data" => Self::Data(value),
            b"event" => Self::Name(value),
            b"id" if memchr(0, value.of(event)).is_none() => Self::Id(value),
            b"retry" => milliseconds(value.of(event)).map_or(Self::Ignored, Self::Retry),
            _ => Self::Ignored,
        }
    }
}

fn milliseconds(digits: &[u8]) -> Option<u64> {
    let all_digits = digits.iter().all(u8::is_ascii_digit);
    let text = str::from_utf8(digits).ok().filter(|_| all_digits)?;
    text.parse().ok()
}

/// The fields of the event that is being read.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) name: Option<Span>,
    pub(super) id: Option<Span>,
    pub(super) retry: Option<u64>,
    data: Option<Data>,
}

#[derive(Debug)]
enum Data {
    /// One line, where it came.
    Line(Span),
    /// Several, joined. They are never side by side in the stream.
    Lines(Vec<u8>),
}

impl Fields {
    pub(super) fn is_empty(&self) -> bool {
        self.data.is_none() && self.name.is_none() && self.id.is_none() && self.retry.is_none()
    }

    pub(super) fn has_data(&self) -> bool {
        self.data.is_some()
    }

    /// Adds a line of data of `event`.
    pub(super) fn add_data(&mut self, event: &[u8], line: Span) {
        self.data = Some(match self.data.take() {
            None => Data::Line(line),
            Some(Data::Line(first)) => Data::Lines([first.of(event), line.of(event)].join(&b'\n')),
            Some(Data::Lines(mut lines)) => {
                lines.push(b'\n');
                lines.extend_from_slice(line.of(event));
                Data::Lines(lines)
            }
        });
    }

    /// The data of `event`.
    pub(super) fn data<'e>(&'e self, event: &'e [u8]) -> &'e [u8] {
        match &self.data {
            None => &[],
            Some(Data::Line(line)) => line.of(event),
            Some(Data::Lines(lines)) => lines,
        }
    }
}
