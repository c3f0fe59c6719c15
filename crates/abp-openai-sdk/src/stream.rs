//! Streams of chunks.

mod decoder;
mod encoder;

pub(crate) use decoder::Decoder;
pub(crate) use encoder::Encoder;
