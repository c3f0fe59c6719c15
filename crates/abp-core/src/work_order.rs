//! The unit of work sent to a backend.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    Capability, CapabilityRequirement, CapabilityRequirements, ClientCapabilities, MinSupport,
    PolicyProfile, RequestLineage,
};

/// A task together with everything that governs how it may be done.
///
/// Only `task` is required on input; `{"task":"say hello"}` is a valid work order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkOrder {
    /// Identifies the order; made up when omitted.
    #[serde(default = "Uuid::new_v4")]
    #[schemars(transform = without_default)]
    pub id: Uuid,
    /// What is to be done, in a person's words.
    pub task: String,
    /// Whether changes are proposed or made.
    #[serde(default)]
    pub lane: ExecutionLane,
    /// Where the work happens.
    #[serde(default)]
    pub workspace: WorkspaceSpec,
    /// What the agent is given to start with.
    #[serde(default)]
    pub context: ContextPacket,
    /// What the agent may do.
    #[serde(default)]
    pub policy: PolicyProfile,
    /// What the backend must be able to do.
    #[serde(default)]
    pub requirements: CapabilityRequirements,
    /// Model, limits and vendor settings.
    #[serde(default)]
    pub config: RuntimeConfig,
    /// What the client can render; `null` is a standard rich client.
    #[serde(default)]
    pub client: Option<ClientCapabilities>,
    /// The client's request that the order was made from; absent where it was made by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<RequestLineage>,
}

/// A fresh id is no default that a schema could name.
fn without_default(schema: &mut schemars::Schema) {
    schema.remove("default");
}

/// How the result of a run reaches the source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionLane {
    /// Propose changes: the source stays untouched and the receipt carries the diff.
    #[default]
    PatchFirst,
    /// Make changes: they are applied to the source when the run succeeded.
    WorkspaceFirst,
}

/// Whether a request is carried as it is or translated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionMode {
    /// The vendor's request goes to the backend byte for byte; nothing is injected.
    Passthrough,
    /// The request is read, negotiated, emulated where needed and written for the backend.
    #[default]
    Mapped,
}

/// Whether the agent works on a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceMode {
    /// In place.
    PassThrough,
    /// On a staged copy.
    #[default]
    Staged,
}

/// The directory a run works on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WorkspaceSpec {
    /// The source directory.
    pub root: String,
    /// In place or on a copy.
    pub mode: WorkspaceMode,
    /// Globs of files to take; empty means all. An include wins over `.gitignore`.
    pub include: Vec<String>,
    /// Globs of files to leave out; an exclude wins over an include.
    pub exclude: Vec<String>,
    /// Whether files hidden by `.gitignore` are left out.
    pub respect_gitignore: bool,
    /// Whether a staged run works on a copy of the source as it was at the start, even where the live source
    /// could be shown under an overlay.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub snapshot: bool,
}

impl Default for WorkspaceSpec {
    fn default() -> Self {
        Self {
            root: ".".to_owned(),
            mode: WorkspaceMode::default(),
            include: Vec::new(),
            exclude: Vec::new(),
            respect_gitignore: true,
            snapshot: false,
        }
    }
}

/// What the agent is given besides the task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ContextPacket {
    /// Paths in the workspace that matter for the task.
    pub files: Vec<String>,
    /// Named pieces of text.
    pub snippets: Vec<ContextSnippet>,
}

/// A named piece of text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContextSnippet {
    /// What the text is.
    pub name: String,
    /// The text.
    pub content: String,
}

/// Model, limits and vendor settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RuntimeConfig {
    /// The model to use; the backend's default when `null`.
    pub model: Option<String>,
    /// Settings by vendor; ABP's own are under `abp` (or flat, as `abp.mode`).
    pub vendor: BTreeMap<String, Value>,
    /// Environment variables for the agent.
    pub env: BTreeMap<String, String>,
    /// The most the run may cost.
    pub max_budget_usd: Option<f64>,
    /// The most turns the agent may take.
    pub max_turns: Option<u32>,
}

impl RuntimeConfig {
    /// One of ABP's own settings: `vendor.abp.<key>`, or the flat key `abp.<key>`.
    #[must_use]
    pub fn abp_setting(&self, key: &str) -> Option<&Value> {
        self.vendor
            .get("abp")
            .and_then(|settings| settings.get(key))
            .or_else(|| self.vendor.get(&format!("abp.{key}")))
    }
}

/// Builds a work order; what is not set keeps its default.
#[derive(Debug, Clone)]
pub struct WorkOrderBuilder {
    order: WorkOrder,
}

impl WorkOrderBuilder {
    /// Starts from a task, with a fresh id.
    pub fn new(task: impl Into<String>) -> Self {
        Self {
            order: WorkOrder {
                id: Uuid::new_v4(),
                task: task.into(),
                lane: ExecutionLane::default(),
                workspace: WorkspaceSpec::default(),
                context: ContextPacket::default(),
                policy: PolicyProfile::default(),
                requirements: CapabilityRequirements::default(),
                config: RuntimeConfig::default(),
                client: None,
                lineage: None,
            },
        }
    }

    /// Sets the id.
    #[must_use]
    pub fn id(mut self, id: Uuid) -> Self {
        self.order.id = id;
        self
    }

    /// Sets the lane.
    #[must_use]
    pub fn lane(mut self, lane: ExecutionLane) -> Self {
        self.order.lane = lane;
        self
    }

    /// Sets the workspace.
    #[must_use]
    pub fn workspace(mut self, workspace: WorkspaceSpec) -> Self {
        self.order.workspace = workspace;
        self
    }

    /// Sets the source directory.
    #[must_use]
    pub fn root(mut self, root: impl Into<String>) -> Self {
        self.order.workspace.root = root.into();
        self
    }

    /// Sets the context.
    #[must_use]
    pub fn context(mut self, context: ContextPacket) -> Self {
        self.order.context = context;
        self
    }

    /// Sets the policy.
    #[must_use]
    pub fn policy(mut self, policy: PolicyProfile) -> Self {
        self.order.policy = policy;
        self
    }

    /// Sets all requirements.
    #[must_use]
    pub fn requirements(mut self, requirements: CapabilityRequirements) -> Self {
        self.order.requirements = requirements;
        self
    }

    /// Adds one requirement.
    #[must_use]
    pub fn require(mut self, capability: Capability, min_support: MinSupport) -> Self {
        self.order
            .requirements
            .required
            .push(CapabilityRequirement {
                capability,
                min_support,
            });
        self
    }

    /// Sets the configuration.
    #[must_use]
    pub fn config(mut self, config: RuntimeConfig) -> Self {
        self.order.config = config;
        self
    }

    /// Sets the model.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.order.config.model = Some(model.into());
        self
    }

    /// Sets what the client can render.
    #[must_use]
    pub fn client(mut self, client: ClientCapabilities) -> Self {
        self.order.client = Some(client);
        self
    }

    /// Sets the client's request that the order is made from.
    #[must_use]
    pub fn lineage(mut self, lineage: RequestLineage) -> Self {
        self.order.lineage = Some(lineage);
        self
    }

    /// The work order.
    #[must_use]
    pub fn build(self) -> WorkOrder {
        self.order
    }
}
