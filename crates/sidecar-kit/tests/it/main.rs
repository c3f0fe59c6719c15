//! The client without a process.

#[cfg(test)]
mod memory;
