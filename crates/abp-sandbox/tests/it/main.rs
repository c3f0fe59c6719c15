//! Real programs in real sandboxes.

mod cves;
mod escapes;
mod limits;
mod sandbox;
mod support;
