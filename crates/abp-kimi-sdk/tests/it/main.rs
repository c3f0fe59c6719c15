//! Tests of the codec through its public interface.

#[cfg(test)]
mod documents;
