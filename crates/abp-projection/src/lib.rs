//! Choosing a backend: every candidate is evaluated, scored and explained.
//!
//! Only a candidate that can do everything required is eligible; there is no "best partial" choice,
//! because that would degrade in silence. Each candidate carries the reasons for and against it.

mod evaluate;
mod matrix;
mod score;

pub use abp_core::{CandidateReport, FidelityScore, SelectionReport};
pub use evaluate::{Demands, Evaluation, Provision};
pub use matrix::{Candidate, ProjectionError, ProjectionMatrix, ProjectionResult};
