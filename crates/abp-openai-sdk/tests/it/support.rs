//! What the tests share: running the codec, finding documents, reading streams.

use std::path::{Path, PathBuf};
use std::{env, fs};

use abp_core::ir::{IrBlockStart, IrDelta};
use abp_dialect::{
    Codec, Dialect, DialectError, EventSink, Exchange, Lowering, Reader, TargetProfile,
};
use abp_json::{Kind, Limits, Tape, View};
use abp_openai_sdk::OpenAiCodec;

/// The files of a folder, in order.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

/// The project's own documents of a kind: `request`, `response` or `stream`.
pub(crate) fn fixtures(kind: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/openai");
    let named = |path: &PathBuf| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        name.starts_with(kind)
    };
    let found: Vec<_> = files(&dir).into_iter().filter(named).collect();
    assert!(!found.is_empty(), "no {kind} in {}", dir.display());
    found
}

pub(crate) fn parse(text: &str) -> Tape<'_> {
    Tape::parse_str(text, &Limits::default()).expect("JSON")
}

/// Reads a document and writes it again, from and to the dialects named.
pub(crate) fn again(text: &str, from: Dialect, kind: &str) -> Result<String, DialectError> {
    let tape = Tape::parse_str(text, &Limits::default())?;
    let reader = Reader::new(&tape);
    let profile = TargetProfile::default();
    let mut out = Lowering::new(Some((from, &reader)), Dialect::OpenAi, &profile);
    match kind {
        "request" => OpenAiCodec.write_request(&OpenAiCodec.read_request(reader.root())?, &mut out),
        "response" => {
            let response = OpenAiCodec.read_response(reader.root())?;
            OpenAiCodec.write_response(&response, &Exchange::default(), &mut out);
        }
        _ => {
            let error = OpenAiCodec.read_error(reader.root(), None)?;
            OpenAiCodec.write_error(&error, &mut out);
        }
    }
    Ok(out.finish().0)
}

/// Whether two values are the same; numbers by their spelling, members in any order.
pub(crate) fn same(left: View<'_>, right: View<'_>) -> bool {
    left.kind() == right.kind()
        && match left.kind() {
            Kind::String => left.as_str_lossy() == right.as_str_lossy(),
            Kind::Array => {
                left.len() == right.len()
                    && left.items().zip(right.items()).all(|(l, r)| same(l, r))
            }
            Kind::Object => {
                left.len() == right.len()
                    && left.entries().all(|(key, value)| {
                        let key = key.as_str_lossy().unwrap_or_default();
                        right.get(&key).is_some_and(|other| same(value, other))
                    })
            }
            _ => left.raw() == right.raw(),
        }
}

/// An event: its name and its data.
pub(crate) type Event = (Option<String>, String);

/// The events of a recorded stream.
pub(crate) fn events(text: &str) -> Vec<Event> {
    let text = text.replace("\r\n", "\n");
    let blocks = text.split("\n\n");
    let fields = |block: &str, name: &str| -> Vec<String> {
        let lines = block.lines().filter_map(|line| line.strip_prefix(name));
        lines.map(|value| value.trim_start().to_owned()).collect()
    };
    blocks
        .map(|block| {
            (
                fields(block, "event:").pop(),
                fields(block, "data:").join("\n"),
            )
        })
        .filter(|(_, data)| !data.is_empty())
        .collect()
}

/// Decodes a stream and checks that its deltas keep the contract.
pub(crate) fn decode(events: &[Event]) -> Result<Vec<IrDelta>, DialectError> {
    let mut decoder = OpenAiCodec.stream_decoder();
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
    check_contract(&deltas);
    Ok(deltas)
}

/// Encodes deltas whose source is gone.
pub(crate) fn encode(deltas: &[IrDelta], exchange: &Exchange) -> Vec<Event> {
    let profile = TargetProfile::default();
    let mut encoder = OpenAiCodec.stream_encoder(exchange);
    let mut events = Vec::new();
    for delta in deltas {
        let mut sink = EventSink::new(None, Dialect::OpenAi, &profile);
        encoder.delta(delta, &mut sink);
        let (written, _, _) = sink.finish();
        events.extend(written.into_iter().map(|event| (None, event.data)));
    }
    events
}

fn check_contract(deltas: &[IrDelta]) {
    let mut open = Vec::new();
    let mut next = std::collections::BTreeMap::new();
    let over = |delta: &IrDelta| matches!(delta, IrDelta::End | IrDelta::Error(_));
    assert!(
        deltas.last().is_some_and(over),
        "no end: {:?}",
        deltas.last()
    );
    assert_eq!(
        deltas.iter().filter(|delta| over(delta)).count(),
        1,
        "two ends"
    );
    assert!(matches!(
        deltas.first(),
        Some(IrDelta::Start { .. } | IrDelta::Error(_))
    ));
    for delta in deltas {
        match delta {
            IrDelta::BlockStart { choice, block, .. } => {
                let expected = next.entry(*choice).or_insert(0);
                assert_eq!(block, expected, "blocks are numbered in order");
                *expected += 1;
                open.push((*choice, *block));
            }
            IrDelta::Append { choice, block, .. }
            | IrDelta::Signature { choice, block, .. }
            | IrDelta::Citation { choice, block, .. } => {
                assert!(
                    open.contains(&(*choice, *block)),
                    "{delta:?} in no open block"
                );
            }
            IrDelta::BlockStop { choice, block } => {
                let place = open.iter().position(|known| known == &(*choice, *block));
                open.remove(place.expect("a block that is open"));
            }
            IrDelta::Finish { choice, .. } => {
                assert!(
                    open.iter().all(|(known, _)| known != choice),
                    "open at its end"
                );
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "never stopped: {open:?}");
}

/// What a stream comes to: each block's kind and text, each choice's end, the counts.
pub(crate) fn summary(deltas: &[IrDelta]) -> Vec<String> {
    let mut blocks = std::collections::BTreeMap::new();
    let mut rest = Vec::new();
    for delta in deltas {
        match delta {
            IrDelta::BlockStart {
                choice,
                block,
                start,
            } => {
                let kind = match start {
                    IrBlockStart::ToolUse {
                        id, name, custom, ..
                    } => {
                        format!(
                            "call {:?} {} {custom}",
                            id.as_ref().map(|id| &id.value),
                            name.value
                        )
                    }
                    other => format!("{other:?}").chars().take(8).collect(),
                };
                blocks.insert((*choice, *block), (kind, String::new()));
            }
            IrDelta::Append {
                choice,
                block,
                text,
            } => {
                let open = blocks.get_mut(&(*choice, *block)).expect("an open block");
                open.1.push_str(text);
            }
            IrDelta::Finish { choice, finish } => {
                rest.push(format!("{choice}: {:?}", finish.reason));
            }
            IrDelta::Error(error) => {
                rest.push(format!("{:?}: {}", error.kind, error.message.value));
            }
            _ => {}
        }
    }
    let usage = deltas.iter().rev().find_map(|delta| match delta {
        IrDelta::Usage(usage) => Some(usage),
        _ => None,
    });
    let usage = usage.map(|usage| {
        let counts = [
            &usage.input_tokens,
            &usage.output_tokens,
            &usage.reasoning_tokens,
        ];
        format!(
            "{:?}",
            counts.map(|count| count.as_ref().map(|count| count.value))
        )
    });
    rest.dedup();
    blocks
        .into_iter()
        .map(|(place, (kind, text))| format!("{place:?} {kind}: {text}"))
        .chain(rest)
        .chain(usage)
        .collect()
}
