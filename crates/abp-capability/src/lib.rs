//! Negotiation: what a work order requires, against what a backend's manifest offers.
//!
//! Classification is that of the capability documentation: native, emulatable (emulated or
//! restricted) or unsupported (also when absent). Whether a requirement's threshold is met is a
//! second question, answered by `abp_projection::Evaluation`, which also knows what ABP can emulate.

mod infer;
mod negotiate;
mod report;

pub use abp_core::NegotiationResult;
pub use infer::infer;
pub use negotiate::{SupportLevel, check_capability, negotiate};
pub use report::{CompatibilityReport, generate_mcp_report, generate_report};
