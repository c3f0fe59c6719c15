//! The embedded model as a gateway sees it.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod asked;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod refused;
#[cfg(test)]
mod support;
