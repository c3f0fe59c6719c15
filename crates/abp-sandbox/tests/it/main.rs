//! Real programs in real sandboxes.

#[cfg(test)]
mod sandbox;
