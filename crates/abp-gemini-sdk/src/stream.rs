//! Streams: every event is an answer of its own that holds the next piece.

mod decoder;
mod encoder;

pub(crate) use decoder::GeminiDecoder;
pub(crate) use encoder::GeminiEncoder;
