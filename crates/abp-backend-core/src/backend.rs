//! The traits an agent adapter implements.

use std::fmt::Debug;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use abp_core::{
    ArtifactRef, BackendIdentity, CapabilityManifest, MicroUsd, PolicyProfile, RunExchange,
    SandboxReport, StateAccess, WorkspaceMode,
};
use abp_error::AbpError;
use abp_glob::named_path;
use abp_plan::{ConfirmedPlan, ModelOffer};
use abp_policy::{Holder, Holders, PolicyEngine, PolicyList, Rule};
use abp_sandbox::Overlay;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::RunContext;

/// A future that can be kept behind a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something that can carry out work orders: an agent, or a model with tools.
pub trait Backend: Debug + Send + Sync {
    /// What is known about the backend before it is opened.
    fn descriptor(&self) -> &BackendDescriptor;

    /// The capabilities for a model that is asked for; `None` where only the open backend knows them.
    fn manifest(&self, model: Option<&str>) -> Option<CapabilityManifest> {
        // Most backends are the same whichever model they use.
        let _ = model;
        self.descriptor().manifest.clone()
    }

    /// Starts or connects to the agent, without giving it any work yet.
    fn open(&self, spec: OpenSpec) -> BoxFuture<'_, Result<Box<dyn Session>, AbpError>>;
}

/// An open backend, ready for one run.
pub trait Session: Send {
    /// Who it is.
    fn identity(&self) -> &BackendIdentity;

    /// What it can really do.
    fn manifest(&self) -> &CapabilityManifest;

    /// The holders of the policy's rules in this session, besides the host's own handling of the
    /// workspace. It is decided when the session is open and is what the receipt says.
    fn holders(&self) -> Holders;

    /// What keeps its processes from outliving the run, where it has processes.
    fn contained_by(&self) -> Option<&'static str> {
        None
    }

    /// The sandbox of its processes, where it has processes.
    fn sandbox(&self) -> Option<SandboxReport> {
        None
    }

    /// The tools, by exact name, that it asks about before it uses them.
    fn asked_tools(&self) -> &'static [&'static str] {
        &[]
    }

    /// The rules on files that a mount in its sandbox holds, whatever its processes do.
    fn mounted_rules(&self) -> Vec<Rule> {
        Vec::new()
    }

    /// Whether its processes can reach the directories of [`OpenSpec::hidden`], where it has processes.
    fn state_access(&self) -> Option<StateAccess> {
        None
    }

    /// Values that it was given in secret. The host takes them out of everything it records about the
    /// run.
    fn secrets(&self) -> Vec<SecretString> {
        Vec::new()
    }

    /// Whether it can carry out a plan as it stands. The host asks before the run, so that no receipt
    /// says of a plan that was refused that it was applied.
    ///
    /// # Errors
    /// Says what of the plan cannot be delivered.
    fn accept(&self, _plan: &ConfirmedPlan) -> Result<(), AbpError> {
        Ok(())
    }

    /// Carries out the plan in the context. Returns when the work is done, failed or stopped.
    fn run(self: Box<Self>, context: RunContext) -> BoxFuture<'static, RunEnd>;
}

/// What is known about a backend before it is opened.
#[derive(Debug, Clone, PartialEq)]
pub struct BackendDescriptor {
    /// The name it is registered under.
    pub name: String,
    /// What it can do; `None` where only the open backend knows.
    pub manifest: Option<CapabilityManifest>,
    /// The expected holders of a policy's rules, before the backend is opened.
    pub holders: Holders,
    /// Whether its processes run in a sandbox where a mount holds each path that a rule names and that is
    /// there.
    pub mounts: bool,
    /// The tools, by exact name, that it asks about before it uses them.
    pub asked_tools: &'static [&'static str],
    /// Whether all its processes run in one sandbox that can mount overlays. Only then a stage can be one:
    /// the host and programs outside do not see it.
    pub overlays: bool,
    /// Whether the host itself reads the usage from a model API's answers; otherwise it is a claim.
    pub measures_usage: bool,
    /// The operator's preference among backends; higher is better.
    pub priority: u32,
    /// Whether it only demonstrates the way of an order; never chosen while a real backend can do it.
    pub is_demonstration: bool,
    /// The model API behind it; `None` for agents.
    pub model: Option<ModelOffer>,
    /// Whether it goes on with an earlier session that [`OpenSpec::session`] names, where the agent can.
    pub takes_sessions: bool,
}

impl BackendDescriptor {
    /// The expected holder of a rule in a workspace of this mode, before the backend is opened.
    #[must_use]
    pub fn holder(&self, list: PolicyList, pattern: &str, mode: WorkspaceMode) -> Holder {
        let is_on_files = match (list, mode) {
            (PolicyList::DenyWrite, _) | (PolicyList::DenyRead, WorkspaceMode::PassThrough) => true,
            // What may not be read is not in a stage.
            (PolicyList::DenyRead, WorkspaceMode::Staged)
            | (
                PolicyList::AllowedTools
                | PolicyList::DisallowedTools
                | PolicyList::AllowNetwork
                | PolicyList::DenyNetwork
                | PolicyList::RequireApprovalFor,
                _,
            ) => false,
        };
        if self.mounts && is_on_files && named_path(pattern).is_some() {
            return Holder::kernel("mount namespace where the path exists");
        }
        if is_asked(list, pattern, self.asked_tools) {
            return Holder::ASKED;
        }
        self.holders
            .or_stronger(Holders::of_workspace(mode))
            .of(list)
    }

    /// The expected holders of a policy's lists, each as strong as its weakest rule.
    #[must_use]
    pub fn expected_holders(&self, policy: &PolicyProfile, mode: WorkspaceMode) -> Holders {
        let weakest = |list: PolicyList| {
            let patterns = list.patterns(policy).iter();
            let holders = patterns.map(|pattern| self.holder(list, pattern, mode));
            holders.min_by_key(|holder| holder.level)
        };
        let general = self.holders.or_stronger(Holders::of_workspace(mode));
        Holders {
            reads: weakest(PolicyList::DenyRead).unwrap_or(general.reads),
            writes: weakest(PolicyList::DenyWrite).unwrap_or(general.writes),
            ..general
        }
    }
}

/// Whether a rule names a tool that the backend asks about before it uses it.
#[must_use]
pub fn is_asked(list: PolicyList, pattern: &str, asked_tools: &[&str]) -> bool {
    let is_on_tools = match list {
        PolicyList::DisallowedTools | PolicyList::RequireApprovalFor => true,
        // A list of what is allowed is about every other tool, too.
        PolicyList::AllowedTools
        | PolicyList::DenyRead
        | PolicyList::DenyWrite
        | PolicyList::AllowNetwork
        | PolicyList::DenyNetwork => false,
    };
    is_on_tools && asked_tools.contains(&pattern)
}

/// What a backend is told when it is opened.
#[derive(Debug, Clone)]
pub struct OpenSpec {
    /// The run it is opened for.
    pub run_id: Uuid,
    /// The directory it will work in.
    pub workspace_root: PathBuf,
    /// The overlays that the sandbox mounts, at or in `workspace_root`; without them the workspace is not there.
    pub overlays: Vec<Overlay>,
    /// The model that the run asks for.
    pub model: Option<String>,
    /// The policy of the run. A sidecar starts when it is opened, so it is held from here on.
    pub policy: PolicyEngine,
    /// Directories of the host that no process of the run may see: the state, and other stages.
    pub hidden: Vec<PathBuf>,
    /// The directory that the workspace was copied from; `None` in place. It has what a policy kept out of
    /// the copy, so a sandbox does not lend it.
    pub source: Option<PathBuf>,
    /// The most that the run may cost.
    pub budget: Option<MicroUsd>,
    /// The agent's session of an earlier run to go on with; `None` is a new one.
    pub session: Option<AgentSession>,
    /// The place of the run in a trace, as the header `traceparent` has it; `None` where nobody traces it.
    pub traceparent: Option<String>,
}

/// An agent's own session, as an earlier run left it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSession {
    /// The run that it belongs to. The agent's private directory is kept under this id.
    pub run_id: Uuid,
    /// The agent's id for it.
    pub session_id: String,
    /// Whether it goes on or is copied.
    pub usage: SessionUse,
}

/// The use of an earlier session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionUse {
    /// It goes on.
    Continue,
    /// A copy of it goes on, and it stays as it is.
    Fork,
}

/// How a session ended, in its own words. The host judges the outcome itself.
#[derive(Debug)]
pub struct RunEnd {
    /// Whether the session did its work.
    pub result: Result<Completion, AbpError>,
    /// The usage as the vendor reports it.
    pub usage_raw: Value,
    /// What it left behind besides changed files.
    pub artifacts: Vec<ArtifactRef>,
    /// The model that answered, where the session knows it.
    pub model: Option<String>,
    /// The exchanges with model APIs that the session itself carried.
    pub exchanges: Vec<RunExchange>,
}

/// The share of its work that a session claims to have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// All of it.
    Whole,
    /// Not all of it.
    Partial,
}

impl RunEnd {
    /// The session did its work.
    #[must_use]
    pub fn completed() -> Self {
        Self {
            result: Ok(Completion::Whole),
            usage_raw: Value::Null,
            artifacts: Vec::new(),
            model: None,
            exchanges: Vec::new(),
        }
    }

    /// The session could not do its work.
    #[must_use]
    pub fn failed(error: AbpError) -> Self {
        Self {
            result: Err(error),
            ..Self::completed()
        }
    }
}
