//! The projection matrix: demands against candidates.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use abp_core::{CandidateReport, Capability, FidelityScore, SelectionReport};
use abp_emulation::EmulationEngine;
use abp_error::ErrorCode;
use abp_mapping::{MappingMatrix, MappingRegistry, known_rules};

use crate::candidate::Candidate;
use crate::evaluate::enforcement_problem;
use crate::score::{Fit, score, unknown};
use crate::verdict::Standing;
use crate::{Demands, Evaluation};

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
#[derive(Debug)]
pub struct ProjectionMatrix {
    candidates: BTreeMap<String, Candidate>,
    /// Candidates that turned out not to be usable, with the reason.
    refused: BTreeMap<String, String>,
    engine: EmulationEngine,
    rules: MappingRegistry,
}

/// One candidate against the demands.
#[derive(Debug)]
pub(crate) struct Evaluated {
    pub(crate) backend: String,
    pub(crate) is_eligible: bool,
    pub(crate) is_demonstration: bool,
    /// Whether it speaks the dialect of the vendor's request.
    pub(crate) is_same_dialect: bool,
    pub(crate) score: FidelityScore,
    pub(crate) refusals: Vec<String>,
    emulations: Vec<Capability>,
    reasons: Vec<String>,
}

/// How the vendor's request of an order fits the dialect of a candidate.
struct Mapping {
    fidelity: f64,
    is_same_dialect: bool,
    reasons: Vec<String>,
}

impl Default for ProjectionMatrix {
    fn default() -> Self {
        Self::new(EmulationEngine::default())
    }
}

impl ProjectionMatrix {
    /// An empty matrix; `engine` knows what can be emulated.
    #[must_use]
    pub fn new(engine: EmulationEngine) -> Self {
        Self {
            candidates: BTreeMap::new(),
            refused: BTreeMap::new(),
            engine,
            rules: known_rules(),
        }
    }

    /// Adds a candidate, replacing one of the same name.
    pub fn register(&mut self, candidate: Candidate) {
        self.candidates.insert(candidate.backend.clone(), candidate);
    }

    /// Takes a candidate out of the choice. It stays in every report, with the reason.
    pub fn refuse(&mut self, backend: &str, reason: impl Into<String>) {
        self.refused.insert(backend.to_owned(), reason.into());
    }

    /// Chooses the best eligible candidate: a real one before one that only demonstrates, then by
    /// score, then the one that speaks the request's own dialect, then by name.
    ///
    /// # Errors
    /// Fails where there is none, with every candidate's reasons.
    pub fn project(&self, demands: &Demands) -> Result<ProjectionResult, ProjectionError> {
        let candidates = self.candidates.values();
        let highest = candidates.clone().map(|candidate| candidate.priority).max();
        let highest = highest.unwrap_or(0);
        let mut evaluated: Vec<_> = candidates
            .map(|candidate| self.evaluate(candidate, demands, highest))
            .collect();
        // Candidates come sorted by name and the sort is stable, so that names break ties.
        evaluated.sort_by(|a, b| b.rank_against(a));
        let Some(best) = evaluated.first() else {
            return Err(ProjectionError::EmptyMatrix);
        };
        if !best.is_eligible {
            return Err(ProjectionError::NoSuitableBackend {
                refusals: evaluated
                    .iter()
                    .map(|e| format!("{} ({})", e.backend, e.refusals.join("; ")))
                    .collect(),
                candidates: explain(evaluated),
            });
        }
        let (selected, score, emulations) =
            (best.backend.clone(), best.score, best.emulations.clone());
        // A demonstration in the place of a real backend that failed would look like its work.
        let may_follow =
            |e: &&Evaluated| e.is_eligible && e.is_demonstration == best.is_demonstration;
        let fallback_chain = evaluated.iter().skip(1).filter(may_follow);
        let fallback_chain = fallback_chain.map(|e| e.backend.clone()).collect();
        let candidates = explain(evaluated);
        let reason = candidates.first().and_then(|best| best.reasons.first());
        Ok(ProjectionResult {
            selected_backend: selected.clone(),
            fidelity_score: score,
            required_emulations: emulations,
            selection: SelectionReport {
                selected,
                reason: reason.cloned().unwrap_or_default(),
                candidates,
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
        let mapping = self.mapping(candidate, demands);
        let fit = Fit {
            mapping: mapping.fidelity,
            priority,
        };
        let (score, emulations, mut reasons, mut refusals) = match &candidate.manifest {
            Some(manifest) => {
                let evaluation =
                    Evaluation::new(demands, manifest, &candidate.holders, &self.engine);
                (
                    score(&evaluation, fit),
                    evaluation.required_emulations(),
                    evaluation.reasons(),
                    evaluation.refusals(),
                )
            }
            None => (
                unknown(priority),
                Vec::new(),
                vec!["its capabilities are known only once it is open".to_owned()],
                enforcement_problem(&candidate.holders, demands)
                    .into_iter()
                    .collect(),
            ),
        };
        reasons.extend(mapping.reasons);
        refusals.extend(candidate.model_problem(demands.model.as_deref()));
        refusals.extend(self.refused.get(&candidate.backend).cloned());
        Evaluated {
            backend: candidate.backend.clone(),
            is_eligible: refusals.is_empty(),
            is_demonstration: candidate.is_demonstration,
            is_same_dialect: mapping.is_same_dialect,
            score,
            refusals,
            emulations,
            reasons,
        }
    }

    /// How much of the order's vendor request survives on the way to a candidate. Agents get it in
    /// ABP's own form, and an order in its own words is written anew for each: nothing is mapped then.
    fn mapping(&self, candidate: &Candidate, demands: &Demands) -> Mapping {
        let offer = candidate.model.as_ref();
        let pair = demands.request.as_ref().and_then(|request| {
            let to = offer?.dialect_for(Some(request.dialect))?;
            Some((request, to))
        });
        let Some((request, to)) = pair else {
            return Mapping {
                fidelity: 1.0,
                is_same_dialect: false,
                reasons: Vec::new(),
            };
        };
        let from = request.dialect;
        if from == to {
            let whose = if request.is_vendor_request {
                "the request"
            } else {
                "the model's vendor"
            };
            return Mapping {
                fidelity: 1.0,
                is_same_dialect: true,
                reasons: vec![format!("it speaks {from}, the dialect of {whose}")],
            };
        }
        let carried = self.rules.fidelity(from, to, &request.features);
        let features: Vec<_> = request.features.iter().copied().collect();
        let arrives = MappingMatrix::from_registry(&self.rules, &features).is_supported(from, to);
        let verdict = match (arrives, carried.losses.as_slice()) {
            (true, []) => "everything it uses arrives".to_owned(),
            (true, losses) => losses.join("; "),
            (false, losses) => format!("not everything it uses arrives: {}", losses.join("; ")),
        };
        let way = if request.is_vendor_request {
            format!("the request is translated from {from} to {to}")
        } else {
            format!("the model's vendor speaks {from}, and the order is written in {to}")
        };
        Mapping {
            fidelity: carried.score,
            is_same_dialect: false,
            reasons: vec![format!("{way}: {verdict}")],
        }
    }
}

impl Evaluated {
    /// The order of preference, without names.
    fn rank_against(&self, other: &Self) -> Ordering {
        let key = |e: &Self| (e.is_eligible, !e.is_demonstration);
        key(self)
            .cmp(&key(other))
            .then(self.score.total.total_cmp(&other.score.total))
            .then(self.is_same_dialect.cmp(&other.is_same_dialect))
    }
}

/// The reports, best first; the first reason of each says why it was chosen or not.
fn explain(evaluated: Vec<Evaluated>) -> Vec<CandidateReport> {
    let verdicts: Vec<_> = (0..evaluated.len())
        .map(|rank| {
            Standing {
                evaluated: &evaluated,
                rank,
            }
            .verdict()
        })
        .collect();
    let reports = evaluated.into_iter().zip(verdicts);
    let report = |(candidate, verdict): (Evaluated, String)| CandidateReport {
        backend: candidate.backend,
        eligible: candidate.is_eligible,
        score: candidate.score,
        reasons: std::iter::once(verdict).chain(candidate.reasons).collect(),
        is_demonstration: candidate.is_demonstration,
    };
    reports.map(report).collect()
}
