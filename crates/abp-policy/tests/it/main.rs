//! The engine through its public interface.
//!
//! The module says `cfg(test)` for clippy, which otherwise takes its helpers for library code.

#[cfg(test)]
mod decisions;
#[cfg(test)]
mod hosts;
#[cfg(test)]
mod reasons;
