//! The growing end of a log.

use abp_core::Timestamp;

use super::{EntryKind, LogEntry, LogError};
use crate::merkle::{Frontier, MAX_TREE_SIZE, leaf_hash};
use crate::sign::check_name;
use crate::{Checkpoint, Hash, SigningKey, VerifyingKey};

/// The growing end of a log: gives every entry its place, and knows the root.
///
/// Small whatever the log's size, so that a writer can work on a clone and keep it once the entry is
/// stored. A writer that starts again takes the head up from the last checkpoint it signed and
/// replays the leaves stored since; it can then never sign two logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogHead {
    origin: String,
    frontier: Frontier,
}

/// An entry with what a log stores of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLeaf {
    /// The entry.
    pub entry: LogEntry,
    /// Its canonical JSON.
    pub bytes: Vec<u8>,
    /// The hash of that as a leaf of the tree.
    pub hash: Hash,
}

impl LogHead {
    /// The head of an empty log.
    ///
    /// # Errors
    /// Refuses a name that cannot be written in a checkpoint.
    pub fn new(origin: &str) -> Result<Self, LogError> {
        check_name(origin).map_err(LogError::Name)?;
        Ok(Self {
            origin: origin.to_owned(),
            frontier: Frontier::default(),
        })
    }

    /// Takes a log up where a checkpoint left it, from the frontier stored with that checkpoint.
    ///
    /// # Errors
    /// Fails where the frontier is not that of the checkpoint.
    pub fn resume(checkpoint: &Checkpoint, frontier: Frontier) -> Result<Self, LogError> {
        let size = frontier.size();
        if (checkpoint.size(), checkpoint.root()) != (size, &frontier.root()) {
            return Err(LogError::Inconsistent { size });
        }
        Ok(Self {
            origin: checkpoint.origin().to_owned(),
            frontier,
        })
    }

    /// The log's name.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// How many entries the log has; also the place of the next one.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.frontier.size()
    }

    /// The root of the tree.
    #[must_use]
    pub fn root(&self) -> Hash {
        self.frontier.root()
    }

    /// The right edge of the tree, to be stored with a checkpoint.
    #[must_use]
    pub fn frontier(&self) -> &Frontier {
        &self.frontier
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// Fails where the log is full, and refuses a rotation that was signed for another place. The
    /// head is then as it was.
    pub fn append(&mut self, kind: EntryKind, at: Timestamp) -> Result<LogLeaf, LogError> {
        self.append_entry(LogEntry {
            at,
            kind,
            origin: self.origin.clone(),
            seq: self.size(),
        })
    }

    /// Appends the entry that replaces the log's key.
    ///
    /// # Errors
    /// Refuses keys of another log, and a key in place of itself. The head is then as it was.
    pub fn rotate(
        &mut self,
        old_key: &SigningKey,
        new_key: &VerifyingKey,
        at: Timestamp,
    ) -> Result<LogLeaf, LogError> {
        let entry = LogEntry::rotation(&self.origin, self.size(), at, old_key, new_key)?;
        self.append_entry(entry)
    }

    /// Appends an entry that is already stored.
    ///
    /// # Errors
    /// Fails where the log is full.
    pub fn replay(&mut self, leaf: Hash) -> Result<(), LogError> {
        if self.size() >= MAX_TREE_SIZE {
            return Err(LogError::TooLarge);
        }
        self.frontier.push(leaf);
        Ok(())
    }

    /// The checkpoint of the log as it is, to be signed.
    #[must_use]
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint::of_head(self.origin.clone(), self.size(), self.root())
    }

    fn append_entry(&mut self, entry: LogEntry) -> Result<LogLeaf, LogError> {
        entry.verify_rotation().map_err(LogError::Rotation)?;
        let bytes = entry.leaf_bytes()?;
        let hash = leaf_hash(&bytes);
        self.replay(hash)?;
        Ok(LogLeaf { entry, bytes, hash })
    }
}
