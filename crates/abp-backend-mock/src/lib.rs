//! The embedded backend and the embedded model: they need no key and no network.
//!
//! [`MockBackend`] plays a script. Without one it shows the whole path: it reads the workspace,
//! writes a file through the gate, streams an answer and reports usage. Everything it does goes
//! through the host like any agent's.
//!
//! [`MockModel`] is a model's API that speaks every dialect and gives the same answer to the same
//! request. It repeats what it is told, calls the tools it is told to call, fills in the schemas it
//! is given, and fails the way its name asks for.

mod backend;
mod model;
mod script;

pub use backend::MockBackend;
pub use model::MockModel;
pub use script::{MockScript, Step};
