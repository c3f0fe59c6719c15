//! What the six vendor dialects have in common.
//!
//! A dialect is a vendor's language for requests, answers and streams. This crate names them
//! ([`Dialect`]), recognises them ([`DialectDetector`]), checks their documents
//! ([`DialectValidator`]) and holds what every dialect is built with:
//!
//! - [`Reader`]: reads a tape into the intermediate representation and remembers what was read;
//! - [`Lowering`]: writes the target's JSON and remembers what became of what was read;
//! - [`Codec`]: the four directions of a dialect, and its streams;
//! - [`sse`]: server-sent events, byte by byte.
//!
//! Reader and lowering together know, without asking the dialect, which parts of a source did not
//! arrive: whatever was never written. A dialect can only explain such a loss, not hide it.

mod codec;
mod detect;
mod dialect;
mod error;
mod event;
mod lowering;
mod manifest;
mod reader;
mod rules;
pub mod sse;
mod validate;

pub use codec::{
    Codec, Exchange, Expected, MAX_OPEN_BLOCKS, StreamDecoder, StreamEncoder, TargetProfile,
};
pub use detect::{Detection, DetectionReason, DialectDetector, DocumentKind, Signals};
pub use dialect::{Dialect, UnknownDialect, WireFamily};
pub use error::DialectError;
pub use event::{EventSink, WrittenEvent};
pub use lowering::{Fate, How, JsonValue, Lowering, Made, Mark, Note};
pub use manifest::{CapabilityGroups, manifest_of};
pub use reader::{Item, Reader, Seen, UNEXPECTED_TYPE};
pub use rules::{DialectRules, IdRule, MidSystem, NameRule};
pub use validate::{DialectValidator, Issue, IssueProblem, IssueSeverity};
