//! The plan on a certain manifest: the only thing a run can be given.

use std::sync::Arc;

use abp_capability::negotiate;
use abp_core::{
    CapabilityManifest, EmulationReport, Loss, NegotiationResult, PlanReport, WorkOrder,
};
use abp_emulation::PostProcessor;
use abp_policy::{Holder, Holders, PolicyList};
use abp_projection::{Evaluation, Provision};

use crate::lower::Handed;
use crate::{Payload, PlanError, RunPlan};

/// A plan whose every decision was taken on the opened backend's manifest.
///
/// Only [`RunPlan::confirm`] makes one, and its parts can only be read.
#[derive(Debug, Clone)]
pub struct ConfirmedPlan {
    order: Arc<WorkOrder>,
    payload: Payload,
    post: PostProcessor,
    report: PlanReport,
}

/// The decisions that depend on a manifest.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    pub(crate) negotiation: NegotiationResult,
    pub(crate) emulation: EmulationReport,
    pub(crate) payload: Payload,
    pub(crate) notes: Vec<String>,
    losses: Vec<Loss>,
    post: PostProcessor,
}

impl ConfirmedPlan {
    pub(crate) fn new(
        plan: &RunPlan,
        backend: &str,
        manifest: &CapabilityManifest,
        holders: &Holders,
    ) -> Result<Self, PlanError> {
        let evaluation = Evaluation::new(&plan.demands, manifest, holders, &plan.engine);
        if !evaluation.is_eligible() {
            return Err(PlanError::NotConfirmed {
                backend: backend.to_owned(),
                refusals: evaluation.refusals(),
            });
        }
        let prepared = prepare(plan, backend, manifest)?;
        let mut selection = plan.projection.selection.clone();
        let mut notes = prepared.notes;
        notes.extend(unheld(&plan.demands.lists, holders));
        if selection.selected != backend {
            notes.push(format!(
                "{} was chosen first and could not be used",
                selection.selected
            ));
            backend.clone_into(&mut selection.selected);
        }
        Ok(Self {
            order: Arc::clone(&plan.order),
            payload: prepared.payload,
            post: prepared.post,
            report: PlanReport {
                requirements: plan.demands.requirements.clone(),
                negotiation: prepared.negotiation,
                selection,
                emulation: prepared.emulation,
                losses: prepared.losses,
                notes,
            },
        })
    }

    /// The order.
    #[must_use]
    pub fn order(&self) -> &WorkOrder {
        &self.order
    }

    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.report.selection.selected
    }

    /// What is handed to the backend.
    #[must_use]
    pub fn payload(&self) -> &Payload {
        &self.payload
    }

    /// What is to be done with the answer.
    #[must_use]
    pub fn post(&self) -> &PostProcessor {
        &self.post
    }

    /// The decisions, as the receipt carries them.
    #[must_use]
    pub fn report(&self) -> &PlanReport {
        &self.report
    }
}

/// Rules that nothing evaluates are no protection, and the reader has to know.
fn unheld(lists: &[PolicyList], holders: &Holders) -> Option<String> {
    let unheld = lists
        .iter()
        .filter(|&&list| holders.of(list) == Holder::NONE);
    let unheld: Vec<_> = unheld.map(|list| list.as_str()).collect();
    (!unheld.is_empty()).then(|| {
        format!(
            "nothing enforces the rules of {} on this backend",
            unheld.join(", ")
        )
    })
}

pub(crate) fn prepare(
    plan: &RunPlan,
    backend: &str,
    manifest: &CapabilityManifest,
) -> Result<Prepared, PlanError> {
    // Enforcement is judged where the candidate is, and says nothing about emulations.
    let evaluation = Evaluation::new(&plan.demands, manifest, &Holders::NONE, &plan.engine);
    let emulations = evaluation.required_emulations();
    let Handed {
        payload,
        emulation,
        losses,
    } = Handed::new(plan, backend, &emulations)?;
    let post = PostProcessor::new(&emulation, plan.output_schema.as_ref())?;
    let waived = evaluation
        .provisions
        .iter()
        .filter(|(_, provision)| *provision == Provision::Waived)
        .map(|(requirement, _)| {
            format!(
                "{} was wished for and is not provided",
                requirement.capability
            )
        });
    Ok(Prepared {
        negotiation: negotiate(manifest, &plan.demands.requirements),
        emulation,
        payload,
        losses,
        notes: plan.notes.iter().cloned().chain(waived).collect(),
        post,
    })
}
