//! Models behind HTTP: a vendor's API as an upstream, and any upstream as a backend.
//!
//! [`HttpUpstream`] sends a vendor's bytes to a vendor and hands the answer on as it comes. It never
//! looks into either: it adds the address, the credentials and four time-outs, and keeps away what
//! belongs to a connection. [`ModelBackend`] carries out a work order on any upstream: it asks for a
//! stream and tells what comes as events of a run.

mod address;
mod body;
mod connect;
mod credential;
mod deadline;
mod headers;
mod message;
mod model;
mod pool;
mod post;
mod proxy;
mod service_account;
mod sigv4;
mod spec;
mod tls;
mod token;
mod upstream;

pub use credential::UpstreamAuth;
pub use model::ModelBackend;
pub use proxy::ProxyAddress;
pub use spec::{HttpUpstreamSpec, Timeouts};
pub use token::KeyCommand;
pub use upstream::HttpUpstream;
