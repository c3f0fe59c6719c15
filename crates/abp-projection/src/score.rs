//! Scoring an evaluation.

use abp_core::{EmulationStrategy, FidelityScore};

use crate::{Evaluation, Provision};

const COVERAGE_WEIGHT: f64 = 0.5;
const CAPABILITY_WEIGHT: f64 = 0.15;
const MAPPING_WEIGHT: f64 = 0.15;
const PRIORITY_WEIGHT: f64 = 0.2;

/// What each approximation takes off the fidelity.
const PROMPT_COST: f64 = 0.15;
const POST_PROCESSING_COST: f64 = 0.10;
const BACKEND_EMULATION_COST: f64 = 0.10;

/// What is known about a candidate besides its manifest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fit {
    /// How much of the vendor's request survives its translation.
    pub(crate) mapping: f64,
    /// Its share of the highest priority among the candidates.
    pub(crate) priority: f64,
}

/// Scores a backend.
pub(crate) fn score(evaluation: &Evaluation, fit: Fit) -> FidelityScore {
    let total = evaluation.provisions.len();
    let refused = evaluation
        .provisions
        .iter()
        .filter(|(_, p)| matches!(p, Provision::Refused { .. } | Provision::Waived));
    let coverage = if total == 0 {
        1.0
    } else {
        (total - refused.count()) as f64 / total as f64
    };
    let cost: f64 = evaluation
        .provisions
        .iter()
        .map(|(_, provision)| cost(provision))
        .sum();
    with_total(coverage, (1.0 - cost).max(0.0), fit)
}

/// The score of a backend whose capabilities are not known yet: nothing speaks for it but its priority.
pub(crate) fn unknown(priority: f64) -> FidelityScore {
    let fit = Fit {
        mapping: 0.0,
        priority,
    };
    with_total(0.0, 0.0, fit)
}

fn with_total(capability_coverage: f64, capability_fidelity: f64, fit: Fit) -> FidelityScore {
    FidelityScore {
        capability_coverage,
        capability_fidelity: Some(capability_fidelity),
        mapping_fidelity: fit.mapping,
        priority: fit.priority,
        total: COVERAGE_WEIGHT * capability_coverage
            + CAPABILITY_WEIGHT * capability_fidelity
            + MAPPING_WEIGHT * fit.mapping
            + PRIORITY_WEIGHT * fit.priority,
    }
}

fn cost(provision: &Provision) -> f64 {
    match provision {
        Provision::Native | Provision::Waived | Provision::Refused { .. } => 0.0,
        Provision::ByBackend { .. } => BACKEND_EMULATION_COST,
        Provision::ByEmulation(EmulationStrategy::SystemPromptInjection { .. }) => PROMPT_COST,
        Provision::ByEmulation(EmulationStrategy::PostProcessing { .. }) => POST_PROCESSING_COST,
        Provision::ByEmulation(EmulationStrategy::Disabled { .. }) => 0.0,
    }
}
