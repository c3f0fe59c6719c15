//! Labelled emulation of capabilities a backend does not have.
//!
//! Nothing is emulated in silence: [`EmulationEngine::apply`] returns a report of what it did and of
//! what it could not do, and that report is part of the receipt. Strategies that work on the answer
//! are carried out by [`PostProcessor`].

mod engine;
mod post;

pub use abp_core::{EmulationEntry, EmulationReport, EmulationStrategy};
pub use engine::{
    EmulationConfig, EmulationEngine, apply_emulation, can_emulate, default_strategy,
};
pub use post::{PostError, PostProcessor};
