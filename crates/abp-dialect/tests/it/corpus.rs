//! Recorded traffic, which is not part of the repository.

use std::fs;
use std::path::Path;

use abp_dialect::Dialect;
use abp_testkit::{shared_dir, skip};
use serde_json::Value;

/// A recorded request, answer or stream.
pub(crate) struct Recording {
    pub(crate) file: String,
    /// `request`, `response` or `stream`.
    pub(crate) part: String,
    pub(crate) dialect: Dialect,
    pub(crate) vendor: String,
    pub(crate) operation: String,
    pub(crate) status: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Every recording, or none where the optional data is absent.
pub(crate) fn recordings(what: &str) -> Vec<Recording> {
    let dir = shared_dir().map(|dir| dir.join("corpus"));
    let Some(dir) = dir.filter(|dir| dir.is_dir()) else {
        skip(what, "the directory of optional test data is not there");
        return Vec::new();
    };
    let manifest = fs::read_to_string(dir.join("manifest.jsonl")).expect("a manifest");
    let rows = manifest
        .lines()
        .map(|row| serde_json::from_str(row).expect("a row"));
    let recordings: Vec<_> = rows.flat_map(|row| of_exchange(&row, &dir)).collect();
    assert!(recordings.len() > 500, "only {}", recordings.len());
    recordings
}

fn of_exchange(row: &Value, dir: &Path) -> Vec<Recording> {
    let word = |key: &str| row[key].as_str().expect("a word").to_owned();
    let files = row["files"].as_object().expect("files").iter();
    files
        .map(|(part, file)| {
            let file = file.as_str().expect("a path").to_owned();
            let bytes = fs::read(dir.join(&file)).expect("a recording");
            Recording {
                dialect: dialect(&word("dialect"), &bytes),
                bytes,
                file,
                part: part.clone(),
                vendor: word("vendor"),
                operation: word("op"),
                status: row["status"].as_u64().expect("a status"),
            }
        })
        .collect()
}

/// The dialect of a recording. Some vendors answer a request of Responses with a chat completion.
fn dialect(recorded: &str, bytes: &[u8]) -> Dialect {
    match recorded.parse().expect("a dialect") {
        Dialect::Codex if bytes.windows(16).any(|word| word == b"\"chat.completion") => {
            Dialect::OpenAi
        }
        dialect => dialect,
    }
}
