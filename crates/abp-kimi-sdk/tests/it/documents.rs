//! The project's own documents and recorded ones: all of them are read and come back as they were,
//! and whatever becomes of them, nothing panics.

use std::fs;
use std::path::{Path, PathBuf};

use abp_core::ir::{IrBlockStart, IrDelta};
use abp_dialect::{
    Codec, Dialect, DialectError, EventSink, Exchange, Lowering, Reader, TargetProfile,
};
use abp_json::{Kind, Limits, Tape, View};
use abp_testkit::{shared_dir, skip};
use proptest::prelude::{any, prop_assert};
use proptest::{proptest, test_runner::Config};

use crate::{AGENT, CODEC, DIALECT};

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The project's own documents of a kind, with their texts.
fn fixtures(kind: &str) -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(DIALECT.as_str());
    let named = files(&dir).into_iter().map(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(path).unwrap())
    });
    let found: Vec<_> = named.filter(|(name, _)| name.starts_with(kind)).collect();
    assert!(!found.is_empty(), "no {kind} in {}", dir.display());
    found
}

/// Reads a document and writes it again, as if it had come from a dialect.
fn again(text: &str, from: Dialect, kind: &str) -> Result<String, DialectError> {
    let tape = Tape::parse_str(text, &Limits::default())?;
    let reader = Reader::new(&tape);
    let profile = TargetProfile::default();
    let mut out = Lowering::new(Some((from, &reader)), DIALECT, &profile);
    let codec = CODEC;
    match kind {
        "request" => codec.write_request(&codec.read_request(reader.root())?, &mut out),
        _ if tape.root().get("error").is_some() => {
            codec.write_error(&codec.read_error(reader.root(), None)?, &mut out);
        }
        _ => {
            let response = codec.read_response(reader.root())?;
            codec.write_response(&response, &Exchange::default(), &mut out);
        }
    }
    Ok(out.finish().0)
}

/// Whether two values are the same; numbers by their spelling, members in any order.
fn same(left: View<'_>, right: View<'_>) -> bool {
    left.kind() == right.kind()
        && left.len() == right.len()
        && match left.kind() {
            Kind::String => left.as_str_lossy() == right.as_str_lossy(),
            Kind::Array => left.items().zip(right.items()).all(|(l, r)| same(l, r)),
            Kind::Object => left.entries().all(|(key, value)| {
                let other = right.get(&key.as_str_lossy().unwrap());
                other.is_some_and(|other| same(value, other))
            }),
            _ => left.raw() == right.raw(),
        }
}

fn comes_back(name: &str, text: &str, kind: &str) {
    let written = again(text, DIALECT, kind).unwrap_or_else(|e| panic!("{name}: {e}"));
    let parse = |text| Tape::parse_str(text, &Limits::default()).unwrap();
    let equal = same(parse(text).root(), parse(&written).root());
    assert!(equal, "{name} became {written}");
}

#[test]
fn own_documents_come_back() {
    for kind in ["request", "response"] {
        for (name, text) in fixtures(kind) {
            comes_back(&name, &text, kind);
        }
    }
}

#[test]
fn requests_of_a_real_client_come_back() {
    let Some(dir) = shared_dir().map(|dir| dir.join("agents/recordings").join(AGENT).join("http"))
    else {
        return skip(
            &format!("requests of {AGENT}"),
            "the shared directory is not there",
        );
    };
    if !dir.is_dir() {
        return skip(
            &format!("requests of {AGENT}"),
            "there are no recordings of it",
        );
    }
    for path in files(&dir) {
        let record: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        comes_back(
            &path.display().to_string(),
            &record["body"].to_string(),
            "request",
        );
    }
}

/// An event: its name and its data.
type Event = (Option<String>, String);

fn events(text: &str) -> Vec<Event> {
    let field = |block: &str, name: &str| {
        let mut lines = block.lines().filter_map(|line| line.strip_prefix(name));
        lines.next().map(|value| value.trim_start().to_owned())
    };
    text.split("\n\n")
        .filter_map(|block| Some((field(block, "event:"), field(block, "data:")?)))
        .collect()
}

fn decode(events: &[Event]) -> Result<Vec<IrDelta>, DialectError> {
    let mut decoder = CODEC.stream_decoder();
    let mut deltas = Vec::new();
    for (name, data) in events {
        if data == "[DONE]" {
            decoder.terminator(&mut deltas);
            continue;
        }
        let tape = Tape::parse_str(data, &Limits::default())?;
        let reader = Reader::new(&tape);
        decoder.event(name.as_deref(), reader.root(), &mut deltas)?;
    }
    decoder.end(&mut deltas);
    Ok(deltas)
}

fn encode(deltas: &[IrDelta]) -> Vec<Event> {
    let profile = TargetProfile::default();
    let mut encoder = CODEC.stream_encoder(&Exchange::default());
    let mut events = Vec::new();
    for delta in deltas {
        let mut sink = EventSink::new(None, DIALECT, &profile);
        encoder.delta(delta, &mut sink);
        events.extend(sink.finish().0.into_iter().map(|event| (None, event.data)));
    }
    events
}

/// What a stream comes to, block by block; fails where its deltas break the contract.
fn summary(deltas: &[IrDelta]) -> Vec<String> {
    let mut blocks: Vec<(String, bool)> = Vec::new();
    let mut rest = Vec::new();
    for delta in deltas {
        match delta {
            IrDelta::BlockStart {
                choice,
                block,
                start,
            } => {
                assert_eq!(
                    (*choice, *block as usize),
                    (0, blocks.len()),
                    "blocks in order"
                );
                let kind = match start {
                    IrBlockStart::ToolUse { id, name, .. } => {
                        format!("{} {}", name.value, id.as_ref().unwrap().value)
                    }
                    other => format!("{other:?}").chars().take(8).collect(),
                };
                blocks.push((kind + ": ", true));
            }
            IrDelta::Append { block, text, .. } => {
                let (said, open) = &mut blocks[*block as usize];
                assert!(*open, "{text:?} in a block that ended");
                said.push_str(text);
            }
            IrDelta::BlockStop { block, .. } => blocks[*block as usize].1 = false,
            IrDelta::Finish { finish, .. } => {
                assert!(blocks.iter().all(|(_, open)| !open), "open at the end");
                rest.push(format!("{:?}", finish.reason));
            }
            IrDelta::Usage(counts) => {
                let input = counts.input_tokens.as_ref().map(|count| count.value);
                rest.push(format!("{input:?} tokens"));
            }
            IrDelta::End => rest.push("end".to_owned()),
            IrDelta::Error(error) => rest.push(error.message.value.clone()),
            _ => {}
        }
    }
    rest.sort();
    blocks
        .into_iter()
        .map(|(said, _)| said)
        .chain(rest)
        .collect()
}

#[test]
fn streams_come_to_the_same_when_written_again() {
    for (name, text) in fixtures("stream") {
        let first = decode(&events(&text)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let second = decode(&encode(&first)).expect("what the encoder wrote");
        assert_eq!(summary(&first), summary(&second), "{name}");
    }
}

proptest! {
    #![proptest_config(Config::with_cases(256))]
    #[test]
    fn changed_documents_never_panic(
        file in any::<usize>(),
        node in any::<usize>(),
        swap in proptest::sample::select(&["null", "1", "\"\"", "[]", "{}", "true", "[[{}]]"][..]),
    ) {
        for kind in ["request", "response"] {
            let texts = fixtures(kind);
            let mut text = texts[file % texts.len()].1.clone();
            let tape = Tape::parse_str(&text, &Limits::default()).unwrap();
            let values: Vec<_> = tape.nodes().filter(|view| !view.is_key()).collect();
            let span = values[node % values.len()].span();
            drop(tape);
            text.replace_range(span, swap);
            for from in [DIALECT, Dialect::OpenAi, Dialect::Claude] {
                if let Ok(written) = again(&text, from, kind) {
                    prop_assert!(Tape::parse_str(&written, &Limits::default()).is_ok(), "{written}");
                }
            }
            // A document is no chunk, but has most of a chunk's members.
            drop(decode(&[(None, text)]));
        }
    }
}
