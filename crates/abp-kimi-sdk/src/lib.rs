//! Kimi (Moonshot) chat completions: what they have that OpenAI's have not.
//!
//! The common part is read and written by `abp-openai-sdk`; this crate gives it Kimi's flavour, and
//! makes a conversation fit what Kimi's models insist on before it is written: reasoning beside
//! every call, ids in the models' own form, media that Kimi can open.

mod dialect;
mod lowering;
mod manifest;
mod wire;

pub use dialect::KimiCodec;
pub use manifest::manifest;
