//! Approval by people: given in advance, or asked for while the run waits.
//!
//! A question is a row of the store. The run is parked while it is open: it gives its place among the
//! running runs to another, as far as there is room for parked ones. Whoever answers, in whichever
//! process, writes the answer to the store; the first one counts.

use std::sync::Arc;
use std::time::Duration;

use abp_core::CancelReason;
use abp_glob::{GlobError, GlobList};
use abp_policy::Decision;
use abp_store::{ApprovalRecord, ApprovalVerdict, Lease, NewApproval, Store, StoreError};
use uuid::Uuid;

use crate::gate::Action;
use crate::mortality::may_die;
use crate::record::{End, now};
use crate::running::RunPlace;

/// Who approves tools that need approval; nobody by default.
#[derive(Debug, Clone, Default)]
pub struct Approvals {
    granted: Option<Grant>,
    timeout: Option<Duration>,
}

/// A person who decides, and how; both are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approver {
    /// Who.
    pub name: String,
    /// How: at a terminal, by a flag.
    pub via: String,
}

/// What was approved in advance, and by whom.
#[derive(Debug, Clone)]
struct Grant {
    patterns: Vec<String>,
    tools: GlobList,
    by: Approver,
}

/// Whoever decided about an action.
#[derive(Debug)]
pub(crate) enum Decider {
    /// The policy alone.
    Policy,
    /// Nobody: there was no one to ask, or no answer.
    Nobody,
    Person(Approver),
}

/// Where the questions of one run are asked.
#[derive(Debug, Clone)]
pub(crate) struct ApprovalDesk {
    pub(crate) store: Store,
    pub(crate) lease: Lease,
    pub(crate) place: Arc<RunPlace>,
    /// Whether another attempt may find the question again.
    pub(crate) may_retry: bool,
}

/// How a question was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) approved: bool,
    pub(crate) by: Decider,
    pub(crate) reason: String,
}

impl Approvals {
    /// Approves tools by glob, in advance.
    ///
    /// # Errors
    /// Fails where a pattern is not valid.
    pub fn for_tools(patterns: &[String], by: Approver) -> Result<Self, GlobError> {
        let grant = Grant {
            patterns: patterns.to_vec(),
            tools: GlobList::new(patterns)?,
            by,
        };
        Ok(Self {
            granted: Some(grant),
            timeout: None,
        })
    }

    /// Asks about what was not approved in advance; each question is answered within `timeout` or denied.
    #[must_use]
    pub fn or_ask(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The patterns that were approved in advance, and by whom.
    #[must_use]
    pub fn granted(&self) -> Option<(&[String], &Approver)> {
        let grant = self.granted.as_ref()?;
        Some((&grant.patterns, &grant.by))
    }

    /// How long a question waits for its answer; `None` where nobody is asked.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The answer that was given in advance.
    pub(crate) fn in_advance(&self, tool_name: &str) -> Option<Answer> {
        let grant = self.granted.as_ref()?;
        let found = grant.tools.first_match(tool_name)?;
        Some(Answer {
            approved: true,
            by: Decider::Person(grant.by.clone()),
            reason: format!("approved in advance by {:?}", found.pattern),
        })
    }
}

/// A question that was asked, or found again after the run was taken over.
#[derive(Debug)]
pub(crate) struct AskedQuestion {
    pub(crate) record: ApprovalRecord,
}

impl ApprovalDesk {
    /// Stores a question; the run is awaiting approval then.
    pub(crate) async fn ask(
        &self,
        action: Action<'_>,
        decision: &Decision,
        timeout: Duration,
    ) -> Result<AskedQuestion, StoreError> {
        let rule = decision.rule.as_ref();
        let rule = rule.map(|rule| format!("{}: {}", rule.list.as_str(), rule.pattern));
        let question = NewApproval {
            id: Uuid::now_v7(),
            rule,
            tool: action.tool_name.to_owned(),
            target: action.target.map(str::to_owned),
            reason: decision.reason.clone(),
            timeout,
        };
        let record = self.store.ask_approval(self.lease, question).await?;
        may_die("parked");
        Ok(AskedQuestion { record })
    }

    /// Waits for the answer, no longer than it is waited for and than the run itself may last.
    pub(crate) async fn wait(&self, question: AskedQuestion, end: End) -> Answer {
        let id = question.record.id;
        let expires = question.record.expires_at.as_unix_millis();
        let left = expires.saturating_sub(now().as_unix_millis());
        let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
        let parked = self.place.park();
        let otherwise = tokio::select! {
            biased;
            // Which answer it is is settled in the store.
            () = self.answered(id) => ApprovalVerdict::Expired,
            () = tokio::time::sleep(left) => ApprovalVerdict::Expired,
            () = end.clone().reached() => ApprovalVerdict::Withdrawn,
        };
        may_die("answered");
        if self.may_retry && end.cancel.reason() == Some(CancelReason::Shutdown) {
            return Answer::denied("the host stops; the question stays open for the next attempt");
        }
        if otherwise != ApprovalVerdict::Withdrawn {
            tokio::select! {
                () = self.place.unpark(parked) => {}
                // A run that has to end needs no place for it.
                () = end.reached() => {}
            }
        }
        match self.store.settle_approval(self.lease, id, otherwise).await {
            Ok(record) => Answer::of(&record),
            Err(error) => Answer::denied(&format!("the answer cannot be read: {error}")),
        }
    }

    /// Waits until the question has an answer.
    async fn answered(&self, id: Uuid) {
        let mut changes = self.store.changes();
        loop {
            // A store that cannot be read now may be read later; the question expires meanwhile.
            if let Ok(Some(record)) = self.store.approval(id).await
                && record.answer.is_some()
            {
                return;
            }
            changes.changed().await;
        }
    }
}

impl Answer {
    pub(crate) fn denied(reason: &str) -> Self {
        Self {
            approved: false,
            by: Decider::Nobody,
            reason: reason.to_owned(),
        }
    }

    /// What the stored answer means.
    fn of(record: &ApprovalRecord) -> Self {
        let Some(answer) = &record.answer else {
            return Self::denied("nobody answered");
        };
        let by = || {
            Decider::Person(Approver {
                name: answer.by.clone(),
                via: answer.via.clone(),
            })
        };
        let given = answer.reason.clone();
        match answer.verdict {
            ApprovalVerdict::Approved => Self {
                approved: true,
                by: by(),
                reason: given.unwrap_or_else(|| "approved when asked".to_owned()),
            },
            ApprovalVerdict::Denied => Self {
                approved: false,
                by: by(),
                reason: given.unwrap_or_else(|| "denied when asked".to_owned()),
            },
            ApprovalVerdict::Expired => {
                let asked = record.asked_at.as_unix_millis();
                let waited = record.expires_at.as_unix_millis().saturating_sub(asked);
                let seconds = Duration::from_millis(waited.unsigned_abs()).as_secs_f64();
                Self::denied(&format!("nobody answered within {seconds} s"))
            }
            ApprovalVerdict::Withdrawn => Self::denied("the run ended before anybody answered"),
        }
    }
}

impl Decider {
    /// Who and how, as the event says it.
    pub(crate) fn into_parts(self) -> (String, Option<String>) {
        match self {
            Self::Policy => ("policy".to_owned(), None),
            Self::Nobody => ("default".to_owned(), None),
            Self::Person(Approver { name, via }) => (name, Some(via)),
        }
    }
}
