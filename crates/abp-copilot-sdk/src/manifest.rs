//! What the models behind Copilot can do when they are asked in this dialect, by vendor and family.

use abp_core::Capability::{
    CacheControl, ExtendedThinking, ImageInput, JsonMode, MaxTokens, StopSequences, Streaming,
    StructuredOutputJsonSchema, SystemMessage, Temperature, ToolUse, TopP,
};
use abp_core::{Capability, CapabilityManifest};
use abp_dialect::{CapabilityGroups, manifest_of};

const CHAT: &[Capability] = &[Streaming, SystemMessage, MaxTokens];
const SAMPLING: &[Capability] = &[Temperature, TopP, StopSequences];
const TOOLS: &[Capability] = &[ToolUse];
const SCHEMA: &[Capability] = &[JsonMode, StructuredOutputJsonSchema];
const IMAGES: &[Capability] = &[ImageInput];
const THINKING: &[Capability] = &[ExtendedThinking];
const MARKS: &[Capability] = &[CacheControl];

/// Families by the beginning of their names; the first that fits counts.
const FAMILIES: &[(&str, CapabilityGroups)] = &[
    ("gpt-3.5", &[CHAT, SAMPLING, TOOLS]),
    ("gpt-4o", &[CHAT, SAMPLING, TOOLS, SCHEMA, IMAGES]),
    ("gpt-4.1", &[CHAT, SAMPLING, TOOLS, SCHEMA, IMAGES]),
    ("gpt-4", &[CHAT, SAMPLING, TOOLS]),
    ("gpt-5", &[CHAT, TOOLS, SCHEMA, IMAGES, THINKING]),
    ("o3-mini", &[CHAT, TOOLS, SCHEMA, THINKING]),
    ("o1", &[CHAT, TOOLS, SCHEMA, THINKING]),
    ("o3", &[CHAT, TOOLS, SCHEMA, IMAGES, THINKING]),
    ("o4", &[CHAT, TOOLS, SCHEMA, IMAGES, THINKING]),
    ("claude-3.5", &[CHAT, SAMPLING, TOOLS, IMAGES, MARKS]),
    ("claude", &[CHAT, SAMPLING, TOOLS, IMAGES, THINKING, MARKS]),
    ("gemini", &[CHAT, SAMPLING, TOOLS, IMAGES]),
];

/// What some models have.
const SOME: CapabilityGroups = &[SAMPLING, TOOLS, SCHEMA, IMAGES, THINKING, MARKS];

/// What a model can do. Where nothing is known of its name, what only some models have is
/// restricted.
#[must_use]
pub fn manifest(model: Option<&str>) -> CapabilityManifest {
    let name = model.unwrap_or_default();
    let known = FAMILIES.iter().find(|(start, _)| name.starts_with(start));
    match known {
        Some((_, has)) => manifest_of(has, &[], ""),
        None => manifest_of(&[CHAT], SOME, "nothing is known of this model"),
    }
}
