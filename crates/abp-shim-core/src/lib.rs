//! What the clients of all vendors share: a way to the gateway, answers, errors and streams.
//!
//! A shim knows its vendor's documents and addresses; everything between them and the bytes is here,
//! once, instead of in every shim:
//!
//! - [`Transport`] sends an [`ApiCall`] to a gateway in this process, or to a daemon over HTTP;
//! - [`ApiReply`] is an answer, [`ApiStream`] one that comes in pieces; both tell what the gateway
//!   did ([`AbpInfo`]);
//! - [`Error`] is every way in which there is none.
//!
//! Invariants:
//! - A stream ends in an error unless it told of its end, however it broke.
//! - Dropping a call or a stream ends the exchange. There are no time-outs besides that of
//!   connecting: whoever waits knows how long, and drops what takes longer.
//! - Nothing is retried: the gateway does that, and knows what has been sent.

mod call;
mod error;
mod http;
mod info;
mod reply;
mod stream;
mod transport;

pub use abp_backend_core::{ModelOperation, StoredAction};
pub use abp_dialect::Dialect;
pub use abp_gateway::{Gateway, Principal, ServedModel};
pub use abp_plan::OnLoss;
pub use abp_translate::FidelityLevel;
pub use call::{ApiCall, segment};
pub use error::{ApiError, Error, TransportError, Unexpected};
pub use http::{HttpForm, KeyHeader};
pub use info::AbpInfo;
pub use reply::ApiReply;
pub use stream::{ApiStream, OpenAnswers, StreamReader, StreamStep, Unreadable, read_json};
pub use transport::Transport;
