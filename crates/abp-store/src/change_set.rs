//! The changes of a run that wait to be decided, and what was decided.
//!
//! A change set is a document that its maker understands, and the images of files from before the
//! run, which an application needs to merge and to undo. The store keeps them until the changes are
//! decided. A state is changed only from the state it may follow:
//!
//! ```text
//! proposed ──begin──▶ applying ──end──▶ applied            (images and document are removed)
//!    ▲  │                 │ └─────────▶ conflict ──begin──▶ applying
//!    │  └─discard, expire─│───────────▶ discarded, expired (removed as well)
//!    └────────────────────┘ part of the paths, rolled back, withdrawn
//! ```
//!
//! Every decision is an entry of the signed log, in the transaction that changes the state.

use std::fmt;
use std::str::FromStr;

use abp_core::Timestamp;
use abp_receipt::{ChangeDecision, DecisionKind, Hash};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::command::{Command, Done, Reply};
use crate::{Store, StoreError};

/// The size of the pieces that documents and images are stored in.
pub(crate) const CHUNK_BYTES: usize = 1024 * 1024;

/// The state of the decision about the changes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeSetState {
    /// They wait for a decision.
    Proposed,
    /// They are being written to the source.
    Applying,
    /// All of them are in the source.
    Applied,
    /// The source changed in the same places; nothing was written. Applying may be tried again.
    Conflict,
    /// They were thrown away.
    Discarded,
    /// They were kept for as long as they are kept, and then removed.
    Expired,
}

/// The stored changes of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeSetRecord {
    /// The run.
    pub run_id: Uuid,
    /// The document, byte for byte; `None` once the changes are decided.
    pub document: Option<Vec<u8>>,
    /// The SHA-256 of the document.
    pub sha256: [u8; 32],
    /// How far they are decided.
    pub state: ChangeSetState,
    /// When the last decision about them was made, or the application under way began; where there is
    /// neither, the end of the run.
    pub state_at: Timestamp,
    /// Who decided or applies; empty where nobody did.
    pub state_by: String,
}

/// Who decides, and by which way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decider {
    /// The person, key or lane.
    pub by: String,
    /// The way: `cli`, `http`, `lane` and so on.
    pub via: String,
}

/// How an application ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplicationEnd {
    /// The paths are in the source now.
    Applied {
        /// The paths that were written.
        paths: Vec<String>,
        /// How many paths of the change set are still undecided.
        remaining: u64,
    },
    /// Everything that was written is undone.
    RolledBack {
        /// Paths that the user saved meanwhile, and that were left alone.
        saves: Vec<String>,
    },
    /// The source changed in the same places, and nothing was written. No decision is logged.
    Conflict,
    /// Nothing was written, for another reason. No decision is logged.
    Withdrawn,
}

/// An application that did not end yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenApplication {
    /// Its id.
    pub id: Uuid,
    /// The run whose changes are applied.
    pub run_id: Uuid,
    /// Who applies them.
    pub decider: Decider,
    /// When it began.
    pub begun_at: Timestamp,
    /// Whether the process it belongs to still lives.
    pub owner_alive: bool,
    /// Whether that process is this one.
    pub own: bool,
    /// Whether that process is or was on this node, where the files are that it writes to.
    pub is_local: bool,
}

/// What is needed to finish an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplicationJournal {
    /// The run.
    pub run_id: Uuid,
    /// The paths that are applied; all of the change set where the list is empty.
    pub paths: Vec<String>,
    /// The journal, as it was last stored.
    pub journal: Vec<u8>,
}

/// A logged decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionRecord {
    /// The place of its entry in the log.
    pub seq: u64,
    /// The hash that the entry has.
    pub sha256: Hash,
    /// The decision.
    pub decision: ChangeDecision,
}

/// A change to change sets.
#[derive(Debug)]
pub(crate) enum ChangeSetChange {
    /// A piece of a document or an image.
    Chunk {
        run_id: Uuid,
        sha256: Hash,
        chunk: i64,
        bytes: Vec<u8>,
    },
    Keep {
        run_id: Uuid,
        sha256: Hash,
    },
    Begin {
        run_id: Uuid,
        id: Uuid,
        decider: Decider,
        paths: Vec<String>,
        journal: Vec<u8>,
    },
    Update {
        id: Uuid,
        journal: Vec<u8>,
    },
    End {
        id: Uuid,
        end: ApplicationEnd,
    },
    Adopt(Uuid),
    Decide {
        run_id: Uuid,
        kind: DecisionKind,
        decider: Decider,
    },
}

impl ChangeSetState {
    /// The name in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Applying => "applying",
            Self::Applied => "applied",
            Self::Conflict => "conflict",
            Self::Discarded => "discarded",
            Self::Expired => "expired",
        }
    }

    /// Whether nothing is left to decide.
    #[must_use]
    pub const fn is_decided(self) -> bool {
        matches!(self, Self::Applied | Self::Discarded | Self::Expired)
    }
}

impl FromStr for ChangeSetState {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [
            Self::Proposed,
            Self::Applying,
            Self::Applied,
            Self::Conflict,
            Self::Discarded,
            Self::Expired,
        ];
        let found = all.into_iter().find(|state| state.as_str() == name);
        found.ok_or_else(|| format!("{name:?} is no state"))
    }
}

impl fmt::Display for ChangeSetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Store {
    /// Stores an image of a file from before the run, so that the caller need not hold all images at
    /// once. Durable when this returns; it counts only once
    /// [`keep_change_set`](Self::keep_change_set) is done.
    ///
    /// # Errors
    /// Refuses bytes of another hash, and a run that is over or of another process.
    pub async fn keep_image(
        &self,
        run_id: Uuid,
        sha256: [u8; 32],
        bytes: Vec<u8>,
    ) -> Result<(), StoreError> {
        let (sha256, bytes) = hashed("an image", sha256, bytes).await?;
        let mut pending = Vec::new();
        self.send_blob(run_id, sha256, &bytes, &mut pending).await?;
        settle(pending).await
    }

    /// Stores the changes of a run of this process, before its receipt: durable, and proposed, when
    /// this returns. The receipt that follows names the same hash; otherwise the changes are removed
    /// with it. Storing the same changes again changes nothing.
    ///
    /// A document that is a JSON object with a list `images` of SHA-256 hashes in hexadecimal names all
    /// its images: [`verify`](crate::StoreReader::verify) then reports a stored image that is missing or
    /// not named.
    ///
    /// # Errors
    /// Refuses a document or an image of another hash, other changes in the place of stored ones, and
    /// a run that is over or of another process.
    pub async fn keep_change_set(
        &self,
        run_id: Uuid,
        document: Vec<u8>,
        sha256: [u8; 32],
        images: Vec<([u8; 32], Vec<u8>)>,
    ) -> Result<(), StoreError> {
        let mut pending = Vec::new();
        for (sha256, image) in images {
            let (sha256, image) = hashed("an image", sha256, image).await?;
            self.send_blob(run_id, sha256, &image, &mut pending).await?;
        }
        let (sha256, document) = hashed("the change set", sha256, document).await?;
        self.send_blob(run_id, sha256, &document, &mut pending)
            .await?;
        settle(pending).await?;
        self.change(ChangeSetChange::Keep { run_id, sha256 })
            .await
            .map(drop)
    }

    /// Begins to apply changes of a run: the application is durable when this returns, and ended by
    /// [`end_application`](Self::end_application), or by another process if this one dies. `paths`
    /// names some of the changed paths, or all of them where it is empty.
    ///
    /// # Errors
    /// Says what the state is where the changes are decided or being applied. Refuses a run that is
    /// under way in another process.
    pub async fn begin_application(
        &self,
        run_id: Uuid,
        decider: Decider,
        paths: Vec<String>,
        journal: Vec<u8>,
    ) -> Result<Uuid, StoreError> {
        let id = Uuid::now_v7();
        let begin = ChangeSetChange::Begin {
            run_id,
            id,
            decider,
            paths,
            journal,
        };
        self.change(begin).await?;
        Ok(id)
    }

    /// Replaces the journal of an application of this process.
    ///
    /// # Errors
    /// Fails where it is over, or of another process.
    pub async fn update_application(&self, id: Uuid, journal: Vec<u8>) -> Result<(), StoreError> {
        self.change(ChangeSetChange::Update { id, journal })
            .await
            .map(drop)
    }

    /// Ends an application of this process. Where that decides something, the decision is in the log
    /// when this returns, and is returned.
    ///
    /// # Errors
    /// Fails where it is over, or of another process.
    pub async fn end_application(
        &self,
        id: Uuid,
        end: ApplicationEnd,
    ) -> Result<Option<DecisionRecord>, StoreError> {
        match self.change(ChangeSetChange::End { id, end }).await? {
            Done::Decided(record) => Ok(record.map(|record| *record)),
            _ => Err(StoreError::Closed),
        }
    }

    /// Takes over an application whose process is gone. Exactly one of all who try gets `true`, and
    /// finishes it.
    ///
    /// # Errors
    /// Fails where there is no such application.
    pub async fn adopt_application(&self, id: Uuid) -> Result<bool, StoreError> {
        self.ask_whether(Command::ChangeSets(ChangeSetChange::Adopt(id)))
            .await
    }

    /// Throws the changes of a run away.
    ///
    /// # Errors
    /// As [`begin_application`](Self::begin_application).
    pub async fn discard_change_set(
        &self,
        run_id: Uuid,
        decider: Decider,
    ) -> Result<DecisionRecord, StoreError> {
        self.decide(run_id, DecisionKind::Discarded, decider).await
    }

    /// Removes changes that were undecided for too long.
    ///
    /// # Errors
    /// As [`begin_application`](Self::begin_application).
    pub async fn expire_change_set(
        &self,
        run_id: Uuid,
        decider: Decider,
    ) -> Result<DecisionRecord, StoreError> {
        self.decide(run_id, DecisionKind::Expired, decider).await
    }

    async fn decide(
        &self,
        run_id: Uuid,
        kind: DecisionKind,
        decider: Decider,
    ) -> Result<DecisionRecord, StoreError> {
        let decide = ChangeSetChange::Decide {
            run_id,
            kind,
            decider,
        };
        match self.change(decide).await? {
            Done::Decided(Some(record)) => Ok(*record),
            _ => Err(StoreError::Closed),
        }
    }

    async fn change(&self, change: ChangeSetChange) -> Result<Done, StoreError> {
        self.ask(Command::ChangeSets(change)).await
    }

    /// Hands bytes over in pieces, so that the writer can commit the work of others in between.
    /// Nothing waits for a single piece: many share one commit, and the writer's queue bounds how
    /// many are under way.
    async fn send_blob(
        &self,
        run_id: Uuid,
        sha256: Hash,
        bytes: &[u8],
        pending: &mut Vec<oneshot::Receiver<Reply>>,
    ) -> Result<(), StoreError> {
        // An empty file is one empty piece.
        let empty: [&[u8]; 1] = [&[]];
        let empty = empty.into_iter().filter(|_| bytes.is_empty());
        for (chunk, piece) in (0..).zip(empty.chain(bytes.chunks(CHUNK_BYTES))) {
            let change = ChangeSetChange::Chunk {
                run_id,
                sha256,
                chunk,
                bytes: piece.to_vec(),
            };
            pending.push(self.send(Command::ChangeSets(change)).await?);
        }
        Ok(())
    }
}

async fn settle(pending: Vec<oneshot::Receiver<Reply>>) -> Result<(), StoreError> {
    for reply in pending {
        reply.await.unwrap_or(Err(StoreError::WriterGone))?;
    }
    Ok(())
}

/// The bytes, where they have that hash. Large ones are hashed on another thread.
async fn hashed(
    what: &'static str,
    sha256: [u8; 32],
    bytes: Vec<u8>,
) -> Result<(Hash, Vec<u8>), StoreError> {
    let given = Hash::from_bytes(sha256);
    let (found, bytes) = if bytes.len() <= CHUNK_BYTES {
        (Hash::of(&bytes), bytes)
    } else {
        tokio::task::spawn_blocking(move || (Hash::of(&bytes), bytes))
            .await
            .map_err(|_| StoreError::Closed)?
    };
    if found != given {
        return Err(StoreError::WrongHash { what, given, found });
    }
    Ok((given, bytes))
}

impl ChangeSetChange {
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Chunk { bytes, .. } => bytes.len(),
            Self::Begin { paths, journal, .. } => {
                journal.len().saturating_add(size_of_texts(paths))
            }
            Self::Update { journal, .. } => journal.len(),
            Self::End {
                end: ApplicationEnd::Applied { paths, .. },
                ..
            } => size_of_texts(paths),
            Self::End {
                end: ApplicationEnd::RolledBack { saves },
                ..
            } => size_of_texts(saves),
            Self::Keep { .. } | Self::End { .. } | Self::Adopt(_) | Self::Decide { .. } => 0,
        }
    }

    pub(crate) fn run_id(&self) -> Option<Uuid> {
        match self {
            Self::Chunk { run_id, .. }
            | Self::Keep { run_id, .. }
            | Self::Begin { run_id, .. }
            | Self::Decide { run_id, .. } => Some(*run_id),
            Self::Update { .. } | Self::End { .. } | Self::Adopt(_) => None,
        }
    }
}

fn size_of_texts(texts: &[String]) -> usize {
    texts.iter().map(|text| text.len() + 4).sum()
}
