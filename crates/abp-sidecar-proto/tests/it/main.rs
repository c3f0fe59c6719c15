//! The examples as real processes, spoken to line by line.

#[cfg(test)]
mod examples;
