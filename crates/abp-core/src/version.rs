//! The version of the contract.

/// The contract version this crate implements; part of every receipt and wire handshake.
pub const CONTRACT_VERSION: &str = "abp/v0.1";
