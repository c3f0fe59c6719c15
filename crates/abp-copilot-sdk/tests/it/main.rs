//! Tests of the codec through its public interface.

#[cfg(test)]
#[path = "../../../abp-kimi-sdk/tests/it/documents.rs"]
mod documents;

/// What the tests of documents are about.
#[cfg(test)]
const CODEC: abp_copilot_sdk::CopilotCodec = abp_copilot_sdk::CopilotCodec;
#[cfg(test)]
const DIALECT: abp_dialect::Dialect = abp_dialect::Dialect::Copilot;
/// The agent of the vendor, whose requests were recorded.
#[cfg(test)]
const AGENT: &str = "copilot";
