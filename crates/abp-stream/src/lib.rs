//! Event streams: which events pass, and what they look like when they do.
//!
//! [`Predicate`] selects events, [`Redactor`] takes secrets out of them, and a [`Pipeline`] applies
//! such stages in order. All of it is pure; the streams themselves live in the runtime.

mod filter;
mod pipeline;
mod redact;

pub use filter::Predicate;
pub use pipeline::{Pipeline, Stage};
pub use redact::Redactor;
