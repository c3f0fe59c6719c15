//! Laws of streams, for any bytes.

use abp_dialect::sse::{SseEncoder, SseForm, SseLimits};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::{prop_assert_eq, proptest};

use crate::sse::{Heard, hear};

/// Bytes that mean something to a decoder, in any order.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let pieces: [&[u8]; 20] = [
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"data",
        b"data: ",
        b"data:x",
        b"event: a",
        b"id: 1",
        b"retry: 5",
        b": c",
        b":",
        b" ",
        b"[",
        b"{\"a\":\"}\\\"\"}",
        b"]",
        b",",
        b"\xEF\xBB\xBF",
        "\u{1F980}".as_bytes(),
        b"\xFF",
    ];
    let piece = prop_oneof![
        9 => proptest::sample::select(pieces.to_vec()).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 1..4),
    ];
    vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn limits() -> impl Strategy<Value = SseLimits> {
    let small = (1..40_usize, 1..40_usize).prop_map(|(max_event, max_line)| SseLimits {
        max_event,
        max_line,
    });
    prop_oneof![Just(SseLimits::default()), small]
}

proptest! {
    #[test]
    fn splits_do_not_matter(stream in stream(), limits in limits()) {
        let whole = hear([&stream[..]], limits);
        prop_assert_eq!(&hear(stream.chunks(1), limits), &whole);
        for at in 0..stream.len() {
            let (before, after) = stream.split_at(at);
            prop_assert_eq!(&hear([before, after], limits), &whole, "split at {}", at);
        }
    }

    #[test]
    fn events_survive_writing(
        events in vec((option::of("[^\r\n]{1,8}"), "[^\r]{0,20}"), 0..6),
    ) {
        let mut encoder = SseEncoder::new(SseForm::Events);
        let mut out = Vec::new();
        for (name, data) in &events {
            encoder.event(name.as_deref(), data, &mut out);
        }
        encoder.finish(&mut out);
        let expected: Vec<_> =
            events.into_iter().map(|(name, data)| Heard::Message(name, data)).collect();
        prop_assert_eq!(hear([&out[..]], SseLimits::default()), (expected, None));
    }

    #[test]
    fn elements_survive_writing(texts in vec(any::<String>(), 0..6)) {
        let elements: Vec<_> =
            texts.iter().map(|text| serde_json::json!({ "]": [text] }).to_string()).collect();
        let mut encoder = SseEncoder::new(SseForm::JsonArray);
        let mut out = Vec::new();
        for element in &elements {
            encoder.event(None, element, &mut out);
        }
        encoder.finish(&mut out);
        let expected: Vec<_> =
            elements.into_iter().map(|element| Heard::Message(None, element)).collect();
        prop_assert_eq!(hear([&out[..]], SseLimits::default()), (expected, None));
    }
}
