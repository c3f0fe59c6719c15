//! Runs, through the public interface of the runtime.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod bench;
#[cfg(test)]
mod candidates;
#[cfg(test)]
mod deciding;
#[cfg(test)]
mod ends;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod outcomes;
#[cfg(test)]
mod pipeline;
#[cfg(test)]
mod streams;
