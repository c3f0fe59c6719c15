//! Reading and writing documents in tests, and the files to do it with.

use std::fs;
use std::path::PathBuf;

use abp_core::ir::{IrConversation, IrDelta, IrError, IrResponse};
use abp_dialect::{
    Codec, Dialect, DialectError, EventSink, Exchange, Lowering, Reader, TargetProfile,
};
use abp_gemini_sdk::GeminiCodec;
use abp_json::{Kind, Limits, Tape, View};
use abp_testkit::{shared_dir, skip};

/// What a document is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Document {
    Request,
    Response,
    Error,
}

/// What was read from one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ir {
    Request(Box<IrConversation>),
    Response(IrResponse),
    Error(IrError),
}

/// Whether unchanged parts are copied or everything is written anew.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Writing {
    Copied,
    Anew,
}

/// Reads a document and writes it in the same dialect.
pub(crate) fn round_trip(
    source: &str,
    document: Document,
    writing: Writing,
) -> Result<(Ir, String), DialectError> {
    let tape = Tape::parse_str(source, &Limits::default())?;
    let reader = Reader::new(&tape);
    let ir = match document {
        Document::Request => Ir::Request(Box::new(GeminiCodec.read_request(reader.root())?)),
        Document::Response => Ir::Response(GeminiCodec.read_response(reader.root())?),
        Document::Error => Ir::Error(GeminiCodec.read_error(reader.root(), None)?),
    };
    let profile = TargetProfile::default();
    let mut out = Lowering::new(Some((Dialect::Gemini, &reader)), Dialect::Gemini, &profile);
    if writing == Writing::Anew {
        out.rewrite();
    }
    match &ir {
        Ir::Request(conversation) => GeminiCodec.write_request(conversation, &mut out),
        Ir::Response(response) => {
            GeminiCodec.write_response(response, &Exchange::default(), &mut out);
        }
        Ir::Error(error) => {
            GeminiCodec.write_error(error, &mut out);
        }
    }
    Ok((ir, out.finish().0))
}

/// Whether two documents are the same JSON, numbers by their spelling.
pub(crate) fn same(left: &str, right: &str) -> bool {
    let left = Tape::parse_str(left, &Limits::default()).expect("JSON");
    let right = Tape::parse_str(right, &Limits::default()).expect("JSON");
    same_view(left.root(), right.root())
}

fn same_view(left: View<'_>, right: View<'_>) -> bool {
    left.kind() == right.kind()
        && match left.kind() {
            Kind::Null | Kind::Bool | Kind::Number => left.raw() == right.raw(),
            Kind::String => left.as_str_lossy() == right.as_str_lossy(),
            Kind::Array => {
                left.len() == right.len()
                    && left
                        .items()
                        .zip(right.items())
                        .all(|(left, right)| same_view(left, right))
            }
            Kind::Object => {
                left.len() == right.len()
                    && left.entries().all(|(key, value)| {
                        let key = key.as_str_lossy().unwrap_or_default();
                        right.get(&key).is_some_and(|other| same_view(value, other))
                    })
            }
        }
}

/// Decodes a stream; each event is its data.
pub(crate) fn decode(events: &[String]) -> Result<Vec<IrDelta>, DialectError> {
    let mut decoder = GeminiCodec.stream_decoder();
    let mut deltas = Vec::new();
    for event in events {
        let tape = Tape::parse_str(event, &Limits::default())?;
        let reader = Reader::new(&tape);
        decoder.event(None, reader.root(), &mut deltas)?;
    }
    decoder.end(&mut deltas);
    Ok(deltas)
}

/// Decodes a stream and writes it in the same dialect.
pub(crate) fn encode(events: &[String]) -> Vec<String> {
    let profile = TargetProfile::default();
    let mut decoder = GeminiCodec.stream_decoder();
    let mut encoder = GeminiCodec.stream_encoder(&Exchange::default());
    let mut written = Vec::new();
    let mut write = |source: Option<(Dialect, &Reader<'_>)>, deltas: Vec<IrDelta>| {
        let mut sink = EventSink::new(source, Dialect::Gemini, &profile);
        for delta in &deltas {
            encoder.delta(delta, &mut sink);
        }
        written.extend(sink.finish().0.into_iter().map(|event| event.data));
    };
    for event in events {
        let tape = Tape::parse_str(event, &Limits::default()).expect("JSON");
        let reader = Reader::new(&tape);
        let mut deltas = Vec::new();
        decoder
            .event(None, reader.root(), &mut deltas)
            .expect("an event");
        write(Some((Dialect::Gemini, &reader)), deltas);
    }
    let mut deltas = Vec::new();
    decoder.end(&mut deltas);
    write(None, deltas);
    written
}

/// The data of the events in a body of server-sent events, or the items of a JSON array.
pub(crate) fn events_of(body: &str) -> Vec<String> {
    if body.trim_start().starts_with('[') {
        let tape = Tape::parse_str(body, &Limits::default()).expect("JSON");
        return tape
            .root()
            .items()
            .map(|item| item.raw().to_owned())
            .collect();
    }
    let data = body.lines().filter_map(|line| line.strip_prefix("data:"));
    data.map(|data| data.trim().to_owned()).collect()
}

/// The recorded files of a kind; `None` where there are none, which is said.
pub(crate) fn recorded(kind: &str) -> Option<Vec<(PathBuf, String)>> {
    let Some(shared) = shared_dir() else {
        skip(
            &format!("recorded gemini {kind}s"),
            "no shared data directory",
        );
        return None;
    };
    Some(files(&shared.join("corpus/gemini").join(kind)))
}

/// The hand-written files whose names start like this.
pub(crate) fn fixtures(prefix: &str) -> Vec<(PathBuf, String)> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/gemini");
    let mut found = files(&here);
    found.retain(|(path, _)| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(prefix))
    });
    assert!(!found.is_empty(), "no fixture starts with {prefix}");
    found
}

fn files(folder: &std::path::Path) -> Vec<(PathBuf, String)> {
    let mut paths: Vec<_> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).expect("text");
            (path, text)
        })
        .collect()
}
