//! The dialect through its public interface, on recorded traffic, on our own samples and on
//! documents that are wrong.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod documents;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod streams;
