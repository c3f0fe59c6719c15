//! Everything through the public interface. Cases named after a row of the security checks
//! (`b9_…`) are the ones that row asks for.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod broken;
#[cfg(test)]
mod directories;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod safety;
#[cfg(test)]
mod shape;
