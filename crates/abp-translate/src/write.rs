//! Writing what comes from no vendor: answers, errors and streams that ABP made itself.

use std::borrow::Cow;

use abp_core::ir::{IrDelta, IrError, IrResponse, Leaf};
use abp_dialect::{Codec, Dialect, EventSink, Exchange, Lowering, TargetProfile, WrittenEvent};

use crate::{StreamEvent, StreamSummary, TranslateError, codec};

/// Writes an answer; `exchange` is what is known of the request.
///
/// # Errors
/// Fails where the hub does not know the dialect.
pub fn write_response(
    response: &IrResponse,
    to: Dialect,
    exchange: &Exchange,
) -> Result<String, TranslateError> {
    let profile = TargetProfile::default();
    let mut out = Lowering::new(None, to, &profile);
    writing(to)?.write_response(response, exchange, &mut out);
    Ok(out.finish().0)
}

/// Writes an error's body. Returns it with its HTTP status.
///
/// # Errors
/// Fails where the hub does not know the dialect.
pub fn write_error(error: &IrError, to: Dialect) -> Result<(u16, String), TranslateError> {
    let profile = TargetProfile::default();
    let mut out = Lowering::new(None, to, &profile);
    let status = writing(to)?.write_error(error, &mut out);
    Ok((status, out.finish().0))
}

/// Writes a whole stream, event by event; `exchange` is what is known of the request.
///
/// # Errors
/// Fails where the hub does not know the dialect.
pub fn write_stream(
    deltas: &[IrDelta],
    to: Dialect,
    exchange: &Exchange,
) -> Result<Vec<StreamEvent>, TranslateError> {
    let profile = TargetProfile::default();
    let mut encoder = writing(to)?.stream_encoder(exchange);
    let mut sink = EventSink::new(None, to, &profile);
    for delta in deltas {
        encoder.delta(delta, &mut sink);
    }
    Ok(written(sink))
}

/// Writes the error in which a stream ends that its vendor wrote until then; `so_far` is what was seen of
/// it. The error is about the answer that was announced, if it came that far.
///
/// # Errors
/// Fails where the hub does not know the dialect.
pub fn write_interruption(
    error: IrError,
    so_far: &StreamSummary,
    to: Dialect,
) -> Result<Vec<StreamEvent>, TranslateError> {
    let profile = TargetProfile::default();
    let mut encoder = writing(to)?.stream_encoder(&Exchange::default());
    if let Some(id) = &so_far.id {
        let start = IrDelta::Start {
            id: Some(Leaf::from(id.as_str())),
            model: None,
            created: None,
            vendor: Vec::new(),
        };
        // The vendor has said it already.
        encoder.delta(&start, &mut EventSink::new(None, to, &profile));
        encoder.follow(so_far.events);
    }
    let mut sink = EventSink::new(None, to, &profile);
    encoder.delta(&IrDelta::Error(error), &mut sink);
    Ok(written(sink))
}

fn written(sink: EventSink<'_>) -> Vec<StreamEvent> {
    let (events, _, _) = sink.finish();
    let event = |WrittenEvent { name, data, .. }| StreamEvent {
        name: name.map(Cow::Borrowed),
        data,
    };
    events.into_iter().map(event).collect()
}

fn writing(to: Dialect) -> Result<&'static dyn Codec, TranslateError> {
    codec(to).ok_or(TranslateError::NoCodec(to))
}
