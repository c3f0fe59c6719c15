//! Everything through the public interface. Cases named after a row of the security checks
//! (`b22_…`, `e8_…`) are the ones that row asks for.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod admission;
#[cfg(test)]
mod borders;
#[cfg(test)]
mod canonical;
#[cfg(test)]
mod duplicates;
#[cfg(test)]
mod generate;
#[cfg(test)]
mod pointers;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod writing;
