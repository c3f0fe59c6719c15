//! Counting and telling, from outside.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod counting;
#[cfg(test)]
mod telling;
