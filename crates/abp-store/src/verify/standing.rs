//! Checks how far change sets are decided, and that what an undecided one needs is there.
//!
//! Who brought a change set into its state, and when, is that of the last logged decision; of one that
//! is being applied, that of the application; of one that was never decided, the end of its run.

use std::collections::BTreeSet;

use abp_core::Timestamp;
use abp_receipt::{ChangeDecision, Hash};
use serde::Deserialize;
use uuid::Uuid;

use super::{Findings, RunPart, StoreProblem};
use crate::engine::sql::{self, Row};
use crate::{ChangeSetState, StoreReader};

/// What a change set's state is compared with.
struct StandingRow {
    run: i64,
    run_id: String,
    sha256: Vec<u8>,
    state: String,
    since: (i64, String),
    /// The document of the last decision.
    decision: Option<Vec<u8>>,
    application: Option<(i64, String)>,
    ended_at: Option<i64>,
}

/// The member of a change set's document that names the images stored with it.
#[derive(Deserialize)]
struct ImageNames {
    images: Option<Vec<Hash>>,
}

impl StoreReader {
    pub(super) async fn check_standings(&self, findings: &mut Findings) -> Result<(), sqlx::Error> {
        let mut last = i64::MIN;
        loop {
            // Page by page: while rows are read, no other connection is needed, so that several
            // verifications at a time cannot wait for each other's.
            let page = self.standings_after(last).await?;
            let Some(row) = page.last() else {
                return Ok(());
            };
            last = row.run;
            for row in &page {
                // A run whose row has no id is reported as one that the log does not have.
                let Ok(run_id) = row.run_id.parse::<Uuid>() else {
                    continue;
                };
                let problems = [row.problem(), self.image_problem(run_id, row).await?];
                for detail in problems.into_iter().flatten() {
                    findings.add(StoreProblem::RunChanged {
                        run_id,
                        what: RunPart::ChangeSet,
                        detail,
                    });
                }
            }
        }
    }

    async fn standings_after(&self, run: i64) -> Result<Vec<StandingRow>, sqlx::Error> {
        let rows = sql::query(
            "SELECT change_sets.run, runs.run_id, sha256, change_sets.state, state_at, state_by,
                (SELECT document FROM decisions WHERE decisions.run = change_sets.run
                    ORDER BY log_seq DESC LIMIT 1),
                applications.begun_at, applications.decided_by, runs.ended_at
            FROM change_sets JOIN runs ON runs.id = change_sets.run
                LEFT JOIN applications ON applications.run = change_sets.run
            WHERE change_sets.run > ? ORDER BY change_sets.run LIMIT 256",
        )
        .bind(run)
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(StandingRow::read).collect()
    }

    /// Compares the images that the document of an undecided change set names with the stored ones.
    /// The bytes of each are hashed elsewhere.
    async fn image_problem(
        &self,
        run_id: Uuid,
        row: &StandingRow,
    ) -> Result<Option<String>, sqlx::Error> {
        let is_decided = row.state.parse().is_ok_and(ChangeSetState::is_decided);
        let stored: Vec<Vec<u8>> =
            sql::query_scalar("SELECT DISTINCT sha256 FROM run_blobs WHERE run = ?")
                .bind(row.run)
                .fetch_all(&self.pool)
                .await?;
        let stored: BTreeSet<Vec<u8>> = stored.into_iter().collect();
        if is_decided {
            let detail = "its document or images are stored although it is decided";
            return Ok((!stored.is_empty()).then(|| detail.to_owned()));
        }
        let Ok(sha256) = <[u8; 32]>::try_from(row.sha256.as_slice()) else {
            return Ok(Some("its hash has not 32 bytes".to_owned()));
        };
        // A document that is missing or of another hash is reported as such.
        let Ok(Some(document)) = self.before_image(run_id, sha256).await else {
            return Ok(None);
        };
        let named = serde_json::from_slice::<ImageNames>(&document);
        let Some(named) = named.ok().and_then(|names| names.images) else {
            return Ok(None);
        };
        let mut expected: BTreeSet<Vec<u8>> =
            named.iter().map(|hash| hash.as_bytes().to_vec()).collect();
        expected.insert(row.sha256.clone());
        let missing = expected.difference(&stored).count();
        let unnamed = stored.difference(&expected).count();
        Ok((missing + unnamed > 0).then(|| {
            format!("{missing} stored images are missing and {unnamed} are not named by it")
        }))
    }

    /// Images that belong to no change set: of a run that is over, where none is stored.
    pub(super) async fn stray_images(&self) -> Vec<StoreProblem> {
        let query = "SELECT DISTINCT run_id, 'images are stored without it'
            FROM run_blobs JOIN runs ON runs.id = run_blobs.run
            WHERE ended_at IS NOT NULL
                AND NOT EXISTS (SELECT 1 FROM change_sets WHERE change_sets.run = run_blobs.run)
            LIMIT 20";
        self.run_check(RunPart::ChangeSet, query).await
    }
}

impl StandingRow {
    fn read(row: &Row) -> Result<Self, sqlx::Error> {
        let begun_at: Option<i64> = row.try_get(7)?;
        let decided_by: Option<String> = row.try_get(8)?;
        Ok(Self {
            run: row.try_get(0)?,
            run_id: row.try_get(1)?,
            sha256: row.try_get(2)?,
            state: row.try_get(3)?,
            since: (row.try_get(4)?, row.try_get(5)?),
            decision: row.try_get(6)?,
            application: begun_at.zip(decided_by),
            ended_at: row.try_get(9)?,
        })
    }

    fn problem(&self) -> Option<String> {
        let is_applying = self.state == ChangeSetState::Applying.as_str();
        match (is_applying, &self.application) {
            (true, None) => return Some("it is being applied by nothing".to_owned()),
            (false, Some(_)) => {
                return Some(format!(
                    "it is being applied and its state is {}",
                    self.state
                ));
            }
            (true, Some(_)) | (false, None) => {}
        }
        let expected = match (&self.application, &self.decision) {
            (Some(application), _) => application.clone(),
            (None, Some(document)) => match ChangeDecision::from_document(document) {
                Ok(decision) => (decision.at.as_unix_millis(), decision.by),
                // Reported with the decision.
                Err(_) => return None,
            },
            // Until a run is over, nothing says since when its changes are proposed.
            (None, None) => (self.ended_at.unwrap_or(self.since.0), String::new()),
        };
        let told =
            |(at, by): &(i64, String)| format!("by {by:?} at {}", Timestamp::from_unix_millis(*at));
        (self.since != expected).then(|| {
            format!(
                "its state is {}, logged is {}",
                told(&self.since),
                told(&expected)
            )
        })
    }
}
