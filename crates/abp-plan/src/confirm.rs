//! The plan on a certain manifest: the only thing a run can be given.

use std::sync::Arc;

use abp_capability::{CompatibilityReport, negotiate};
use abp_core::{
    CapabilityManifest, EmulationReport, Loss, NegotiationResult, PlanReport, WorkOrder,
};
use abp_emulation::{PostError, PostProcessor};
use abp_policy::{Holder, Holders, PolicyList};
use abp_projection::{Evaluation, Provision};
use abp_translate::ContextFile;

use crate::lower::Handed;
use crate::writer::{Additions, RequestWriter};
use crate::{Payload, PlanError, RunPlan};

/// A plan whose every decision was taken on the opened backend's manifest.
///
/// Only [`RunPlan::confirm`] makes one, and its parts can only be read.
#[derive(Debug, Clone)]
pub struct ConfirmedPlan {
    order: Arc<WorkOrder>,
    payload: Payload,
    post: PostProcessor,
    native_check: Option<PostProcessor>,
    model: Option<String>,
    writer: Option<RequestWriter>,
    context_files: Vec<String>,
    report: PlanReport,
}

/// The decisions that depend on a manifest.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    pub(crate) negotiation: NegotiationResult,
    pub(crate) emulation: EmulationReport,
    pub(crate) payload: Payload,
    pub(crate) notes: Vec<String>,
    /// What the requirements come to, with ABP's emulations counted in.
    pub(crate) compatibility: CompatibilityReport,
    /// The model that is asked for, as the backend's vendor names it.
    pub(crate) model: Option<String>,
    losses: Vec<Loss>,
    post: PostProcessor,
    /// Checks an answer that the vendor itself is to hold to the schema.
    native_check: Option<PostProcessor>,
    writer: Option<RequestWriter>,
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
            let reason = format!(
                "chosen because it can do everything that is required, and {} could not be used",
                selection.selected
            );
            selection.reason = reason;
            backend.clone_into(&mut selection.selected);
        }
        Ok(Self {
            context_files: match &prepared.writer {
                Some(_) => files_to_read(plan),
                None => Vec::new(),
            },
            order: Arc::clone(&plan.order),
            payload: prepared.payload,
            post: prepared.post,
            native_check: prepared.native_check,
            model: prepared.model,
            writer: prepared.writer,
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

    /// The model that is asked for, as the backend's vendor names it; `None` where nothing names one,
    /// and for agents.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The files of the order's context whose contents a model is sent, in the order's order. They are
    /// read when the run is under way, through the host's own tools, and given to
    /// [`Self::request_with`]. Empty for agents, which read files themselves.
    #[must_use]
    pub fn context_files(&self) -> &[String] {
        &self.context_files
    }

    /// The payload with the contents of context files in it.
    ///
    /// # Errors
    /// Fails where the model's dialect cannot carry what the order holds.
    pub fn request_with(&self, files: &[ContextFile]) -> Result<Payload, PlanError> {
        self.write(Additions {
            files,
            unusable: None,
        })
    }

    /// The payload that asks once more, after an answer that does not hold what was emulated: the model
    /// is shown its answer and what is wrong with it.
    ///
    /// # Errors
    /// As [`Self::request_with`].
    pub fn repair_request(
        &self,
        files: &[ContextFile],
        answer: &str,
        problem: &str,
    ) -> Result<Payload, PlanError> {
        self.write(Additions {
            files,
            unusable: Some((answer, problem)),
        })
    }

    fn write(&self, additions: Additions<'_>) -> Result<Payload, PlanError> {
        match &self.writer {
            Some(writer) => Ok(writer.write(additions)?.payload),
            None => Ok(self.payload.clone()),
        }
    }

    /// Whether the final answer is checked: for what was emulated, or for the output schema.
    #[must_use]
    pub fn checks_answer(&self) -> bool {
        !self.post.is_empty() || self.native_check.is_some()
    }

    /// Checks an answer that the vendor itself was to hold to the output schema.
    ///
    /// # Errors
    /// Says how the answer falls short.
    pub fn check_native_output(&self, answer: &str) -> Result<(), PostError> {
        self.native_check
            .as_ref()
            .map_or(Ok(()), |check| check.check(answer))
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

/// The files that the order names, each once. A vendor's request stays what it is.
fn files_to_read(plan: &RunPlan) -> Vec<String> {
    if plan.source.dialect().is_some() {
        return Vec::new();
    }
    let mut files: Vec<String> = Vec::new();
    for file in &plan.order.context.files {
        if !files.contains(file) {
            files.push(file.clone());
        }
    }
    files
}

pub(crate) fn prepare(
    plan: &RunPlan,
    backend: &str,
    manifest: &CapabilityManifest,
) -> Result<Prepared, PlanError> {
    // Enforcement is judged where the candidate is, and says nothing about emulations.
    let evaluation = Evaluation::new(&plan.demands, manifest, &Holders::NONE, &plan.engine);
    let handed = Handed::new(plan, backend, &evaluation)?;
    let post = PostProcessor::new(&handed.emulation, handed.schema.as_ref())?;
    // What the vendor's own request asks for is between the two of them.
    let native_check = match &plan.output_schema {
        Some(schema) if post.is_empty() => Some(PostProcessor::for_schema(schema)?),
        _ => None,
    };
    let negotiation = negotiate(manifest, &plan.demands.requirements);
    let compatibility = evaluation.compatibility();
    let summary =
        (negotiation.total() > 0).then(|| format!("requirements: {}", compatibility.summary));
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
    let notes = plan.notes.iter().cloned().chain(summary).chain(waived);
    Ok(Prepared {
        negotiation,
        notes: notes.collect(),
        compatibility,
        emulation: handed.emulation,
        payload: handed.payload,
        losses: handed.losses,
        model: handed.model,
        writer: handed.writer,
        post,
        native_check,
    })
}
