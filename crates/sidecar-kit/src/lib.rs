//! Talking to a program over its standard streams, one JSON object per line, and leaving nothing of
//! it behind.
//!
//! The kit knows frames, not what is in them: payloads are JSON values, so that any protocol of this
//! shape can use it.
//!
//! - [`Frame`] lists the messages, [`Decoder`] cuts bytes into lines within a limit.
//! - [`session::Session`] is the protocol without any I/O: what may come when, and until when.
//! - [`SidecarClient`] puts them together with a [`ContainedProcess`](abp_sandbox::ContainedProcess); a
//!   run is a [`RawRun`].

mod client;
mod codec;
mod driver;
mod error;
mod frame;
mod run;
pub mod session;
mod stderr;
mod writer;

pub use client::{Connection, Settings, SidecarClient};
pub use codec::{CodecError, DEFAULT_MAX_LINE, Decoder, Lines};
pub use error::Fault;
pub use frame::{
    Decoded, EventLine, Frame, FrameError, HelloFrame, PermissionRequest, PermissionResponse,
    decode,
};
pub use run::{BatchItem, CancelToken, EventBatch, RawRun, RunReport};
pub use stderr::Stderr;
