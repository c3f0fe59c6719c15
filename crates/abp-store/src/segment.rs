//! Records of exchanges, many in one row: the body, the Merkle tree over it, and checking both.
//!
//! A body is its records one after the other, each after its length in two bytes. The tree's leaves
//! are the records, and its root is in the log. What else the row has is only there to find records,
//! and is checked against them.

use abp_receipt::{Frontier, Hash, merkle};
use uuid::Uuid;

use crate::engine::Blocked;
use crate::engine::connection::Connection;
use crate::engine::sql::{self, Row};
use crate::exchange::{ExchangeRecord, RecordProblem, decode};
use crate::log::number;

/// What the length of a record takes.
pub(crate) const LENGTH_BYTES: usize = 2;

/// Records that are sealed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) body: Vec<u8>,
    pub(crate) count: u64,
    /// The time of the oldest record.
    first_started_at: i64,
    min_id: Uuid,
    max_id: Uuid,
}

impl Default for Segment {
    fn default() -> Self {
        Self {
            body: Vec::new(),
            count: 0,
            first_started_at: i64::MAX,
            min_id: Uuid::max(),
            max_id: Uuid::nil(),
        }
    }
}

impl Segment {
    /// Adds a record, of which these are the bytes.
    pub(crate) fn push(&mut self, record: &ExchangeRecord, bytes: &[u8]) {
        // No record is as long as two bytes can say.
        self.body
            .extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        self.body.extend_from_slice(bytes);
        self.note(record.run_id, record.started_at.as_unix_millis());
    }

    fn note(&mut self, run_id: Uuid, started_at: i64) {
        self.count += 1;
        self.first_started_at = self.first_started_at.min(started_at);
        self.min_id = self.min_id.min(run_id);
        self.max_id = self.max_id.max(run_id);
    }

    /// The root of the tree over the records.
    pub(crate) fn root(&self) -> Hash {
        let mut tree = Frontier::default();
        for record in records(&self.body).flatten() {
            tree.push(merkle::leaf_hash(record));
        }
        tree.root()
    }

    /// Stores it under its entry in the log.
    pub(crate) async fn insert(
        &self,
        connection: &mut Connection,
        seq: u64,
        root: Hash,
    ) -> Result<(), Blocked> {
        sql::query(
            "INSERT INTO exchange_segments
                (seq, first_started_at, min_id, max_id, count, root, body)
            VALUES (?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(number(seq)?)
        .bind(self.first_started_at)
        .bind(self.min_id.as_bytes().as_slice())
        .bind(self.max_id.as_bytes().as_slice())
        .bind(number(self.count)?)
        .bind(root.as_bytes().as_slice())
        .bind(self.body.as_slice())
        .execute(connection)
        .await?;
        Ok(())
    }
}

/// The records of a body, as bytes. Ends after the first that is cut off.
pub(crate) fn records(body: &[u8]) -> impl Iterator<Item = Result<&[u8], RecordProblem>> {
    let mut left = body;
    std::iter::from_fn(move || {
        if left.is_empty() {
            return None;
        }
        let record = left
            .split_first_chunk()
            .and_then(|(length, rest)| rest.split_at_checked(u16::from_le_bytes(*length).into()));
        let (record, rest) = record.unzip();
        left = rest.unwrap_or_default();
        Some(record.ok_or(RecordProblem::Short))
    })
}

/// A row of the table, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentRow {
    segment: Segment,
    root: Hash,
}

impl SegmentRow {
    /// Reads the columns from `first` on, in the order of the table without its key.
    pub(crate) fn read(row: &Row, first: usize) -> Result<Self, sqlx::Error> {
        let undecodable = |error| sqlx::Error::Decode(error);
        let id = |column: usize| {
            let bytes: &[u8] = row.try_get(column)?;
            Uuid::from_slice(bytes).map_err(|error| undecodable(error.into()))
        };
        let root: &[u8] = row.try_get(first + 4)?;
        Ok(Self {
            segment: Segment {
                first_started_at: row.try_get(first)?,
                min_id: id(first + 1)?,
                max_id: id(first + 2)?,
                count: row.try_get::<i64>(first + 3)?.unsigned_abs(),
                body: row.try_get(first + 5)?,
            },
            root: Hash::try_from(root).map_err(|error| undecodable(error.into()))?,
        })
    }

    /// What is wrong with it, given the count and the root that the log has.
    pub(crate) fn problem(&self, count: u64, root: Hash) -> Option<String> {
        let mut found = Segment::default();
        let mut tree = Frontier::default();
        for (place, record) in records(&self.segment.body).enumerate() {
            let read = record.and_then(|bytes| decode(bytes).map(|record| (record, bytes)));
            match read {
                Ok((record, bytes)) => {
                    tree.push(merkle::leaf_hash(bytes));
                    found.note(record.run_id, record.started_at.as_unix_millis());
                }
                Err(problem) => return Some(format!("record {place}: {problem}")),
            }
        }
        let computed = tree.root();
        if (found.count, computed) != (count, root) {
            return Some(format!(
                "it has {} records with root {computed}, the log has {count} with root {root}",
                found.count
            ));
        }
        found.body.clone_from(&self.segment.body);
        (found != self.segment || self.root != root)
            .then(|| "what it is found by does not belong to its records".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::{encode, record};

    fn row(records: u128) -> SegmentRow {
        let mut segment = Segment::default();
        for number in 0..records {
            let record = record(number * 3 % records);
            segment.push(&record, &encode(&record));
        }
        let root = segment.root();
        SegmentRow { segment, root }
    }

    /// Whatever byte is changed, missing or added: it is noticed.
    #[test]
    fn every_byte_counts() {
        for records in [1, 2, 5] {
            let sound = row(records);
            let (count, root) = (sound.segment.count, sound.root);
            assert_eq!(sound.problem(count, root), None);
            assert!(sound.problem(count + 1, root).is_some());
            assert!(sound.problem(count, Hash::of(b"another")).is_some());
            let spoilt = |change: &dyn Fn(&mut SegmentRow)| {
                let mut row = sound.clone();
                change(&mut row);
                row.problem(count, root)
            };
            for place in 0..sound.segment.body.len() {
                for bit in 0..8 {
                    let changed = spoilt(&|row| row.segment.body[place] ^= 1 << bit);
                    assert!(changed.is_some(), "bit {bit} of byte {place}");
                }
                let cut = spoilt(&|row| row.segment.body.truncate(place));
                assert!(cut.is_some(), "cut at {place}");
            }
            let changes: [&dyn Fn(&mut SegmentRow); 6] = [
                &|row| row.segment.body.push(0),
                &|row| row.segment.count += 1,
                &|row| row.segment.first_started_at -= 1,
                &|row| row.segment.min_id = Uuid::max(),
                &|row| row.segment.max_id = Uuid::max(),
                &|row| row.root = Hash::of(b"another"),
            ];
            for (place, change) in changes.iter().enumerate() {
                assert!(spoilt(change).is_some(), "change {place}");
            }
        }
    }
}
