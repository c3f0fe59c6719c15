//! Reads a file once, and hashes, copies and packs it on the way, so that the hash is that of the
//! bytes that were copied, even where the file changes meanwhile.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{SeekFrom, Stat};
use sha2::{Digest, Sha256};

use crate::limits::{Budget, Exceeded, StageLimits};
use crate::pack::{MAX_PACKED_BYTES, PackPosition, PackWriter};

pub(crate) const BUFFER_BYTES: usize = 256 * 1024;

/// The destinations of the bytes besides the hash.
pub(crate) struct Outputs<'a> {
    pub(crate) copy: Option<&'a File>,
    pub(crate) pack: Option<&'a mut PackWriter>,
}

/// A file that was read to its end.
pub(crate) struct Ingested {
    pub(crate) size: u64,
    pub(crate) sha256: [u8; 32],
    pub(crate) packed_at: Option<PackPosition>,
}

/// Why a file was not read to its end.
pub(crate) enum Stopped {
    /// The file itself cannot be read, which concerns no other file.
    Unreadable(io::Error),
    /// A copy cannot be written.
    Io(io::Error),
    Exceeded(Exceeded),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Exceeded> for Stopped {
    fn from(exceeded: Exceeded) -> Self {
        Self::Exceeded(exceeded)
    }
}

/// Reads a file to its end.
pub(crate) fn ingest(
    file: &File,
    stat: &Stat,
    outputs: Outputs<'_>,
    budget: &Budget,
    buffer: &mut [u8],
) -> Result<Ingested, Stopped> {
    let expected = u64::try_from(stat.st_size).unwrap_or_default();
    // Before anything is written: an apparent terabyte must not fill the disk first.
    budget.would_take(expected)?;
    let Outputs { copy, pack } = outputs;
    let pack = pack.filter(|_| expected <= MAX_PACKED_BYTES);
    let packed_at = pack.as_ref().map(|pack| pack.position());
    let allocated = u64::try_from(stat.st_blocks)
        .unwrap_or_default()
        .saturating_mul(512);
    let mut pass = Pass {
        file,
        copy,
        pack,
        budget,
        hasher: Sha256::new(),
        offset: 0,
    };
    let read = if allocated < expected {
        pass.read_sparse(expected, buffer)
    } else {
        pass.read_until(u64::MAX, expected, buffer)
    };
    if let Err(stopped) = read {
        if let (Stopped::Unreadable(_), Some(pack), Some(place)) = (&stopped, pass.pack, packed_at)
        {
            pack.truncate(place.at)?;
        }
        return Err(stopped);
    }
    let size = pass.offset;
    let sha256 = pass.hasher.finalize().into();
    let packed_at = match (pass.pack, packed_at) {
        // It grew while it was read.
        (Some(pack), Some(place)) if size > MAX_PACKED_BYTES => {
            pack.truncate(place.at)?;
            None
        }
        (_, packed_at) => packed_at,
    };
    Ok(Ingested {
        size,
        sha256,
        packed_at,
    })
}

/// Reads a file to its end without any budget, into a copy where one is given: its size and hash.
pub(crate) fn read_through(
    file: &File,
    stat: &Stat,
    copy: Option<&File>,
    buffer: &mut [u8],
) -> io::Result<(u64, [u8; 32])> {
    let unlimited = StageLimits {
        max_files: u64::MAX,
        max_bytes: u64::MAX,
        max_depth: u32::MAX,
    };
    let budget = Budget::new(unlimited, u64::MAX, Arc::default());
    match ingest(file, stat, Outputs { copy, pack: None }, &budget, buffer) {
        Ok(ingested) => Ok((ingested.size, ingested.sha256)),
        Err(Stopped::Io(error) | Stopped::Unreadable(error)) => Err(error),
        Err(Stopped::Exceeded(exceeded)) => Err(io::Error::other(exceeded.limit)),
    }
}

struct Pass<'a> {
    file: &'a File,
    copy: Option<&'a File>,
    pack: Option<&'a mut PackWriter>,
    budget: &'a Budget,
    hasher: Sha256,
    offset: u64,
}

impl Pass<'_> {
    /// Reads up to `end` or the end of the file. A short read at or behind the expected size is
    /// taken for the end, which saves a call per file.
    fn read_until(&mut self, end: u64, expected: u64, buffer: &mut [u8]) -> Result<(), Stopped> {
        while self.offset < end {
            let room = usize::try_from(end - self.offset)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let part = buffer.get_mut(..room).unwrap_or_default();
            let count = match self.file.read_at(part, self.offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(Stopped::Unreadable)?,
            };
            let Some(bytes) = part.get(..count).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            self.hasher.update(bytes);
            if let Some(copy) = self.copy {
                self.budget.use_disk(count as u64)?;
                copy.write_all_at(bytes, self.offset)?;
            }
            self.keep(bytes)?;
            if count < room && self.offset >= expected {
                break;
            }
        }
        Ok(())
    }

    /// Reads data and passes over holes, which stay holes in the copy.
    fn read_sparse(&mut self, expected: u64, buffer: &mut [u8]) -> Result<(), Stopped> {
        while self.offset < expected {
            let data = match rustix::fs::seek(self.file, SeekFrom::Data(self.offset)) {
                Ok(data) => data.min(expected),
                Err(rustix::io::Errno::NXIO) => expected,
                Err(error) => return Err(Stopped::Unreadable(error.into())),
            };
            buffer.fill(0);
            while self.offset < data {
                let room = usize::try_from(data - self.offset)
                    .unwrap_or(usize::MAX)
                    .min(buffer.len());
                let zeros = buffer.get(..room).unwrap_or_default();
                self.hasher.update(zeros);
                self.keep(zeros)?;
            }
            if data < expected {
                let hole = rustix::fs::seek(self.file, SeekFrom::Hole(data))
                    .map_err(|error| Stopped::Unreadable(error.into()))?
                    .min(expected);
                let before = self.offset;
                self.read_until(hole, u64::MAX, buffer)?;
                if self.offset == before {
                    // It was cut while it was read.
                    break;
                }
            }
        }
        if let Some(copy) = self.copy {
            copy.set_len(self.offset)?;
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), Stopped> {
        let count = bytes.len() as u64;
        self.budget.take_bytes(count)?;
        if let Some(pack) = &mut self.pack
            && self.offset <= MAX_PACKED_BYTES
        {
            self.budget.use_disk(count)?;
            pack.append(bytes)?;
        }
        self.offset += count;
        Ok(())
    }
}
