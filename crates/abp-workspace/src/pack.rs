//! The original bytes of every file, for the time of a run.
//!
//! A diff needs the old content, and neither the source (which may change during the run) nor the
//! stage (which the agent changes) has it later. The packs are written in the same pass that copies
//! and hashes, which costs little, and bytes read back are checked against the manifest.
//!
//! A pack has no name: an agent cannot open it, and its space is free when the process ends. The
//! threads of a walk each fill one, and which file's bytes go to which pack depends on their speed.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// Larger files are not packed; a diff then names their hashes only.
pub(crate) const MAX_PACKED_BYTES: u64 = 64 * 1024 * 1024;

const WRITE_BUFFER_BYTES: usize = 1024 * 1024;

/// The position of a file's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackPosition {
    /// The number of the pack.
    pub(crate) pack: u64,
    pub(crate) at: u64,
}

/// A pack being written.
#[derive(Debug)]
pub(crate) struct PackWriter {
    number: u64,
    file: BufWriter<File>,
    length: u64,
}

/// A finished pack.
#[derive(Debug)]
pub(crate) struct Pack {
    file: File,
}

impl PackWriter {
    pub(crate) fn new(number: u64, file: File) -> Self {
        Self {
            number,
            file: BufWriter::with_capacity(WRITE_BUFFER_BYTES, file),
            length: 0,
        }
    }

    /// The position of the next byte.
    pub(crate) fn position(&self) -> PackPosition {
        PackPosition {
            pack: self.number,
            at: self.length,
        }
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Takes back everything from a place on.
    pub(crate) fn truncate(&mut self, position: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(position))?;
        self.file.get_ref().set_len(position)?;
        self.length = position;
        Ok(())
    }

    pub(crate) fn finish(self) -> io::Result<Pack> {
        let file = self
            .file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        Ok(Pack::new(file))
    }
}

impl Pack {
    pub(crate) fn new(file: File) -> Self {
        Self { file }
    }

    pub(crate) fn read(&self, position: u64, size: u64) -> io::Result<Vec<u8>> {
        let size = usize::try_from(size).map_err(io::Error::other)?;
        let mut bytes = vec![0; size];
        self.file.read_exact_at(&mut bytes, position)?;
        Ok(bytes)
    }
}
