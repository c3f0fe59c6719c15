//! Notes about running sidecars, so that what a killed host left behind is found and ended.
//!
//! A note names the launcher by process id and start time, the boot, the host that started it, and
//! the mark that every descendant has in its environment. Nothing is signalled that is not proven to
//! be the process noted, or to carry the mark.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sidecar_kit::Exit;
use sidecar_kit::procfs::{ProcessId, boot_id, with_variable};

use crate::SIDECAR_ID;

/// Where the notes of a state directory are.
#[must_use]
pub fn directory(state_dir: &Path) -> PathBuf {
    state_dir.join("sidecars")
}

/// The note about one sidecar; it is removed when the sidecar is gone.
#[derive(Debug)]
pub(crate) struct Record {
    id: String,
    path: Option<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    id: String,
    boot_id: String,
    host: Process,
    launcher: Process,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Process {
    pid: i32,
    start_time: u64,
}

impl Record {
    /// Notes a sidecar that was just started. Without a note it is still supervised; only a host and
    /// a launcher killed at once would leave it behind.
    pub(crate) fn write(directory: Option<&Path>, id: String, launcher: Option<i32>) -> Self {
        let written = directory.and_then(|directory| {
            let note = Note::of(id.clone(), launcher?)?;
            match note.write(directory) {
                Ok(path) => Some(path),
                Err(error) => {
                    tracing::warn!(target: "abp.sidecar", %error, "cannot note a sidecar");
                    None
                }
            }
        });
        Self { id, path: written }
    }

    /// The sidecar ended. Where its launcher was lost, whatever carries its mark is ended now.
    pub(crate) fn settle(self, exit: Option<Exit>) {
        if exit == Some(Exit::Unknown) {
            end_marked(&self.id);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // A note that stays is swept at the next start.
            drop(fs::remove_file(path));
        }
    }
}

impl Note {
    fn of(id: String, launcher: i32) -> Option<Self> {
        let own = i32::try_from(std::process::id()).ok()?;
        Some(Self {
            id,
            boot_id: boot_id()?,
            host: Process::of(own)?,
            launcher: Process::of(launcher)?,
        })
    }

    fn write(&self, directory: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(directory)?;
        let path = directory.join(format!("{}.json", self.id));
        let mut file = fs::File::create_new(&path)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        Ok(path)
    }

    /// Whether the host that started the sidecar is gone.
    fn is_abandoned(&self, boot: &str) -> bool {
        self.boot_id != boot || !ProcessId::from(self.host).is_alive()
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

/// Ends every sidecar whose host is gone, and removes the notes. Returns how many notes there were.
///
/// # Errors
/// Fails where the notes cannot be listed.
pub fn sweep(directory: &Path) -> io::Result<usize> {
    let Some(boot) = boot_id() else {
        return Ok(0);
    };
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut swept = 0;
    for path in entries.flatten().map(|entry| entry.path()) {
        let note = fs::read(&path).ok();
        let note = note.and_then(|note| serde_json::from_slice::<Note>(&note).ok());
        // What cannot be read may be being written just now.
        let Some(note) = note.filter(|note| note.is_abandoned(&boot)) else {
            continue;
        };
        // After a restart nothing of it can be left.
        if note.boot_id == boot {
            ProcessId::from(note.launcher).kill();
            end_marked(&note.id);
        }
        tracing::warn!(target: "abp.sidecar", id = note.id, "ended what a lost host left of a sidecar");
        drop(fs::remove_file(&path));
        swept += 1;
    }
    Ok(swept)
}

/// Ends every process that carries the mark, until there is none: they may be starting others.
fn end_marked(id: &str) {
    const ROUNDS: usize = 100;
    for _ in 0..ROUNDS {
        let marked = with_variable(SIDECAR_ID, id);
        if marked.is_empty() {
            return;
        }
        for process in marked {
            process.kill();
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}
