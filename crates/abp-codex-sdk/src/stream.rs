//! The lifecycle events of a streamed answer, both ways.

mod decoder;
mod encoder;
mod output;

pub(crate) use decoder::Decoder;
pub(crate) use encoder::Encoder;
