//! The contract, as documents: what is read, what is written, what is hashed.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod capabilities;
#[cfg(test)]
mod client;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod hashes;
