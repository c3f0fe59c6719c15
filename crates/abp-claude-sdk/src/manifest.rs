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

#[cfg(test)]
mod tests {
    use abp_core::SupportLevel;

    use super::*;

    /// A model, what it has, and what it lacks or has under a condition only.
    const CASES: &str = "
        | streaming system_message | tool_use extended_thinking
        claude-next | stop_sequences | structured_output_json_schema
        claude-2.1 | temperature | tool_use image_input
        claude-3-haiku-20240307 | tool_use image_input top_k | pdf_input extended_thinking
        anthropic/claude-3.5-haiku | pdf_input | extended_thinking
        claude-3-7-sonnet | extended_thinking tool_web_search | structured_output_json_schema
        claude-sonnet-4-20250514 | code_execution top_k | structured_output_json_schema
        us.anthropic.claude-opus-4-1-v1:0 | structured_output_json_schema temperature | mcp_client
        claude-haiku-4-5 | cache_control temperature | mcp_client
        claude-opus-4-7 | extended_thinking structured_output_json_schema | temperature top_p
        claude-fable-5 | tool_web_fetch | top_k
    ";

    #[test]
    fn families_by_name() {
        for line in CASES.lines().filter(|line| line.contains('|')) {
            let mut columns = line.split('|').map(str::trim);
            let mut column = || columns.next().unwrap();
            let (model, has, lacks) = (column(), column(), column());
            let manifest = manifest((!model.is_empty()).then_some(model));
            let native = |name| {
                let one = Capability::from_wire(name);
                assert!(Capability::KNOWN.contains(&one), "{name}");
                manifest.get(&one) == Some(&SupportLevel::Native)
            };
            for name in has.split(' ') {
                assert!(native(name), "{model} has {name}");
            }
            for name in lacks.split(' ') {
                assert!(!native(name), "{model} has no {name}");
            }
        }
    }
}
