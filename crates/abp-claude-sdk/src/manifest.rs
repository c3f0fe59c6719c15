//! What Anthropic's models can do when they are asked in this dialect, by family.
//!
//! Batches and whatever else has an endpoint of its own are no part of it. The newest version of
//! the wire takes no parameters of sampling, whichever model is asked.

use abp_core::Capability::{
    CacheControl, CodeExecution, ExtendedThinking, ImageInput, MaxTokens, McpClient, PdfInput,
    StopSequences, Streaming, StructuredOutputJsonSchema, SystemMessage, Temperature, ToolUse,
    ToolWebFetch, ToolWebSearch, TopK, TopP,
};
use abp_core::{Capability, CapabilityManifest};
use abp_dialect::{CapabilityGroups, manifest_of};

use crate::dialect::{ModelTraits, Sampling, ThinkingSupport};

const TEXT: &[Capability] = &[Streaming, SystemMessage, MaxTokens, StopSequences];
const SAMPLING: &[Capability] = &[Temperature, TopP, TopK];
const TOOLS: &[Capability] = &[ToolUse, CacheControl, ImageInput];
const PAPERS: &[Capability] = &[PdfInput];
/// Tools that the vendor carries out.
const HOSTED: &[Capability] = &[ToolWebSearch, ToolWebFetch, CodeExecution];
const THINKING: &[Capability] = &[ExtendedThinking];
const SCHEMA: &[Capability] = &[StructuredOutputJsonSchema];
/// The vendor connects to servers of tools for those who announce that they want it.
const SERVERS: &[Capability] = &[McpClient];

/// What some models have.
const SOME: CapabilityGroups = &[SAMPLING, TOOLS, PAPERS, HOSTED, THINKING, SCHEMA, SERVERS];

/// What a model can do. Where nothing is known of its name, what only some models have is
/// restricted.
#[must_use]
pub fn manifest(model: Option<&str>) -> CapabilityManifest {
    let name = model.unwrap_or_default().replace('.', "-");
    let traits = ModelTraits::of(&name);
    if traits == ModelTraits::of("") {
        return manifest_of(&[TEXT], SOME, "nothing is known of this model");
    }
    match (traits.thinking, traits.sampling) {
        (ThinkingSupport::None, _) => manifest_of(before_thinking(&name), &[], ""),
        (_, Sampling::All) => hosting(&[TEXT, SAMPLING, TOOLS, PAPERS, HOSTED, THINKING]),
        (_, Sampling::One) => hosting(&[TEXT, SAMPLING, TOOLS, PAPERS, HOSTED, THINKING, SCHEMA]),
        (_, Sampling::None) => hosting(&[TEXT, TOOLS, PAPERS, HOSTED, THINKING, SCHEMA]),
    }
}

/// The models that do not reason.
fn before_thinking(name: &str) -> CapabilityGroups {
    if name.contains("claude-3-5") {
        &[TEXT, SAMPLING, TOOLS, PAPERS]
    } else if name.contains("claude-3") {
        &[TEXT, SAMPLING, TOOLS]
    } else {
        &[TEXT, SAMPLING]
    }
}

fn hosting(has: CapabilityGroups) -> CapabilityManifest {
    manifest_of(
        has,
        &[SERVERS],
        "only with the header `anthropic-beta: mcp-client-…`",
    )
}
