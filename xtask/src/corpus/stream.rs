//! Streams: piece by piece has to add up to the whole.

use std::borrow::Cow;

use abp_core::ir::{IrDelta, IrFinishReason, IrResponse};
use abp_dialect::sse::{SseDecoder, SseEvent, SseLimits};
use abp_dialect::{Dialect, Exchange, Lowering, Reader, TargetProfile};
use abp_json::{Limits, Tape};
use abp_translate::{Accumulator, FidelityLevel, Options, StreamTranslator, UNEXPLAINED, codec};

use super::Verdict;
use super::essence::Essence;

/// A name and data.
pub(super) type Event = (Option<String>, String);

pub(super) fn judge(bytes: &[u8], from: Dialect, to: Dialect) -> Verdict {
    match examine(bytes, from, to) {
        Ok(verdict) => verdict,
        Err(problem) => Verdict::Failed(problem),
    }
}

fn examine(bytes: &[u8], from: Dialect, to: Dialect) -> Result<Verdict, String> {
    let events = events(bytes, bytes.len())?;
    if from == to && self::events(bytes, 1)? != events {
        return Ok(Verdict::Silent("split bytes give other events".to_owned()));
    }
    let options = Options::default();
    let mut translator = StreamTranslator::new(from, to, &Exchange::default(), &options)
        .map_err(|error| error.to_string())?;
    let mut written: Vec<Event> = Vec::new();
    for (name, data) in &events {
        let out = translator.event(name.as_deref(), data);
        written.extend(
            out.into_iter()
                .map(|event| (event.name.map(Cow::into_owned), event.data)),
        );
    }
    let out = translator.end();
    written.extend(
        out.into_iter()
            .map(|event| (event.name.map(Cow::into_owned), event.data)),
    );
    let ledger = translator.ledger();
    let unexplained =
        |entry: &&abp_translate::LedgerEntry| entry.label.as_deref() == Some(UNEXPLAINED);
    if let Some(entry) = ledger.entries().iter().find(unexplained) {
        return Ok(Verdict::Silent(format!(
            "{}: {}",
            entry.source.as_deref().unwrap_or_default(),
            entry.reason.as_deref().unwrap_or_default()
        )));
    }
    let (whole, broken_off) = accumulate(from, &events)?;
    let (pieces, _) = accumulate(to, &written)?;
    let difference = match (whole, pieces) {
        (Ok(_), Ok(_)) if from != to && broken_off => {
            Some("an answer that broke off became a finished one".to_owned())
        }
        (Ok(whole), Ok(pieces)) => {
            // Its own dialect tells it as it was told.
            let whole = if from == to {
                whole
            } else {
                rewritten(&whole, to)?
            };
            Essence::of(&whole).difference(&Essence::of(&pieces))
        }
        (Err(_), Err(_)) => None,
        (Ok(_), Err(_)) if broken_off => None,
        (Ok(_), Err(error)) => Some(format!(
            "an answer became the error {:?}",
            error.message.value
        )),
        (Err(error), Ok(_)) => Some(format!(
            "the error {:?} became an answer",
            error.message.value
        )),
    };
    Ok(match difference {
        Some(difference) => Verdict::Silent(difference),
        None => match ledger.fidelity() {
            FidelityLevel::Lossless => Verdict::Exact,
            FidelityLevel::LossyLabeled => Verdict::Labelled,
            FidelityLevel::Unsupported => Verdict::Refused,
        },
    })
}

/// The events of a stream whose bytes come in pieces.
pub(super) fn events(bytes: &[u8], piece: usize) -> Result<Vec<Event>, String> {
    let mut decoder = SseDecoder::new(SseLimits::default());
    let mut events = Vec::new();
    let mut take = |event: SseEvent<'_>| {
        if let SseEvent::Message { name, data, .. } = event {
            events.push((name.map(str::to_owned), data.to_owned()));
        }
    };
    for piece in bytes.chunks(piece.max(1)) {
        let mut fed = decoder.feed(piece);
        while let Some(event) = fed.next_event().map_err(|error| error.to_string())? {
            take(event);
        }
    }
    let mut last = decoder.finish();
    while let Some(event) = last.next_event().map_err(|error| error.to_string())? {
        take(event);
    }
    Ok(events)
}

type Answer = Result<IrResponse, Box<abp_core::ir::IrError>>;

/// The answer that a stream adds up to, and whether the stream ended before it.
fn accumulate(dialect: Dialect, events: &[Event]) -> Result<(Answer, bool), String> {
    let codec = codec(dialect).ok_or_else(|| format!("{dialect} has no codec"))?;
    let mut decoder = codec.stream_decoder();
    let mut sum = Accumulator::default();
    let mut deltas: Vec<IrDelta> = Vec::new();
    for (name, data) in events {
        if data.trim() == "[DONE]" {
            decoder.terminator(&mut deltas);
            deltas.drain(..).for_each(|delta| sum.push(&delta));
            continue;
        }
        let tape = Tape::parse_str(data, &Limits::default()).map_err(|error| error.to_string())?;
        let reader = Reader::lenient(&tape);
        decoder
            .event(name.as_deref(), reader.root(), &mut deltas)
            .map_err(|error| error.to_string())?;
        for delta in deltas.drain(..) {
            sum.push(&delta);
        }
    }
    decoder.end(&mut deltas);
    for delta in &deltas {
        sum.push(delta);
    }
    Ok((sum.finish(), deltas.iter().any(breaks_off)))
}

/// Whether a decoder closes what its source left open.
fn breaks_off(delta: &IrDelta) -> bool {
    matches!(delta, IrDelta::Finish { finish, .. }
        if finish.reason == IrFinishReason::Incomplete && finish.native.is_none())
}

/// The answer as the target would have given it in one piece.
fn rewritten(response: &IrResponse, dialect: Dialect) -> Result<IrResponse, String> {
    let codec = codec(dialect).ok_or_else(|| format!("{dialect} has no codec"))?;
    let profile = TargetProfile::default();
    let mut out = Lowering::new(None, dialect, &profile);
    codec.write_response(response, &Exchange::default(), &mut out);
    let (text, _, _) = out.finish();
    let tape = Tape::parse_str(&text, &Limits::default()).map_err(|error| error.to_string())?;
    let reader = Reader::new(&tape);
    codec
        .read_response(reader.root())
        .map_err(|error| error.to_string())
}
