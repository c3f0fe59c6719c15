//! Tests of the codec through its public interface.

#[cfg(test)]
mod documents;

/// What the tests of documents are about.
#[cfg(test)]
const CODEC: abp_kimi_sdk::KimiCodec = abp_kimi_sdk::KimiCodec;
#[cfg(test)]
const DIALECT: abp_dialect::Dialect = abp_dialect::Dialect::Kimi;
/// The agent of the vendor, whose requests were recorded.
#[cfg(test)]
const AGENT: &str = "kimi-code";
