//! The proxy over real sockets on loopback.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod denied;
#[cfg(test)]
mod http;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod names;
#[cfg(test)]
mod routes;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tls;
