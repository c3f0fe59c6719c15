//! OpenAI Responses, the language of Codex, as a dialect of the translation hub.
//!
//! A conversation in this dialect is a list of items: messages, calls, the calls' answers, reasoning.
//! Consecutive items of the model's side are one assistant message in the intermediate
//! representation; each of its blocks keeps the item it came from, so that an unchanged conversation
//! is written back item by item.
//!
//! - `wire`: the vendor's names and words;
//! - `lowering`: requests, answers and errors, both ways;
//! - `stream`: the lifecycle events of a streamed answer, both ways;
//! - `dialect`: [`CodexCodec`], and what the dialect asks of a request.

mod dialect;
mod lowering;
mod manifest;
mod stream;
mod wire;

pub use dialect::CodexCodec;
pub use manifest::manifest;
