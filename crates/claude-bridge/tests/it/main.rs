//! The bridge with a host that stands in for Claude's, as a real process.

#[cfg(test)]
mod print;
