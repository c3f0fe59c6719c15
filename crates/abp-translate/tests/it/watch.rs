//! What is read off a stream that passes as it is agrees with what reading all of it says.

use std::fs;
use std::path::PathBuf;

use abp_dialect::{Dialect, Exchange, WireFamily};
use abp_translate::{Options, StreamSummary, StreamTranslator, StreamWatch};

fn streams() -> Vec<(Dialect, PathBuf)> {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let mut found = Vec::new();
    for dialect in Dialect::ALL {
        let dir = fixtures.join(dialect.as_str());
        for entry in fs::read_dir(dir).expect("fixtures") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|end| end == "sse") {
                found.push((dialect, path));
            }
        }
    }
    found
}

/// Reads every event, by translating the stream to another dialect.
fn read_whole(dialect: Dialect, text: &str) -> StreamSummary {
    let other = if dialect == Dialect::Claude {
        Dialect::OpenAi
    } else {
        Dialect::Claude
    };
    let exchange = Exchange::default();
    let mut translator =
        StreamTranslator::new(dialect, other, &exchange, &Options::default()).expect("codecs");
    let mut decoder = abp_dialect::sse::SseDecoder::new(abp_dialect::sse::SseLimits::default());
    let mut events = decoder.feed(text.as_bytes());
    while let Some(event) = events.next_event().expect("a stream") {
        if let abp_dialect::sse::SseEvent::Message { name, data, .. } = event {
            translator.event(name, data);
        }
    }
    translator.end();
    translator.summary().clone()
}

fn counts(summary: &StreamSummary) -> Option<[Option<u64>; 3]> {
    let usage = summary.usage.as_ref()?;
    let count = |leaf: &Option<abp_core::ir::Leaf<u64>>| leaf.as_ref().map(|leaf| leaf.value);
    Some([
        count(&usage.input_tokens),
        count(&usage.output_tokens),
        count(&usage.cache_read_tokens),
    ])
}

#[test]
fn watching_agrees_with_reading_however_the_bytes_are_split() {
    let streams = streams();
    assert!(streams.len() > 15, "{} streams", streams.len());
    for (dialect, path) in streams {
        let text = fs::read_to_string(&path).expect("a stream");
        let read = read_whole(dialect, &text);
        for size in [1, 7, text.len().max(1)] {
            let mut watch = StreamWatch::new(dialect).expect("a codec");
            for part in text.as_bytes().chunks(size) {
                watch.push(part);
            }
            let watched = watch.finish();
            let place = format!("{} in parts of {size}", path.display());
            assert_eq!(counts(&watched), counts(&read), "{place}");
            assert_eq!(watched.complete, read.complete, "{place}");
            if dialect.family() == WireFamily::Responses {
                assert_eq!(watched.id, read.id, "{place}");
            }
            // That a stream broke off is for whoever reads it to say; here it is merely not complete.
            let told = read.error.is_some() && !path.ends_with("stream_broken_off.sse");
            assert_eq!(watched.error.is_some(), told, "{place}");
        }
    }
}
