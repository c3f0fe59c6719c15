//! What OpenAI's models can do when they are asked in this dialect, by family.
//!
//! Batches, embeddings and whatever else has an endpoint of its own are no part of it.

use abp_core::Capability::{
    Audio, CacheControl, ExtendedThinking, FrequencyPenalty, ImageInput, JsonMode, Logprobs,
    MaxTokens, PdfInput, PresencePenalty, SeedDeterminism, StopSequences, Streaming,
    StructuredOutputJsonSchema, SystemMessage, Temperature, ToolUse, ToolWebSearch, TopP,
};
use abp_core::{Capability, CapabilityManifest};
use abp_dialect::{CapabilityGroups, manifest_of};

const CHAT: &[Capability] = &[Streaming, SystemMessage, MaxTokens];
const SAMPLING: &[Capability] = &[
    Temperature,
    TopP,
    FrequencyPenalty,
    PresencePenalty,
    Logprobs,
];
const SEED: &[Capability] = &[SeedDeterminism];
const STOP: &[Capability] = &[StopSequences];
const TOOLS: &[Capability] = &[ToolUse];
const JSON: &[Capability] = &[JsonMode];
const SCHEMA: &[Capability] = &[JsonMode, StructuredOutputJsonSchema];
const IMAGES: &[Capability] = &[ImageInput];
const MEDIA: &[Capability] = &[ImageInput, PdfInput];
const SOUND: &[Capability] = &[Audio];
const SEARCH: &[Capability] = &[ToolWebSearch];
const THINKING: &[Capability] = &[ExtendedThinking];
const MARKS: &[Capability] = &[CacheControl];

/// Families by the beginning of their names; the first that fits counts.
const FAMILIES: &[(&str, CapabilityGroups)] = &[
    ("gpt-3.5", &[CHAT, SAMPLING, SEED, STOP, TOOLS, JSON]),
    ("gpt-4o-audio", &[CHAT, SAMPLING, SEED, STOP, TOOLS, SOUND]),
    (
        "gpt-4o-mini-audio",
        &[CHAT, SAMPLING, SEED, STOP, TOOLS, SOUND],
    ),
    ("gpt-4o-search", &[CHAT, SCHEMA, SEARCH]),
    ("gpt-4o-mini-search", &[CHAT, SCHEMA, SEARCH]),
    (
        "gpt-4o",
        &[CHAT, SAMPLING, SEED, STOP, TOOLS, SCHEMA, MEDIA],
    ),
    ("chatgpt-4o", &[CHAT, SAMPLING, SEED, STOP, IMAGES]),
    (
        "gpt-4.",
        &[CHAT, SAMPLING, SEED, STOP, TOOLS, SCHEMA, MEDIA],
    ),
    (
        "gpt-4-turbo",
        &[CHAT, SAMPLING, SEED, STOP, TOOLS, JSON, IMAGES],
    ),
    ("gpt-4-vision", &[CHAT, SAMPLING, SEED, STOP, IMAGES]),
    ("gpt-4-1106", &[CHAT, SAMPLING, SEED, STOP, TOOLS, JSON]),
    ("gpt-4-0125", &[CHAT, SAMPLING, SEED, STOP, TOOLS, JSON]),
    ("gpt-4", &[CHAT, SAMPLING, SEED, STOP, TOOLS]),
    ("o1-mini", &[&[Streaming, MaxTokens], THINKING]),
    ("o1-preview", &[&[Streaming, MaxTokens], THINKING]),
    ("o1", &[CHAT, SEED, STOP, TOOLS, SCHEMA, MEDIA, THINKING]),
    ("o3-mini", &[CHAT, SEED, STOP, TOOLS, SCHEMA, THINKING]),
    ("o3", &[CHAT, SEED, TOOLS, SCHEMA, MEDIA, THINKING]),
    ("o4", &[CHAT, SEED, TOOLS, SCHEMA, MEDIA, THINKING]),
    (
        "gpt-5.6",
        &[CHAT, SEED, TOOLS, SCHEMA, MEDIA, THINKING, MARKS],
    ),
    ("gpt-5", &[CHAT, SEED, TOOLS, SCHEMA, MEDIA, THINKING]),
];

/// Models of reasoning families that do not reason themselves.
const CHATTING: (&str, CapabilityGroups) = (
    "-chat-latest",
    &[CHAT, SAMPLING, SEED, STOP, TOOLS, SCHEMA, IMAGES],
);

/// What some models have. A name that is no family's is that of a compatible server's model.
const SOME: CapabilityGroups = &[
    SAMPLING, SEED, STOP, TOOLS, SCHEMA, MEDIA, SOUND, SEARCH, THINKING, MARKS,
];

/// What a model can do. Where nothing is known of its name, what only some models have is
/// restricted.
#[must_use]
pub fn manifest(model: Option<&str>) -> CapabilityManifest {
    let name = model.and_then(|model| model.rsplit('/').next());
    let name = name.map_or("", |name| name.strip_prefix("ft:").unwrap_or(name));
    let (word, chatting) = CHATTING;
    if name.contains(word) {
        return manifest_of(chatting, &[], "");
    }
    let known = FAMILIES.iter().find(|(start, _)| name.starts_with(start));
    match known {
        // Since 5.1 reasoning can be turned off.
        Some((_, has)) if name.starts_with("gpt-5.") => manifest_of(
            has,
            &[SAMPLING],
            "only while the effort of reasoning is `none`",
        ),
        Some((_, has)) => manifest_of(has, &[], ""),
        None => manifest_of(&[CHAT], SOME, "nothing is known of this model"),
    }
}
