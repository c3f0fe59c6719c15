//! Bringing the changes of a run into the editor's directory.
//!
//! Changes are a proposal until somebody applies them. After a run that succeeded the person at the editor is
//! asked, with every changed file shown; what is allowed is applied as `abp apply` does it, so it is all or
//! nothing, and not over something that was saved meanwhile. Everything else stays in the stage.

use std::path::Path;

use abp_backend_acp::protocol::schema::{
    Diff, PermissionOption, PermissionOptionKind, RequestPermissionOutcome,
    RequestPermissionRequest, SessionUpdate, ToolCall, ToolCallContent, ToolCallLocation,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use abp_control::{ApplyOutcome, DecisionProgress, ProposedChanges, short_run_id};
use abp_core::{Outcome, PathChange, PathState, Receipt};
use abp_error::AbpError;
use abp_receipt::Hash;
use abp_runtime::{ApplyRequest, Decider, HostFiles};
use uuid::Uuid;

use crate::turn::Turn;
use crate::updates::{client_path, said, text_content};

/// The most files that are shown with their contents.
const MAX_FILES: usize = 50;
/// The most bytes of a file that is shown.
const MAX_FILE: usize = 256 * 1024;
/// The option that applies.
const APPLY: &str = "apply";
/// The option that does not.
const KEEP: &str = "keep";

/// The decision about the changes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The run changed nothing.
    Nothing,
    /// They are in the directory.
    Applied,
    /// They are in the stage.
    Kept,
}

impl Placement {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Applied => "applied",
            Self::Kept => "staged",
        }
    }
}

impl Turn {
    /// Asks whether the changes of a run are to be applied, and applies them.
    ///
    /// # Errors
    /// Fails where the changes cannot be read.
    pub(crate) async fn place_changes(&mut self, receipt: &Receipt) -> Result<Placement, AbpError> {
        let run_id = receipt.meta.run_id;
        let workspace = receipt.workspace.as_ref();
        if workspace.is_some_and(|workspace| workspace.applied) {
            return Ok(Placement::Applied);
        }
        let changed = workspace.and_then(|workspace| workspace.change_set_sha256.as_ref());
        if changed.is_none() {
            return Ok(Placement::Nothing);
        }
        let changes = self.plane.changes(run_id).await?;
        match &changes.progress {
            DecisionProgress::Unchanged => return Ok(Placement::Nothing),
            DecisionProgress::Decided { .. } => return Ok(Placement::Kept),
            DecisionProgress::Undecided => {}
        }
        let name = short_run_id(self.plane.store().await?, run_id).await?;
        if receipt.outcome != Outcome::Complete {
            self.tell_kept(&name, "the run did not succeed");
            return Ok(Placement::Kept);
        }
        let call_id = self.announce_changes(run_id, &changes).await?;
        if !self.asks_to_apply(&call_id, &changes).await {
            self.end_call(&call_id, ToolCallStatus::Failed, "not applied");
            self.tell_kept(&name, "they were not applied");
            return Ok(Placement::Kept);
        }
        let request = ApplyRequest {
            decider: Decider {
                by: self.server.principal.name().to_owned(),
                via: self.server.principal.way().to_owned(),
            },
            paths: Vec::new(),
            // The question named these files.
            host_files: match changes.host_files.is_empty() {
                true => HostFiles::Refuse,
                false => HostFiles::Write,
            },
        };
        match self.plane.apply(run_id, &request).await {
            Ok(
                ApplyOutcome::Applied(_)
                | ApplyOutcome::AlreadyApplied { .. }
                | ApplyOutcome::Nothing,
            ) => {
                self.end_call(&call_id, ToolCallStatus::Completed, "");
                Ok(Placement::Applied)
            }
            Err(error) => {
                self.end_call(&call_id, ToolCallStatus::Failed, error.message());
                self.tell_kept(&name, error.message());
                Ok(Placement::Kept)
            }
        }
    }

    /// Shows the changes as a tool call that waits; its id.
    async fn announce_changes(
        &self,
        run_id: Uuid,
        changes: &ProposedChanges,
    ) -> Result<String, AbpError> {
        let root = &self.root;
        let mut content = Vec::new();
        let mut left_out = Vec::new();
        for (place, change) in changes.paths.iter().enumerate() {
            let diff = match place < MAX_FILES {
                true => self.diff(run_id, change, root).await?,
                false => None,
            };
            match diff {
                Some(diff) => content.push(ToolCallContent::Diff(diff)),
                None => left_out.push(change.path.as_str()),
            }
        }
        for (path, reason) in &changes.host_files {
            let path = path.display();
            content.push(text_content(&format!(
                "{path} takes effect on this machine: {reason}"
            )));
        }
        if !left_out.is_empty() {
            let listed = left_out.join(", ");
            content.push(text_content(&format!("changed as well: {listed}")));
        }
        let locations = changes.paths.iter();
        let locations = locations.map(|change| client_path(root, &change.path));
        let id = self.mapper.session_call_id("apply");
        let call = ToolCall::new(id.clone(), question(changes))
            .kind(ToolKind::Edit)
            .status(ToolCallStatus::Pending)
            .locations(locations.map(ToolCallLocation::new).collect())
            .content(content);
        self.update(SessionUpdate::ToolCall(call), None);
        Ok(id)
    }

    /// The contents of a file before and after; `None` where it is no text, or too large.
    async fn diff(
        &self,
        run_id: Uuid,
        change: &PathChange,
        root: &Path,
    ) -> Result<Option<Diff>, AbpError> {
        let before = self.text_of(run_id, change.before.as_ref()).await?;
        let after = self.text_of(run_id, change.after.as_ref()).await?;
        let (Some(before), Some(after)) = (before, after) else {
            return Ok(None);
        };
        let old_text = change.before.as_ref().map(|_| before);
        Ok(Some(
            Diff::new(client_path(root, &change.path), after).old_text(old_text),
        ))
    }

    /// The text of a file; empty where there is none, and `None` where it cannot be shown.
    async fn text_of(
        &self,
        run_id: Uuid,
        state: Option<&PathState>,
    ) -> Result<Option<String>, AbpError> {
        let Some(state) = state else {
            return Ok(Some(String::new()));
        };
        let hash = state.sha256.as_deref().filter(|_| state.kind == "file");
        let Some(hash) = hash.and_then(|hash| hash.parse::<Hash>().ok()) else {
            return Ok(None);
        };
        let plane = &self.plane;
        let content = plane.changed_content(run_id, *hash.as_bytes()).await?;
        let content = content.filter(|content| content.len() <= MAX_FILE);
        Ok(content.and_then(|content| String::from_utf8(content).ok()))
    }

    /// Whether the person allows it. Without an answer, nothing is applied.
    async fn asks_to_apply(&mut self, call_id: &str, changes: &ProposedChanges) -> bool {
        let apply = match changes.host_files.is_empty() {
            true => "Apply",
            false => "Apply, with the files that take effect on this machine",
        };
        let options = vec![
            PermissionOption::new(APPLY, apply, PermissionOptionKind::AllowOnce),
            PermissionOption::new(KEEP, "Keep in the stage", PermissionOptionKind::RejectOnce),
        ];
        let fields = ToolCallUpdateFields::new().title(question(changes));
        let call = ToolCallUpdate::new(call_id.to_owned(), fields);
        let request = RequestPermissionRequest::new(self.session.to_string(), call, options);
        let answer = self.server.sender.request(request);
        let answer = tokio::select! {
            biased;
            () = self.cancelled() => return false,
            answer = answer => answer,
        };
        match answer.map(|answer| answer.outcome) {
            Ok(RequestPermissionOutcome::Selected(chosen)) => &*chosen.option_id.0 == APPLY,
            Ok(_) => false,
            Err(error) => {
                tracing::debug!(target: "abp.acp", %error, "the client was not asked");
                false
            }
        }
    }

    fn end_call(&self, call_id: &str, status: ToolCallStatus, words: &str) {
        let fields = ToolCallUpdateFields::new().status(status);
        let fields = match words {
            "" => fields,
            words => fields.content(vec![text_content(words)]),
        };
        let update = ToolCallUpdate::new(call_id.to_owned(), fields);
        self.update(SessionUpdate::ToolCallUpdate(update), None);
    }

    /// Says where the changes are, and what can be done about them.
    fn tell_kept(&self, run: &str, why: &str) {
        let text = format!(
            "\n\nThe changes are in the stage of the run: {why}. \
`abp apply {run}` writes them, `abp discard {run}` throws them away.\n"
        );
        self.update(said(&text), None);
    }
}

fn question(changes: &ProposedChanges) -> String {
    match changes.paths.len() {
        1 => "Apply 1 changed path to the directory".to_owned(),
        count => format!("Apply {count} changed paths to the directory"),
    }
}
