//! Reading change sets, applications and decisions.

use std::collections::BTreeSet;

use abp_core::Timestamp;
use abp_receipt::{ChangeDecision, Hash};
use uuid::Uuid;

use crate::change_set::{
    ApplicationJournal, ChangeSetRecord, Decider, DecisionRecord, OpenApplication,
};
use crate::engine::sql::{self, Row};
use crate::log::number;
use crate::read::{MAX_PAGE_ROWS, Unreadable, damaged, uuid_of};
use crate::{StoreError, StoreReader};

/// The largest document or image that is read whole: what the store takes at most.
const MAX_BLOB_BYTES: i64 = 256 * 1024 * 1024;

impl StoreReader {
    /// The changes of a run, where any are stored or were decided.
    ///
    /// # Errors
    /// Fails where the database cannot be read, or the document is not the one that was stored.
    pub async fn change_set(&self, run_id: Uuid) -> Result<Option<ChangeSetRecord>, StoreError> {
        let row = sql::query(
            "SELECT sha256, state, state_at, state_by FROM change_sets
            WHERE run = (SELECT id FROM runs WHERE run_id = ?)",
        )
        .bind(run_id.to_string())
        .fetch_optional(&self.pool)
        .await
        .map_err(|error| self.failed(&error))?;
        let Some(row) = row else { return Ok(None) };
        let read = |row: &Row| {
            Ok(ChangeSetRecord {
                run_id,
                document: None,
                sha256: *self.hash(row.try_get(0)?, "a change set")?.as_bytes(),
                state: row
                    .try_get::<&str>(1)?
                    .parse()
                    .map_err(|error| damaged(self.path(), "a change set", error))?,
                state_at: Timestamp::from_unix_millis(row.try_get(2)?),
                state_by: row.try_get(3)?,
            })
        };
        let mut record = self.readable(read(&row))?;
        record.document = self.blob(run_id, record.sha256).await?;
        if record.document.is_none() && !record.state.is_decided() {
            let problem = "it is missing";
            return Err(damaged(
                self.path(),
                "the document of a change set",
                problem,
            ));
        }
        Ok(Some(record))
    }

    /// An image from before the run, by its SHA-256; `None` where there is none of that hash.
    ///
    /// # Errors
    /// Fails where the database cannot be read, or the stored bytes have another hash.
    pub async fn before_image(
        &self,
        run_id: Uuid,
        sha256: [u8; 32],
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.blob(run_id, sha256).await
    }

    /// Reads stored bytes, piece by piece, and compares them with their hash.
    async fn blob(&self, run_id: Uuid, sha256: [u8; 32]) -> Result<Option<Vec<u8>>, StoreError> {
        let row: (i64, i64) = sql::query_as(
            "SELECT count(*), coalesce(sum(length(bytes)), 0) FROM run_blobs
            WHERE run = (SELECT id FROM runs WHERE run_id = ?) AND sha256 = ?",
        )
        .bind(run_id.to_string())
        .bind(sha256.as_slice())
        .fetch_one(&self.pool)
        .await
        .map_err(|error| self.failed(&error))?;
        let (chunks, size) = row;
        if chunks == 0 {
            return Ok(None);
        }
        if size > MAX_BLOB_BYTES {
            let what = "what is stored of a change set";
            return Err(StoreError::TooLarge { what });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        for chunk in 0..chunks {
            let piece: Option<Vec<u8>> = sql::query_scalar(
                "SELECT bytes FROM run_blobs
                WHERE run = (SELECT id FROM runs WHERE run_id = ?) AND sha256 = ? AND chunk = ?",
            )
            .bind(run_id.to_string())
            .bind(sha256.as_slice())
            .bind(chunk)
            .fetch_optional(&self.pool)
            .await
            .map_err(|error| self.failed(&error))?;
            bytes.extend(piece.unwrap_or_default());
        }
        let (given, found) = (Hash::from_bytes(sha256), Hash::of(&bytes));
        if found != given {
            let problem = format!("its hash is {found}, expected is {given}");
            return Err(damaged(self.path(), "a stored file", problem));
        }
        Ok(Some(bytes))
    }

    /// The runs whose changes wait for a decision, or are being applied.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn undecided(&self) -> Result<BTreeSet<Uuid>, StoreError> {
        let rows: Vec<String> = sql::query_scalar(
            "SELECT runs.run_id FROM change_sets JOIN runs ON runs.id = change_sets.run
            WHERE change_sets.state IN ('proposed', 'applying', 'conflict')",
        )
        .fetch_all(&self.pool)
        .await
        .map_err(|error| self.failed(&error))?;
        rows.iter()
            .map(|run_id| uuid_of(run_id, self.path()))
            .collect()
    }

    /// The applications that did not end, oldest first: what there is to recover where no process has
    /// them.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn open_applications(&self) -> Result<Vec<OpenApplication>, StoreError> {
        let rows = sql::query(
            "SELECT applications.id, runs.run_id, applications.owner, decided_by, via, begun_at
            FROM applications JOIN runs ON runs.id = applications.run
            ORDER BY begun_at, applications.id LIMIT ?",
        )
        .bind(MAX_PAGE_ROWS)
        .fetch_all(&self.pool)
        .await
        .map_err(|error| self.failed(&error))?;
        let read = |row: &Row| {
            let application = OpenApplication {
                id: uuid_of(row.try_get(0)?, self.path())?,
                run_id: uuid_of(row.try_get(1)?, self.path())?,
                decider: Decider {
                    by: row.try_get(3)?,
                    via: row.try_get(4)?,
                },
                begun_at: Timestamp::from_unix_millis(row.try_get(5)?),
                owner_alive: false,
                own: false,
                is_local: false,
            };
            Ok((application, row.try_get::<String>(2)?))
        };
        let mut open = Vec::with_capacity(rows.len());
        for row in &rows {
            let (mut application, owner) = self.readable(read(row))?;
            (application.own, application.owner_alive) = self.ownership(&owner).await?;
            application.is_local = self.is_local(&owner);
            open.push(application);
        }
        Ok(open)
    }

    /// The journal of an application; `None` where it is over.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn application(&self, id: Uuid) -> Result<Option<ApplicationJournal>, StoreError> {
        let row = sql::query(
            "SELECT runs.run_id, paths, journal FROM applications
                JOIN runs ON runs.id = applications.run
            WHERE applications.id = ?",
        )
        .bind(id.to_string())
        .fetch_optional(&self.pool)
        .await
        .map_err(|error| self.failed(&error))?;
        let read = |row: Row| {
            Ok(ApplicationJournal {
                run_id: uuid_of(row.try_get(0)?, self.path())?,
                paths: serde_json::from_str(row.try_get(1)?)
                    .map_err(|error| damaged(self.path(), "an application", error))?,
                journal: row.try_get(2)?,
            })
        };
        row.map(|row| self.readable(read(row))).transpose()
    }

    /// A page of the decisions about a run, oldest first, from that place in the log on.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn decisions(
        &self,
        run_id: Uuid,
        from_seq: u64,
        limit: u32,
    ) -> Result<Vec<DecisionRecord>, StoreError> {
        let query = sql::query(
            "SELECT log_seq, document FROM decisions
            WHERE run = (SELECT id FROM runs WHERE run_id = ?) AND log_seq >= ?
            ORDER BY log_seq LIMIT ?",
        )
        .bind(run_id.to_string())
        .bind(number(from_seq)?)
        .bind(limit.min(MAX_PAGE_ROWS));
        self.page(query, |row| {
            let document: &[u8] = row.try_get(1)?;
            let decision = ChangeDecision::from_document(document)
                .map_err(|error| damaged(self.path(), "a decision", error))?;
            let record = DecisionRecord {
                seq: row.try_get::<i64>(0)?.unsigned_abs(),
                sha256: Hash::of(document),
                decision,
            };
            Ok((record, document.len()))
        })
        .await
    }

    fn hash(&self, bytes: &[u8], what: &str) -> Result<Hash, StoreError> {
        bytes
            .try_into()
            .map_err(|error| damaged(self.path(), what, error))
    }

    fn readable<T>(&self, read: Result<T, Unreadable>) -> Result<T, StoreError> {
        read.map_err(|error| match error {
            Unreadable::Row(error) => self.failed(&error),
            Unreadable::Value(error) => error,
        })
    }
}
