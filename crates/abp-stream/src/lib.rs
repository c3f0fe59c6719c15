//! Event streams: which events pass, and what they look like when they do.
//!
//! [`Predicate`] selects events, [`Redactor`] takes secrets out of them, and a [`Pipeline`] applies
//! such stages in order. A [`Presenter`] gives one client what it can take, [`Packets`] puts that into
//! packets, [`AgUi`] into events of AG-UI, a [`Transcript`] has its words alone, and an
//! [`EventTail`] holds the newest events for those who follow live. All of it is pure; the streams themselves live in the runtime.

mod agui;
mod filter;
mod packet;
mod pipeline;
mod present;
mod redact;
mod tail;
mod transcript;

pub use agui::{AgUi, Conversation};
pub use filter::Predicate;
pub use packet::Packets;
pub use pipeline::{Pipeline, Stage};
pub use present::{Presented, Presenter, TerminalText, TextForm};
pub use redact::{PieceRedactor, Redactor, names_a_secret};
pub use tail::{EventTail, FollowStep, TailRead};
pub use transcript::Transcript;
