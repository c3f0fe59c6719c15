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

#[cfg(test)]
mod tests {
    use abp_core::SupportLevel;

    use super::*;

    /// A model, what it has, and what it lacks or has under a condition only.
    const CASES: &str = "
        | streaming | tool_use
        raptor-mini | system_message | image_input
        gpt-3.5-turbo | tool_use | image_input
        gpt-4 | temperature | structured_output_json_schema
        gpt-4o-2024-11-20 | image_input structured_output_json_schema | extended_thinking
        gpt-4.1 | image_input | cache_control
        gpt-5-mini | extended_thinking | temperature
        o1 | extended_thinking | image_input
        o3-mini | tool_use | image_input
        o3 | image_input | top_p
        o4-mini | image_input | top_p
        claude-3.5-sonnet | cache_control image_input | extended_thinking
        claude-sonnet-4.5 | extended_thinking cache_control | structured_output_json_schema
        gemini-2.5-pro | tool_use image_input | cache_control
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
