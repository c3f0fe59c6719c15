//! One backend, several runs.

#[cfg(test)]
mod breaker;
