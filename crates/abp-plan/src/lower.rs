//! Handing a conversation to a backend: as it is, or in the dialect of a model.

use abp_core::{Capability, EmulationEntry, EmulationReport, EmulationStrategy, Loss, LossKind};
use abp_dialect::Exchange;
use abp_error::ErrorCode;
use abp_projection::{Evaluation, Provision};
use abp_translate::{Action, FidelityLevel, Ledger, LedgerEntry, STRUCTURE};
use serde_json::Value;

use crate::output::{AnswerForm, schema_in};
use crate::plan::OnLoss;
use crate::writer::{Additions, RequestWriter, Written};
use crate::{Payload, PlanError, RunPlan};

/// What a backend is handed, and what it took to make it.
pub(crate) struct Handed {
    pub(crate) payload: Payload,
    pub(crate) emulation: EmulationReport,
    pub(crate) losses: Vec<Loss>,
    /// The model that is asked for, as the backend's vendor names it.
    pub(crate) model: Option<String>,
    /// Writes the request again; `None` for agents and in passthrough.
    pub(crate) writer: Option<RequestWriter>,
    /// The schema that the answer is to follow.
    pub(crate) schema: Option<Value>,
}

impl Handed {
    pub(crate) fn new(
        plan: &RunPlan,
        backend: &str,
        evaluation: &Evaluation,
    ) -> Result<Self, PlanError> {
        let model = plan.model_on(backend);
        let mut handed = Self {
            payload: plan.payload.clone(),
            emulation: EmulationReport::default(),
            losses: Vec::new(),
            model,
            writer: None,
            schema: None,
        };
        let Payload::Conversation { conversation } = &mut handed.payload else {
            // Evaluation allows no emulation in passthrough.
            check_renaming(plan, backend, handed.model.as_deref())?;
            return Ok(handed);
        };
        let emulations = evaluation.required_emulations();
        handed.schema = plan
            .output_schema
            .clone()
            .or_else(|| schema_in(conversation));
        let form = answer_form(plan, evaluation, handed.schema.as_ref());
        let Some(target) = plan.models.get(backend) else {
            handed.emulation = plan.engine.apply(&emulations, conversation);
            form.apply(conversation);
            return Ok(handed);
        };
        let writer = RequestWriter {
            order: plan.order.clone(),
            source: plan.source.clone(),
            backend: backend.to_owned(),
            dialect: plan.dialect_on(backend).unwrap_or(target.dialect),
            profile: target.profile.clone(),
            model: handed.model.clone(),
            engine: plan.engine.clone(),
            emulations,
            form,
            on_loss: plan.on_loss,
        };
        let Written {
            payload,
            emulation,
            losses,
        } = writer.write(Additions::default())?;
        Ok(Self {
            payload,
            emulation,
            losses,
            writer: Some(writer),
            ..handed
        })
    }
}

/// How the answer is made to follow the schema. A vendor's request that names one itself is translated
/// with it, unless ABP has to make up for what the model lacks.
fn answer_form(plan: &RunPlan, evaluation: &Evaluation, schema: Option<&Value>) -> AnswerForm {
    let Some(schema) = schema else {
        return AnswerForm::Free;
    };
    let mut provisions = evaluation.provisions.iter();
    let provision = provisions
        .find(|(requirement, _)| requirement.capability == Capability::StructuredOutputJsonSchema);
    let is_emulated = matches!(provision, Some((_, Provision::ByEmulation(_))));
    match (is_emulated, plan.output_schema.is_some()) {
        (true, _) => AnswerForm::Told(schema.clone()),
        (false, true) => AnswerForm::Native(schema.clone()),
        (false, false) => AnswerForm::Free,
    }
}

/// A vendor's own request is sent byte for byte, so its model cannot be given another name.
fn check_renaming(plan: &RunPlan, backend: &str, vendor: Option<&str>) -> Result<(), PlanError> {
    let (Some(named), Some(vendor)) = (plan.source.model(), vendor) else {
        return Ok(());
    };
    if named == vendor {
        return Ok(());
    }
    Err(PlanError::Lossy {
        backend: backend.to_owned(),
        problem: format!(
            "passthrough changes nothing of the request, and the vendor calls the model {named:?} {vendor:?}"
        ),
        code: ErrorCode::MappingLossyConversion,
    })
}

/// Tells that the answer is cut where the model itself would not have stopped.
pub(crate) fn tell_of_stops(exchange: &Exchange, emulation: &mut EmulationReport) {
    if !exchange.stop_at.is_empty() {
        emulation.applied.push(EmulationEntry {
            capability: Capability::StopSequences,
            strategy: EmulationStrategy::PostProcessing {
                detail: "Cut the answer at the first stop sequence".to_owned(),
            },
        });
    }
}

/// Refuses what the order does not allow to be lost.
pub(crate) fn judge(on_loss: OnLoss, backend: &str, ledger: &Ledger) -> Result<(), PlanError> {
    let refused = match on_loss {
        OnLoss::Label => false,
        OnLoss::Default => ledger.fidelity() == FidelityLevel::Unsupported,
        OnLoss::Reject => true,
    };
    if !refused {
        return Ok(());
    }
    ledger.require_lossless().map_err(|error| PlanError::Lossy {
        backend: backend.to_owned(),
        problem: error.message().to_owned(),
        code: error.code(),
    })
}

/// An entry as the receipt carries it; what was merely kept is not told.
pub(crate) fn loss(entry: &LedgerEntry) -> Option<Loss> {
    let kind = match entry.action {
        Action::Kept | Action::Synthesised => return None,
        Action::Renamed if entry.label.as_deref() == Some(STRUCTURE) => return None,
        Action::Renamed => LossKind::Renamed,
        Action::Emulated => LossKind::Emulated,
        Action::Degraded => LossKind::Degraded,
        Action::Dropped => LossKind::Dropped,
    };
    let label = entry.label.as_deref().unwrap_or_default();
    let reason = entry.reason.as_deref().unwrap_or_default();
    Some(Loss {
        pointer: entry.source.clone().unwrap_or_default(),
        kind,
        reason: match (label, reason) {
            ("", reason) => reason.to_owned(),
            (label, "") => label.to_owned(),
            (label, reason) => format!("{label}: {reason}"),
        },
    })
}
