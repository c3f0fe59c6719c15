//! Looks the tables through for rows that no entry of the log has, and checks the database itself.

use abp_receipt::{Hash, HashStream};
use uuid::Uuid;

use super::judge::UNLOGGED;
use super::{Findings, RunPart, StoreProblem};
use crate::StoreReader;
use crate::engine::sql::{self, Pool, Row};
use crate::log::number;

/// How many problems the database lists.
const QUICK_CHECK: &str = "PRAGMA quick_check(20)";

/// Each finds rows of one kind: the columns are the run, and what is wrong with it.
const RUN_CHECKS: [(RunPart, &str); 5] = [
    (
        RunPart::Outcome,
        "SELECT run_id, 'it is ' || outcome || ', and the run has no end'
        FROM runs WHERE ended_at IS NULL AND outcome IS NOT NULL LIMIT 20",
    ),
    (
        RunPart::Outcome,
        "SELECT run_id, 'its state is ' || state || ', its outcome ' || coalesce(outcome, 'none')
        FROM runs
        WHERE CASE WHEN ended_at IS NULL
            THEN state NOT IN ('queued', 'running', 'awaiting_approval')
            ELSE state IS DISTINCT FROM outcome END
        LIMIT 20",
    ),
    (
        RunPart::Events,
        "SELECT run_id, 'they are not numbered from 0 without gaps'
        FROM events JOIN runs ON runs.id = events.run
        WHERE ended_at IS NULL GROUP BY run, run_id
        HAVING count(*) != max(seq) + 1 OR min(seq) != 0 LIMIT 20",
    ),
    (
        RunPart::ChangeSet,
        "SELECT run_id, 'its state is ' || decided || ', logged is ' || coalesce(logged, 'no decision')
        FROM (
            SELECT run, state AS decided, (
                SELECT kind FROM decisions
                WHERE decisions.run = change_sets.run
                    AND kind IN ('applied', 'discarded', 'expired')
                ORDER BY log_seq DESC LIMIT 1
            ) AS logged
            FROM change_sets
        ) AS standings JOIN runs ON runs.id = run
        WHERE coalesce(logged, '') !=
            CASE WHEN decided IN ('proposed', 'applying', 'conflict') THEN '' ELSE decided END
        LIMIT 20",
    ),
    (
        RunPart::ChangeSet,
        "SELECT run_id, 'its document is missing'
        FROM change_sets JOIN runs ON runs.id = change_sets.run
        WHERE change_sets.state IN ('proposed', 'applying', 'conflict') AND NOT EXISTS (
            SELECT 1 FROM run_blobs
            WHERE run_blobs.run = change_sets.run AND run_blobs.sha256 = change_sets.sha256
        ) LIMIT 20",
    ),
];

impl StoreReader {
    pub(super) async fn check_tables(&self, size: u64, findings: &mut Findings) {
        let mut all = Vec::new();
        all.extend(self.unlogged_runs().await);
        for (what, query) in RUN_CHECKS {
            all.extend(self.run_check(what, query).await);
        }
        all.extend(self.stray_images().await);
        all.extend(self.unlogged_segments(size).await);
        match self.pool {
            Pool::Sqlite(_) => {
                all.extend(self.foreign_keys().await);
                all.extend(self.quick_check().await);
            }
            Pool::Postgres(_) => all.extend(self.strays().await),
        }
        for problem in all {
            findings.add(problem);
        }
        for checked in [
            self.check_standings(findings).await,
            self.check_blobs(findings).await,
            self.check_ledgers(findings).await,
        ] {
            if let Err(error) = checked {
                findings.add(damage(&error));
            }
        }
    }

    /// Runs that claim no entry of the log; all others are compared with theirs.
    async fn unlogged_runs(&self) -> Vec<StoreProblem> {
        let found: Result<Vec<String>, sqlx::Error> = sql::query_scalar(
            "SELECT run_id FROM runs
            WHERE log_seq IS NULL OR log_seq NOT IN (SELECT seq FROM log) LIMIT 20",
        )
        .fetch_all(&self.pool)
        .await;
        let problem = |run_id| StoreProblem::UnloggedRun { run_id };
        listed(found, problem)
    }

    pub(super) async fn run_check(&self, what: RunPart, query: &'static str) -> Vec<StoreProblem> {
        let found: Result<Vec<(String, String)>, sqlx::Error> =
            sql::query_as(query).fetch_all(&self.pool).await;
        listed(found, |(run_id, detail)| match run_id.parse() {
            Ok(run_id) => StoreProblem::RunChanged {
                run_id,
                what,
                detail,
            },
            Err(_) => StoreProblem::UnloggedRun { run_id },
        })
    }

    /// Hashes every stored document and image, piece by piece.
    async fn check_blobs(&self, findings: &mut Findings) -> Result<(), sqlx::Error> {
        let mut rows = sql::query(
            "SELECT coalesce(runs.run_id, ''), sha256, chunk, bytes
            FROM run_blobs LEFT JOIN runs ON runs.id = run_blobs.run
            ORDER BY run, sha256, chunk",
        )
        .fetch(&self.pool);
        let mut current: Option<Blob> = None;
        while let Some(row) = rows.next().await {
            let row = row?;
            let (run_id, sha256): (&str, &[u8]) = (row.try_get(0)?, row.try_get(1)?);
            let is_next = |blob: &Blob| blob.run_id != run_id || blob.sha256 != sha256;
            if let Some(done) = current.take_if(|blob| is_next(blob)) {
                done.judge(findings);
            }
            current
                .get_or_insert_with(|| Blob::new(run_id, sha256))
                .push(&row)?;
        }
        if let Some(done) = current {
            done.judge(findings);
        }
        Ok(())
    }

    /// Hashes every ledger: exchanges name theirs by its hash.
    async fn check_ledgers(&self, findings: &mut Findings) -> Result<(), sqlx::Error> {
        let mut rows = sql::query("SELECT sha256, json FROM ledgers").fetch(&self.pool);
        while let Some(row) = rows.next().await {
            let row = row?;
            let (sha256, json): (&[u8], &str) = (row.try_get(0)?, row.try_get(1)?);
            let found = Hash::of(json.as_bytes());
            if sha256 != found.as_bytes() {
                findings.add(StoreProblem::Ledger {
                    detail: format!("the hash of its text is {found}"),
                });
            }
        }
        Ok(())
    }

    /// Segments that claim entries beyond the end of the log; all others are compared with theirs.
    async fn unlogged_segments(&self, size: u64) -> Vec<StoreProblem> {
        let claimed: Result<Vec<i64>, sqlx::Error> = sql::query_scalar(
            "SELECT seq FROM exchange_segments
            WHERE (seq < 0 OR seq >= ?) AND seq NOT IN (SELECT seq FROM log) LIMIT 20",
        )
        .bind(number(size).unwrap_or(i64::MAX))
        .fetch_all(&self.pool)
        .await;
        listed(claimed, |seq| StoreProblem::Segment {
            seq: seq.unsigned_abs(),
            detail: UNLOGGED.to_owned(),
        })
    }

    /// Rows that belong to other rows that are not there, such as events of no run. Runs and segments
    /// that the log does not have are named one by one instead.
    async fn foreign_keys(&self) -> Vec<StoreProblem> {
        let found: Result<Vec<(String, String)>, sqlx::Error> = sql::query_as(
            r#"SELECT "table", parent FROM pragma_foreign_key_check
            WHERE NOT ("table" IN ('runs', 'exchange_segments') AND parent = 'log')
            GROUP BY 1, 2 LIMIT 20"#,
        )
        .fetch_all(&self.pool)
        .await;
        listed(found, |(table, parent)| StoreProblem::Database {
            problem: format!("a row of {table} belongs to a row of {parent} that is not there"),
        })
    }

    /// Rows that belong to runs that are not there. Postgres itself keeps all other references whole.
    async fn strays(&self) -> Vec<StoreProblem> {
        let found: Result<Vec<String>, sqlx::Error> = sql::query_scalar(
            "SELECT 'events' WHERE EXISTS
                (SELECT 1 FROM events WHERE run NOT IN (SELECT id FROM runs))
            UNION ALL SELECT 'run_blobs' WHERE EXISTS
                (SELECT 1 FROM run_blobs WHERE run NOT IN (SELECT id FROM runs))",
        )
        .fetch_all(&self.pool)
        .await;
        listed(found, |table| StoreProblem::Database {
            problem: format!("a row of {table} belongs to a row of runs that is not there"),
        })
    }

    async fn quick_check(&self) -> Vec<StoreProblem> {
        let found: Result<Vec<String>, sqlx::Error> =
            sql::query_scalar(QUICK_CHECK).fetch_all(&self.pool).await;
        let mut problems = listed(found, |problem| StoreProblem::Database { problem });
        problems.retain(
            |problem| !matches!(problem, StoreProblem::Database { problem } if problem == "ok"),
        );
        problems
    }
}

/// A stored document or image, as far as it was read.
struct Blob {
    run_id: String,
    sha256: Vec<u8>,
    hasher: HashStream,
    next_chunk: i64,
    has_gap: bool,
}

impl Blob {
    fn new(run_id: &str, sha256: &[u8]) -> Self {
        Self {
            run_id: run_id.to_owned(),
            sha256: sha256.to_owned(),
            hasher: HashStream::default(),
            next_chunk: 0,
            has_gap: false,
        }
    }

    fn push(&mut self, row: &Row) -> Result<(), sqlx::Error> {
        self.has_gap |= row.try_get::<i64>(2)? != self.next_chunk;
        self.next_chunk += 1;
        self.hasher.push(row.try_get(3)?);
        Ok(())
    }

    fn judge(self, findings: &mut Findings) {
        let found = self.hasher.finish();
        if !self.has_gap && Hash::try_from(self.sha256.as_slice()) == Ok(found) {
            return;
        }
        // A piece of no run is reported as such by the database.
        if let Ok(run_id) = self.run_id.parse::<Uuid>() {
            findings.add(StoreProblem::RunChanged {
                run_id,
                what: RunPart::ChangeSet,
                detail: format!("a stored document or image has the hash {found}"),
            });
        }
    }
}

fn listed<T>(
    found: Result<Vec<T>, sqlx::Error>,
    problem: impl Fn(T) -> StoreProblem,
) -> Vec<StoreProblem> {
    match found {
        Ok(rows) => rows.into_iter().map(problem).collect(),
        Err(error) => vec![damage(&error)],
    }
}

fn damage(error: &sqlx::Error) -> StoreProblem {
    StoreProblem::Database {
        problem: error.to_string(),
    }
}
