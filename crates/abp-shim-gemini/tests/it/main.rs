//! The client on both ways, the examples as they are handed out, and the types against the vendor's
//! documents.

#[cfg(test)]
mod api;
#[cfg(test)]
#[path = "../../../abp-shim-core/tests/it/daemon.rs"]
mod daemon;
#[cfg(test)]
#[path = "../../../abp-shim-core/tests/it/documents.rs"]
mod documents;
#[cfg(test)]
#[path = "../../../abp-shim-openai/tests/it/examples.rs"]
mod examples;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod wire;
