//! Streams: what a decoder may say, and what comes back from an encoder.

use std::collections::BTreeMap;

use abp_core::ir::{IrBlockStart, IrDelta, IrFinishReason, IrUsage, Origin};

use crate::support::{decode, encode, events_of, fixtures, recorded};

/// What a stream says as a whole.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    id: Option<String>,
    model: Option<String>,
    /// Each block's kind, text, proof and number of citations.
    blocks: BTreeMap<(u32, u32), (String, String, String, usize)>,
    finishes: BTreeMap<u32, IrFinishReason>,
    usage: IrUsage,
    error: Option<String>,
}

/// Puts a stream together, and checks that it obeys the contract of its deltas.
fn accumulate(deltas: &[IrDelta]) -> Answer {
    let mut answer = Answer::default();
    let mut open = BTreeMap::new();
    let mut over = false;
    for delta in deltas {
        assert!(!over, "nothing follows the end: {delta:?}");
        match delta {
            IrDelta::Start { id, model, .. } => {
                assert!(
                    answer.id.is_none() && answer.blocks.is_empty(),
                    "one start, at the start"
                );
                answer.id = id.as_ref().map(|id| id.value.clone());
                answer.model = model.as_ref().map(|model| model.value.clone());
            }
            IrDelta::BlockStart {
                choice,
                block,
                start,
            } => {
                let kind = match start {
                    IrBlockStart::ToolUse { id, name, .. } => {
                        let id = id.as_ref().map(|id| &id.value);
                        format!("{id:?} {}", name.value)
                    }
                    IrBlockStart::Opaque { native, .. } => native.text().to_owned(),
                    other => format!("{other:?}"),
                };
                let started = (kind, String::new(), String::new(), 0);
                assert!(answer.blocks.insert((*choice, *block), started).is_none());
                open.insert((*choice, *block), ());
            }
            IrDelta::Append {
                choice,
                block,
                text,
            } => {
                assert!(open.contains_key(&(*choice, *block)));
                answer
                    .blocks
                    .get_mut(&(*choice, *block))
                    .expect("begun")
                    .1
                    .push_str(text);
            }
            IrDelta::Signature {
                choice,
                block,
                signature,
            } => {
                assert!(open.contains_key(&(*choice, *block)));
                answer
                    .blocks
                    .get_mut(&(*choice, *block))
                    .expect("begun")
                    .2
                    .push_str(signature);
            }
            IrDelta::Citation { choice, block, .. } => {
                assert!(open.contains_key(&(*choice, *block)));
                answer.blocks.get_mut(&(*choice, *block)).expect("begun").3 += 1;
            }
            IrDelta::BlockStop { choice, block } => {
                assert!(open.remove(&(*choice, *block)).is_some());
            }
            IrDelta::Finish { choice, finish } => {
                assert!(
                    open.keys().all(|(of, _)| of != choice),
                    "blocks end before their choice"
                );
                answer.finishes.insert(*choice, finish.reason);
            }
            IrDelta::Usage(usage) => {
                answer.usage = IrUsage {
                    vendor: Vec::new(),
                    origin: Origin::Host,
                    ..usage.clone()
                };
            }
            IrDelta::End => over = true,
            IrDelta::Error(error) => {
                over = true;
                answer.error = Some(error.message.value.clone());
            }
            _ => {}
        }
    }
    assert!(over, "a stream ends");
    assert!(open.is_empty(), "every block is stopped");
    answer
}

/// Citations without an address have no form of their own here, so their number is not compared.
fn without_citations(mut answer: Answer) -> Answer {
    answer.blocks.values_mut().for_each(|block| block.3 = 0);
    answer
}

#[test]
fn streams_come_back() {
    let mut bodies = fixtures("stream_");
    bodies.extend(recorded("stream").unwrap_or_default());
    for (name, body) in bodies {
        let events = events_of(&body);
        let first = accumulate(&decode(&events).unwrap_or_else(|error| {
            panic!("{}: {error}", name.display());
        }));
        let again = accumulate(&decode(&encode(&events)).expect("our own stream"));
        assert_eq!(
            without_citations(first),
            without_citations(again),
            "{}",
            name.display()
        );
    }
}

#[test]
fn a_stream_that_breaks_off_is_no_success() {
    let piece = r#"{"candidates":[{"content":{"parts":[{"text":"Hel"}],"role":"model"}}]}"#;
    let answer = accumulate(&decode(&[piece.to_owned()]).expect("a stream"));
    assert_eq!(answer.finishes.get(&0), Some(&IrFinishReason::Incomplete));
    let last = encode(&[piece.to_owned()]).pop().expect("a last event");
    assert!(last.contains(r#""finishReason":"OTHER""#), "{last}");
    let nothing = accumulate(&decode(&[]).expect("a stream"));
    assert_eq!(nothing.finishes.get(&0), Some(&IrFinishReason::Incomplete));
}

#[test]
fn an_error_ends_a_stream() {
    let piece = r#"{"candidates":[{"content":{"parts":[{"text":"Hel"}]}}]}"#.to_owned();
    for error in [
        r#"{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}"#,
        r#"[{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}]"#,
    ] {
        let events = [piece.clone(), error.to_owned(), piece.clone()];
        let answer = accumulate(&decode(&events).expect("a stream"));
        assert_eq!(answer.error.as_deref(), Some("busy"));
        let last = encode(&events).pop().expect("a last event");
        assert!(last.starts_with(r#"{"error":{"code":503,"#), "{last}");
    }
}

/// Offsets are bytes on the wire and characters in the representation, also when the text came in
/// pieces before.
#[test]
fn sources_are_found_by_bytes() {
    let events = [
        r#"{"candidates":[{"content":{"parts":[{"text":"Zürich — "}]}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"schön"}]},"groundingMetadata":{
            "groundingChunks":[{"web":{"uri":"https://example.com","title":"t"}}],
            "groundingSupports":[{"segment":{"startIndex":12,"endIndex":18},
            "groundingChunkIndices":[0]}]},"finishReason":"STOP"}]}"#,
    ]
    .map(str::to_owned);
    let range_of = |deltas: Vec<IrDelta>| {
        deltas.into_iter().find_map(|delta| match delta {
            IrDelta::Citation { citation, .. } => citation.range,
            _ => None,
        })
    };
    let range = range_of(decode(&events).expect("a stream")).expect("a citation");
    assert_eq!((range.start.value, range.end.value), (9, 14));
    let last = encode(&events).pop().expect("a last event");
    assert!(last.contains(r#""startIndex":12,"endIndex":18"#), "{last}");
}
