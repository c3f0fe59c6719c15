//! Everything through the public interface.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod support;
