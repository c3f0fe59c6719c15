//! The sidecar's side of the protocol, for authors who write theirs in Rust.
//!
//! [`serve`] says hello, gives each run to a handler, and ends it with what the handler returns. A
//! thread of its own reads the input: pings are answered and cancels heard while the handler works.
//! Standard output belongs to the protocol; print to standard error.
//!
//! ```no_run
//! use abp_core::{AgentEventKind, Capability, SupportLevel};
//! use abp_sidecar_proto::{WorkReport, Hello, serve};
//!
//! let hello = Hello::new("my-agent").can(Capability::Streaming, SupportLevel::Native);
//! serve(&hello, |run| {
//!     let text = format!("You asked: {}", run.order().task);
//!     run.emit(AgentEventKind::AssistantMessage { text })?;
//!     Ok(WorkReport::default())
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod hello;
mod input;
mod output;
mod run;
mod serve;

pub use hello::Hello;
pub use run::{Failure, Run, WorkReport};
pub use serve::serve;
