//! A note and its authentication code.

use abp_sandbox::procfs::{ProcessId, boot_id};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use uuid::Uuid;

use super::NoteError;
use super::folder::NoteKey;

/// Set before what is authenticated, so that a code for something else is no code for a note.
const PURPOSE: &[u8] = b"abp sidecar note 1";

/// What is known about a running sidecar.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Note {
    id: String,
    boot_id: String,
    host: Process,
    launcher: Process,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Process {
    pid: i32,
    start_time: u64,
}

/// A note with its authentication code.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedNote {
    note: Note,
    /// HMAC-SHA-256 over the purpose and the note, in hexadecimal digits.
    mac: String,
}

pub(super) fn file_name(id: &str) -> String {
    format!("{id}.json")
}

impl Note {
    /// A note of this process about a sidecar that it started.
    pub(super) fn of(id: String, launcher: i32) -> Option<Self> {
        let own = i32::try_from(std::process::id()).ok()?;
        Some(Self {
            id,
            boot_id: boot_id()?,
            host: Process::of(own)?,
            launcher: Process::of(launcher)?,
        })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn into_id(self) -> String {
        self.id
    }

    pub(super) fn is_of_boot(&self, boot: &str) -> bool {
        self.boot_id == boot
    }

    pub(super) fn host(&self) -> ProcessId {
        self.host.into()
    }

    pub(super) fn launcher(&self) -> ProcessId {
        self.launcher.into()
    }

    /// A note that was renamed could be brought back after it was removed under its own name.
    pub(super) fn check_name(&self, name: &str) -> Result<(), NoteError> {
        if name == file_name(&self.id) {
            return Ok(());
        }
        let id = self.id.clone();
        Err(NoteError::WrongName { id })
    }

    /// The note as it is written to a file.
    pub(super) fn seal(&self, key: &NoteKey) -> String {
        let mac = key.mac(self).finalize().into_bytes();
        let mac: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
        serde_json::json!({ "note": self, "mac": mac }).to_string()
    }

    /// Reads and checks a note. Without a key none was written here, so none is authentic.
    pub(super) fn unseal(bytes: &[u8], key: Option<&NoteKey>) -> Result<Self, NoteError> {
        let SealedNote { note, mac } = serde_json::from_slice(bytes)
            .map_err(|error| NoteError::Malformed(error.to_string()))?;
        let mac = from_hex(&mac).ok_or(NoteError::NotAuthentic)?;
        let key = key.ok_or(NoteError::NotAuthentic)?;
        key.mac(&note)
            .verify_slice(&mac)
            .map_err(|_| NoteError::NotAuthentic)?;
        if Uuid::parse_str(&note.id).is_err() {
            return Err(NoteError::Malformed("its id is no UUID".to_owned()));
        }
        Ok(note)
    }
}

impl NoteKey {
    fn mac(&self, note: &Note) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new(&self.bytes().into());
        let numbers = [note.host, note.launcher]
            .map(|process| format!("{} {}", process.pid, process.start_time));
        let [host, launcher] = &numbers;
        for part in [
            PURPOSE,
            note.id.as_bytes(),
            note.boot_id.as_bytes(),
            host.as_bytes(),
            launcher.as_bytes(),
        ] {
            // With its length, so that no byte can move from one part to the next.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac
    }
}

impl Process {
    fn of(pid: i32) -> Option<Self> {
        let ProcessId { pid, start_time } = ProcessId::of(pid)?;
        Some(Self { pid, start_time })
    }
}

impl From<Process> for ProcessId {
    fn from(process: Process) -> Self {
        Self {
            pid: process.pid,
            start_time: process.start_time,
        }
    }
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return None;
    }
    let pairs = (0..digits.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok())
        .collect()
}
