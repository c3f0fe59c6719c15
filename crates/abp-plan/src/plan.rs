//! Planning a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use abp_capability::infer;
use abp_core::{
    Capability, CapabilityManifest, CapabilityRequirement, CapabilityRequirements,
    EnforcementLevel, ExecutionMode, MinSupport, WorkOrder, validate_work_order, work_order_hash,
};
use abp_dialect::{Dialect, TargetProfile};
use abp_emulation::{EmulationConfig, EmulationEngine};
use abp_policy::{Holders, lists_in_use};
use abp_projection::{Candidate, Demands, ProjectionMatrix, ProjectionResult};
use abp_translate::map_work_order;
use serde::Serialize;
use serde::ser::SerializeStruct as _;
use serde_json::Value;

use crate::confirm::{ConfirmedPlan, Prepared, prepare};
use crate::source::Source;
use crate::{Payload, PlanError};

/// What the operator configured about planning.
#[derive(Debug, Clone, Default)]
pub struct PlanSettings {
    /// Emulation strategies that replace the defaults.
    pub emulation: EmulationConfig,
    /// Backends that are models, with the dialect each of them speaks.
    pub models: BTreeMap<String, ModelTarget>,
}

/// A backend that is a model behind an API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelTarget {
    /// The dialect of the API.
    pub dialect: Dialect,
    /// What is known of the model and the API.
    pub profile: TargetProfile,
}

/// A run as it would be carried out.
#[derive(Debug, Clone)]
pub struct RunPlan {
    pub(crate) order: Arc<WorkOrder>,
    pub(crate) order_sha256: String,
    pub(crate) mode: ExecutionMode,
    pub(crate) demands: Demands,
    pub(crate) engine: EmulationEngine,
    pub(crate) source: Source,
    pub(crate) on_loss: OnLoss,
    pub(crate) models: BTreeMap<String, ModelTarget>,
    pub(crate) payload: Payload,
    pub(crate) output_schema: Option<Value>,
    pub(crate) notes: Vec<String>,
    pub(crate) projection: ProjectionResult,
    /// The decisions on the chosen backend's declared manifest, where it declares one.
    preview: Option<Prepared>,
}

/// Plans a run: requires, negotiates, projects, emulates and lowers, in that order.
///
/// # Errors
/// Fails, before anything happened, where the order is not valid or no candidate can carry it out.
pub fn plan(
    order: WorkOrder,
    candidates: &[Candidate],
    settings: &PlanSettings,
) -> Result<RunPlan, PlanError> {
    validate_work_order(&order).map_err(PlanError::Invalid)?;
    let mode = order
        .config
        .execution_mode()
        .map_err(|error| PlanError::Invalid(vec![error]))?;
    let (source, conversation) = match mode {
        ExecutionMode::Mapped => {
            let source = Source::of(&order)?;
            let conversation = source.conversation(&order)?;
            (source, conversation)
        }
        // The vendor's request is not looked into.
        ExecutionMode::Passthrough => (Source::Order, map_work_order(&order)),
    };
    let on_loss = OnLoss::of(&order)?;
    let output_schema = order.config.abp_setting("output_schema").cloned();
    let demands = Demands {
        requirements: requirements(&order, infer(&conversation), by_settings(&order)?),
        min_enforcement: min_enforcement(&order)?,
        lists: lists_in_use(&order.policy),
        may_emulate: mode == ExecutionMode::Mapped,
    };
    let engine = EmulationEngine::new(settings.emulation.clone());
    let mut matrix = ProjectionMatrix::new(engine.clone());
    for candidate in candidates {
        matrix.register(candidate.clone());
    }
    let projection = matrix.project(&demands)?;
    let (order_sha256, notes) = hash_admitted(&order)?;
    let payload = match mode {
        ExecutionMode::Mapped => Payload::Conversation {
            conversation: Box::new(conversation),
        },
        ExecutionMode::Passthrough => Payload::passthrough(&order.config)?,
    };
    let mut plan = RunPlan {
        order: Arc::new(order),
        order_sha256,
        mode,
        demands,
        engine,
        source,
        on_loss,
        models: settings.models.clone(),
        payload,
        output_schema,
        notes,
        projection,
        preview: None,
    };
    let chosen = candidates
        .iter()
        .find(|candidate| candidate.backend == plan.projection.selected_backend);
    if let Some(manifest) = chosen.and_then(|candidate| candidate.manifest.as_ref()) {
        let backend = plan.projection.selected_backend.clone();
        plan.preview = Some(prepare(&plan, &backend, manifest)?);
    }
    Ok(plan)
}

impl RunPlan {
    /// The order.
    #[must_use]
    pub fn order(&self) -> &WorkOrder {
        &self.order
    }

    /// The hash of the order.
    #[must_use]
    pub fn order_sha256(&self) -> &str {
        &self.order_sha256
    }

    /// Whether the request is carried as it is or translated.
    #[must_use]
    pub fn mode(&self) -> ExecutionMode {
        self.mode
    }

    /// The backends to open, in this order, until one is open and confirmed.
    pub fn backends(&self) -> impl Iterator<Item = &str> {
        let selection = &self.projection.selection;
        std::iter::once(&selection.selected)
            .chain(&selection.fallback_chain)
            .map(String::as_str)
    }

    /// The choice of the backend, with every candidate's reasons.
    #[must_use]
    pub fn projection(&self) -> &ProjectionResult {
        &self.projection
    }

    /// Repeats the decisions on the opened backend: on its manifest, and on who really holds the rules
    /// of the policy there.
    ///
    /// # Errors
    /// Fails where the backend cannot do what is required; nothing has been sent to it yet.
    pub fn confirm(
        &self,
        backend: &str,
        manifest: &CapabilityManifest,
        holders: &Holders,
    ) -> Result<ConfirmedPlan, PlanError> {
        ConfirmedPlan::new(self, backend, manifest, holders)
    }
}

impl Serialize for RunPlan {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let preview = self.preview.as_ref();
        let mut out = serializer.serialize_struct("RunPlan", 9)?;
        out.serialize_field("work_order", &*self.order)?;
        out.serialize_field("work_order_sha256", &self.order_sha256)?;
        out.serialize_field("mode", &self.mode)?;
        out.serialize_field("requirements", &self.demands.requirements)?;
        out.serialize_field("selection", &self.projection.selection)?;
        out.serialize_field("negotiation", &preview.map(|p| &p.negotiation))?;
        out.serialize_field("emulation", &preview.map(|p| &p.emulation))?;
        out.serialize_field("payload", preview.map_or(&self.payload, |p| &p.payload))?;
        out.serialize_field("notes", preview.map_or(&self.notes, |p| &p.notes))?;
        out.end()
    }
}

/// Declared requirements first, then what follows from the order itself; the stricter threshold wins.
fn requirements(
    order: &WorkOrder,
    inferred: CapabilityRequirements,
    by_settings: Vec<CapabilityRequirement>,
) -> CapabilityRequirements {
    let mut merged: Vec<CapabilityRequirement> = Vec::new();
    for requirement in order
        .requirements
        .required
        .iter()
        .cloned()
        .chain(inferred.required)
        .chain(by_settings)
    {
        match merged
            .iter_mut()
            .find(|known| known.capability == requirement.capability)
        {
            Some(known) => known.min_support = known.min_support.max(requirement.min_support),
            None => merged.push(requirement),
        }
    }
    CapabilityRequirements { required: merged }
}

/// What the order's settings need: a shape to be held to, servers to be connected to.
fn by_settings(order: &WorkOrder) -> Result<Vec<CapabilityRequirement>, PlanError> {
    let config = &order.config;
    let mcp = config.mcp_ask();
    let mcp = mcp.map_err(|error| PlanError::Invalid(vec![error]))?;
    let schema = config.abp_setting("output_schema");
    let needed = [
        schema.map(|_| Capability::StructuredOutputJsonSchema),
        mcp.map(|_| Capability::McpClient),
    ];
    let needed = needed.into_iter().flatten();
    let needed = needed.map(|capability| CapabilityRequirement {
        capability,
        min_support: MinSupport::Emulated,
    });
    Ok(needed.collect())
}

/// What to do where a model's dialect cannot carry something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// Go on with a label, unless the request would be another one.
    #[default]
    Default,
    /// Go on with a label whatever is lost.
    Label,
    /// Refuse whatever is lost.
    Reject,
}

impl OnLoss {
    fn of(order: &WorkOrder) -> Result<Self, PlanError> {
        match order.config.abp_setting("on_loss") {
            None => Ok(Self::Default),
            Some(Value::String(word)) if word == "label" => Ok(Self::Label),
            Some(Value::String(word)) if word == "reject" => Ok(Self::Reject),
            Some(other) => Err(PlanError::Setting {
                key: "on_loss",
                problem: format!("is {other}, expected \"label\" or \"reject\""),
            }),
        }
    }
}

fn min_enforcement(order: &WorkOrder) -> Result<EnforcementLevel, PlanError> {
    let Some(demand) = order.config.abp_setting("enforcement") else {
        return Ok(EnforcementLevel::None);
    };
    serde_json::from_value(demand.clone()).map_err(|_| PlanError::Setting {
        key: "enforcement",
        problem: format!("is {demand}, expected \"kernel\", \"host\" or \"advisory\""),
    })
}

/// The order's hash. Vendor settings are foreign JSON and may hold what canonical JSON cannot carry;
/// what had to be changed for the hash is noted.
fn hash_admitted(order: &WorkOrder) -> Result<(String, Vec<String>), PlanError> {
    let mut notes = Vec::new();
    let mut admitted = order.clone();
    for (vendor, settings) in &mut admitted.config.vendor {
        let result = abp_json::admit_value(std::mem::take(settings));
        notes.extend(result.changes.into_iter().map(|change| {
            format!(
                "config.vendor.{vendor}{} is hashed as text: {}",
                change.pointer, change.reason
            )
        }));
        *settings = result.value;
    }
    Ok((work_order_hash(&admitted)?, notes))
}
