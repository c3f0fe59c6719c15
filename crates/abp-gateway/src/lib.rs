//! The gateway: vendors' own requests in front of any upstream.
//!
//! An [`Ask`] is a vendor's request as its route received it. Where an upstream speaks the caller's
//! dialect its bytes pass untouched; otherwise the exchange is planned, translated and, on the way
//! back, translated again, piece by piece where it is streamed. Whatever happens, the caller gets an
//! [`Answer`] in its own dialect, its headers say what was done, and a record of it is kept.
//!
//! - [`Gateway::exchange`] carries out one exchange: allowed, reserved, routed, sent, answered, recorded.
//! - [`Principal`] is who asks: a key with its models, rates and budgets.
//! - [`UpstreamRules`] are the operator's words about an upstream.
//! - [`exchange_receipt`] makes the receipt of a recorded exchange.

mod admission;
mod apart;
mod ask;
mod count;
mod dispatch;
mod gateway;
mod headers;
mod health;
mod keep;
mod ledgers;
mod listing;
mod lock;
mod other;
mod pool;
mod principal;
mod receipt;
mod refusal;
mod route;
mod scan;
mod spend;
mod stored;
mod stream;
mod tally;
mod traced;
mod unfinished;
mod watch;
mod whole;

pub use abp_backend_core::CircuitState;
pub use abp_core::CONTRACT_VERSION;
pub use abp_store::{KeyScope, StoreState};
pub use admission::{Admission, RequestPlace};
pub use ask::{Answer, AnswerBody, AnswerParts, Ask};
pub use gateway::{
    Gateway, GatewaySettings, ServedModel, UpstreamStatus, UpstreamUpdate, current_time,
};
pub use headers::{CONSUMED, FORWARDED};
pub use other::OtherAsk;
pub use principal::{CallerKeys, Principal, key_hash};
pub use receipt::exchange_receipt;
pub use refusal::Refusal;
pub use route::UpstreamRules;
pub use stream::{AnswerStream, BrokenOff};
pub use watch::EndedExchange;
