//! Notes about running sidecars, so that processes that a killed host left behind are found and ended.
//!
//! A note names the launcher by process id and start time, the boot, the host that started it, and
//! the mark that every descendant has in its environment. A note is an instruction to kill, so it is
//! believed only when it carries an authentication code made with a key that agents cannot read, and
//! even then only processes with the mark are signalled. A note that fails a check is reported and
//! moved aside; nothing is signalled because of it.

mod folder;
mod note;

use std::io;
use std::path::{Path, PathBuf};

use abp_sandbox::Exit;
use abp_sandbox::procfs::{ProcessId, boot_id, with_variable};

use crate::SIDECAR_ID;
use folder::{Folder, NoteKey};
use note::Note;

/// The most notes that one sweep looks at.
const MAX_NOTES: usize = 10_000;

/// Where the notes of a state directory are. Their key is a file beside it.
#[must_use]
pub fn directory(state_dir: &Path) -> PathBuf {
    state_dir.join("sidecars")
}

/// Why the notes cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotesError {
    /// The directory cannot be made, opened or listed.
    #[error("cannot use the directory of sidecar notes {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The directory belongs to another user.
    #[error("the directory of sidecar notes {} belongs to user {owner}", path.display())]
    ForeignDirectory {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// The key cannot be read or made.
    #[error("cannot use the key of sidecar notes {}", path.display())]
    Key {
        /// The key's file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The key is not one that only this user can have written and read.
    #[error("the key of sidecar notes {} is not safe: {problem}; remove it to have a new one made", path.display())]
    UnsafeKey {
        /// The key's file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// Why a note is not believed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoteError {
    /// A link, a directory, a device or the like.
    #[error("it is not a regular file")]
    NotAFile,
    /// It belongs to another user.
    #[error("it belongs to user {0}")]
    ForeignOwner(u32),
    /// It is longer than any note.
    #[error("it has {0} bytes, more than a note has")]
    TooLarge(u64),
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    /// It is not in the form of a note.
    #[error("it is not a note: {0}")]
    Malformed(String),
    /// It was not written by a host with the key of this state directory, or was changed since.
    #[error("its authentication code is wrong")]
    NotAuthentic,
    /// It is about another sidecar than its name says.
    #[error("it is about sidecar {id}, which its name does not say")]
    WrongName {
        /// The sidecar it is about.
        id: String,
    },
    /// The process it names is not a launcher's.
    #[error("process {pid} does not carry the mark of sidecar {id}")]
    Unmarked {
        /// The process.
        pid: i32,
        /// The sidecar it is about.
        id: String,
    },
}

/// A note that was not believed.
#[derive(Debug)]
pub struct RefusedNote {
    /// Where it was found.
    pub path: PathBuf,
    /// Why it was not believed.
    pub error: NoteError,
}

/// What a sweep did.
#[derive(Debug, Default)]
pub struct SweepReport {
    /// The sidecars whose host was gone; nothing is left of them.
    pub ended: Vec<String>,
    /// The notes that were not believed. They are in the subdirectory `refused` now.
    pub refused: Vec<RefusedNote>,
}

/// The note about one sidecar; it is removed when the sidecar is gone.
#[derive(Debug)]
pub(crate) struct Record {
    id: String,
    written: Option<Folder>,
}

impl Record {
    /// Notes a sidecar that was just started. Without a note it is still supervised; only a host and
    /// a launcher killed at once would leave it behind.
    pub(crate) fn write(directory: Option<&Path>, id: String, launcher: Option<i32>) -> Self {
        let written = directory.and_then(|directory| {
            let note = Note::of(id.clone(), launcher?)?;
            match write(directory, &note) {
                Ok(folder) => Some(folder),
                Err(error) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(target: "abp.sidecar", %error, cause, "cannot note a sidecar");
                    None
                }
            }
        });
        Self { id, written }
    }

    /// The sidecar ended. Where its launcher was lost, everything that carries its mark is ended now.
    pub(crate) fn settle(self, exit: Option<Exit>) {
        if exit == Some(Exit::Unknown) {
            end_marked(&self.id);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(folder) = &self.written {
            // A note that stays is swept at the next start.
            let _ = folder.remove(&note::file_name(&self.id));
        }
    }
}

fn write(directory: &Path, note: &Note) -> Result<Folder, NotesError> {
    let folder = Folder::create(directory)?;
    let key = NoteKey::create(&folder)?;
    folder.write_note(&note::file_name(note.id()), note.seal(&key).as_bytes())?;
    Ok(folder)
}

/// Ends every sidecar whose host is gone, and removes its note. Notes that are not believed are
/// logged, reported and moved aside.
///
/// # Errors
/// Fails where there are notes that cannot be listed, or no safe key to check them with.
pub fn sweep(directory: &Path) -> Result<SweepReport, NotesError> {
    let mut report = SweepReport::default();
    let Some(boot) = boot_id() else {
        return Ok(report);
    };
    let Some(folder) = Folder::open(directory)? else {
        return Ok(report);
    };
    let names = folder.list(MAX_NOTES)?;
    if names.is_empty() {
        return Ok(report);
    }
    let key = NoteKey::open(&folder)?;
    for name in names {
        let swept = folder
            .read_note(&name)
            .and_then(|sealed| Note::unseal(&sealed, key.as_ref()))
            .and_then(|note| note.check_name(&name).map(|()| note))
            .and_then(|note| end(note, &boot));
        match swept {
            Ok(Some(id)) => {
                tracing::warn!(target: "abp.sidecar", id, "ended what a lost host left of a sidecar");
                // A note that stays is swept again, to no effect.
                let _ = folder.remove(&name);
                report.ended.push(id);
            }
            Ok(None) => {}
            Err(error) => {
                let path = directory.join(&name);
                tracing::warn!(
                    target: "abp.sidecar",
                    path = %path.display(), %error,
                    "a note about a sidecar is not believed; nothing was ended because of it"
                );
                folder.put_aside(&name);
                report.refused.push(RefusedNote { path, error });
            }
        }
    }
    Ok(report)
}

/// Ends an abandoned sidecar; `None` where its host is still there.
fn end(note: Note, boot: &str) -> Result<Option<String>, NoteError> {
    // Start times compare only within a boot; after a restart nothing can be left.
    if note.is_of_boot(boot) {
        if note.host().is_alive() {
            return Ok(None);
        }
        let launcher = note.launcher();
        if launcher.is_alive() && !launcher.carries(SIDECAR_ID, note.id()) {
            // It may have ended just now; then there is nothing wrong with the note.
            if launcher.is_alive() {
                let (pid, id) = (launcher.pid, note.id().to_owned());
                return Err(NoteError::Unmarked { pid, id });
            }
        }
        launcher.kill_marked(SIDECAR_ID, note.id());
        end_marked(note.id());
    }
    Ok(Some(note.into_id()))
}

/// Ends every process that carries the mark, until there is none: they may be starting others.
fn end_marked(id: &str) {
    const ROUNDS: usize = 100;
    for _ in 0..ROUNDS {
        let marked: Vec<ProcessId> = with_variable(SIDECAR_ID, id);
        if marked.is_empty() {
            return;
        }
        for process in marked {
            process.kill_marked(SIDECAR_ID, id);
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}
