//! Change sets, their applications and the decisions about them, inside a transaction.

use abp_core::Timestamp;
use abp_receipt::{ChangeDecision, DecisionKind, EntryKind, Hash};
use uuid::Uuid;

use super::Batch;
use crate::StoreError;
use crate::change_set::{ApplicationEnd, ChangeSetChange, ChangeSetState, Decider, DecisionRecord};
use crate::command::Done;
use crate::engine::Blocked;
use crate::engine::sql;
use crate::log::number;
use crate::read::uuid_of;

/// A stored change set, without its document.
struct Standing {
    run: i64,
    sha256: Hash,
    state: ChangeSetState,
    state_at: Timestamp,
    state_by: String,
}

/// From when on a change set is in its state, and by whose decision.
struct StateSince {
    at: Timestamp,
    by: String,
}

/// An application, without its journal.
struct Application {
    run: i64,
    run_id: Uuid,
    owner: String,
    decider: Decider,
    paths: Vec<String>,
}

impl Batch<'_> {
    pub(super) async fn change_set(&mut self, change: &ChangeSetChange) -> Result<Done, Blocked> {
        match change {
            ChangeSetChange::Chunk {
                run_id,
                sha256,
                chunk,
                bytes,
            } => {
                let run = self.own_run(*run_id)?.id;
                sql::query(
                    "INSERT INTO run_blobs (run, sha256, chunk, bytes) VALUES (?, ?, ?, ?)
                    ON CONFLICT DO NOTHING",
                )
                .bind(run)
                .bind(sha256.as_bytes().as_slice())
                .bind(*chunk)
                .bind(bytes.as_slice())
                .execute(self.writing())
                .await?;
                Ok(Done::Written)
            }
            ChangeSetChange::Keep { run_id, sha256 } => self.keep(*run_id, *sha256).await,
            ChangeSetChange::Begin {
                run_id,
                id,
                decider,
                paths,
                journal,
            } => self.begin(*run_id, *id, decider, paths, journal).await,
            ChangeSetChange::Update { id, journal } => {
                self.own_application(*id).await?;
                sql::query("UPDATE applications SET journal = ? WHERE id = ?")
                    .bind(journal.as_slice())
                    .bind(id.to_string())
                    .execute(self.writing())
                    .await?;
                Ok(Done::Written)
            }
            ChangeSetChange::End { id, end } => self.end_application(*id, end).await,
            ChangeSetChange::Adopt(id) => self.adopt_application(*id).await,
            ChangeSetChange::Decide {
                run_id,
                kind,
                decider,
            } => {
                let standing = self.decidable(*run_id).await?;
                let state = match kind {
                    DecisionKind::Discarded => ChangeSetState::Discarded,
                    _ => ChangeSetState::Expired,
                };
                self.set_state(standing.run, state, &self.since(&decider.by))
                    .await?;
                let decision = self.decision(*run_id, *kind, decider, standing.sha256);
                let record = self.log_decision(standing.run, decision).await?;
                Ok(Done::Decided(Some(Box::new(record))))
            }
        }
    }

    /// Removes what was stored of changes that the receipt does not vouch for. Changes that are being
    /// applied, or were decided in part, stay: finishing the application needs them.
    pub(super) async fn drop_unvouched(
        &mut self,
        run_id: Uuid,
        run: i64,
        vouched: Option<Hash>,
    ) -> Result<(), Blocked> {
        let standing = self.standing(run_id, run).await?;
        let keep = standing.as_ref().is_some_and(|standing| {
            vouched == Some(standing.sha256) || standing.state != ChangeSetState::Proposed
        });
        if keep {
            // Changes that nobody decided about are proposed from the end of the run on.
            if let Some(standing) = standing {
                self.follow_log(run, standing.state).await?;
            }
            return Ok(());
        }
        if standing.is_some() {
            sql::query("DELETE FROM change_sets WHERE run = ?")
                .bind(run)
                .execute(self.writing())
                .await?;
        }
        self.drop_blobs(run).await
    }

    async fn keep(&mut self, run_id: Uuid, sha256: Hash) -> Result<Done, Blocked> {
        let run = self.own_run(run_id)?.id;
        match self.standing(run_id, run).await? {
            Some(standing) if standing.sha256 == sha256 => return Ok(Done::Written),
            Some(_) => return Err(StoreError::ChangeSetExists(run_id).into()),
            None => {}
        }
        sql::query(
            "INSERT INTO change_sets (run, sha256, state, state_at, state_by)
            VALUES (?, ?, ?, ?, '')",
        )
        .bind(run)
        .bind(sha256.as_bytes().as_slice())
        .bind(ChangeSetState::Proposed.as_str())
        .bind(self.by.now.as_unix_millis())
        .execute(self.writing())
        .await?;
        Ok(Done::Written)
    }

    async fn begin(
        &mut self,
        run_id: Uuid,
        id: Uuid,
        decider: &Decider,
        paths: &[String],
        journal: &[u8],
    ) -> Result<Done, Blocked> {
        let run = self.decidable(run_id).await?.run;
        self.set_state(run, ChangeSetState::Applying, &self.since(&decider.by))
            .await?;
        sql::query(
            "INSERT INTO applications
                (id, run, owner, decided_by, via, begun_at, paths, journal)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(id.to_string())
        .bind(run)
        .bind(self.by.token)
        .bind(decider.by.as_str())
        .bind(decider.via.as_str())
        .bind(self.by.now.as_unix_millis())
        .bind(serde_json::json!(paths).to_string())
        .bind(journal)
        .execute(self.writing())
        .await?;
        Ok(Done::Written)
    }

    async fn end_application(&mut self, id: Uuid, end: &ApplicationEnd) -> Result<Done, Blocked> {
        let application = self.own_application(id).await?;
        let (run_id, run) = (application.run_id, application.run);
        let Some(standing) = self.standing(run_id, run).await? else {
            return Err(StoreError::NoChangeSet(run_id).into());
        };
        sql::query("DELETE FROM applications WHERE id = ?")
            .bind(id.to_string())
            .execute(self.writing())
            .await?;
        let (state, kind) = match end {
            ApplicationEnd::Applied { remaining: 0, .. } => {
                (ChangeSetState::Applied, Some(DecisionKind::Applied))
            }
            ApplicationEnd::Applied { .. } => (
                ChangeSetState::Proposed,
                Some(DecisionKind::PartiallyApplied),
            ),
            ApplicationEnd::RolledBack { .. } => {
                (ChangeSetState::Proposed, Some(DecisionKind::RolledBack))
            }
            ApplicationEnd::Conflict => (ChangeSetState::Conflict, None),
            ApplicationEnd::Withdrawn => (ChangeSetState::Proposed, None),
        };
        let Some(kind) = kind else {
            self.follow_log(run, state).await?;
            return Ok(Done::Decided(None));
        };
        self.set_state(run, state, &self.since(&application.decider.by))
            .await?;
        let mut decision = self.decision(run_id, kind, &application.decider, standing.sha256);
        match end {
            ApplicationEnd::Applied { paths, .. } => decision.paths.clone_from(paths),
            ApplicationEnd::RolledBack { saves } => {
                decision.paths = application.paths;
                decision.saves.clone_from(saves);
            }
            ApplicationEnd::Conflict | ApplicationEnd::Withdrawn => {}
        }
        let record = self.log_decision(run, decision).await?;
        Ok(Done::Decided(Some(Box::new(record))))
    }

    async fn adopt_application(&mut self, id: Uuid) -> Result<Done, Blocked> {
        let by = self.by;
        let application = self.application(id).await?;
        let is_ours = application.owner == by.token;
        if is_ours
            || by
                .owners
                .is_alive(&mut *self.connection, &application.owner)
                .await?
        {
            return Ok(Done::Changed(false));
        }
        sql::query("UPDATE applications SET owner = ? WHERE id = ?")
            .bind(by.token)
            .bind(id.to_string())
            .execute(self.writing())
            .await?;
        Ok(Done::Changed(true))
    }

    /// The change set of a run, where it may be decided now.
    async fn decidable(&mut self, run_id: Uuid) -> Result<Standing, Blocked> {
        let (token, fence) = (self.by.token, self.fence);
        let run = match self.slot(run_id) {
            None => return Err(StoreError::UnknownRun(run_id).into()),
            Some(slot) if !slot.ended && (slot.owner != token || slot.is_fenced(run_id, fence)) => {
                return Err(StoreError::NotOwner(run_id).into());
            }
            Some(slot) => slot.id,
        };
        match self.standing(run_id, run).await? {
            None => Err(StoreError::NoChangeSet(run_id).into()),
            Some(standing) => match standing.state {
                ChangeSetState::Proposed | ChangeSetState::Conflict => Ok(standing),
                state => Err(StoreError::ChangeSetDecided {
                    run_id,
                    state,
                    by: standing.state_by,
                    at: standing.state_at,
                }
                .into()),
            },
        }
    }

    async fn standing(&mut self, run_id: Uuid, run: i64) -> Result<Option<Standing>, Blocked> {
        let row =
            sql::query("SELECT sha256, state, state_at, state_by FROM change_sets WHERE run = ?")
                .bind(run)
                .fetch_optional(&mut *self.connection)
                .await?;
        let Some(row) = row else { return Ok(None) };
        let damaged = |problem: String| self.log.broken(&format!("changes of {run_id}: {problem}"));
        Ok(Some(Standing {
            run,
            sha256: Hash::try_from(row.try_get::<&[u8]>(0)?)
                .map_err(|error| damaged(error.to_string()))?,
            state: row.try_get::<&str>(1)?.parse().map_err(damaged)?,
            state_at: Timestamp::from_unix_millis(row.try_get(2)?),
            state_by: row.try_get(3)?,
        }))
    }

    fn since(&self, by: &str) -> StateSince {
        StateSince {
            at: self.by.now,
            by: by.to_owned(),
        }
    }

    /// Brings a change set into a state that no decision is logged for. Who and when are then those
    /// of the last decision, or else the end of the run: both can be verified, where a time that only
    /// this row has could be edited unseen. While changes are being applied, the row of the
    /// application says both.
    async fn follow_log(&mut self, run: i64, state: ChangeSetState) -> Result<(), Blocked> {
        if state == ChangeSetState::Applying {
            return Ok(());
        }
        let row = sql::query(
            "SELECT (SELECT document FROM decisions WHERE run = runs.id
                    ORDER BY log_seq DESC LIMIT 1), ended_at
            FROM runs WHERE id = ?",
        )
        .bind(run)
        .fetch_one(&mut *self.connection)
        .await?;
        let document: Option<Vec<u8>> = row.try_get(0)?;
        let ended_at: Option<i64> = row.try_get(1)?;
        let since = match document {
            Some(document) => {
                let decision = ChangeDecision::from_document(&document)
                    .map_err(|error| self.log.broken(&error))?;
                StateSince {
                    at: decision.at,
                    by: decision.by,
                }
            }
            None => StateSince {
                at: ended_at.map_or(self.by.now, Timestamp::from_unix_millis),
                by: String::new(),
            },
        };
        self.set_state(run, state, &since).await
    }

    /// Brings a change set into a state; what a decided one needed is removed.
    async fn set_state(
        &mut self,
        run: i64,
        state: ChangeSetState,
        since: &StateSince,
    ) -> Result<(), Blocked> {
        sql::query("UPDATE change_sets SET state = ?, state_at = ?, state_by = ? WHERE run = ?")
            .bind(state.as_str())
            .bind(since.at.as_unix_millis())
            .bind(since.by.as_str())
            .bind(run)
            .execute(self.writing())
            .await?;
        if state.is_decided() {
            self.drop_blobs(run).await?;
        }
        Ok(())
    }

    async fn drop_blobs(&mut self, run: i64) -> Result<(), Blocked> {
        sql::query("DELETE FROM run_blobs WHERE run = ?")
            .bind(run)
            .execute(self.writing())
            .await?;
        Ok(())
    }

    fn decision(
        &self,
        run: Uuid,
        kind: DecisionKind,
        decider: &Decider,
        change_set_sha256: Hash,
    ) -> ChangeDecision {
        ChangeDecision {
            at: self.by.now,
            by: decider.by.clone(),
            change_set_sha256,
            kind,
            paths: Vec::new(),
            run,
            saves: Vec::new(),
            via: decider.via.clone(),
        }
    }

    /// Stores a decision, and the log's entry that binds it.
    async fn log_decision(
        &mut self,
        run: i64,
        decision: ChangeDecision,
    ) -> Result<DecisionRecord, Blocked> {
        let document = decision
            .to_document()
            .map_err(|error| self.log.broken(&error))?;
        let sha256 = Hash::of(&document);
        let kind = EntryKind::Decision {
            run_id: decision.run,
            decision_sha256: sha256,
        };
        let seq = self.log_entry(kind, self.by.now).await?;
        sql::query("INSERT INTO decisions (log_seq, run, kind, document) VALUES (?, ?, ?, ?)")
            .bind(number(seq)?)
            .bind(run)
            .bind(decision.kind.as_str())
            .bind(document)
            .execute(self.writing())
            .await?;
        Ok(DecisionRecord {
            seq,
            sha256,
            decision,
        })
    }

    async fn own_application(&mut self, id: Uuid) -> Result<Application, Blocked> {
        let application = self.application(id).await?;
        if application.owner != self.by.token {
            return Err(StoreError::ForeignApplication(id).into());
        }
        Ok(application)
    }

    async fn application(&mut self, id: Uuid) -> Result<Application, Blocked> {
        let row = sql::query(
            "SELECT run, runs.run_id, applications.owner, decided_by, via, paths
            FROM applications JOIN runs ON runs.id = run WHERE applications.id = ?",
        )
        .bind(id.to_string())
        .fetch_optional(&mut *self.connection)
        .await?
        .ok_or(StoreError::NoApplication(id))?;
        let paths = serde_json::from_str(row.try_get(5)?);
        Ok(Application {
            run: row.try_get(0)?,
            run_id: uuid_of(row.try_get(1)?, self.by.path)?,
            owner: row.try_get(2)?,
            decider: Decider {
                by: row.try_get(3)?,
                via: row.try_get(4)?,
            },
            paths: paths.map_err(|error| self.log.broken(&error))?,
        })
    }
}
