//! OpenAI Chat Completions, and what its relatives share with it.
//!
//! Kimi, Copilot and hundreds of compatible servers speak this language with small differences. The
//! differences are values of a [`Flavour`]; [`ChatCodec`] reads and writes any of them, and
//! [`OpenAiCodec`] is the one that OpenAI itself speaks. Reading is generous to all of them: whatever
//! a compatible server adds is either understood or reported by its name.

mod dialect;
mod lowering;
mod manifest;
mod stream;
pub mod wire;

pub use dialect::{ChatCodec, Flavour, ModelFamily, OPENAI, OpenAiCodec, ReasoningForm};
pub use manifest::manifest;
