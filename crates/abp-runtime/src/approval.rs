//! Approval by people: given in advance, or asked for while the run waits.

use std::time::Duration;

use abp_glob::{GlobError, GlobList};
use abp_policy::Decision;
use tokio::sync::{mpsc, oneshot};

use crate::gate::Action;
use crate::record::End;

/// Who approves tools that need approval; nobody by default.
#[derive(Debug, Clone, Default)]
pub struct Approvals {
    granted: Option<Grant>,
    desk: Option<ApprovalDesk>,
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

/// Where questions go, and how long an answer is waited for.
#[derive(Debug, Clone)]
struct ApprovalDesk {
    questions: mpsc::Sender<ApprovalRequest>,
    timeout: Duration,
}

/// A question to a person. Dropping it unanswered denies.
#[derive(Debug)]
pub struct ApprovalRequest {
    /// The tool that waits.
    pub tool_name: String,
    /// What the action is about: a path, a command, a host.
    pub target: Option<String>,
    /// Why approval is needed.
    pub reason: String,
    reply: oneshot::Sender<Answer>,
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
        let tools = GlobList::new(patterns)?;
        Ok(Self {
            granted: Some(Grant { tools, by }),
            desk: None,
        })
    }

    /// Sends what was not approved in advance as questions, each answered within `timeout` or denied.
    #[must_use]
    pub fn or_ask(mut self, questions: mpsc::Sender<ApprovalRequest>, timeout: Duration) -> Self {
        self.desk = Some(ApprovalDesk { questions, timeout });
        self
    }

    /// Decides about an action; waits for a person no longer than the run itself may last.
    pub(crate) async fn decide(&self, action: Action<'_>, decision: &Decision, end: End) -> Answer {
        if let Some(grant) = &self.granted
            && let Some(found) = grant.tools.first_match(action.tool_name)
        {
            return Answer {
                approved: true,
                by: Decider::Person(grant.by.clone()),
                reason: format!("approved in advance by {:?}", found.pattern),
            };
        }
        let Some(desk) = &self.desk else {
            return Answer::denied("nobody can be asked and it was not approved in advance");
        };
        let (reply, answer) = oneshot::channel();
        let question = ApprovalRequest {
            tool_name: action.tool_name.to_owned(),
            target: action.target.map(str::to_owned),
            reason: decision.reason.clone(),
            reply,
        };
        let asked = async {
            desk.questions.send(question).await.ok()?;
            answer.await.ok()
        };
        tokio::select! {
            answer = asked => answer.unwrap_or_else(|| Answer::denied("nobody answered")),
            () = tokio::time::sleep(desk.timeout) => {
                Answer::denied(&format!("nobody answered within {} s", desk.timeout.as_secs_f64()))
            }
            () = end.reached() => Answer::denied("the run ended before anybody answered"),
        }
    }
}

impl ApprovalRequest {
    /// Answers the question; `by` and `reason` are recorded.
    pub fn answer(self, approved: bool, by: Approver, reason: impl Into<String>) {
        // The run may have ended meanwhile; then there is nobody to tell.
        drop(self.reply.send(Answer {
            approved,
            by: Decider::Person(by),
            reason: reason.into(),
        }));
    }
}

impl Answer {
    fn denied(reason: &str) -> Self {
        Self {
            approved: false,
            by: Decider::Nobody,
            reason: reason.to_owned(),
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
