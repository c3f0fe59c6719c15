//! Real git on real directories, through the public interface. Cases named after a row of the
//! security checks are the ones that row asks for.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod program;
#[cfg(test)]
mod repository;
