//! The projection matrix: demands against candidates.

use std::collections::BTreeMap;

use abp_core::{CandidateReport, Capability, CapabilityManifest, FidelityScore, SelectionReport};
use abp_emulation::EmulationEngine;
use abp_error::ErrorCode;
use abp_policy::Holders;

use crate::evaluate::enforcement_problem;
use crate::score::{score, unknown};
use crate::{Demands, Evaluation};

/// A backend that could be chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub backend: String,
    /// What it can do; `None` where that is only known once it is opened.
    pub manifest: Option<CapabilityManifest>,
    /// Who would hold the rules of the policy on it.
    pub holders: Holders,
    /// The operator's preference; higher is better.
    pub priority: u32,
}

/// Why no backend can be chosen.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectionError {
    /// There is nothing to choose from.
    #[error("no backend is registered")]
    EmptyMatrix,
    /// No candidate can do everything that is required.
    #[error("no backend can do everything that is required: {}", refusals.join(", "))]
    NoSuitableBackend {
        /// What stands in the way, backend by backend.
        refusals: Vec<String>,
        /// Every candidate with all its reasons.
        candidates: Vec<CandidateReport>,
    },
}

impl ProjectionError {
    /// The error's code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::EmptyMatrix => ErrorCode::BackendNotFound,
            Self::NoSuitableBackend { .. } => ErrorCode::CapabilityUnsupported,
        }
    }
}

/// The chosen backend, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectionResult {
    /// The chosen backend.
    pub selected_backend: String,
    /// Its score.
    pub fidelity_score: FidelityScore,
    /// What ABP has to emulate on it.
    pub required_emulations: Vec<Capability>,
    /// Choice and reasons, as the receipt carries them.
    pub selection: SelectionReport,
}

/// Candidates, evaluated against demands.
#[derive(Debug, Default)]
pub struct ProjectionMatrix {
    candidates: BTreeMap<String, Candidate>,
    engine: EmulationEngine,
}

struct Evaluated {
    backend: String,
    eligible: bool,
    score: FidelityScore,
    emulations: Vec<Capability>,
    reasons: Vec<String>,
    refusals: Vec<String>,
}

impl ProjectionMatrix {
    /// An empty matrix; `engine` knows what can be emulated.
    #[must_use]
    pub fn new(engine: EmulationEngine) -> Self {
        Self {
            candidates: BTreeMap::new(),
            engine,
        }
    }

    /// Adds a candidate, replacing one of the same name.
    pub fn register(&mut self, candidate: Candidate) {
        self.candidates.insert(candidate.backend.clone(), candidate);
    }

    /// Chooses the best eligible candidate: by score, then by name.
    ///
    /// # Errors
    /// Fails where there is none, with every candidate's reasons.
    pub fn project(&self, demands: &Demands) -> Result<ProjectionResult, ProjectionError> {
        let highest = self
            .candidates
            .values()
            .map(|candidate| candidate.priority)
            .max()
            .unwrap_or(0);
        let mut evaluated: Vec<_> = self
            .candidates
            .values()
            .map(|c| self.evaluate(c, demands, highest))
            .collect();
        // Candidates come sorted by name and the sort is stable, so that names break ties.
        evaluated.sort_by(|a, b| {
            (b.eligible, b.score.total)
                .partial_cmp(&(a.eligible, a.score.total))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let Some(best) = evaluated.first() else {
            return Err(ProjectionError::EmptyMatrix);
        };
        if !best.eligible {
            return Err(ProjectionError::NoSuitableBackend {
                refusals: evaluated
                    .iter()
                    .map(|e| format!("{} ({})", e.backend, e.refusals.join("; ")))
                    .collect(),
                candidates: evaluated.into_iter().map(Evaluated::report).collect(),
            });
        }
        let (selected, score, emulations) =
            (best.backend.clone(), best.score, best.emulations.clone());
        let fallback_chain = evaluated
            .iter()
            .skip(1)
            .filter(|e| e.eligible)
            .map(|e| e.backend.clone())
            .collect();
        for (rank, candidate) in evaluated.iter_mut().enumerate() {
            candidate
                .reasons
                .push(verdict(candidate, rank, &selected, score.total));
        }
        Ok(ProjectionResult {
            selected_backend: selected.clone(),
            fidelity_score: score,
            required_emulations: emulations,
            selection: SelectionReport {
                selected,
                candidates: evaluated.into_iter().map(Evaluated::report).collect(),
                fallback_chain,
            },
        })
    }

    fn evaluate(
        &self,
        candidate: &Candidate,
        demands: &Demands,
        highest_priority: u32,
    ) -> Evaluated {
        let priority = if highest_priority == 0 {
            0.0
        } else {
            f64::from(candidate.priority) / f64::from(highest_priority)
        };
        let Some(manifest) = &candidate.manifest else {
            return Evaluated {
                backend: candidate.backend.clone(),
                eligible: enforcement_problem(&candidate.holders, demands).is_none(),
                score: unknown(priority),
                emulations: Vec::new(),
                reasons: vec!["capabilities are only known once it is opened".to_owned()],
                refusals: enforcement_problem(&candidate.holders, demands)
                    .into_iter()
                    .collect(),
            };
        };
        let evaluation = Evaluation::new(demands, manifest, &candidate.holders, &self.engine);
        Evaluated {
            backend: candidate.backend.clone(),
            eligible: evaluation.is_eligible(),
            score: score(&evaluation, priority),
            emulations: evaluation.required_emulations(),
            reasons: evaluation.reasons(),
            refusals: evaluation.refusals(),
        }
    }
}

impl Evaluated {
    fn report(self) -> CandidateReport {
        CandidateReport {
            backend: self.backend,
            eligible: self.eligible,
            score: self.score,
            reasons: self.reasons,
        }
    }
}

fn verdict(candidate: &Evaluated, rank: usize, selected: &str, best: f64) -> String {
    let total = candidate.score.total;
    match (rank, candidate.eligible) {
        (0, _) => format!("chosen: score {total:.3}"),
        (_, false) => "passed over: cannot do everything that is required".to_owned(),
        (_, true) if total < best => {
            format!("passed over: score {total:.3} is below {best:.3} of {selected}")
        }
        (_, true) => format!("passed over: same score as {selected}, which comes first by name"),
    }
}
