//! The trace: every event of a run, digested as it happens and embedded while it is small.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use abp_core::{AgentEvent, AgentEventKind, ContractError, EventDigest, TraceDigest};
use abp_json::{AdmissionChange, admit_value};
use serde_json::{Value, json};

/// The largest trace a receipt embeds, in bytes of canonical JSON.
const MAX_EMBEDDED_BYTES: usize = 4 * 1024 * 1024;
/// Where an event says what had to be changed to record it.
const ADMITTED_KEY: &str = "abp_admitted";

/// The events of a run so far. What is too much for the receipt goes to a file.
#[derive(Debug)]
pub(crate) struct Trace {
    embedded: Vec<AgentEvent>,
    bytes: usize,
    digest: EventDigest,
    path: PathBuf,
    spill: Option<io::Result<BufWriter<File>>>,
}

/// What the receipt says about the events.
#[derive(Debug)]
pub(crate) struct TraceEnd {
    pub(crate) embedded: Vec<AgentEvent>,
    pub(crate) digest: TraceDigest,
    /// The file with all events, where they are not embedded; or why there is none.
    pub(crate) file: Option<io::Result<PathBuf>>,
}

impl Trace {
    /// A trace that spills to `path` when it grows too large.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            embedded: Vec::new(),
            bytes: 0,
            digest: EventDigest::default(),
            path,
            spill: None,
        }
    }

    /// Records an event and returns its size.
    pub(crate) fn record(&mut self, event: &AgentEvent) -> Result<usize, ContractError> {
        let size = self.digest.push(event)?;
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes <= MAX_EMBEDDED_BYTES {
            self.embedded.push(event.clone());
            return Ok(size);
        }
        let embedded = std::mem::take(&mut self.embedded);
        let file = match self.spill.take() {
            Some(file) => file,
            None => create(&self.path),
        };
        self.spill = Some(file.and_then(|mut file| {
            for event in embedded.iter().chain([event]) {
                serde_json::to_writer(&mut file, event)?;
                file.write_all(b"\n")?;
            }
            Ok(file)
        }));
        Ok(size)
    }

    /// The events to embed, the digest of all, and the file they are in otherwise.
    pub(crate) fn finish(self) -> TraceEnd {
        let finish = |file: io::Result<BufWriter<File>>| {
            file?.into_inner()?.sync_all()?;
            Ok(self.path)
        };
        TraceEnd {
            digest: self.digest.finish(self.spill.is_none()),
            embedded: self.embedded,
            file: self.spill.map(finish),
        }
    }
}

fn create(path: &Path) -> io::Result<BufWriter<File>> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    File::create(path).map(BufWriter::new)
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
