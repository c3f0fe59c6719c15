//! What clients get.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod blocks;
#[cfg(test)]
mod images;
#[cfg(test)]
mod markdown;
#[cfg(test)]
mod spec;
#[cfg(test)]
mod text;
