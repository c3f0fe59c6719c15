//! The crate through its public interface, on the tables and transcripts in `fixtures/mcp`,
//! and what `docs/mcp.md` says of it.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod capabilities;
#[cfg(test)]
mod documented;
#[cfg(test)]
mod emulation;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod gate;
#[cfg(test)]
mod gateway;
#[cfg(test)]
mod headers;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod negotiation;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod rounds;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod support;
#[cfg(test)]
mod transcripts;
#[cfg(test)]
mod upstreams;
#[cfg(test)]
mod versions;
