//! Answers piece by piece.

mod decoder;
mod encoder;
mod held;
mod waiting;

pub(crate) use decoder::ClaudeDecoder;
pub(crate) use encoder::ClaudeEncoder;
