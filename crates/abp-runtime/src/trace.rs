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
