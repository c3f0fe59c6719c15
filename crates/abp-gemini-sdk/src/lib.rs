//! Gemini `generateContent` as a dialect of the translation hub.
//!
//! [`GeminiCodec`] reads and writes requests, answers, errors and streams. What is peculiar to this
//! vendor, and where it lives:
//!
//! - `wire`: names and words. Members are accepted in lower camel case and in snake case, as
//!   protobuf's JSON mapping asks for, and written in lower camel case.
//! - `schema`: tools and answers are described by JSON Schema on newer models and by a smaller
//!   language of Google's own on older ones; both directions are rewritten here.
//! - `grounding`: sources are named apart from the text, by offsets in UTF-8 bytes.
//! - The model and the choice between one answer and a stream are part of the address, not of the
//!   request.
//! - A stream consists of whole answers, each with the next piece; calls are never cut.

mod dialect;
mod grounding;
mod lowering;
mod manifest;
mod schema;
mod stream;
pub mod wire;

pub use dialect::GeminiCodec;
pub use manifest::manifest;
