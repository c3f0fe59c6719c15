//! The span of an exchange, in the attribute names of the GenAI conventions of OpenTelemetry.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use abp_dialect::Dialect;
use abp_telemetry::{FinishedSpan, SpanKind, TraceContext};
use http::{HeaderMap, HeaderValue};

use crate::gateway::GENERATE;
use crate::headers::TRACE_PARENT;
use crate::tally::Tally;

impl Tally {
    /// Takes the place of the caller in a trace from its headers, where spans are recorded.
    pub(crate) fn join_trace(&mut self, headers: &HeaderMap) {
        if self.shared.metrics.spans().is_none() {
            return;
        }
        let header = headers.get(TRACE_PARENT);
        let header = header.and_then(|header| header.to_str().ok());
        self.caller_trace = header.and_then(TraceContext::parse);
    }

    /// Names the exchange, instead of its caller, as the place that a call comes from. Where no spans are
    /// recorded, the caller's own header goes along as it is.
    pub(crate) fn mark_trace(&self, headers: &mut HeaderMap) {
        if self.shared.metrics.spans().is_none() {
            return;
        }
        let text = self.trace().to_string();
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(TRACE_PARENT, value);
        }
    }

    fn trace(&self) -> TraceContext {
        TraceContext::of_id(self.record.run_id.into_bytes(), self.caller_trace)
    }

    /// Records the span of an exchange that is over.
    pub(crate) fn record_span(&self) {
        let Some(spans) = self.shared.metrics.spans() else {
            return;
        };
        let (record, context) = (&self.record, self.trace());
        if !context.is_sampled {
            return;
        }
        let operation = match record.operation.as_str() {
            GENERATE => "chat",
            other => other,
        };
        let mut attributes = vec![
            ("gen_ai.operation.name", operation.into()),
            ("gen_ai.request.model", record.model_asked.as_str().into()),
            ("abp.exchange_id", record.run_id.to_string().as_str().into()),
            ("abp.upstream", record.upstream.as_str().into()),
            ("http.response.status_code", u64::from(record.status).into()),
        ];
        if !record.model_sent.is_empty() {
            attributes.push(("gen_ai.response.model", record.model_sent.as_str().into()));
        }
        if let Some(provider) = provider(&record.upstream_dialect) {
            attributes.push(("gen_ai.provider.name", provider.into()));
        }
        let usage = [
            ("gen_ai.usage.input_tokens", record.usage.input_tokens),
            ("gen_ai.usage.output_tokens", record.usage.output_tokens),
        ];
        for (name, tokens) in usage {
            attributes.extend(tokens.map(|tokens| (name, tokens.into())));
        }
        if let Some(code) = &record.error_code {
            attributes.push(("error.type", code.as_str().into()));
        }
        let millis = u64::try_from(record.started_at.as_unix_millis()).unwrap_or(0);
        let started_at: SystemTime = UNIX_EPOCH + Duration::from_millis(millis);
        spans.push(FinishedSpan {
            name: format!("{operation} {}", record.model_asked),
            context,
            parent: self.caller_trace.map(|caller| caller.span_id),
            kind: SpanKind::Client,
            started_at,
            ended_at: started_at + Duration::from_micros(record.duration_us),
            attributes,
            error: record.error_code.clone(),
        });
    }
}

/// The vendor's name in the conventions.
fn provider(dialect: &str) -> Option<&'static str> {
    let dialect: Dialect = serde_json::from_value(dialect.into()).ok()?;
    match dialect {
        Dialect::OpenAi | Dialect::Codex => Some("openai"),
        Dialect::Claude => Some("anthropic"),
        Dialect::Gemini => Some("gcp.gemini"),
        Dialect::Kimi => Some("moonshot_ai"),
        // The conventions have no name for it.
        _ => None,
    }
}
