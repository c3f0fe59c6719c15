//! Streams: what is read from which bytes, and what is written.

use abp_dialect::sse::{SseDecoder, SseEncoder, SseEvent, SseForm, SseLimits};

use crate::corpus::recordings;

/// An event that outlives its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard {
    Message(Option<String>, String),
    /// With its id and the wait before connecting again.
    Numbered(Option<String>, String, Option<String>, Option<u64>),
    Unterminated(Option<String>, String),
    Comment(String),
    NotUtf8(u64),
}

impl From<SseEvent<'_>> for Heard {
    fn from(event: SseEvent<'_>) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        match event {
            SseEvent::Message {
                name,
                data,
                unterminated: true,
                ..
            } => Self::Unterminated(owned(name), data.to_owned()),
            SseEvent::Message {
                name,
                data,
                id: None,
                retry: None,
                ..
            } => Self::Message(owned(name), data.to_owned()),
            SseEvent::Message {
                name,
                data,
                id,
                retry,
                ..
            } => Self::Numbered(owned(name), data.to_owned(), owned(id), retry),
            SseEvent::Comment(text) => Self::Comment(text.to_owned()),
            SseEvent::NotUtf8 { offset } => Self::NotUtf8(offset),
        }
    }
}

/// Reads a stream that comes in pieces: its events, and why it could not be read on.
pub(crate) fn hear<'p>(
    pieces: impl IntoIterator<Item = &'p [u8]>,
    limits: SseLimits,
) -> (Vec<Heard>, Option<String>) {
    let mut decoder = SseDecoder::new(limits);
    let mut heard = Vec::new();
    let mut drain = |mut events: abp_dialect::sse::SseEvents<'_, '_>| {
        while let Some(event) = events.next_event()? {
            heard.push(Heard::from(event));
        }
        Ok::<_, abp_dialect::DialectError>(())
    };
    let mut pieces = pieces.into_iter();
    let read = pieces.try_for_each(|piece| drain(decoder.feed(piece)));
    let read = read.and_then(|()| drain(decoder.finish()));
    (heard, read.err().map(|error| error.to_string()))
}

fn message(name: &str, data: &str) -> Heard {
    let name = Some(name.to_owned()).filter(|name| !name.is_empty());
    Heard::Message(name, data.to_owned())
}

fn cut(data: &str) -> Heard {
    Heard::Unterminated(None, data.to_owned())
}

fn comment(text: &str) -> Heard {
    Heard::Comment(text.to_owned())
}

fn check(stream: impl AsRef<[u8]>, expected: &[Heard]) {
    let stream = stream.as_ref();
    let (heard, error) = hear([stream], SseLimits::default());
    assert_eq!(error, None, "{:?}", stream.escape_ascii().to_string());
    assert_eq!(heard, expected, "{:?}", stream.escape_ascii().to_string());
}

#[test]
fn fields_and_line_ends() {
    for end in ["\n", "\r\n", "\r"] {
        let stream = [
            "event: a",
            "data: 1",
            "data:2",
            "data:  3 ",
            "",
            "data",
            "",
            "",
        ]
        .join(end);
        check(stream, &[message("a", "1\n2\n 3 "), message("", "")]);
    }
    check(
        "data: 1\r\rdata: 2\n\r\ndata: 3\r\n\n",
        &["1", "2", "3"].map(|data| message("", data)),
    );
    check("\u{feff}data: 1\n\n", &[message("", "1")]);
    check(b"\xEF\xBBdata: no mark, so an unknown field\n\n", &[]);
    check(b"\xEF[{}]\n\n", &[]);
    check(" data: 1\n\n", &[message("", "1")]);
    check(
        "x: 1\ndatum: 2\nevent: a\nevent:\ndata: 3\n\n",
        &[message("", "3")],
    );
    check(
        "event: keepalive\n\nid: 1\n\nretry: 1\n\ndata: 1\n\n",
        &[message("", "1")],
    );
    let numbered = |id: Option<&str>, retry| {
        Heard::Numbered(None, "1".to_owned(), id.map(str::to_owned), retry)
    };
    check(
        "id: 7\nretry: 10\ndata: 1\n\n",
        &[numbered(Some("7"), Some(10))],
    );
    check(
        "id: a\nretry: 1s\nid:\ndata: 1\n\n",
        &[numbered(Some(""), None)],
    );
    check("id: a\0b\nretry:\ndata: 1\n\n", &[message("", "1")]);
}

#[test]
fn comments() {
    check(
        ": OPENROUTER PROCESSING\n\n:\ndata: 1\n:mid\ndata: 2\n\n: end",
        &[
            comment("OPENROUTER PROCESSING"),
            comment(""),
            comment("mid"),
            message("", "1\n2"),
            comment("end"),
        ],
    );
}

#[test]
fn ends_too_early() {
    check("data: 1", &[cut("1")]);
    check("data: 1\r\n", &[cut("1")]);
    check("data: 1\n\ndata: {\"a", &[message("", "1"), cut("{\"a")]);
    check("data: 1\n: last", &[comment("last"), cut("1")]);
    check("data: 1\nda", &[cut("1")]);
    check("event: a\nid: 1", &[]);
    check(
        r#"[{"a":1},{"b":"#,
        &[message("", r#"{"a":1}"#), cut(r#"{"b":"#)],
    );
}

#[test]
fn not_utf8() {
    check(
        b"data: 1\n\nevent: a\ndata: 2\xFF\n\n: \xFF\ndata: 3\n\ndata: \xC3",
        &[
            message("", "1"),
            Heard::NotUtf8(25),
            Heard::NotUtf8(30),
            message("", "3"),
            Heard::NotUtf8(47),
        ],
    );
    // What nobody reads need not be text.
    check(b"x\xFF: 1\ndata: 2\n\n", &[message("", "2")]);
}

#[test]
fn json_instead_of_events() {
    let elements = [
        r#"{"a": "}]\\\"}", "b": [[1], {}]}"#,
        "{\r\n  \"c\": \"\u{1F980}\"\r\n}",
        "[]",
    ];
    let expected = elements.map(|element| message("", element));
    check(
        format!(
            "\u{feff} \n[{}\n,\r\n{}  ,{}]\n",
            elements[0], elements[1], elements[2]
        ),
        &expected,
    );
    check(format!("{}\n{}", elements[0], elements[1]), &expected[..2]);
    check("[]", &[]);
    for (stream, problem) in [
        ("[1]", "stream: byte 1 starts no JSON object"),
        (
            "[{}] {}",
            "stream: there is more after the end of the JSON array",
        ),
        ("{}]", "stream: byte 2 starts no JSON object"),
    ] {
        let (_, error) = hear([stream.as_bytes()], SseLimits::default());
        assert_eq!(error.as_deref(), Some(problem), "{stream}");
    }
}

#[test]
fn limits() {
    let limits = SseLimits {
        max_event: 20,
        max_line: 12,
    };
    let long_event = Some("stream: an event is longer than 20 bytes".to_owned());
    let long_line = Some("stream: a line is longer than 12 bytes".to_owned());
    for (stream, problem) in [
        ("data: 678901\r\n\r\ndata: 678901\n\n", None),
        ("data: 678901\ndata: 0\r\n\r\n", None),
        ("data: 6789012\n\n", long_line.clone()),
        ("nothing but one line", long_line.clone()),
        (": comment 123", long_line),
        ("data: 1\ndata: 2\ndata: 3\n\n", long_event.clone()),
        ("data: 1\n:\n:\n:\n:\n:\n:\n:\n:", long_event.clone()),
        (":\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:", None),
        (r#"[{"a":"3456789012345"}]"#, long_event),
        (r#"[{"a":"34567890123"},{"a":"34567890123"}]"#, None),
    ] {
        let (_, whole) = hear([stream.as_bytes()], limits);
        let (_, bytewise) = hear(stream.as_bytes().chunks(1), limits);
        assert_eq!((&whole, &bytewise), (&problem, &problem), "{stream:?}");
    }
}

#[test]
fn an_error_stays() {
    let mut decoder = SseDecoder::new(SseLimits {
        max_event: 4,
        max_line: 4,
    });
    let first = decoder.feed(b"too long").next_event().map(|_| ());
    assert!(first.is_err());
    assert_eq!(
        decoder.feed(b"\n\ndata\n\n").next_event().map(|_| ()),
        first
    );
    assert_eq!(decoder.finish().next_event().map(|_| ()), first);
}

#[test]
fn whole_events_are_not_copied() {
    let bytes = b"data: one\n\ndata: two\n\n[rest";
    let mut decoder = SseDecoder::new(SseLimits::default());
    let mut events = decoder.feed(bytes);
    for _ in 0..2 {
        let event = events.next_event().expect("readable");
        let Some(SseEvent::Message { data, .. }) = event else {
            panic!("{event:?}")
        };
        assert!(bytes.as_ptr_range().contains(&data.as_ptr()), "{data}");
    }
}

#[test]
fn writing() {
    let write = |form, events: &[(Option<&str>, &str)]| {
        let mut encoder = SseEncoder::new(form);
        let mut out = Vec::new();
        encoder.comment("a\nb", &mut out);
        for (name, data) in events {
            encoder.event(*name, data, &mut out);
        }
        encoder.finish(&mut out);
        String::from_utf8(out).expect("text")
    };
    let events = [
        (Some("a\ndata: x"), "{}"),
        (None, "1\r\n2\r3"),
        (None, "[DONE]"),
    ];
    assert_eq!(
        write(SseForm::Events, &events),
        ": a\n: b\n\nevent: a\ndata: {}\n\ndata: 1\ndata: 2\ndata: 3\n\ndata: [DONE]\n\n",
    );
    let elements = [(Some("a"), "{}"), (None, "[]")];
    assert_eq!(write(SseForm::JsonArray, &elements), "[{},\r\n[]]");
    assert_eq!(write(SseForm::JsonArray, &[]), "[]");
}

#[test]
fn recorded_streams() {
    for recording in recordings("decoding recorded streams") {
        let bytes = &recording.bytes;
        if recording.part != "stream" {
            continue;
        }
        let whole = hear([&bytes[..]], SseLimits::default());
        let data_lines = bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| line.starts_with(b"data"));
        let messages = whole
            .0
            .iter()
            .filter(|heard| matches!(heard, Heard::Message(..)));
        assert_eq!(messages.count(), data_lines.count(), "{}", recording.file);
        assert_eq!(whole.1, None, "{}", recording.file);
        for size in [1, 2, 7, 64, 1460] {
            let pieces = hear(bytes.chunks(size), SseLimits::default());
            assert_eq!(pieces, whole, "{} in pieces of {size}", recording.file);
        }
        let step = if bytes.len() < 1000 {
            1
        } else {
            bytes.len() / 13
        };
        for at in (0..bytes.len()).step_by(step) {
            let (before, after) = bytes.split_at(at);
            let halves = hear([before, after], SseLimits::default());
            assert_eq!(halves, whole, "{} split at {at}", recording.file);
        }
    }
}

#[test]
fn recorded_arrays() {
    for recording in recordings("decoding recorded JSON streams") {
        if recording.part == "stream" || !recording.bytes.starts_with(b"[") {
            continue;
        }
        let values: Vec<serde_json::Value> =
            serde_json::from_slice(&recording.bytes).expect("an array");
        let (heard, error) = hear(recording.bytes.chunks(61), SseLimits::default());
        assert_eq!(error, None, "{}", recording.file);
        let heard = heard.iter().map(|heard| match heard {
            Heard::Message(None, data) => serde_json::from_str(data).expect("an element"),
            other => panic!("{other:?}"),
        });
        assert_eq!(
            heard.collect::<Vec<serde_json::Value>>(),
            values,
            "{}",
            recording.file
        );
    }
}
