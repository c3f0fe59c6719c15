//! The translation hub: any dialect into any other, with a ledger of what became of every field.
//!
//! A document is parsed onto a tape, read by its dialect into the intermediate representation, made
//! to fit the target's rules ([`prepare`]), and written by the target's dialect. Reader and writer
//! remember what they touched, so the [`Ledger`] is a subtraction: what was not written is missing,
//! whatever the dialects say.

mod accumulate;
mod agent;
mod answer;
mod bytes;
mod check;
mod codecs;
mod embeddings;
mod exchange;
mod ledger;
mod manifest;
mod mint;
mod prepare;
mod read;
mod reasoning;
mod stop;
mod stream;
mod translate;
mod undo;
mod watch;
mod write;

pub use accumulate::Accumulator;
pub use agent::{ContextFile, map_work_order, map_work_order_with, normalized_usage};
pub use answer::map_response;
pub use bytes::{ByteTranslator, translate_stream};
pub use check::TextCheck;
pub use codecs::codec;
pub use embeddings::EmbeddingRequest;
pub use exchange::restore_response;
pub use ledger::{
    Action, BOOKKEEPING, FidelityLevel, KnownLedgers, Ledger, LedgerEntry, LossCount,
    REPEATED_SETTINGS, STRUCTURE, UNEXPLAINED,
};
pub use manifest::manifest;
pub use prepare::prepare;
pub use reasoning::{KeptReasoning, Recovered, kept_reasoning, needed_reasoning, recover};
pub use stream::{StreamEvent, StreamSummary, StreamTranslator};
pub use translate::{
    Options, TranslateError, Translation, read_request, translate_error, translate_request,
    translate_request_with, translate_response, translate_response_with, write_request,
};
pub use undo::{Undo, Undone};
pub use watch::{StreamWatch, usage_of};
pub use write::{write_error, write_interruption, write_response, write_stream};
