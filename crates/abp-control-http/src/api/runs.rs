//! Runs: submitting, listing, deciding.

use abp_control::SessionRecord;
use abp_core::{PathChange, Receipt, Timestamp, WorkOrder};
use abp_store::{RunRecord, RunState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A run to be started.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// The order. Its `workspace.root` must be empty or below a directory of the server's `roots`.
    pub order: WorkOrder,
    /// The backend; `auto` is whichever fits best. Without one it is the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The files to work on, where they are not a directory of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceSource>,
    /// A run of the caller that has ended: the agent goes on with the session it had there, on the same
    /// backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continue_from: Option<Uuid>,
    /// Limits and approvals of this run.
    #[serde(default)]
    pub options: SubmitOptions,
}

/// The origin of the files of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WorkspaceSource {
    /// An uploaded workspace, by its id.
    Uploaded(String),
}

/// Limits and approvals of one run.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitOptions {
    /// The longest the run may take, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_secs: Option<u64>,
    /// What is approved in advance: patterns as in `require_approval_for`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approve: Vec<String>,
    /// The configured webhooks that are told of approvals and of the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<String>,
}

/// How to answer a submission.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitQuery {
    /// Seconds to wait for the end of the run. When it ends in that time the answer is 200 with the receipt.
    #[serde(default)]
    #[schemars(range(min = 0, max = 300))]
    pub wait: Option<u64>,
}

/// A run that was accepted and is durable.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SubmittedRun {
    /// The run.
    pub run_id: Uuid,
    /// The state of the run when the answer was made.
    pub state: RunStateView,
    /// Whether the request was sent before with the same idempotency key, and this is its run.
    pub is_replay: bool,
    /// The receipt, where the answer waited for it and the run ended in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<Receipt>>,
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStateView {
    /// Accepted and durable; no process carries it out yet.
    Queued,
    /// A process carries it out.
    Running,
    /// It waits for a person's answer.
    AwaitingApproval,
    /// Ended: all of the work is done.
    Complete,
    /// Ended: some of the work is done.
    Partial,
    /// Ended: the work failed.
    Failed,
    /// Ended because somebody asked for it.
    Cancelled,
}

impl RunStateView {
    /// Whether the run has ended.
    #[must_use]
    pub fn is_final(self) -> bool {
        RunState::from(self).is_final()
    }
}

impl From<RunState> for RunStateView {
    fn from(state: RunState) -> Self {
        match state {
            RunState::Queued => Self::Queued,
            RunState::Running => Self::Running,
            RunState::AwaitingApproval => Self::AwaitingApproval,
            RunState::Complete => Self::Complete,
            RunState::Partial => Self::Partial,
            RunState::Failed => Self::Failed,
            RunState::Cancelled => Self::Cancelled,
        }
    }
}

impl From<RunStateView> for RunState {
    fn from(state: RunStateView) -> Self {
        match state {
            RunStateView::Queued => Self::Queued,
            RunStateView::Running => Self::Running,
            RunStateView::AwaitingApproval => Self::AwaitingApproval,
            RunStateView::Complete => Self::Complete,
            RunStateView::Partial => Self::Partial,
            RunStateView::Failed => Self::Failed,
            RunStateView::Cancelled => Self::Cancelled,
        }
    }
}

/// Which runs to list, newest first.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunsQuery {
    /// How many.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(default)]
    pub cursor: Option<String>,
    /// Only runs in this state.
    #[serde(default)]
    pub state: Option<RunStateView>,
    /// Only runs that have ended, or only those that have not.
    #[serde(default)]
    pub ended: Option<bool>,
    /// Only runs on this backend.
    #[serde(default)]
    pub backend: Option<String>,
    /// Only runs of this principal. Needs the scope `admin` for others than the caller.
    #[serde(default)]
    pub principal: Option<String>,
}

/// A page of runs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RunList {
    /// The runs, newest first.
    pub runs: Vec<RunView>,
    /// The cursor of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunView {
    /// The run.
    pub run_id: Uuid,
    /// How far it is.
    pub state: RunStateView,
    /// The backend that was chosen.
    pub backend: String,
    /// The backend that was asked for.
    pub backend_asked: Option<String>,
    /// The task of its order.
    pub task: String,
    /// The principal that submitted it.
    pub principal: Option<String>,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How often it was begun.
    pub attempt: u32,
    /// Whether it was asked to cancel.
    pub is_cancelling: bool,
    /// Whether it was deleted: only its receipt and its entries of the log are there.
    #[serde(default)]
    pub is_deleted: bool,
    /// What it used and changed, once it has ended; absent where the answer is about one step of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<RunFigures>,
}

/// A run that was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletedRun {
    /// The run.
    pub run_id: Uuid,
    /// Whether this request deleted it; otherwise it was deleted before.
    pub is_changed: bool,
}

/// What a run used and changed, as its receipt says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunFigures {
    /// Tokens read.
    pub input_tokens: Option<u64>,
    /// Tokens written.
    pub output_tokens: Option<u64>,
    /// What it cost, in dollars, where a price is known.
    pub cost_usd: Option<f64>,
    /// How many files it changed; absent where it had no workspace.
    pub files_changed: Option<u64>,
    /// Lines added.
    pub insertions: Option<u64>,
    /// Lines removed.
    pub deletions: Option<u64>,
    /// How many actions its policy denied.
    pub denied: u64,
}

/// Why a run is cancelled.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequestBody {
    /// The reason, which the receipt states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A message to the agent of a run that goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SteerRequest {
    /// The message.
    pub message: String,
}

/// Which sessions to list.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionsQuery {
    /// How many runs are looked at, newest first.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(default)]
    pub cursor: Option<String>,
}

/// A page of sessions.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SessionPage {
    /// The sessions, newest first.
    pub sessions: Vec<SessionView>,
    /// The cursor of the next page; absent on the last one. A page may be empty and have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A session that an agent had in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionView {
    /// The agent's id for it.
    pub session_id: String,
    /// The run; `continue_from` takes it.
    pub run_id: Uuid,
    /// The backend of the run, and of every run that goes on with the session.
    pub backend: String,
    /// The task of the run.
    pub task: String,
    /// The state of the run.
    pub state: RunStateView,
    /// When the run was accepted.
    pub accepted_at: Timestamp,
    /// Whether another run may go on with it: the run has ended, and what the agent keeps is there.
    pub is_resumable: bool,
}

/// The changes of a run, and what was decided about them.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ChangesView {
    /// The run.
    pub run_id: Uuid,
    /// The state of the decision.
    pub progress: ChangeProgress,
    /// The undecided changes as a patch that `git apply` takes.
    pub diff: String,
    /// The undecided changes in the form of `git status --porcelain=v1`.
    pub status: String,
    /// The undecided paths with their content before and after.
    pub paths: Vec<PathChange>,
    /// The paths that are in the source already.
    pub applied: Vec<String>,
    /// Paths that would take effect on the machine of whoever applies them, such as hooks.
    pub host_files: Vec<String>,
}

/// The state of the decision about changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ChangeProgress {
    /// The run changed nothing.
    Unchanged,
    /// Changes wait for a decision.
    Undecided,
    /// Nothing is left to decide.
    Decided {
        /// What became of them: `applied`, `discarded`, `conflict`, `expired`.
        decision: String,
        /// The person or key that decided.
        by: String,
        /// When.
        at: Timestamp,
    },
}

/// Which changes to apply to the source on the server.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyRequestBody {
    /// The paths, each with everything beneath it; all undecided ones where the list is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Agrees to paths that run code or steer tools on the server's machine.
    #[serde(default)]
    pub agree_to_host_files: bool,
}

/// How an application ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApplyReport {
    /// The run.
    pub run_id: Uuid,
    /// Whether this request changed anything.
    pub is_changed: bool,
    /// The paths that this request applied.
    pub paths: Vec<String>,
    /// How many paths of the run are still undecided.
    pub remaining: u64,
}

/// How a discarding ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiscardReport {
    /// The run.
    pub run_id: Uuid,
    /// Whether this request changed anything.
    pub is_changed: bool,
}

/// A run as the interface shows it.
#[must_use]
pub fn run_view(run: &RunRecord) -> RunView {
    let order: Option<Value> = serde_json::from_str(&run.order_json).ok();
    let task = order.as_ref().and_then(|order| order.get("task")?.as_str());
    RunView {
        run_id: run.run_id,
        state: run.state.into(),
        backend: run.backend.clone(),
        backend_asked: run.backend_asked.clone(),
        task: task.unwrap_or_default().to_owned(),
        principal: run.principal.clone(),
        accepted_at: run.accepted_at,
        ended_at: run.ended_at,
        attempt: run.attempt,
        is_cancelling: run.cancel.is_some() && !run.state.is_final(),
        is_deleted: run.order_json.is_empty(),
        summary: None,
    }
}

/// A session as the interface shows it.
#[must_use]
pub fn session_view(session: &SessionRecord) -> SessionView {
    let run = run_view(&session.run);
    SessionView {
        session_id: session.session_id.clone(),
        run_id: run.run_id,
        backend: run.backend,
        task: run.task,
        state: run.state,
        accepted_at: run.accepted_at,
        is_resumable: session.is_resumable,
    }
}
