//! Real programs in real sandboxes.

mod sandbox;
