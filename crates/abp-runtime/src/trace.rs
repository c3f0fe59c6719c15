//! The trace: every event of a run, digested as it happens and embedded while it is small.

use abp_core::{AgentEvent, AgentEventKind, ContractError, EventDigest, TraceDigest};
use abp_json::{AdmissionChange, admit_value};
use serde_json::{Value, json};

/// The largest trace a receipt embeds, in bytes of JSON.
pub(crate) const MAX_EMBEDDED_BYTES: usize = 4 * 1024 * 1024;
/// Where an event says what had to be changed to record it.
const ADMITTED_KEY: &str = "abp_admitted";

/// The events of a run so far: all of them digested, embedded while they are few enough. The rest
/// is in the store.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    embedded: Vec<AgentEvent>,
    bytes: usize,
    digest: EventDigest,
}

impl Trace {
    /// Records an event; returns its place among the others and its compact JSON.
    pub(crate) fn record(&mut self, event: &AgentEvent) -> Result<(u64, String), ContractError> {
        let seq = self.digest.count();
        let json = self.digest.push(event)?;
        self.bytes = self.bytes.saturating_add(json.len());
        if self.bytes <= MAX_EMBEDDED_BYTES {
            self.embedded.push(event.clone());
        } else {
            self.embedded = Vec::new();
        }
        Ok((seq, json))
    }

    /// Whether nothing was recorded yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.digest.count() == 0
    }

    /// The events to embed, and the digest of all.
    pub(crate) fn finish(self) -> (Vec<AgentEvent>, TraceDigest) {
        let digest = self.digest.finish(self.bytes <= MAX_EMBEDDED_BYTES);
        (self.embedded, digest)
    }
}

/// Makes the foreign JSON of an event safe to hash, and labels what that changed.
pub(crate) fn admit(mut event: AgentEvent) -> AgentEvent {
    let mut changes = Vec::new();
    match &mut event.kind {
        AgentEventKind::ToolCall { input, .. } => admit_in_place(input, "/input", &mut changes),
        AgentEventKind::ToolResult { output, .. } => {
            admit_in_place(output, "/output", &mut changes);
        }
        AgentEventKind::ContentBlock { data, .. } => admit_in_place(data, "/data", &mut changes),
        AgentEventKind::Opaque(opaque) => {
            for (key, value) in &mut opaque.fields {
                admit_in_place(
                    value,
                    &format!("/{}", abp_json::pointer::escape(key)),
                    &mut changes,
                );
            }
        }
        _ => {}
    }
    for (key, value) in event.ext.iter_mut().flatten() {
        admit_in_place(
            value,
            &format!("/ext/{}", abp_json::pointer::escape(key)),
            &mut changes,
        );
    }
    if !changes.is_empty() {
        event
            .ext
            .get_or_insert_default()
            .insert(ADMITTED_KEY.to_owned(), Value::Array(changes));
    }
    event
}

fn admit_in_place(value: &mut Value, prefix: &str, changes: &mut Vec<Value>) {
    let admitted = admit_value(std::mem::take(value));
    *value = admitted.value;
    changes.extend(admitted.changes.into_iter().map(
        |AdmissionChange {
             pointer, reason, ..
         }| {
            json!({ "pointer": format!("{prefix}{pointer}"), "reason": reason.to_string() })
        },
    ));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use abp_core::Timestamp;

    use super::*;

    fn event(kind: Value) -> AgentEvent {
        let mut event = kind;
        event["ts"] = json!(Timestamp::from_unix_millis(0));
        serde_json::from_value(event).unwrap()
    }

    /// A number that canonical JSON cannot carry is replaced wherever it is, and the place is named; an
    /// event without one stays as it is.
    #[test]
    fn foreign_json_is_admitted_in_every_kind_of_event() {
        let large = || json!({"n": [u64::MAX]});
        let plain = event(json!({"type": "tool_call", "tool_name": "T", "input": {"n": 1}}));
        assert_eq!(admit(plain.clone()), plain);
        let cases = [
            (
                json!({"type": "tool_call", "tool_name": "T", "input": large()}),
                "/input/n/0",
            ),
            (
                json!({"type": "tool_result", "tool_name": "T", "output": large()}),
                "/output/n/0",
            ),
            (
                json!({"type": "content_block", "block_type": "b", "data": large()}),
                "/data/n/0",
            ),
            (
                json!({"type": "something_new", "a/b": large()}),
                "/a~1b/n/0",
            ),
        ];
        for (kind, pointer) in cases {
            let admitted = admit(event(kind.clone()));
            let told = &admitted.ext.as_ref().unwrap_or_else(|| panic!("{kind}"))[ADMITTED_KEY];
            assert_eq!(told.as_array().map(Vec::len), Some(1), "{kind}: {told}");
            assert_eq!(told[0]["pointer"], pointer, "{kind}");
            assert!(Trace::default().record(&admitted).is_ok(), "{kind}");
        }
        let mut extended = plain;
        extended.ext = Some(BTreeMap::from([("x".to_owned(), large())]));
        let admitted = admit(extended).ext.unwrap();
        assert_eq!(admitted[ADMITTED_KEY][0]["pointer"], "/ext/x/n/0");
    }

    /// Events are embedded up to a size and no further; all of them are digested.
    #[test]
    fn a_trace_is_embedded_while_it_is_small() {
        let text = "x".repeat(MAX_EMBEDDED_BYTES / 4);
        let large = event(json!({"type": "assistant_delta", "text": text}));
        for (count, is_embedded) in [(3, true), (4, false)] {
            let mut trace = Trace::default();
            for number in 0..count {
                assert_eq!(trace.record(&large).unwrap().0, number);
            }
            let (embedded, digest) = trace.finish();
            assert_eq!(embedded.len() as u64, if is_embedded { count } else { 0 });
            assert_eq!(digest.embedded, is_embedded);
        }
    }
}
