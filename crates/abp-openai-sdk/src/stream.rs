//! Streams of chunks.

mod choice;
mod chunk;
mod decoder;
mod encoder;

pub(crate) use decoder::Decoder;
pub(crate) use encoder::Encoder;
