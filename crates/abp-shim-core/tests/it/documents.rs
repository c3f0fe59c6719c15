//! The vendors' documents, written by hand and recorded: as types, and as streams.

use std::fmt::Display;
use std::path::Path;

use abp_dialect::sse::{SseDecoder, SseEvent, SseLimits};
use abp_shim_core::{ApiStream, StreamReader};
use abp_testkit::{FakeVendor, Reply, Script, shared_dir, skip};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The fixtures of a dialect whose names start like this.
pub(crate) fn fixtures(dialect: &str, start: &str) -> Vec<(String, String)> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let mut found = files(&fixtures.join(dialect));
    found.retain(|(name, _)| name.starts_with(start));
    assert!(!found.is_empty(), "{dialect} has no {start}");
    found
}

/// Recorded answers and streams; `None`, which is said, where there is no such data.
pub(crate) fn recorded(dialect: &str) -> Option<[Vec<(String, String)>; 2]> {
    let Some(shared) = shared_dir() else {
        skip(&format!("recorded {dialect}"), "no shared data directory");
        return None;
    };
    let corpus = shared.join("corpus").join(dialect);
    Some([
        files(&corpus.join("response")),
        files(&corpus.join("stream")),
    ])
}

fn files(folder: &Path) -> Vec<(String, String)> {
    let files = std::fs::read_dir(folder).expect("a directory");
    let mut files: Vec<_> = files
        .map(|file| {
            let file = file.expect("a file");
            let name = file.file_name().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(file.path()).expect("text"))
        })
        .collect();
    files.sort();
    files
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

/// How each of these streams ends for a caller: well, or with an error.
pub(crate) async fn ends<C, R>(
    streams: Vec<Vec<u8>>,
    client: impl FnOnce(&str) -> C,
    open: impl AsyncFn(&C) -> ApiStream<R>,
) -> Vec<Option<String>>
where
    R: StreamReader<ErrorBody: Display>,
{
    let count = streams.len();
    let replies = streams.into_iter().map(Reply::events).collect();
    let vendor = FakeVendor::start(Script::InOrder(replies)).expect("a vendor");
    let client = client(&vendor.url(""));
    let mut ends = Vec::with_capacity(count);
    for _ in 0..count {
        let mut pieces = open(&client).await;
        let mut end = None;
        while let Some(piece) = pieces.next().await {
            end = piece.err().map(|error| error.to_string());
        }
        ends.push(end);
    }
    ends
}

/// Cuts a stream after every byte, and checks that it ends in an error until the line with the last
/// `end` is complete, and well when all of it is there.
pub(crate) async fn check_cuts<C, R>(
    stream: &str,
    end: &str,
    client: impl FnOnce(&str) -> C,
    open: impl AsyncFn(&C) -> ApiStream<R>,
) where
    R: StreamReader<ErrorBody: Display>,
{
    let at = stream.rfind(end).expect(end);
    let complete = at + stream[at..].find(['\r', '\n']).expect("a line");
    let cut = |length: usize| stream.as_bytes()[..length].to_vec();
    let ends = ends((0..=stream.len()).map(cut).collect(), client, open).await;
    let first_well = ends.iter().position(Option::is_none).expect("a clean end");
    assert!(
        first_well >= complete,
        "a clean end after {first_well} of {complete} bytes"
    );
    assert_eq!(ends.last(), Some(&None), "the whole stream");
}
