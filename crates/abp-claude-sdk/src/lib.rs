//! Anthropic Messages as a dialect of the translation hub.
//!
//! - `wire`: the vendor's words;
//! - `lowering`: requests, answers and errors, to the representation and back;
//! - `stream`: answers piece by piece;
//! - `dialect`: what the vendor asks of requests, by model and by version of the wire.
//!
//! What sets this dialect apart: instructions stand outside the conversation (newer models also take
//! them within), the answers to all calls of a turn travel in one message of the user, reasoning is
//! signed and taken back only as it was given, cached tokens are not counted as input, and the blocks
//! of a stream come strictly one after the other.

mod dialect;
mod lowering;
mod manifest;
mod stream;
pub mod wire;

pub use dialect::ClaudeCodec;
pub use manifest::manifest;
