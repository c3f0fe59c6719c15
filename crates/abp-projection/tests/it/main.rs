//! Negotiation, emulation and choice, through their public interfaces.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod documented_api;
#[cfg(test)]
mod negotiation;
#[cfg(test)]
mod selection;
