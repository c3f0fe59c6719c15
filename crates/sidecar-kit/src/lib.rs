//! Talking to a program over its standard streams, one JSON object per line, and leaving nothing of
//! it behind.
//!
//! The kit knows frames, not what is in them: payloads are JSON values, so that any protocol of this
//! shape can use it.
//!
//! - [`Frame`] lists the messages, [`Decoder`] cuts bytes into lines within a limit.
//! - [`session::Session`] is the protocol without any I/O: what may come when, and until when.
//! - [`SidecarProcess`] starts a program so that no descendant of it outlives it, or us.
//! - [`SidecarClient`] puts the three together; a run is a [`RawRun`].

mod client;
mod codec;
mod driver;
mod error;
mod frame;
mod launcher;
mod process;
pub mod procfs;
mod program;
mod run;
pub mod session;
mod stderr;
mod writer;

pub use client::{Connection, Settings, SidecarClient};
pub use codec::{CodecError, DEFAULT_MAX_LINE, Decoder, Lines};
pub use error::{Fault, SpawnError};
pub use frame::{Decoded, EventLine, Frame, FrameError, HelloFrame, decode};
pub use launcher::run_if_launcher;
pub use process::{
    Concealment, Containment, Exit, Launcher, Pipes, ProcessSpec, ResourceLimits, SidecarProcess,
};
pub use program::{ProgramError, SearchPath};
pub use run::{CancelToken, EventBatch, RawRun, RunReport};
