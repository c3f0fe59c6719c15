//! The vendors' documents that are kept as fixtures, as types and as streams.

use std::path::Path;

use abp_dialect::sse::{SseDecoder, SseEvent, SseLimits};
use abp_shim_core::{ApiStream, StreamReader};
use abp_testkit::{FakeVendor, Reply, Script};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The fixtures of a dialect whose names start like this.
pub(crate) fn fixtures(dialect: &str, start: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let files = std::fs::read_dir(folder.join(dialect)).expect(dialect);
    let mut found: Vec<_> = files
        .map(|file| file.expect("a file").path())
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy();
            (name.into_owned(), path.clone())
        })
        .filter(|(name, _)| name.starts_with(start))
        .map(|(name, path)| (name, std::fs::read_to_string(path).expect("text")))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "{dialect} has no {start}");
    found
}

/// The data of a stream's events, without terminators.
pub(crate) fn events(stream: &str) -> Vec<String> {
    let mut decoder = SseDecoder::new(SseLimits::default());
    let mut events = decoder.feed(stream.as_bytes());
    let mut data = Vec::new();
    while let Some(event) = events.next_event().expect("a stream") {
        if let SseEvent::Message { data: text, .. } = event
            && text != "[DONE]"
        {
            data.push(text.to_owned());
        }
    }
    data
}

/// Reads a document as a type, and checks that the type keeps all of it, also what nobody knows yet.
pub(crate) fn kept<T: Serialize + DeserializeOwned>(name: &str, text: &str) -> T {
    let read: Value = serde_json::from_str(text).expect("JSON");
    check_kept::<T>(name, &with_news(read.clone()));
    check_kept(name, &read)
}

fn check_kept<T: Serialize + DeserializeOwned>(name: &str, read: &Value) -> T {
    let document = serde_json::from_value(read.clone());
    let document: T = document.unwrap_or_else(|error| panic!("{name}: {error}"));
    let written = serde_json::to_value(&document).expect("JSON");
    assert_eq!(essence(written), essence(read.clone()), "{name}");
    document
}

/// A document of a later version: every object has one more member.
fn with_news(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(with_news).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            let mut members: Map<_, _> = members
                .map(|(key, value)| (key, with_news(value)))
                .collect();
            members.insert("x_news".to_owned(), Value::from("news"));
            Value::Object(members)
        }
        other => other,
    }
}

/// A document without `null` and empty lists, which mean the same as nothing, and with one form of
/// numbers.
fn essence(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::from(number.as_f64()),
        Value::Array(items) => items.into_iter().map(essence).collect(),
        Value::Object(members) => {
            let nothing = [Value::Null, Value::Array(Vec::new())];
            let members = members
                .into_iter()
                .filter(|(_, value)| !nothing.contains(value));
            let members: Map<_, _> = members.map(|(key, value)| (key, essence(value))).collect();
            Value::Object(members)
        }
        other => other,
    }
}

/// Cuts a stream after every byte, and checks that it ends in an error until the line with the last
/// `end` is complete, and well when all of it is there.
pub(crate) async fn check_cuts<C, R: StreamReader>(
    stream: &str,
    end: &str,
    client: impl FnOnce(&str) -> C,
    open: impl AsyncFn(&C) -> ApiStream<R>,
) {
    let at = stream.rfind(end).expect(end);
    let complete = at + stream[at..].find(['\r', '\n']).expect("a line");
    let cut = |length: usize| Reply::events(stream.as_bytes()[..length].to_vec());
    let replies = (0..=stream.len()).map(cut).collect();
    let vendor = FakeVendor::start(Script::InOrder(replies)).expect("a vendor");
    let client = client(&vendor.url(""));
    for length in 0..=stream.len() {
        let mut pieces = open(&client).await;
        let mut well = false;
        while let Some(piece) = pieces.next().await {
            well = piece.is_ok();
        }
        let text = &stream[..stream.floor_char_boundary(length)];
        assert!(!well || length >= complete, "a clean end after {text}");
        assert!(well || length < stream.len(), "an error after {text}");
    }
}
