//! The backend over a sidecar: a program in any language that speaks the sidecar protocol.
//!
//! Opening it starts the program and reads its hello; the run is given to it only after the plan was
//! confirmed on what it really is. One process serves one run. What the program says about its own
//! work is a claim: events, timing, changes and hashes are the host's own.

mod backend;
mod breaker;
mod connections;
mod delivery;
mod models;
mod quota;
mod secrets;
mod session;

pub use backend::SidecarBackend;
pub use breaker::{Breaker, BreakerState};
pub use connections::Connections;
pub use delivery::{check_deliverable, conversation_of, deliver_emulations};
pub use quota::outgrown;
pub use secrets::Secrets;
