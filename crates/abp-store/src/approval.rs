//! Approvals: stored questions to a person, and their answers.

use std::path::Path;
use std::time::Duration;

use abp_core::Timestamp;
use serde::Serialize;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::batch::Writing;
use crate::command::{Command, Done};
use crate::engine::Blocked;
use crate::engine::connection::Connection;
use crate::engine::sql::{self, Row};
use crate::outbox::{Destinations, post};
use crate::queue::{Lease, later};
use crate::read::{MAX_PAGE_ROWS, Unreadable, damaged, uuid_of};
use crate::{Store, StoreError, StoreReader};

/// A question to a person, as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRecord {
    /// Its id.
    pub id: Uuid,
    /// The run that waits for the answer.
    pub run_id: Uuid,
    /// The principal that the run belongs to.
    pub principal: Option<String>,
    /// The rule that wants the approval, as `list: pattern`.
    pub rule: Option<String>,
    /// The tool that waits.
    pub tool: String,
    /// What the tool would do it to: a path, a command, a host.
    pub target: Option<String>,
    /// Why approval is needed.
    pub reason: String,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it is denied for lack of an answer.
    pub expires_at: Timestamp,
    /// The answer; `None` while it is open.
    pub answer: Option<ApprovalAnswer>,
}

/// How a question was answered, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalAnswer {
    /// The decision.
    pub verdict: ApprovalVerdict,
    /// When.
    pub at: Timestamp,
    /// The person or key that decided; `default` where nobody did.
    pub by: String,
    /// The way the answer came: `terminal`, `cli`, `http`.
    pub via: String,
    /// Why, where a reason was given.
    pub reason: Option<String>,
}

/// The end of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalVerdict {
    /// A person allowed it.
    Approved,
    /// A person refused it.
    Denied,
    /// Nobody answered in time, which denies.
    Expired,
    /// The run ended before anybody answered.
    Withdrawn,
}

impl ApprovalVerdict {
    /// Every verdict.
    pub const ALL: [Self; 4] = [Self::Approved, Self::Denied, Self::Expired, Self::Withdrawn];

    /// Its name, as the store writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }

    /// The verdict of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }
}

/// Which approvals to list, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    /// Only those of this run.
    pub run_id: Option<Uuid>,
    /// Only those of runs of this principal.
    pub principal: Option<String>,
    /// Only open ones, or only answered ones.
    pub open: Option<bool>,
    /// Only those asked after the one with this id.
    pub after: Option<Uuid>,
}

/// What became of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerOutcome {
    /// It is the answer.
    Recorded(ApprovalRecord),
    /// It came too late: this is the approval with the answer it has.
    AlreadyAnswered(ApprovalRecord),
}

/// A question that a run asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApproval {
    /// Its id, where it is asked for the first time.
    pub id: Uuid,
    /// The rule that wants the approval, as `list: pattern`.
    pub rule: Option<String>,
    /// The tool that waits.
    pub tool: String,
    /// What the tool would do it to.
    pub target: Option<String>,
    /// Why approval is needed.
    pub reason: String,
    /// How long it waits for an answer before it is denied.
    pub timeout: Duration,
}

/// A change to the approvals.
#[derive(Debug)]
pub(crate) enum ApprovalChange {
    Ask(Uuid, Box<NewApproval>),
    Settle {
        run_id: Uuid,
        id: Uuid,
        /// The verdict where nobody answered.
        otherwise: ApprovalVerdict,
    },
    Answer {
        id: Uuid,
        answer: Box<ApprovalAnswer>,
    },
}

impl Store {
    /// Asks a person, for the run of the lease, which is then awaiting approval. An earlier attempt of the
    /// run may have asked the same (rule, tool and target): an answer that it did not use is used now, once,
    /// and a question that is still open stays the same question.
    ///
    /// # Errors
    /// [`StoreError::NotOwner`] where the lease is lost.
    pub async fn ask_approval(
        &self,
        lease: Lease,
        approval: NewApproval,
    ) -> Result<ApprovalRecord, StoreError> {
        let change = ApprovalChange::Ask(lease.run_id, Box::new(approval));
        self.with_lease(lease).changed_approval(change).await
    }

    /// Ends a question of the run of the lease, which then goes on: with the answer that was given, or
    /// with this verdict where there is none.
    ///
    /// # Errors
    /// [`StoreError::NotOwner`] where the lease is lost.
    pub async fn settle_approval(
        &self,
        lease: Lease,
        id: Uuid,
        otherwise: ApprovalVerdict,
    ) -> Result<ApprovalRecord, StoreError> {
        let change = ApprovalChange::Settle {
            run_id: lease.run_id,
            id,
            otherwise,
        };
        self.with_lease(lease).changed_approval(change).await
    }

    /// Answers a question. The first answer counts; a question that has expired is denied.
    ///
    /// # Errors
    /// [`StoreError::UnknownApproval`] where there is no such question.
    pub async fn answer_approval(
        &self,
        id: Uuid,
        answer: ApprovalAnswer,
    ) -> Result<AnswerOutcome, StoreError> {
        let change = ApprovalChange::Answer {
            id,
            answer: Box::new(answer.clone()),
        };
        let record = self.changed_approval(change).await?;
        Ok(match record.answer.as_ref() == Some(&answer) {
            true => AnswerOutcome::Recorded(record),
            false => AnswerOutcome::AlreadyAnswered(record),
        })
    }

    async fn changed_approval(&self, change: ApprovalChange) -> Result<ApprovalRecord, StoreError> {
        match self.ask(Command::Approvals(change)).await? {
            Done::Approval(record) => Ok(*record),
            _ => Err(StoreError::Closed),
        }
    }
}

impl StoreReader {
    /// One approval.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn approval(&self, id: Uuid) -> Result<Option<ApprovalRecord>, StoreError> {
        let query = format!("{SELECT} WHERE approvals.id = ?");
        let row = sql::query(AssertSqlSafe(query))
            .bind(id.to_string())
            .fetch_optional(&self.pool)
            .await
            .map_err(|error| self.failed(&error))?;
        let read = |row: Row| approval_record(&row, self.path());
        row.map(read).transpose().map_err(|error| match error {
            Unreadable::Row(error) => self.failed(&error),
            Unreadable::Value(error) => error,
        })
    }

    /// Approvals, oldest first.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn approvals(
        &self,
        filter: &ApprovalFilter,
        limit: u32,
    ) -> Result<Vec<ApprovalRecord>, StoreError> {
        let query = format!(
            "{SELECT} WHERE (?1 IS NULL OR runs.run_id = ?1)
                AND (?2 IS NULL OR runs.principal = ?2)
                AND (?3 IS NULL OR (verdict IS NULL) = ?3)
                AND (?4 IS NULL OR seq > (SELECT seq FROM approvals AS last WHERE last.id = ?4))
            ORDER BY seq LIMIT ?5"
        );
        let query = sql::query(AssertSqlSafe(query))
            .bind(filter.run_id.map(|run_id| run_id.to_string()))
            .bind(filter.principal.as_deref())
            .bind(filter.open)
            .bind(filter.after.map(|id| id.to_string()))
            .bind(limit.min(MAX_PAGE_ROWS));
        self.page(query, |row| {
            let record = approval_record(row, self.path())?;
            let size = record.reason.len();
            Ok((record, size))
        })
        .await
    }
}

/// How approvals are read, in the order of [`approval_record`].
const SELECT: &str = "SELECT approvals.id, runs.run_id, runs.principal, rule, tool, target, reason,
        asked_at, expires_at, verdict, answered_at, answered_by, answered_via, answer_reason
    FROM approvals JOIN runs ON runs.id = approvals.run";

impl ApprovalChange {
    pub(crate) fn run_id(&self) -> Option<Uuid> {
        match self {
            Self::Ask(run_id, _) | Self::Settle { run_id, .. } => Some(*run_id),
            Self::Answer { .. } => None,
        }
    }

    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Ask(_, new) => {
                let target = new.target.as_ref().map_or(0, String::len);
                new.reason.len().saturating_add(target)
            }
            Self::Answer { answer, .. } => answer.reason.as_ref().map_or(0, String::len),
            Self::Settle { .. } => 0,
        }
    }

    /// Carries the change out for a run that the caller holds, where it is one of a run.
    pub(crate) async fn apply(
        &self,
        connection: &mut Connection,
        by: Writing<'_>,
        run: Option<OwnRun>,
    ) -> Result<ApprovalRecord, Blocked> {
        let id = match (self, run) {
            (Self::Ask(_, new), Some(run)) => ask(connection, by, run, new).await?,
            (Self::Settle { id, otherwise, .. }, Some(run)) => {
                settle(connection, by, run, *id, *otherwise).await?;
                *id
            }
            (Self::Answer { id, answer }, _) => {
                record_answer(connection, by, *id, answer).await?;
                *id
            }
            (Self::Ask(run_id, _) | Self::Settle { run_id, .. }, None) => {
                return Err(StoreError::UnknownRun(*run_id).into());
            }
        };
        let query = format!("{SELECT} WHERE approvals.id = ?");
        let row = sql::query(AssertSqlSafe(query))
            .bind(id.to_string())
            .fetch_optional(connection)
            .await?;
        let row = row.ok_or(StoreError::UnknownApproval(id))?;
        approval_record(&row, by.path).map_err(|error| match error {
            Unreadable::Row(error) => Blocked::Database(error),
            Unreadable::Value(error) => Blocked::Refused(error),
        })
    }
}

/// A run that the process holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnRun {
    pub(crate) id: i64,
    pub(crate) epoch: i64,
}

/// Asks, or finds what an earlier attempt asked; the id of the question.
async fn ask(
    connection: &mut Connection,
    by: Writing<'_>,
    run: OwnRun,
    new: &NewApproval,
) -> Result<Uuid, Blocked> {
    let earlier: Option<(String, bool)> = sql::query_as(
        "SELECT id, verdict IS NULL FROM approvals
        WHERE run = ?1 AND epoch < ?2 AND used_epoch IS NULL
            AND rule IS NOT DISTINCT FROM ?3 AND tool = ?4
            AND target IS NOT DISTINCT FROM ?5
            AND (verdict IS NULL OR verdict IN ('approved', 'denied'))
        ORDER BY seq LIMIT 1",
    )
    .bind(run.id)
    .bind(run.epoch)
    .bind(new.rule.as_deref())
    .bind(new.tool.as_str())
    .bind(new.target.as_deref())
    .fetch_optional(&mut *connection)
    .await?;
    if let Some((id, is_open)) = earlier {
        let id = uuid_of(&id, by.path)?;
        sql::query("UPDATE approvals SET epoch = ? WHERE id = ?")
            .bind(run.epoch)
            .bind(id.to_string())
            .execute(&mut *connection)
            .await?;
        if !is_open {
            // It is used now, once.
            use_answer(connection, run, id).await?;
        }
        return Ok(id);
    }
    let expires_at = later(by.now, new.timeout);
    sql::query(
        "INSERT INTO approvals (id, run, epoch, rule, tool, target, reason, asked_at, expires_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(new.id.to_string())
    .bind(run.id)
    .bind(run.epoch)
    .bind(new.rule.as_deref())
    .bind(new.tool.as_str())
    .bind(new.target.as_deref())
    .bind(new.reason.as_str())
    .bind(by.now.as_unix_millis())
    .bind(expires_at)
    .execute(&mut *connection)
    .await?;
    announce_question(connection, by, run.id, new, expires_at).await?;
    Ok(new.id)
}

/// Tells the webhooks of a run of its question.
async fn announce_question(
    connection: &mut Connection,
    by: Writing<'_>,
    run: i64,
    new: &NewApproval,
    expires_at: i64,
) -> Result<(), Blocked> {
    #[derive(Serialize)]
    struct ApprovalRequested<'a> {
        topic: &'a str,
        run_id: &'a str,
        approval_id: Uuid,
        tool: &'a str,
        target: Option<&'a str>,
        reason: &'a str,
        asked_at: i64,
        expires_at: i64,
    }
    let row = sql::query("SELECT run_id, notify FROM runs WHERE id = ?")
        .bind(run)
        .fetch_one(&mut *connection)
        .await?;
    let topic = "approval.requested";
    let message = ApprovalRequested {
        topic,
        run_id: row.try_get(0)?,
        approval_id: new.id,
        tool: &new.tool,
        target: new.target.as_deref(),
        reason: &new.reason,
        asked_at: by.now.as_unix_millis(),
        expires_at,
    };
    let to = Destinations {
        run,
        names: row.try_get(1)?,
        topic,
    };
    post(connection, by, &to, &message).await
}

async fn settle(
    connection: &mut Connection,
    by: Writing<'_>,
    run: OwnRun,
    id: Uuid,
    otherwise: ApprovalVerdict,
) -> Result<(), Blocked> {
    sql::query(
        "UPDATE approvals SET verdict = ?, answered_at = ?, answered_by = 'default',
            answered_via = 'default'
        WHERE id = ? AND run = ? AND verdict IS NULL",
    )
    .bind(otherwise.as_str())
    .bind(by.now.as_unix_millis())
    .bind(id.to_string())
    .bind(run.id)
    .execute(&mut *connection)
    .await?;
    use_answer(connection, run, id).await
}

async fn record_answer(
    connection: &mut Connection,
    by: Writing<'_>,
    id: Uuid,
    answer: &ApprovalAnswer,
) -> Result<(), Blocked> {
    let now = by.now.as_unix_millis();
    // The time that was given for an answer is over, whether or not the run has noticed.
    sql::query(
        "UPDATE approvals SET verdict = 'expired', answered_at = ?1, answered_by = 'default',
            answered_via = 'default'
        WHERE id = ?2 AND verdict IS NULL AND expires_at <= ?1",
    )
    .bind(now)
    .bind(id.to_string())
    .execute(&mut *connection)
    .await?;
    sql::query(
        "UPDATE approvals SET verdict = ?, answered_at = ?, answered_by = ?, answered_via = ?,
            answer_reason = ?
        WHERE id = ? AND verdict IS NULL",
    )
    .bind(answer.verdict.as_str())
    .bind(answer.at.as_unix_millis())
    .bind(answer.by.as_str())
    .bind(answer.via.as_str())
    .bind(answer.reason.as_deref())
    .bind(id.to_string())
    .execute(connection)
    .await?;
    Ok(())
}

/// Notes that an answer was used, so that no later attempt uses it again.
async fn use_answer(connection: &mut Connection, run: OwnRun, id: Uuid) -> Result<(), Blocked> {
    sql::query("UPDATE approvals SET used_epoch = ? WHERE id = ? AND run = ?")
        .bind(run.epoch)
        .bind(id.to_string())
        .bind(run.id)
        .execute(connection)
        .await?;
    Ok(())
}

fn approval_record(row: &Row, path: &Path) -> Result<ApprovalRecord, Unreadable> {
    let time = |column: usize| -> Result<Timestamp, sqlx::Error> {
        Ok(Timestamp::from_unix_millis(row.try_get(column)?))
    };
    let verdict: Option<&str> = row.try_get(9)?;
    let answer = match verdict {
        None => None,
        Some(name) => Some(ApprovalAnswer {
            verdict: ApprovalVerdict::from_name(name)
                .ok_or_else(|| damaged(path, "the answer of an approval", format!("{name:?}")))?,
            at: time(10)?,
            by: row.try_get(11)?,
            via: row.try_get(12)?,
            reason: row.try_get(13)?,
        }),
    };
    Ok(ApprovalRecord {
        id: row
            .try_get::<&str>(0)?
            .parse()
            .map_err(|error| damaged(path, "the id of an approval", error))?,
        run_id: uuid_of(row.try_get(1)?, path)?,
        principal: row.try_get(2)?,
        rule: row.try_get(3)?,
        tool: row.try_get(4)?,
        target: row.try_get(5)?,
        reason: row.try_get(6)?,
        asked_at: time(7)?,
        expires_at: time(8)?,
        answer,
    })
}
