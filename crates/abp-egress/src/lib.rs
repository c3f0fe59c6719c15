//! The egress proxy: the only way out of a sandbox's network namespace.
//!
//! The namespace has no interface but loopback. Its init listens there and hands the listening
//! descriptor to the host, where [`EgressProxy`] accepts the connections and judges each of them by
//! [`EgressRules`]. Agents reach it as an HTTP proxy (`HTTP_PROXY`, `HTTPS_PROXY`) and, for targets that
//! need a credential, by a [`Route`] such as `http://127.0.0.1:PORT/registry/`.
//!
//! Invariants:
//! - Nothing that is not listed is reached: an empty `allow_network` denies everything.
//! - A host is judged in one spelling, resolved once, every resolved address is judged, and exactly
//!   one of these addresses is dialed.
//! - TLS is not intercepted. The server name of the ClientHello must be the host of the CONNECT
//!   request; with an encrypted ClientHello that is the outer name.
//! - Credentials are put in on the host side, for the one target of their route, and are dropped from
//!   the answer where the target sends them back in plain text.
//! - Every connection or request becomes exactly one [`EgressEvent`], also when it is aborted. Reading
//!   events slowly never slows the proxy down; lost events are counted.

mod address;
mod body;
mod classify;
mod connection;
mod dial;
mod event;
mod forward;
mod head_scan;
mod headers;
mod hello;
mod limits;
mod proxy;
mod relay;
mod resolve;
mod route;
mod route_path;
mod rules;
mod tls;
mod tunnel;

pub use event::{
    EgressEvent, EgressEvents, EgressKind, EgressOutcome, EgressReport, EgressRule, EgressVerdict,
};
pub use limits::EgressLimits;
pub use proxy::{EgressError, EgressOptions, EgressProxy};
pub use resolve::Resolver;
pub use route::{Route, RouteCredential, RouteError};
pub use rules::EgressRules;
