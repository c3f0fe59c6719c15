//! Everything through the public interface. Cases named after a row of the security checks
//! (`e1_…`, `e18_…`) are the ones that row asks for.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod checkpoints;
#[cfg(test)]
mod export;
#[cfg(test)]
mod garbage;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod log;
#[cfg(test)]
mod merkle;
#[cfg(test)]
mod receipts;
#[cfg(test)]
mod trace;
#[cfg(test)]
mod verdict;
#[cfg(test)]
mod world;
