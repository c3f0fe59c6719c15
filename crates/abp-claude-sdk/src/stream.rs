//! Answers piece by piece.

mod decoder;
mod encoder;
mod events;
mod held;
mod waiting;

pub(crate) use decoder::ClaudeDecoder;
pub(crate) use encoder::ClaudeEncoder;
