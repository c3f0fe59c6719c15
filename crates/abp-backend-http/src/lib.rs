//! Models behind HTTP: a vendor's API as an upstream, and any upstream as a backend.
//!
//! [`HttpUpstream`] sends a vendor's bytes to a vendor and hands the answer on as it comes. It never
//! looks into either: it adds the address, the credentials and four time-outs, and keeps away what
//! belongs to a connection. [`ModelBackend`] carries out a work order on any upstream: it asks for a
//! stream and tells what comes as events of a run.

mod address;
mod body;
mod connect;
mod deadline;
mod headers;
mod message;
mod model;
mod pool;
mod post;
mod spec;
mod tls;
mod upstream;

pub use model::ModelBackend;
pub use spec::{HttpUpstreamSpec, Timeouts};
pub use upstream::HttpUpstream;
