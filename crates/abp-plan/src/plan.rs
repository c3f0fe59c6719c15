//! Planning a run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use abp_capability::infer;
use abp_core::ir::IrConversation;
use abp_core::{
    Capability, CapabilityManifest, CapabilityRequirement, CapabilityRequirements,
    EnforcementLevel, ExecutionMode, MinSupport, WorkOrder, validate_work_order, work_order_hash,
};
use abp_dialect::{Dialect, TargetProfile};
use abp_emulation::{EmulationConfig, EmulationEngine};
use abp_mapping::features_of;
use abp_policy::{Holders, lists_in_use};
use abp_projection::{
    Candidate, Demands, ModelOffer, ProjectionMatrix, ProjectionResult, ServedModels, SourceRequest,
};
use serde::Serialize;
use serde::ser::SerializeStruct as _;
use serde_json::Value;

use crate::confirm::{ConfirmedPlan, Prepared, prepare};
use crate::output::schema_of;
use crate::source::{Source, dialect_of_model};
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
    /// The model APIs among the candidates.
    offers: BTreeMap<String, ModelOffer>,
    pub(crate) payload: Payload,
    pub(crate) output_schema: Option<Value>,
    pub(crate) notes: Vec<String>,
    pub(crate) projection: ProjectionResult,
    /// The decisions on the chosen backend's declared manifest, where it declares one.
    preview: Option<Prepared>,
}

/// Plans a run: requires, negotiates, projects, emulates and lowers, in that order. Where the request
/// cannot be written for the chosen backend, the next one is chosen.
///
/// # Errors
/// Fails, before anything happened, where the order is not valid or no candidate can carry it out.
pub fn plan(
    mut order: WorkOrder,
    candidates: &[Candidate],
    settings: &PlanSettings,
) -> Result<RunPlan, PlanError> {
    validate_work_order(&order).map_err(PlanError::Invalid)?;
    let mode = order.config.execution_mode();
    let mode = mode.map_err(|error| PlanError::Invalid(vec![error]))?;
    let source = match mode {
        ExecutionMode::Mapped => Source::of(&order)?,
        ExecutionMode::Passthrough => Source::verbatim(&order)?,
    };
    let mut notes = admit_lineage(&mut order);
    let conversation = source.conversation(&order, &[])?;
    let on_loss = OnLoss::of(&order)?;
    let output_schema = output_schema(&order, mode, &conversation)?;
    let (order_sha256, changes) = hash_admitted(&order)?;
    notes.extend(changes);
    notes.extend(unused_context(&order, &source));
    let demands = Demands {
        requirements: requirements(&order, infer(&conversation), by_settings(&order)?),
        min_enforcement: min_enforcement(&order)?,
        lists: lists_in_use(&order.policy),
        may_emulate: mode == ExecutionMode::Mapped,
        request: request_to_carry(&order, &source, &conversation),
        model: source.model().or_else(|| order.config.model.clone()),
    };
    let engine = EmulationEngine::new(settings.emulation.clone());
    let candidates = with_offers(candidates, settings);
    let mut matrix = matrix_of(&candidates, &engine, &source);
    let payload = match &source {
        Source::Verbatim { request, .. } => Payload::VendorRequest {
            request: request.clone(),
        },
        Source::Order | Source::Vendor { .. } => Payload::Conversation {
            conversation: Box::new(conversation),
        },
    };
    let offers = candidates.iter().filter_map(|candidate| {
        let offer = candidate.model.clone()?;
        Some((candidate.backend.clone(), offer))
    });
    let mut plan = RunPlan {
        projection: matrix.project(&demands)?,
        order: Arc::new(order),
        order_sha256,
        mode,
        demands,
        engine,
        source,
        on_loss,
        models: settings.models.clone(),
        offers: offers.collect(),
        payload,
        output_schema,
        notes,
        preview: None,
    };
    plan.settle(&candidates, &mut matrix)?;
    Ok(plan)
}

/// The candidates, each with the model API that it is.
fn with_offers(candidates: &[Candidate], settings: &PlanSettings) -> Vec<Candidate> {
    let complete = |candidate: &Candidate| {
        let target = settings.models.get(&candidate.backend);
        let offer = || {
            Some(ModelOffer {
                dialects: vec![target?.dialect],
                served: None,
            })
        };
        Candidate {
            model: candidate.model.clone().or_else(offer),
            ..candidate.clone()
        }
    };
    candidates.iter().map(complete).collect()
}

fn matrix_of(
    candidates: &[Candidate],
    engine: &EmulationEngine,
    source: &Source,
) -> ProjectionMatrix {
    let mut matrix = ProjectionMatrix::new(engine.clone());
    for candidate in candidates {
        matrix.register(candidate.clone());
        let spoken = candidate.model.as_ref().map(|offer| &offer.dialects);
        if let (Source::Verbatim { dialect, .. }, Some(spoken)) = (source, spoken)
            && let Some(dialect) = dialect.filter(|dialect| !spoken.contains(dialect))
        {
            let reason = format!("it does not speak {dialect}, and passthrough translates nothing");
            matrix.refuse(&candidate.backend, reason);
        }
    }
    matrix
}

impl RunPlan {
    /// Prepares the chosen backend; where that fails, the next one, until one is left that can be
    /// prepared.
    fn settle(
        &mut self,
        candidates: &[Candidate],
        matrix: &mut ProjectionMatrix,
    ) -> Result<(), PlanError> {
        loop {
            let backend = self.projection.selected_backend.clone();
            let mut chosen = candidates.iter();
            let chosen = chosen.find(|candidate| candidate.backend == backend);
            let Some(manifest) = chosen.and_then(|candidate| candidate.manifest.as_ref()) else {
                return Ok(());
            };
            match prepare(self, &backend, manifest) {
                Ok(prepared) => {
                    self.preview = Some(prepared);
                    return Ok(());
                }
                // Where nothing else was considered, the one problem is the answer.
                Err(error) if candidates.len() == 1 => return Err(error),
                Err(PlanError::Lossy { problem, .. }) => matrix.refuse(&backend, problem),
                Err(error) => return Err(error),
            }
            self.projection = matrix.project(&self.demands)?;
        }
    }

    /// The model that is asked for on a backend, as its vendor names it. An order that names none gets
    /// the first model that the backend lists; `None` for agents.
    #[must_use]
    pub fn model_on(&self, backend: &str) -> Option<String> {
        let served = self.offers.get(backend)?.served.as_ref();
        let asked = self.demands.model.as_deref();
        let asked = asked.or_else(|| served.and_then(ServedModels::first_named))?;
        let name = served.map_or(asked, |served| served.vendor_name(asked));
        Some(name.to_owned())
    }

    /// The dialect in which a backend is asked: that of the vendor's request where it is spoken.
    pub(crate) fn dialect_on(&self, backend: &str) -> Option<Dialect> {
        self.offers.get(backend)?.dialect_for(self.source.dialect())
    }

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
        let mut out = serializer.serialize_struct("RunPlan", 11)?;
        out.serialize_field("work_order", &*self.order)?;
        out.serialize_field("work_order_sha256", &self.order_sha256)?;
        out.serialize_field("mode", &self.mode)?;
        out.serialize_field("requirements", &self.demands.requirements)?;
        out.serialize_field("selection", &self.projection.selection)?;
        out.serialize_field("model", &preview.and_then(|p| p.model.as_ref()))?;
        out.serialize_field("negotiation", &preview.map(|p| &p.negotiation))?;
        out.serialize_field("compatibility", &preview.map(|p| &p.compatibility))?;
        out.serialize_field("emulation", &preview.map(|p| &p.emulation))?;
        out.serialize_field("payload", preview.map_or(&self.payload, |p| &p.payload))?;
        out.serialize_field("notes", preview.map_or(&self.notes, |p| &p.notes))?;
        out.end()
    }
}

/// The schema that the answer is to follow.
fn output_schema(
    order: &WorkOrder,
    mode: ExecutionMode,
    conversation: &IrConversation,
) -> Result<Option<Value>, PlanError> {
    let schema = schema_of(&order.config)?;
    let refused = |problem: &str| PlanError::Setting {
        key: "output_schema",
        problem: problem.to_owned(),
    };
    match (&schema, mode) {
        (None, _) => Ok(None),
        (Some(_), ExecutionMode::Passthrough) => Err(refused(
            "passthrough changes nothing of the vendor's request; name the schema there",
        )),
        (Some(_), ExecutionMode::Mapped) if conversation.settings.response_format.is_some() => Err(
            refused("the vendor's request names the form of its answer itself"),
        ),
        (Some(_), ExecutionMode::Mapped) => Ok(schema),
    }
}

/// What is carried to a model in a vendor's terms.
fn request_to_carry(
    order: &WorkOrder,
    source: &Source,
    conversation: &IrConversation,
) -> Option<SourceRequest> {
    let is_vendor_request = source.dialect().is_some();
    let of_model = || dialect_of_model(order.config.model.as_deref()?);
    Some(SourceRequest {
        dialect: source.dialect().or_else(of_model)?,
        is_vendor_request,
        features: match source {
            Source::Verbatim { .. } => BTreeSet::new(),
            Source::Order | Source::Vendor { .. } => features_of(conversation),
        },
    })
}

/// A vendor's request is whole: what the order says besides does not reach the model.
fn unused_context(order: &WorkOrder, source: &Source) -> Option<String> {
    let has_context = !order.context.files.is_empty() || !order.context.snippets.is_empty();
    let is_carried = matches!(source, Source::Order);
    (has_context && !is_carried).then(|| {
        "the order carries a vendor's request: its context (files and snippets) is not added to it"
            .to_owned()
    })
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

/// Makes what a client attached to its request fit for canonical JSON, in which the receipt repeats it.
fn admit_lineage(order: &mut WorkOrder) -> Vec<String> {
    let Some(lineage) = &mut order.lineage else {
        return Vec::new();
    };
    let metadata = Value::Object(std::mem::take(&mut lineage.metadata));
    let admitted = abp_json::admit_value(metadata);
    if let Value::Object(metadata) = admitted.value {
        lineage.metadata = metadata;
    }
    let told = admitted.changes.into_iter().map(|change| {
        format!(
            "lineage.metadata{} is kept as text: {}",
            change.pointer, change.reason
        )
    });
    told.collect()
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
