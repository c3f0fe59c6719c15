//! The lifecycle events of a streamed answer, both ways.

mod decoder;
mod encoder;
mod origins;
mod output;
mod slot;

pub(crate) use decoder::Decoder;
pub(crate) use encoder::Encoder;
