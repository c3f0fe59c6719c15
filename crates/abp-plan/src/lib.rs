//! The plan of a run: negotiated, projected, emulated and lowered before anything happens.
//!
//! [`plan`] is a pure function from a work order and the candidate backends to a [`RunPlan`]. Once
//! the chosen backend is open and its manifest is certain, [`RunPlan::confirm`] repeats the decisions
//! on the real manifest and yields the [`ConfirmedPlan`]. A run can be given nothing else, and nothing
//! but this crate can make one: what was decided here is what is dispatched.
//!
//! [`plan_exchange`] does the same for one request to a model's API.

mod confirm;
mod error;
mod exchange;
mod lower;
mod output;
mod payload;
mod plan;
mod source;
mod writer;

pub use abp_core::PlanReport;
pub use abp_projection::{Candidate, ModelOffer, ServedModels};
pub use abp_translate::ContextFile;
pub use confirm::ConfirmedPlan;
pub use error::PlanError;
pub use exchange::{
    Asked, ExchangeParts, ExchangePlan, ExchangeTarget, plan_exchange, plan_repair,
    reasoning_to_find,
};
pub use payload::Payload;
pub use plan::{ModelTarget, OnLoss, PlanSettings, RunPlan, plan};
