//! Submissions: everything that belongs to one run, as it is given and as it is stored.

use std::time::Duration;

use abp_backend_core::AgentSession;
use abp_core::{CapabilityOrigins, PriceTable, WorkOrder};
use abp_error::{AbpError, ErrorCode};
use abp_runtime::{Approvals, Approver};
use abp_store::{KeyScope, RunState};
use abp_telemetry::TraceContext;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use zeroize::Zeroizing;

/// A run to be started: its order and everything that belongs to this run alone.
#[derive(Debug, Clone)]
pub struct Submission {
    /// The order, as [`OrderDraft`](crate::OrderDraft) builds it.
    pub order: WorkOrder,
    /// The backend asked for; `auto` is whichever fits best, and `None` the configured one.
    pub backend: Option<String>,
    /// The longest an attempt of the run may take.
    pub timeout: Option<Duration>,
    /// What is approved in advance, and whether and for how long people are asked.
    pub approvals: Approvals,
    /// Who said what the order's client can render.
    pub client_origins: CapabilityOrigins,
    /// Prices that replace the configured ones.
    pub prices: Option<PriceTable>,
    /// Names the request: a second one with the same key is the same run. A key belongs to its principal.
    pub idempotency_key: Option<String>,
    /// The agent's session of an earlier run to go on with.
    pub session: Option<AgentSession>,
    /// A command for `sh -c` that judges the result, in a sandbox, before the receipt is written.
    pub check: Option<String>,
    /// The webhooks that are told of the run's approvals and of its end, by their configured names.
    pub notify: Vec<String>,
    /// The place of the caller in a trace.
    pub trace: Option<TraceContext>,
    /// The scope that its principal needs: `runs:write`, or that of the face it comes through.
    pub scope: KeyScope,
    /// Whether the changes of the run are thrown away when it ends: nothing but its words was asked for.
    pub discards_changes: bool,
}

impl Submission {
    /// A submission of an order, with nothing approved and no limits.
    #[must_use]
    pub fn new(order: WorkOrder) -> Self {
        Self {
            order,
            backend: None,
            timeout: None,
            approvals: Approvals::default(),
            client_origins: CapabilityOrigins::default(),
            prices: None,
            idempotency_key: None,
            session: None,
            check: None,
            notify: Vec::new(),
            trace: None,
            scope: KeyScope::RunsWrite,
            discards_changes: false,
        }
    }
}

/// What became of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// The run.
    pub run_id: Uuid,
    /// How far it is.
    pub state: RunState,
    /// Whether this submission made it; otherwise one with the same idempotency key did before.
    pub is_new: bool,
}

/// A submission as a worker of any process reads it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredSubmission {
    pub(crate) order: WorkOrder,
    pub(crate) backend: String,
    timeout_ms: Option<u64>,
    approved: Option<StoredGrant>,
    approval_timeout_ms: Option<u64>,
    pub(crate) client_origins: CapabilityOrigins,
    pub(crate) prices: Option<PriceTable>,
    #[serde(default)]
    session: Option<AgentSession>,
    #[serde(default)]
    traceparent: Option<String>,
    #[serde(default)]
    pub(crate) discards_changes: bool,
    #[serde(default)]
    check: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredGrant {
    tools: Vec<String>,
    by: String,
    via: String,
}

impl StoredSubmission {
    /// What is stored of a submission for that backend.
    pub(crate) fn of(submission: &Submission, backend: &str) -> Self {
        let granted = submission.approvals.granted();
        Self {
            order: submission.order.clone(),
            backend: backend.to_owned(),
            timeout_ms: submission.timeout.map(millis),
            approved: granted.map(|(tools, by)| StoredGrant {
                tools: tools.to_vec(),
                by: by.name.clone(),
                via: by.via.clone(),
            }),
            approval_timeout_ms: submission.approvals.timeout().map(millis),
            client_origins: submission.client_origins,
            prices: submission.prices.clone(),
            session: submission.session.clone(),
            traceparent: submission.trace.map(|trace| trace.to_string()),
            discards_changes: submission.discards_changes,
            check: submission.check.clone(),
        }
    }

    pub(crate) fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, AbpError> {
        let bytes = serde_json::to_vec(self).map_err(|error| unusable(&error))?;
        Ok(Zeroizing::new(bytes))
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, AbpError> {
        serde_json::from_slice(bytes).map_err(|error| unusable(&error))
    }

    /// The submission again.
    pub(crate) fn into_submission(self) -> Result<Submission, AbpError> {
        let mut approvals = match self.approved {
            Some(StoredGrant { tools, by, via }) => {
                Approvals::for_tools(&tools, Approver { name: by, via })
                    .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?
            }
            None => Approvals::default(),
        };
        if let Some(timeout) = self.approval_timeout_ms {
            approvals = approvals.or_ask(Duration::from_millis(timeout));
        }
        Ok(Submission {
            backend: Some(self.backend),
            timeout: self.timeout_ms.map(Duration::from_millis),
            approvals,
            client_origins: self.client_origins,
            prices: self.prices,
            session: self.session,
            trace: self.traceparent.as_deref().and_then(TraceContext::parse),
            discards_changes: self.discards_changes,
            check: self.check,
            ..Submission::new(self.order)
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn unusable(error: &serde_json::Error) -> AbpError {
    let message = format!("the submission cannot be stored or read: {error}");
    AbpError::new(ErrorCode::Internal, message)
}
