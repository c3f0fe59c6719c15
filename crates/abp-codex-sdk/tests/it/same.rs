//! What several areas need: reading, writing, comparing.

use abp_codex_sdk::CodexCodec;
use abp_core::ir::{IrBlockStart, IrDelta, IrFinish, IrUsage, Origin};
use abp_dialect::{
    Codec, Dialect, DialectError, EventSink, Exchange, Item, Lowering, Reader, StreamDecoder,
    TargetProfile, WrittenEvent,
};
use abp_json::{Kind, Limits, Tape, View};
use serde::Serialize;
use serde_json::Value;

/// Names and data of events.
pub(crate) type Events = Vec<(Option<String>, String)>;

/// How a document is written in the dialect it was read from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Writing {
    /// What did not change is copied.
    Copied,
    /// Everything is written from the representation.
    Anew,
}

/// Reads a document and writes it again in the same dialect.
fn rewrite<T>(
    source: &str,
    writing: Writing,
    read: impl FnOnce(Item<'_>) -> Result<T, DialectError>,
    write: impl FnOnce(&T, &mut Lowering<'_>),
) -> Result<String, DialectError> {
    let tape = Tape::parse_str(source, &Limits::default())?;
    let reader = Reader::new(&tape);
    let ir = read(reader.root())?;
    let profile = TargetProfile::default();
    let mut out = Lowering::new(Some((Dialect::Codex, &reader)), Dialect::Codex, &profile);
    if writing == Writing::Anew {
        out.rewrite();
    }
    write(&ir, &mut out);
    Ok(out.finish().0)
}

pub(crate) fn rewrite_request(source: &str, writing: Writing) -> Result<String, DialectError> {
    rewrite(
        source,
        writing,
        |root| CodexCodec.read_request(root),
        |ir, out| CodexCodec.write_request(ir, out),
    )
}

pub(crate) fn rewrite_response(source: &str, writing: Writing) -> Result<String, DialectError> {
    rewrite(
        source,
        writing,
        |root| CodexCodec.read_response(root),
        |ir, out| CodexCodec.write_response(ir, &Exchange::default(), out),
    )
}

/// The representation of a document, without the places it was read from.
pub(crate) fn representation<T: Serialize>(
    source: &str,
    read: impl FnOnce(Item<'_>) -> Result<T, DialectError>,
) -> Value {
    let tape = Tape::parse_str(source, &Limits::default()).expect("JSON");
    let reader = Reader::new(&tape);
    let ir = read(reader.root()).expect("readable");
    serde_json::to_value(ir).expect("serialisable")
}

/// Whether two values are the same, number by number as they are spelled. Members may change order.
pub(crate) fn same(left: View<'_>, right: View<'_>) -> bool {
    left.kind() == right.kind()
        && match left.kind() {
            Kind::Object => {
                left.len() == right.len()
                    && left.entries().all(|(key, value)| {
                        let key = key.as_str_lossy().unwrap_or_default();
                        right.get(&key).is_some_and(|other| same(value, other))
                    })
            }
            Kind::Array => {
                left.len() == right.len()
                    && left
                        .items()
                        .zip(right.items())
                        .all(|(left, right)| same(left, right))
            }
            Kind::String => left.as_str_lossy() == right.as_str_lossy(),
            Kind::Null | Kind::Bool | Kind::Number => left.raw() == right.raw(),
        }
}

/// Fails with both texts where two documents differ.
pub(crate) fn assert_same(what: &str, source: &str, written: &str) {
    let limits = Limits::default();
    let left = Tape::parse_str(source, &limits).expect("the source is JSON");
    let right = Tape::parse_str(written, &limits).expect("what is written is JSON");
    assert!(
        same(left.root(), right.root()),
        "{what} came back different:\n{source}\n{written}"
    );
}

/// The events of a recorded stream.
pub(crate) fn events(stream: &str) -> Events {
    let stream = stream.replace("\r\n", "\n");
    let event = |block: &str| {
        let field = |name: &str| -> Vec<String> {
            let lines = block.lines().filter_map(|line| line.strip_prefix(name));
            lines.map(|value| value.trim_start().to_owned()).collect()
        };
        let data = field("data:").join("\n");
        (!data.is_empty()).then(|| (field("event:").pop(), data))
    };
    stream.split("\n\n").filter_map(event).collect()
}

/// A streamed answer, put together.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) id: Option<String>,
    pub(crate) blocks: Vec<(IrBlockStart, String)>,
    pub(crate) citations: usize,
    pub(crate) usage: Option<IrUsage>,
    pub(crate) finish: Option<IrFinish>,
    pub(crate) error: Option<String>,
    open: Vec<usize>,
    over: bool,
}

impl Answer {
    /// Takes a delta; fails where it breaks the contract of streams.
    pub(crate) fn take(&mut self, delta: &IrDelta) {
        assert!(!self.over, "{delta:?} after the end");
        match delta {
            IrDelta::Start { id, .. } => self.id = id.as_ref().map(|id| id.value.clone()),
            IrDelta::BlockStart { block, start, .. } => {
                assert_eq!(
                    *block as usize,
                    self.blocks.len(),
                    "blocks are numbered in order"
                );
                self.open.push(self.blocks.len());
                self.blocks.push((start.clone(), String::new()));
            }
            IrDelta::Append { block, text, .. } => {
                assert!(
                    self.open.contains(&(*block as usize)),
                    "{delta:?} is not open"
                );
                self.blocks[*block as usize].1.push_str(text);
            }
            IrDelta::Citation { block, .. } => {
                assert!(
                    self.open.contains(&(*block as usize)),
                    "{delta:?} is not open"
                );
                self.citations += 1;
            }
            IrDelta::BlockStop { block, .. } => {
                let before = self.open.len();
                self.open.retain(|open| open != &(*block as usize));
                assert_eq!(self.open.len() + 1, before, "{delta:?} was not open");
            }
            IrDelta::Finish { finish, .. } => {
                assert_eq!(self.open, [0; 0], "blocks are open at the finish");
                self.finish = Some(finish.clone());
            }
            IrDelta::Usage(usage) => {
                // Where the counts stood is no part of them.
                let origin = Origin::Host;
                self.usage = Some(IrUsage {
                    origin,
                    ..usage.clone()
                });
            }
            IrDelta::Error(error) => {
                self.error = Some(error.message.value.clone());
                self.over = true;
            }
            IrDelta::End => {
                assert!(self.finish.is_some(), "an end without a finish");
                self.over = true;
            }
            _ => {}
        }
    }
}

/// Decodes a stream, encodes it in its own dialect, and returns both the answer and the events.
pub(crate) fn recode(
    stream: &[(Option<String>, String)],
) -> Result<(Answer, Events), DialectError> {
    let mut decoder = CodexCodec.stream_decoder();
    let mut encoder = CodexCodec.stream_encoder(&Exchange::default());
    let profile = TargetProfile::default();
    let mut answer = Answer::default();
    let mut written = Vec::new();
    let mut write = |deltas: Vec<IrDelta>, reader: Option<&Reader<'_>>| {
        let source = reader.map(|reader| (Dialect::Codex, reader));
        let mut sink = EventSink::new(source, Dialect::Codex, &profile);
        for delta in &deltas {
            answer.take(delta);
            encoder.delta(delta, &mut sink);
        }
        let events = sink.finish().0.into_iter();
        written
            .extend(events.map(|WrittenEvent { name, data, .. }| (name.map(str::to_owned), data)));
    };
    for (name, data) in stream {
        let mut deltas = Vec::new();
        if data == "[DONE]" {
            decoder.terminator(&mut deltas);
            write(deltas, None);
            continue;
        }
        let tape = Tape::parse_str(data, &Limits::default())?;
        let reader = Reader::new(&tape);
        decode(&mut *decoder, name.as_deref(), &reader, &mut deltas)?;
        write(deltas, Some(&reader));
    }
    let mut deltas = Vec::new();
    decoder.end(&mut deltas);
    write(deltas, None);
    assert!(answer.over, "the stream has no end");
    Ok((answer, written))
}

fn decode<'t>(
    decoder: &mut dyn StreamDecoder,
    name: Option<&str>,
    reader: &'t Reader<'t>,
    deltas: &mut Vec<IrDelta>,
) -> Result<(), DialectError> {
    decoder.event(name, reader.root(), deltas)
}
