//! Finding exchanges again.

use abp_receipt::{Hash, inclusion_proof, merkle};
use uuid::Uuid;

use super::codec::{RecordProblem, decode, run_id_of};
use super::{ExchangeRecord, FoundExchange};
use crate::engine::sql::{self, Row};
use crate::read::MAX_PAGE_ROWS;
use crate::segment::records;
use crate::{StoreError, StoreReader};

/// Where a record is.
struct Place {
    segment: i64,
    index: usize,
    body: Vec<u8>,
    root: Hash,
}

impl StoreReader {
    /// The record of an exchange, with what proves it.
    ///
    /// Looks through the segments that have older and newer ids; with ids that grow with time that is
    /// those of the time in which the exchange was under way.
    ///
    /// # Errors
    /// Fails where the database cannot be read, and where the record may be in a segment that is
    /// damaged.
    pub async fn exchange(&self, run_id: Uuid) -> Result<Option<FoundExchange>, StoreError> {
        let Some(place) = self.place_of(run_id).await? else {
            return Ok(None);
        };
        let damaged = |problem: &dyn std::fmt::Display| self.damaged(place.segment, problem);
        let records = split(&place.body).map_err(|problem| damaged(&problem))?;
        let leaves: Vec<Hash> = records
            .iter()
            .map(|record| merkle::leaf_hash(record))
            .collect();
        if merkle::root(&leaves) != place.root {
            return Err(damaged(&"its records do not have its root"));
        }
        let index = place.index as u64;
        let (Some(bytes), Some(leaf)) = (records.get(place.index), leaves.get(place.index)) else {
            return Ok(None);
        };
        Ok(Some(FoundExchange {
            record: decode(bytes).map_err(|problem| damaged(&problem))?,
            segment: place.segment.unsigned_abs(),
            index,
            count: leaves.len() as u64,
            leaf: *leaf,
            path: inclusion_proof(&leaves, index).map_err(|error| damaged(&error))?,
            root: place.root,
        }))
    }

    /// Records of exchanges, the newest first by when they were recorded; only those recorded before
    /// the exchange `before`.
    ///
    /// # Errors
    /// Fails where there is no exchange `before`, and where the database cannot be read or a segment
    /// is damaged.
    pub async fn exchanges(
        &self,
        before: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<ExchangeRecord>, StoreError> {
        let limit = limit.min(MAX_PAGE_ROWS) as usize;
        let (newest, end) = match before {
            None => (i64::MAX, None),
            Some(run_id) => {
                let place = self.place_of(run_id).await?;
                let place = place.ok_or(StoreError::UnknownRun(run_id))?;
                (place.segment, Some(place.index))
            }
        };
        let mut rows =
            sql::query("SELECT seq, body FROM exchange_segments WHERE seq <= ? ORDER BY seq DESC")
                .bind(newest)
                .fetch(&self.pool);
        let mut page = Vec::new();
        while page.len() < limit {
            let next = rows.next().await;
            let Some(row) = next else { break };
            let row = row.map_err(|error| self.failed(&error))?;
            let read = |row: &Row| Ok((row.try_get(0)?, row.try_get::<Vec<u8>>(1)?));
            let (segment, body) = read(&row).map_err(|error: sqlx::Error| self.failed(&error))?;
            let damaged = |problem: RecordProblem| self.damaged(segment, &problem);
            let all = split(&body).map_err(damaged)?;
            let end = end.filter(|_| segment == newest).unwrap_or(all.len());
            for bytes in all.iter().take(end).rev().take(limit - page.len()) {
                page.push(decode(bytes).map_err(damaged)?);
            }
        }
        Ok(page)
    }

    /// The text of a ledger.
    ///
    /// # Errors
    /// Fails where the database cannot be read, or the text is no longer what it was.
    pub async fn ledger(&self, sha256: [u8; 32]) -> Result<Option<String>, StoreError> {
        let json: Option<String> = sql::query_scalar("SELECT json FROM ledgers WHERE sha256 = ?")
            .bind(sha256.as_slice())
            .fetch_optional(&self.pool)
            .await
            .map_err(|error| self.failed(&error))?;
        let is_changed = |json: &String| *Hash::of(json.as_bytes()).as_bytes() != sha256;
        if json.as_ref().is_some_and(is_changed) {
            return Err(StoreError::Damaged {
                path: self.path().to_owned(),
                problem: format!("ledger {} was changed", Hash::from_bytes(sha256)),
            });
        }
        Ok(json)
    }

    /// How many processes ended without closing the exchange log. Each may have lost what it recorded
    /// in its last tenth of a second. They are counted when a store is opened.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn exchange_crashes(&self) -> Result<u64, StoreError> {
        let crashes: i64 = sql::query_scalar("SELECT exchange_crashes FROM head WHERE id = 1")
            .fetch_one(&self.pool)
            .await
            .map_err(|error| self.failed(&error))?;
        Ok(crashes.unsigned_abs())
    }

    /// Segments are looked through from the time of the exchange on: most end soon.
    async fn place_of(&self, run_id: Uuid) -> Result<Option<Place>, StoreError> {
        let mut rows = sql::query(
            "SELECT seq, root, body FROM exchange_segments
            WHERE max_id >= ?1 AND min_id <= ?1 ORDER BY max_id",
        )
        .bind(run_id.as_bytes().as_slice())
        .fetch(&self.pool);
        let mut damage = None;
        while let Some(row) = rows.next().await {
            let row = row.map_err(|error| self.failed(&error))?;
            match self.find_in(&row, run_id) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(error) => damage = Some(error),
            }
        }
        // Only where it is nowhere else may it be in what is damaged.
        damage.map_or(Ok(None), Err)
    }

    fn find_in(&self, row: &Row, run_id: Uuid) -> Result<Option<Place>, StoreError> {
        let read = || Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
        let (segment, root, body): (i64, &[u8], &[u8]) =
            read().map_err(|error: sqlx::Error| self.failed(&error))?;
        for (index, record) in records(body).enumerate() {
            let record = record.map_err(|problem| self.damaged(segment, &problem))?;
            if run_id_of(record) == Some(run_id) {
                let root = Hash::try_from(root).map_err(|error| self.damaged(segment, &error))?;
                return Ok(Some(Place {
                    segment,
                    index,
                    body: body.to_vec(),
                    root,
                }));
            }
        }
        Ok(None)
    }

    fn damaged(&self, segment: i64, problem: &dyn std::fmt::Display) -> StoreError {
        StoreError::Damaged {
            path: self.path().to_owned(),
            problem: format!("exchange segment {segment}: {problem}"),
        }
    }
}

fn split(body: &[u8]) -> Result<Vec<&[u8]>, RecordProblem> {
    records(body).collect()
}
