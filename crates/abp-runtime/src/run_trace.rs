//! The span of a run, in the attribute names of the GenAI conventions of OpenTelemetry.

use std::time::SystemTime;

use abp_core::{Outcome, Receipt};
use abp_telemetry::{FinishedSpan, SpanKind, SpanQueue, TraceContext};
use uuid::Uuid;

/// A run that is traced from its beginning in this process on.
#[derive(Debug)]
pub(crate) struct RunTrace {
    run_id: Uuid,
    caller: Option<TraceContext>,
    started_at: SystemTime,
}

impl RunTrace {
    pub(crate) fn begin(run_id: Uuid, caller: Option<TraceContext>) -> Self {
        Self {
            run_id,
            caller,
            started_at: SystemTime::now(),
        }
    }

    /// Records the span, unless the caller said that nobody wants its trace.
    pub(crate) fn end(self, receipt: &Receipt, spans: &SpanQueue) {
        let context = TraceContext::of_id(self.run_id.into_bytes(), self.caller);
        if !context.is_sampled {
            return;
        }
        let backend = receipt.backend.id.as_str();
        let outcome = match receipt.outcome {
            Outcome::Complete => "complete",
            Outcome::Partial => "partial",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
        };
        let mut attributes = vec![
            ("gen_ai.operation.name", "invoke_agent".into()),
            ("gen_ai.agent.name", backend.into()),
            ("abp.run_id", self.run_id.to_string().as_str().into()),
            ("abp.outcome", outcome.into()),
        ];
        if let Some(model) = &receipt.model {
            if let Some(asked) = &model.asked {
                attributes.push(("gen_ai.request.model", asked.as_str().into()));
            }
            if let Some(answered) = &model.used {
                attributes.push(("gen_ai.response.model", answered.as_str().into()));
            }
        }
        let usage = [
            ("gen_ai.usage.input_tokens", receipt.usage.input_tokens),
            ("gen_ai.usage.output_tokens", receipt.usage.output_tokens),
        ];
        for (name, tokens) in usage {
            attributes.extend(tokens.map(|tokens| (name, tokens.into())));
        }
        let failure = receipt.error.as_ref();
        if let Some(error) = failure {
            attributes.push(("error.type", error.code.as_str().into()));
        }
        spans.push(FinishedSpan {
            name: format!("invoke_agent {backend}"),
            context,
            parent: self.caller.map(|caller| caller.span_id),
            kind: SpanKind::Internal,
            started_at: self.started_at,
            ended_at: SystemTime::now(),
            attributes,
            // The code alone: a message may repeat what the agent said.
            error: failure.map(|error| error.code.as_str().to_owned()),
        });
    }
}
