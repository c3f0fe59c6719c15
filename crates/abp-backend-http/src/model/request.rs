//! What is sent to a model for a work order.

use abp_backend_core::{ModelCall, ModelOperation, UpstreamDescriptor};
use abp_core::WorkOrder;
use abp_dialect::{Dialect, DialectDetector, Signals, WireFamily};
use abp_error::{AbpError, ErrorCode};
use abp_json::{Kind, Limits, Tape, View};
use abp_plan::Payload;
use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

/// The call that carries out a payload.
///
/// What the plan wrote is made to ask for a stream. A vendor's own request is sent byte for byte, and
/// answered as it asks.
pub(super) fn call(
    order: &WorkOrder,
    planned_model: Option<&str>,
    payload: &Payload,
    upstream: &UpstreamDescriptor,
) -> Result<ModelCall, AbpError> {
    let (request, lowered) = match payload {
        Payload::Lowered {
            dialect, request, ..
        } => (request, Some(*dialect)),
        Payload::VendorRequest { request } => (request, None),
        _ => {
            let message = "the plan did not write the request in the model's dialect";
            return Err(AbpError::new(ErrorCode::Internal, message));
        }
    };
    let tape = Tape::parse_str(request, &Limits::default()).map_err(|error| {
        AbpError::new(
            ErrorCode::ValidationFailed,
            "the request is not readable as JSON",
        )
        .with_source(error)
    })?;
    let dialect = match lowered {
        Some(dialect) => dialect,
        None => spoken(order, tape.root(), upstream)?,
    };
    let by_address = dialect.family() == WireFamily::GenerateContent;
    let (body, stream) = match lowered {
        Some(_) if !by_address => (asking_for_stream(request, tape.root(), dialect), true),
        _ => {
            let asked = tape.root().get("stream").and_then(View::as_bool);
            (request.clone(), by_address || asked == Some(true))
        }
    };
    Ok(ModelCall {
        dialect,
        operation: ModelOperation::Generate { stream },
        model: model(planned_model, tape.root(), by_address)?,
        query: by_address.then(|| "alt=sse".to_owned()),
        headers: HeaderMap::new(),
        body: Bytes::from(body),
    })
}

/// The dialect of a vendor's own request: the one that is named, or that the request shows, or else
/// the one that the upstream speaks best.
fn spoken(
    order: &WorkOrder,
    request: View<'_>,
    upstream: &UpstreamDescriptor,
) -> Result<Dialect, AbpError> {
    let speaks = |dialect: &Dialect| upstream.dialects.contains(dialect);
    let mismatch = |problem: String| AbpError::new(ErrorCode::MappingDialectMismatch, problem);
    if let Some(Value::String(name)) = order.config.abp_setting("dialect") {
        let named: Dialect = name
            .parse()
            .map_err(|error: abp_dialect::UnknownDialect| mismatch(error.to_string()))?;
        let problem = format!("{} does not speak {}", upstream.name, named.label());
        return Some(named).filter(speaks).ok_or_else(|| mismatch(problem));
    }
    let signals = Signals {
        body: Some(request),
        ..Signals::default()
    };
    DialectDetector::detect(&signals)
        .map(|found| found.dialect)
        .filter(speaks)
        .or_else(|| upstream.dialects.first().copied())
        .ok_or_else(|| mismatch(format!("{} speaks no dialect", upstream.name)))
}

/// The model that is asked for. Only an address cannot do without one: a vendor that reads it from the
/// body says itself what it thinks of a missing one.
fn model(planned: Option<&str>, request: View<'_>, needed: bool) -> Result<String, AbpError> {
    let told = planned.map(str::to_owned);
    let written = || Some(request.get("model")?.as_str()?.into_owned());
    let model = told.or_else(written).filter(|model| !model.is_empty());
    match model {
        None if needed => {
            let message = "no model is named, and the vendor's address needs one";
            Err(AbpError::new(ErrorCode::ValidationFailed, message))
        }
        model => Ok(model.unwrap_or_default()),
    }
}

/// The request with `stream` set, and for chat completions with the wish for usage, which a stream has
/// only then. Everything else stays as it is written.
fn asking_for_stream(request: &str, root: View<'_>, dialect: Dialect) -> String {
    if root.kind() != Kind::Object {
        return request.to_owned();
    }
    let part = |from, to| request.get(from..to).unwrap_or_default();
    let mut text = String::with_capacity(request.len() + 64);
    let mut copied = 0;
    for (key, value) in root.entries() {
        if key.as_str().as_deref() == Some("stream") {
            text.push_str(part(copied, value.span().start));
            text.push_str("true");
            copied = value.span().end;
        }
    }
    let close = root.span().end - 1;
    text.push_str(part(copied, close));
    let wishes = [
        ("stream", "true", true),
        (
            "stream_options",
            r#"{"include_usage":true}"#,
            dialect.family() == WireFamily::Chat,
        ),
    ];
    let mut comma = !root.is_empty();
    for (key, value, wanted) in wishes {
        if wanted && root.get(key).is_none() {
            if comma {
                text.push(',');
            }
            abp_json::push_string(&mut text, key);
            text.push(':');
            text.push_str(value);
            comma = true;
        }
    }
    text.push_str(part(close, request.len()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_for_a_stream_changes_nothing_else() {
        let check = |dialect, request: &str, expected: &str| {
            let tape = Tape::parse_str(request, &Limits::default()).unwrap();
            assert_eq!(asking_for_stream(request, tape.root(), dialect), expected);
        };
        check(
            Dialect::Claude,
            "{ \"max_tokens\": 1e2,\t\"x\":{\"stream\":false} }\n",
            "{ \"max_tokens\": 1e2,\t\"x\":{\"stream\":false} ,\"stream\":true}\n",
        );
        check(Dialect::Codex, "{}", r#"{"stream":true}"#);
        check(
            Dialect::Codex,
            r#"{"stream":false,"a":1.0,"stream":null}"#,
            r#"{"stream":true,"a":1.0,"stream":true}"#,
        );
        check(
            Dialect::OpenAi,
            r#"{"stream": true , "n":1}"#,
            r#"{"stream": true , "n":1,"stream_options":{"include_usage":true}}"#,
        );
        check(
            Dialect::Kimi,
            r#"{"stream_options":{"include_usage":false}}"#,
            r#"{"stream_options":{"include_usage":false},"stream":true}"#,
        );
    }
}
