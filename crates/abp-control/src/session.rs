//! Agents' sessions of earlier runs, and of earlier attempts of a run.

use abp_backend_core::{AgentSession, SessionUse};
use abp_core::{AgentEvent, AgentEventKind, Capability, CapabilityManifest, SupportLevel};
use abp_error::{AbpError, ErrorCode};
use abp_runtime::DecisionState;
use abp_store::{RunFilter, RunRecord, Store};
use uuid::Uuid;

use crate::agents::is_agent;
use crate::{ControlPlane, Principal, Submission, homes};

/// The number of events that are read at a time.
const PAGE: u32 = 1_000;
/// The number of events of a run that are searched for the beginning of its session: it is among the first.
const BEGINNING: u32 = 200;

/// The session that an agent had in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierSession {
    /// The backend of the run.
    pub backend: String,
    /// The agent's id for the session.
    pub session_id: String,
    /// Whether the run changed something that is not in its source.
    pub has_undecided_changes: bool,
    manifest: CapabilityManifest,
}

/// A run in which an agent had a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// The run.
    pub run: RunRecord,
    /// The agent's id for the session.
    pub session_id: String,
    /// Whether another run may go on with it: the run has ended, and what the agent keeps is there.
    pub is_resumable: bool,
}

/// The sessions of a page of runs, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionsPage {
    /// The sessions.
    pub sessions: Vec<SessionRecord>,
    /// The last run that was looked at, where there are older ones.
    pub next: Option<Uuid>,
}

impl EarlierSession {
    /// The session of a run that has ended.
    ///
    /// # Errors
    /// Fails where the run goes on, and where its backend had no session.
    pub async fn of(plane: &ControlPlane, run_id: Uuid) -> Result<Self, AbpError> {
        let receipt = plane.receipt(run_id).await?;
        let mut events = receipt.trace.iter();
        let session_id = events.find_map(session_of).ok_or_else(|| {
            let message = format!("run {run_id} has no session of an agent to go on with");
            AbpError::new(ErrorCode::ValidationFailed, message)
        })?;
        let decision = plane.runtime().decision_state(run_id).await?;
        let has_undecided_changes = matches!(decision, DecisionState::Open(_));
        Ok(Self {
            backend: receipt.backend.id,
            session_id,
            has_undecided_changes,
            manifest: receipt.capabilities,
        })
    }

    /// Refuses a use of the session that its backend does not offer.
    fn require(&self, usage: SessionUse) -> Result<(), AbpError> {
        let (capability, what) = match usage {
            SessionUse::Continue => (Capability::SessionResume, "go on with an earlier session"),
            SessionUse::Fork => (Capability::SessionFork, "fork a session"),
        };
        if can(&self.manifest, &capability) {
            return Ok(());
        }
        let message = format!("the backend {} cannot {what}", self.backend);
        Err(AbpError::new(ErrorCode::CapabilityUnsupported, message)
            .with_context("capability", capability.as_str()))
    }
}

impl ControlPlane {
    /// The submission with the agent's session of an earlier run of the principal, on the backend of that
    /// run.
    ///
    /// # Errors
    /// Fails where there is no such run, it has not ended or has no session, another backend is asked for,
    /// or the backend cannot do that.
    pub async fn with_session(
        &self,
        principal: &Principal,
        submission: Submission,
        run_id: Uuid,
        usage: SessionUse,
    ) -> Result<(Submission, EarlierSession), AbpError> {
        let run = self.run(principal, run_id).await?;
        if !run.state.is_final() {
            let message = format!("run {run_id} has not ended; its session is in use");
            return Err(AbpError::new(ErrorCode::RunNotEnded, message));
        }
        let earlier = EarlierSession::of(self, run_id).await?;
        let asked = submission.backend.as_ref();
        if let Some(asked) = asked.filter(|asked| **asked != earlier.backend) {
            let message = format!(
                "run {run_id} was carried out by {}, whose session {asked} cannot go on with",
                earlier.backend
            );
            return Err(AbpError::new(ErrorCode::ValidationFailed, message));
        }
        earlier.require(usage)?;
        let submission = Submission {
            backend: Some(earlier.backend.clone()),
            session: Some(AgentSession {
                run_id,
                session_id: earlier.session_id.clone(),
                usage,
            }),
            ..submission
        };
        Ok((submission, earlier))
    }

    /// The sessions of agents in the newest runs that the principal may see.
    ///
    /// # Errors
    /// Fails where the store cannot be read.
    pub async fn sessions(
        &self,
        principal: &Principal,
        filter: &RunFilter,
        limit: u32,
    ) -> Result<SessionsPage, AbpError> {
        let page = self.runs(principal, filter, limit).await?;
        let next = page.next_run();
        let store = self.store().await?;
        let mut sessions = Vec::new();
        for run in page.runs {
            let Some(session_id) = first_session(store, run.run_id).await? else {
                continue;
            };
            let backend = self.registry().get(&run.backend);
            let takes = backend.is_some_and(|backend| backend.descriptor().takes_sessions);
            let is_there = !is_agent(self.config(), &run.backend)
                || homes(self.config()).of_run(run.run_id).is_dir();
            sessions.push(SessionRecord {
                is_resumable: run.state.is_final() && takes && is_there,
                session_id,
                run,
            });
        }
        Ok(SessionsPage { sessions, next })
    }

    /// The session that the earlier attempts of a run left, where their backend takes it up.
    pub(crate) async fn session_of_attempts(
        &self,
        run_id: Uuid,
        backend: &str,
    ) -> Result<Option<AgentSession>, AbpError> {
        let backend = self.registry().get(backend);
        if !backend.is_some_and(|backend| backend.descriptor().takes_sessions) {
            return Ok(None);
        }
        let store = self.store().await?;
        let (mut next, mut found) = (0, None);
        loop {
            let page = store.events(run_id, next, PAGE).await?;
            let Some(last) = page.last() else { break };
            next = last.seq + 1;
            let mut sessions = page.iter().filter_map(|record| read_session(&record.json));
            found = sessions.next_back().or(found);
        }
        Ok(found.map(|session_id| AgentSession {
            run_id,
            session_id,
            usage: SessionUse::Continue,
        }))
    }
}

async fn first_session(store: &Store, run_id: Uuid) -> Result<Option<String>, AbpError> {
    let events = store.events(run_id, 0, BEGINNING).await?;
    Ok(events.iter().find_map(|record| read_session(&record.json)))
}

/// The session that a stored event begins.
fn read_session(json: &str) -> Option<String> {
    // Most events are no beginning, and reading them would take longer than looking.
    if !json.contains("session_started") {
        return None;
    }
    session_of(&serde_json::from_str(json).ok()?)
}

fn session_of(event: &AgentEvent) -> Option<String> {
    match &event.kind {
        AgentEventKind::SessionStarted { session_id } => Some(session_id.clone()),
        _ => None,
    }
}

/// Whether a backend has a capability by itself.
pub(crate) fn can(manifest: &CapabilityManifest, capability: &Capability) -> bool {
    manifest.get(capability) == Some(&SupportLevel::Native)
}
