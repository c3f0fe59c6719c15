//! GitHub Copilot's chat completions: what they have that OpenAI's have not.
//!
//! The common part is read and written by `abp-openai-sdk`; this crate gives it Copilot's flavour.
//! Copilot stands before models of several vendors, answers with parts of one answer in several
//! choices, and adds members and events of its own.

mod dialect;
mod manifest;
mod stream;
mod wire;

pub use dialect::CopilotCodec;
pub use manifest::manifest;
