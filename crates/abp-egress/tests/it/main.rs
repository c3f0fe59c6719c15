//! The proxy over real sockets on loopback.

mod denied;
mod http;
mod limits;
mod names;
mod routes;
mod support;
mod tls;
