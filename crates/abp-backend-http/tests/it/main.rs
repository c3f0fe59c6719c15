//! Models behind HTTP, through the public interface, against a fake vendor.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod auth;
#[cfg(test)]
mod content;
#[cfg(test)]
mod exchange;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod model;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod session;
#[cfg(test)]
mod support;
#[cfg(test)]
mod timeouts;
#[cfg(test)]
mod tls;
