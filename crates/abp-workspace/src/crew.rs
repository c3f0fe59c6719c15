//! The threads that read files, and the state they share with the thread that walks the directories.

use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, OnceLock};

use rustix::fs::{Mode, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use crate::Error;
use crate::dir::{Dir, path_of};
use crate::ingest::{BUFFER_BYTES, Ingested, Outputs, Stopped, ingest};
use crate::layers::LayerFindings;
use crate::left_out::Omissions;
use crate::limits::{Budget, Exceeded};
use crate::manifest::{Entry, SpecialKind};
use crate::notes::Notes;
use crate::pack::{PackPosition, PackWriter};
use crate::selection::push_component;

/// Smaller files are copied as fast as they are cloned.
const MIN_CLONED_BYTES: i64 = 64 * 1024;

/// The purpose of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A staged copy and its baseline. It must be whole.
    Copy,
    /// The baseline of a workspace in place. It must be whole.
    Baseline,
    /// The names of a source that an overlay will show. Contents are not read.
    Survey,
    /// The same after the run, when nothing can be refused any more.
    SurveyAgain,
    /// The content of a workspace after the run. One file that is too large or too deep must not keep
    /// the other changes from being seen, and is recorded as such.
    Verification,
}

impl Purpose {
    /// Whether names are selected for a stage, so that those left out are told and not recorded.
    pub(crate) const fn is_staging(self) -> bool {
        match self {
            Self::Copy | Self::Survey | Self::SurveyAgain => true,
            Self::Baseline | Self::Verification => false,
        }
    }
}

/// The state that all threads of a walk share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) purpose: Purpose,
    pub(crate) budget: Budget,
    failure: OnceLock<Error>,
}

/// Files of one directory, on their way to whichever thread is free.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) dir: Arc<Dir>,
    /// The directory for the copies.
    pub(crate) copy: Option<Arc<Dir>>,
    /// The directory's path.
    pub(crate) path: Vec<u8>,
    /// Names, each with its place in the walk.
    pub(crate) files: Vec<(u64, Vec<u8>)>,
}

/// The findings of one thread.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Entries, each with the place of its bytes in the packs.
    pub(crate) entries: Vec<(Entry, Option<PackPosition>)>,
    pub(crate) left_out: Omissions,
    pub(crate) notes: Notes,
    pub(crate) layers: LayerFindings,
}

/// The findings of a reader, and the pack it filled.
pub(crate) type ReaderResult = (Findings, Option<PackWriter>);

/// The outcome of reading one file.
enum Content {
    Read(Ingested),
    /// It is recorded as too large.
    TooLarge,
    Unreadable(Errno),
}

/// One thread that reads files.
#[derive(Debug)]
pub(crate) struct FileReader<'a> {
    shared: &'a Shared,
    pack: Option<PackWriter>,
    buffer: Vec<u8>,
    /// Whether the file system may share the content of two files.
    clones: bool,
    found: Findings,
}

impl Shared {
    pub(crate) fn new(purpose: Purpose, budget: Budget) -> Self {
        Self {
            purpose,
            budget,
            failure: OnceLock::new(),
        }
    }

    /// Ends the walk for all threads. The first error is the one that is reported.
    pub(crate) fn fail(&self, error: Error) {
        drop(self.failure.set(error));
        self.budget.close();
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    pub(crate) fn into_result(self) -> Result<(), Error> {
        self.failure.into_inner().map_or(Ok(()), Err)
    }
}

impl Findings {
    pub(crate) fn special(&mut self, path: &[u8], kind: SpecialKind) {
        self.entries.push((Entry::special(path, kind), None));
    }

    /// Records a directory as something else after all.
    pub(crate) fn replace_by_special(&mut self, path: &[u8], kind: SpecialKind) {
        if self
            .entries
            .last()
            .is_some_and(|(entry, _)| entry.path_bytes() == path)
        {
            self.entries.pop();
        }
        self.special(path, kind);
    }

    /// A name that cannot be opened is recorded and is no error: one file without permission, or on
    /// a bad block, must not stand in the way of a run, nor hide a change.
    pub(crate) fn unreadable(
        &mut self,
        purpose: Purpose,
        place: u64,
        path: &[u8],
        error: Errno,
    ) -> Result<(), Error> {
        let reason = match error {
            Errno::NOENT => return Ok(()),
            Errno::ACCESS | Errno::PERM => "cannot be read".to_owned(),
            Errno::LOOP | Errno::NOTDIR | Errno::NOTSUP | Errno::XDEV => {
                "changed while it was read".to_owned()
            }
            error if is_exhausted(error) => return Err(failed("open", path, error)),
            error => format!("cannot be read: {error}"),
        };
        match purpose {
            Purpose::Copy => self.left_out.add(place, path, reason),
            Purpose::Survey | Purpose::SurveyAgain => {
                self.left_out.add(place, path, reason);
                self.layers.masked.push(path.to_vec());
            }
            Purpose::Baseline | Purpose::Verification => {
                self.special(path, SpecialKind::Unreadable);
            }
        }
        Ok(())
    }
}

impl<'a> FileReader<'a> {
    pub(crate) fn new(shared: &'a Shared, pack: Option<PackWriter>) -> Self {
        Self {
            shared,
            pack,
            buffer: vec![0; BUFFER_BYTES],
            clones: true,
            found: Findings::default(),
        }
    }

    /// Reads files until there are no more. After a failure the remaining batches are taken and
    /// dropped, so that the walking thread does not wait for room in the queue.
    pub(crate) fn work(mut self, batches: &Mutex<Receiver<Batch>>) -> ReaderResult {
        while let Some(batch) = next(batches) {
            self.read(&batch);
        }
        self.finish()
    }

    /// Reads the files of a batch; none after a failure.
    pub(crate) fn read(&mut self, batch: &Batch) {
        let mut path = batch.path.clone();
        for (place, name) in &batch.files {
            if self.shared.has_failed() {
                return;
            }
            path.truncate(batch.path.len());
            push_component(&mut path, name);
            if let Err(error) = self.file(batch, *place, name, &path) {
                self.shared.fail(error);
            }
        }
    }

    pub(crate) fn finish(self) -> ReaderResult {
        (self.found, self.pack)
    }

    fn file(&mut self, batch: &Batch, place: u64, name: &[u8], path: &[u8]) -> Result<(), Error> {
        let (file, stat) = match batch.dir.open_file_seen_as_regular(name) {
            Ok(opened) => opened,
            Err(error) => {
                let purpose = self.shared.purpose;
                return self.found.unreadable(purpose, place, path, error);
            }
        };
        let target = match &batch.copy {
            Some(copy) => match copy.create_file(name, 0o600) {
                Err(error) if is_refused_name(error) => {
                    self.found.left_out.add(place, path, refused_name(error));
                    return Ok(());
                }
                made => Some(made.map_err(|error| failed("copy", path, error))?),
            },
            None => None,
        };
        let ingested = match self.ingest(&file, &stat, target.as_ref(), path)? {
            Content::Read(ingested) => ingested,
            Content::TooLarge => return Ok(()),
            Content::Unreadable(error) => {
                if let Some(copy) = &batch.copy {
                    let removed = copy.remove_file(name);
                    removed.map_err(|error| failed("copy", path, error))?;
                }
                let purpose = self.shared.purpose;
                return self.found.unreadable(purpose, place, path, error);
            }
        };
        let mut mode = stat.st_mode;
        if let Some(target) = &target {
            self.found.notes.look_at(&file, &stat, place, path);
            if mode & 0o7000 != 0 {
                let reason = "its set-id and sticky bits; the file itself is staged";
                self.found.left_out.add(place, path, reason);
            }
            mode &= 0o777;
            rustix::fs::fchmod(target, Mode::from_raw_mode(mode))
                .and_then(|()| rustix::fs::futimens(target, &times(&stat)))
                .map_err(|error| failed("copy", path, error))?;
        }
        let entry = Entry::file(path, mode, ingested.size, ingested.sha256);
        self.found.entries.push((entry, ingested.packed_at));
        self.shared.budget.file_done();
        Ok(())
    }

    fn ingest(
        &mut self,
        file: &File,
        stat: &Stat,
        target: Option<&File>,
        path: &[u8],
    ) -> Result<Content, Error> {
        let cloned = target.filter(|target| self.clones_into(file, stat, target));
        let outputs = Outputs {
            copy: target.filter(|_| cloned.is_none()),
            pack: self.pack.as_mut(),
        };
        // A clone is read instead of the file, which may be changing.
        let content = cloned.unwrap_or(file);
        match ingest(
            content,
            stat,
            outputs,
            &self.shared.budget,
            &mut self.buffer,
        ) {
            Ok(ingested) => Ok(Content::Read(ingested)),
            Err(Stopped::Exceeded(exceeded)) => match self.shared.purpose {
                Purpose::Copy | Purpose::Baseline | Purpose::Survey | Purpose::SurveyAgain => {
                    Err(too_large(exceeded, path))
                }
                Purpose::Verification => {
                    let size = u64::try_from(stat.st_size).unwrap_or_default();
                    let entry = Entry::too_large(path, size);
                    self.found.entries.push((entry, None));
                    Ok(Content::TooLarge)
                }
            },
            Err(Stopped::Unreadable(error)) => {
                let error = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                Ok(Content::Unreadable(error))
            }
            Err(Stopped::Io(source)) => Err(Error::Scan {
                action: if target.is_some() { "copy" } else { "read" },
                path: path_of(path).to_owned(),
                source,
            }),
        }
    }

    /// Lets the copy share the file's content, where the file system can and it is worth it. One
    /// refusal is enough.
    fn clones_into(&mut self, file: &File, stat: &Stat, target: &File) -> bool {
        let large = stat.st_size >= MIN_CLONED_BYTES;
        if self.clones && large {
            self.clones = rustix::fs::ioctl_ficlone(target, file).is_ok();
        }
        self.clones && large
    }
}

/// Waits for files to read; none when there will be no more.
fn next(batches: &Mutex<Receiver<Batch>>) -> Option<Batch> {
    batches.lock().ok()?.recv().ok()
}

fn times(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: timespec(stat.st_atime, stat.st_atime_nsec),
        last_modification: timespec(stat.st_mtime, stat.st_mtime_nsec),
    }
}

fn timespec(seconds: i64, nanoseconds: u64) -> Timespec {
    Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(nanoseconds).unwrap_or_default(),
    }
}

/// Whether the process or the disk has run out of something, which every other name would meet too.
pub(crate) fn is_exhausted(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOSPC | Errno::DQUOT | Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::ROFS
    )
}

/// Whether a file system refuses one name or one link target, and would take others.
pub(crate) fn is_refused_name(error: Errno) -> bool {
    matches!(
        error,
        Errno::NAMETOOLONG
            | Errno::INVAL
            | Errno::ILSEQ
            | Errno::EXIST
            | Errno::PERM
            | Errno::OPNOTSUPP
    )
}

/// The reason for leaving out a name that the stage's file system refuses.
pub(crate) fn refused_name(error: Errno) -> String {
    match error {
        Errno::EXIST => "has the same name as another one on the stage's file system".to_owned(),
        error => format!("cannot be made on the stage's file system: {error}"),
    }
}

pub(crate) fn failed(action: &'static str, path: &[u8], error: Errno) -> Error {
    // The root has no name.
    let path = if path.is_empty() { b"." } else { path };
    Error::Scan {
        action,
        path: path_of(path).to_owned(),
        source: error.into(),
    }
}

pub(crate) fn too_large(exceeded: Exceeded, path: &[u8]) -> Error {
    Error::TooLarge {
        limit: exceeded.limit,
        max: exceeded.max,
        path: PathBuf::from(path_of(path)),
    }
}
