//! Choosing a backend: every candidate is evaluated, scored and explained.
//!
//! Only a candidate that can do everything required is eligible; there is no "best partial" choice,
//! because that would degrade in silence. A candidate that only demonstrates is chosen where nothing
//! real is eligible. Each candidate carries the reasons for and against it, as sentences.

mod candidate;
mod evaluate;
mod matrix;
mod score;
mod verdict;

pub use abp_core::{CandidateReport, FidelityScore, SelectionReport};
pub use candidate::{Candidate, ModelOffer, ServedModels};
pub use evaluate::{Demands, Evaluation, Provision, SourceRequest};
pub use matrix::{ProjectionError, ProjectionMatrix, ProjectionResult};
