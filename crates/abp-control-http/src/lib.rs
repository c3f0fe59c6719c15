//! The control plane behind HTTP: runs, events, approvals, receipts, keys and workspaces.
//!
//! Every address is a row of one table ([`ControlFace::routes`]), which names its method, path, scope, the
//! types of its query, body and answers, and its handler. The rows become routes of the gateway's server,
//! where hosts, origins, keys and body limits are checked first, and the OpenAPI 3.1 document at
//! `/openapi.json`. [`api`] has the documents, for servers and clients alike.
//!
//! Invariants:
//! - A caller learns nothing of runs, approvals, uploads and exchanges of other principals, unless its key
//!   has the scope `admin`: ids of others are answered as ids that nobody has.
//! - A run is durable before its submission is answered.
//! - No reader holds a run back: streams and WebSockets read the journal.
//! - No request names a command, an address to fetch, or a path outside the configured roots.

pub mod api;

mod approvals;
mod blobs;
mod bundle;
mod call;
mod caller;
mod codes;
mod events;
mod face;
mod info;
mod keys;
mod manifest;
mod openapi;
mod query;
mod receipts;
mod runs;
mod submit;
mod summaries;
mod table;
mod traffic;
mod translate;
mod uploads;
mod webhooks;
mod ws;

pub use face::{ControlFace, openapi_document};
pub use submit::idempotency_key;
