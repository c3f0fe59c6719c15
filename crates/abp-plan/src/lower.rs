//! Handing a conversation to a backend: as it is, or in the dialect of a model.

use abp_core::{Capability, EmulationEntry, EmulationReport, EmulationStrategy, Loss, LossKind};
use abp_dialect::Exchange;
use abp_translate::{
    Action, FidelityLevel, Ledger, LedgerEntry, Options, STRUCTURE, Translation,
    translate_request_with, write_request,
};

use crate::plan::{ModelTarget, OnLoss};
use crate::source::Source;
use crate::{Payload, PlanError, RunPlan};

/// What a backend is handed, and what it took to make it.
pub(crate) struct Handed {
    pub(crate) payload: Payload,
    pub(crate) emulation: EmulationReport,
    pub(crate) losses: Vec<Loss>,
}

impl Handed {
    pub(crate) fn new(
        plan: &RunPlan,
        backend: &str,
        emulations: &[Capability],
    ) -> Result<Self, PlanError> {
        let mut payload = plan.payload.clone();
        let Payload::Conversation { conversation } = &mut payload else {
            // Evaluation allows no emulation in passthrough.
            return Ok(Self {
                payload,
                emulation: EmulationReport::default(),
                losses: Vec::new(),
            });
        };
        let Some(target) = plan.models.get(backend) else {
            let emulation = plan.engine.apply(emulations, conversation);
            return Ok(Self {
                payload,
                emulation,
                losses: Vec::new(),
            });
        };
        let (done, emulation) = lower(plan, target, backend, emulations)?;
        judge(plan.on_loss, backend, &done.ledger)?;
        Ok(Self {
            payload: Payload::Lowered {
                dialect: target.dialect,
                request: done.output,
                exchange: Box::new(done.exchange),
            },
            emulation,
            losses: done.ledger.entries().iter().filter_map(loss).collect(),
        })
    }
}

/// Writes the request in the model's dialect, with ABP's emulations applied.
fn lower(
    plan: &RunPlan,
    target: &ModelTarget,
    backend: &str,
    emulations: &[Capability],
) -> Result<(Translation, EmulationReport), PlanError> {
    let mut emulation = EmulationReport::default();
    let mut emulate = |conversation: &mut _| {
        emulation = plan.engine.apply(emulations, conversation);
    };
    let options = Options {
        profile: target.profile.clone(),
        cut_stops: true,
        ..Options::default()
    };
    let done = match &plan.source {
        Source::Vendor { dialect, request } => {
            let (from, to) = (*dialect, target.dialect);
            translate_request_with(request.as_bytes(), from, to, &options, emulate)
        }
        Source::Order => {
            let mut conversation = plan.source.conversation(plan.order())?;
            emulate(&mut conversation);
            write_request(conversation, target.dialect, &target.profile)
        }
    };
    let done = done.map_err(|error| PlanError::Lossy {
        backend: backend.to_owned(),
        problem: error.to_string(),
        code: abp_error::AbpError::from(error).code(),
    })?;
    tell_of_stops(&done.exchange, &mut emulation);
    Ok((done, emulation))
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
