//! The embedded backend: plays a script, needs no key and no network.
//!
//! Without a script it shows the whole path: it reads the workspace, writes a file through the gate,
//! streams an answer and reports usage. Everything it does goes through the host like any agent's.

mod backend;
mod script;

pub use backend::MockBackend;
pub use script::{MockScript, Step};
