//! The log inside a transaction: taken up from the database, appended to, signed and put back.
//!
//! Every process reads the log's end inside its own write transaction, so several of them append to
//! one log. Every transaction that appends also signs: the newest checkpoint always covers the whole
//! log, and an entry that is missing at the end is missed.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use abp_core::Timestamp;
use abp_receipt::{
    EntryKind, Frontier, KeyId, KeyRing, LogHead, LogLeaf, SignedCheckpoint, SigningKey,
    VerifyingKey,
};

use crate::StoreError;
use crate::engine::Blocked;
use crate::engine::connection::Connection;
use crate::engine::sql;
use crate::keys::KeyDir;

/// What a writer remembers of the log from one transaction to the next.
#[derive(Debug)]
pub(crate) struct LogMemory {
    path: PathBuf,
    keys: KeyDir,
    key: Option<Arc<SigningKey>>,
    /// The last checkpoint whose signature was checked, or that we signed ourselves.
    trusted: Option<String>,
    /// The size of the largest log seen.
    largest: u64,
}

/// The end of the log in a transaction.
#[derive(Debug)]
pub(crate) struct LogTail {
    head: LogHead,
    key: Arc<SigningKey>,
    /// The keys a rotation replaced and made.
    rotated: Option<(KeyId, KeyId)>,
    grown: bool,
}

/// What is to be remembered once the transaction is durable.
#[derive(Debug)]
pub(crate) struct Signed {
    pub(crate) checkpoint: SignedCheckpoint,
    note: String,
    key: Arc<SigningKey>,
    rotated: Option<(KeyId, KeyId)>,
}

impl LogMemory {
    pub(crate) fn new(path: PathBuf, keys: KeyDir) -> Self {
        Self {
            path,
            keys,
            key: None,
            trusted: None,
            largest: 0,
        }
    }

    /// Takes up the log. Refuses one whose end was not signed with its key.
    pub(crate) async fn load(&mut self, connection: &mut Connection) -> Result<LogTail, Blocked> {
        let row = sql::query(
            "SELECT key, origin, frontier,
                (SELECT note FROM checkpoints ORDER BY size DESC LIMIT 1)
            FROM head WHERE id = 1",
        )
        .fetch_optional(&mut *connection)
        .await?
        .ok_or_else(|| self.broken(&"it has no head"))?;
        let public: VerifyingKey = row
            .try_get::<&str>(0)?
            .parse()
            .map_err(|error| self.broken(&error))?;
        let origin: &str = row.try_get(1)?;
        let key = match self.key.take() {
            Some(key) if *key.verifying_key() == public => key,
            _ => self.keys.load(&public)?,
        };
        self.key = Some(Arc::clone(&key));
        let note: Option<String> = row.try_get(3)?;
        let note = note.ok_or_else(|| self.broken(&"it has no checkpoint"))?;
        let signed: SignedCheckpoint = note.parse().map_err(|error| self.broken(&error))?;
        if self.trusted.as_ref() != Some(&note) {
            let ring = KeyRing::of(key.verifying_key().clone());
            signed.verify(&ring).map_err(|error| self.broken(&error))?;
            self.trusted = Some(note);
        }
        let checkpoint = signed.checkpoint();
        if checkpoint.origin() != origin {
            return Err(self.broken(&"its checkpoint is of another log").into());
        }
        // Going on from an older copy would sign two logs.
        if checkpoint.size() < self.largest {
            return Err(self.broken(&"it is shorter than it was").into());
        }
        self.largest = checkpoint.size();
        let stored = serde_json::from_str(row.try_get(2)?)
            .ok()
            .and_then(|frontier: Frontier| LogHead::resume(checkpoint, frontier).ok());
        let head = match stored {
            Some(head) => head,
            None => {
                tracing::warn!(target: "abp.store", "the end of the log is made again of its leaves");
                let frontier = self.replay(connection).await?;
                LogHead::resume(checkpoint, frontier).map_err(|error| self.broken(&error))?
            }
        };
        Ok(LogTail {
            head,
            key,
            rotated: None,
            grown: false,
        })
    }

    /// The right edge of the tree, from its leaves.
    async fn replay(&self, connection: &mut Connection) -> Result<Frontier, Blocked> {
        let mut leaves = sql::query("SELECT leaf FROM log ORDER BY seq").fetch(connection);
        let mut frontier = Frontier::default();
        while let Some(row) = leaves.next().await {
            let row = row?;
            let leaf: &[u8] = row.try_get(0)?;
            frontier.push(leaf.try_into().map_err(|error| self.broken(&error))?);
        }
        Ok(frontier)
    }

    /// Makes the log of a new store.
    pub(crate) async fn create(
        &mut self,
        connection: &mut Connection,
        origin: &str,
    ) -> Result<(), Blocked> {
        let head = LogHead::new(origin).map_err(|error| StoreError::Origin {
            origin: origin.to_owned(),
            problem: error.to_string(),
        })?;
        let key = Arc::new(self.keys.create(origin)?);
        let public = key.verifying_key();
        sql::query(
            "INSERT INTO head (id, origin, first_key, key, frontier) VALUES (1, ?, ?, ?, '')",
        )
        .bind(origin)
        .bind(public.to_string())
        .bind(public.to_string())
        .execute(&mut *connection)
        .await?;
        let tail = LogTail {
            head,
            key,
            rotated: None,
            grown: true,
        };
        tail.store(connection, &self.path).await?;
        Ok(())
    }

    /// Remembers what is durable now, and removes the key that was replaced.
    pub(crate) fn keep(&mut self, signed: Signed) {
        self.trusted = Some(signed.note);
        self.largest = signed.checkpoint.checkpoint().size();
        self.key = Some(signed.key);
        if let Some((old, _)) = signed.rotated {
            self.keys.remove(old);
        }
    }

    /// Forgets what did not become durable.
    pub(crate) fn discard(&mut self, tail: Option<&LogTail>) {
        self.key = None;
        self.trusted = None;
        if let Some((_, new)) = tail.and_then(|tail| tail.rotated) {
            self.keys.remove(new);
        }
    }

    pub(crate) fn broken(&self, problem: &dyn Display) -> StoreError {
        broken(&self.path, problem)
    }

    pub(crate) fn keys(&self) -> &KeyDir {
        &self.keys
    }
}

impl LogTail {
    /// Appends an entry and returns its place.
    pub(crate) async fn append(
        &mut self,
        connection: &mut Connection,
        path: &Path,
        kind: EntryKind,
        at: Timestamp,
    ) -> Result<u64, Blocked> {
        let leaf = self
            .head
            .append(kind, at)
            .map_err(|error| broken(path, &error))?;
        self.insert(connection, leaf).await
    }

    /// Appends the rotation to a new key, which signs from here on.
    pub(crate) async fn rotate(
        &mut self,
        connection: &mut Connection,
        path: &Path,
        keys: &KeyDir,
        at: Timestamp,
    ) -> Result<VerifyingKey, Blocked> {
        let new = Arc::new(keys.create(self.head.origin())?);
        let public = new.verifying_key().clone();
        let old = self.key.verifying_key().id();
        // A second rotation in one transaction still replaces the key that is in use.
        let replaced = self.rotated.map_or(old, |(first, _)| first);
        let leaf = match self.head.rotate(&self.key, &public, at) {
            Ok(leaf) => leaf,
            Err(error) => {
                keys.remove(public.id());
                return Err(broken(path, &error).into());
            }
        };
        self.rotated = Some((replaced, public.id()));
        self.key = new;
        self.insert(connection, leaf).await?;
        Ok(public)
    }

    /// Signs the log and puts its end back; `None` where nothing was appended.
    pub(crate) async fn store(
        &self,
        connection: &mut Connection,
        path: &Path,
    ) -> Result<Option<Signed>, Blocked> {
        if !self.grown {
            return Ok(None);
        }
        let checkpoint = self
            .head
            .checkpoint()
            .sign(&self.key)
            .map_err(|error| broken(path, &error))?;
        let frontier =
            serde_json::to_string(self.head.frontier()).map_err(|error| broken(path, &error))?;
        let note = checkpoint.to_string();
        sql::query("UPDATE head SET frontier = ?, key = ? WHERE id = 1")
            .bind(frontier)
            .bind(self.key.verifying_key().to_string())
            .execute(&mut *connection)
            .await?;
        sql::query("INSERT INTO checkpoints (size, note) VALUES (?, ?)")
            .bind(number(self.head.size())?)
            .bind(note.as_str())
            .execute(connection)
            .await?;
        Ok(Some(Signed {
            checkpoint,
            note,
            key: Arc::clone(&self.key),
            rotated: self.rotated,
        }))
    }

    async fn insert(&mut self, connection: &mut Connection, leaf: LogLeaf) -> Result<u64, Blocked> {
        self.grown = true;
        let seq = leaf.entry.seq;
        // Canonical JSON is UTF-8.
        let entry = String::from_utf8_lossy(&leaf.bytes).into_owned();
        sql::query("INSERT INTO log (seq, entry, leaf) VALUES (?, ?, ?)")
            .bind(number(seq)?)
            .bind(entry)
            .bind(leaf.hash.as_bytes().as_slice())
            .execute(connection)
            .await?;
        Ok(seq)
    }
}

/// A number as the database keeps it.
pub(crate) fn number(value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| StoreError::TooLarge { what: "a number" })
}

fn broken(path: &Path, problem: &dyn Display) -> StoreError {
    StoreError::LogBroken {
        path: path.to_owned(),
        problem: problem.to_string(),
    }
}
