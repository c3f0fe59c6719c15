//! What OpenAI's models can do when they are asked in this dialect, by family.
//!
//! Batches, embeddings and whatever else has an endpoint of its own are no part of it. There are no
//! stop sequences, seeds and penalties in this dialect.

use abp_core::Capability::{
    CacheControl, CodeExecution, ExtendedThinking, ImageGeneration, ImageInput, JsonMode, Logprobs,
    MaxTokens, McpClient, PdfInput, SessionFork, SessionResume, Streaming,
    StructuredOutputJsonSchema, SystemMessage, Temperature, ToolUse, ToolWebSearch, TopP,
};
use abp_core::{Capability, CapabilityManifest};
use abp_dialect::{CapabilityGroups, manifest_of};

/// Any answer can be gone on from, and several times.
const CHAT: &[Capability] = &[
    Streaming,
    SystemMessage,
    MaxTokens,
    SessionResume,
    SessionFork,
];
const SAMPLING: &[Capability] = &[Temperature, TopP, Logprobs];
const TOOLS: &[Capability] = &[ToolUse];
const JSON: &[Capability] = &[JsonMode];
const SCHEMA: &[Capability] = &[JsonMode, StructuredOutputJsonSchema];
const IMAGES: &[Capability] = &[ImageInput];
const MEDIA: &[Capability] = &[ImageInput, PdfInput];
/// Tools that the vendor carries out.
const HOSTED: &[Capability] = &[ToolWebSearch, CodeExecution, McpClient, ImageGeneration];
const THINKING: &[Capability] = &[ExtendedThinking];
const MARKS: &[Capability] = &[CacheControl];

/// Families by the beginning of their names; the first that fits counts.
const FAMILIES: &[(&str, CapabilityGroups)] = &[
    ("gpt-3.5", &[CHAT, SAMPLING, TOOLS, JSON]),
    ("gpt-4o", &[CHAT, SAMPLING, TOOLS, SCHEMA, MEDIA, HOSTED]),
    ("chatgpt-4o", &[CHAT, SAMPLING, IMAGES]),
    ("gpt-4.", &[CHAT, SAMPLING, TOOLS, SCHEMA, MEDIA, HOSTED]),
    ("gpt-4-turbo", &[CHAT, SAMPLING, TOOLS, JSON, IMAGES]),
    ("gpt-4", &[CHAT, SAMPLING, TOOLS]),
    ("o3-mini", &[CHAT, TOOLS, SCHEMA, THINKING]),
    ("o1", &[CHAT, TOOLS, SCHEMA, MEDIA, THINKING]),
    ("o3", &[CHAT, TOOLS, SCHEMA, MEDIA, HOSTED, THINKING]),
    ("o4", &[CHAT, TOOLS, SCHEMA, MEDIA, HOSTED, THINKING]),
    ("codex-", &[CHAT, TOOLS, SCHEMA, MEDIA, THINKING]),
    (
        "gpt-5.6",
        &[CHAT, TOOLS, SCHEMA, MEDIA, HOSTED, THINKING, MARKS],
    ),
    ("gpt-5", &[CHAT, TOOLS, SCHEMA, MEDIA, HOSTED, THINKING]),
];

/// Models of reasoning families that do not reason themselves.
const CHATTING: (&str, CapabilityGroups) =
    ("-chat-latest", &[CHAT, SAMPLING, TOOLS, SCHEMA, IMAGES]);

/// What some models have. A name that is no family's is that of a compatible server's model, and
/// such a server may not keep answers.
const SOME: CapabilityGroups = &[
    &[SessionResume, SessionFork],
    SAMPLING,
    TOOLS,
    SCHEMA,
    MEDIA,
    HOSTED,
    THINKING,
    MARKS,
];

/// What a model can do. Where nothing is known of its name, what only some models have is
/// restricted.
#[must_use]
pub fn manifest(model: Option<&str>) -> CapabilityManifest {
    let name = model.map_or("", plain_name);
    let (word, chatting) = CHATTING;
    if name.contains(word) {
        return manifest_of(chatting, &[], "");
    }
    match family(name) {
        // Since 5.1 reasoning can be turned off.
        Some(has) if name.starts_with("gpt-5.") => manifest_of(
            has,
            &[SAMPLING],
            "only while the effort of reasoning is `none`",
        ),
        Some(has) => manifest_of(has, &[], ""),
        None => manifest_of(
            &[&[Streaming, SystemMessage, MaxTokens]],
            SOME,
            "nothing is known of this model",
        ),
    }
}

/// Whether a model is known to reason: it takes its reasoning back, and no parameters of sampling.
pub(crate) fn reasons(model: &str) -> bool {
    let name = plain_name(model);
    !name.contains(CHATTING.0) && family(name).is_some_and(|has| has.contains(&THINKING))
}

/// A model's name without whose it is.
fn plain_name(model: &str) -> &str {
    let name = model.rsplit('/').next().unwrap_or(model);
    name.strip_prefix("ft:").unwrap_or(name)
}

fn family(name: &str) -> Option<CapabilityGroups> {
    let known = FAMILIES.iter().find(|(start, _)| name.starts_with(start));
    known.map(|(_, has)| *has)
}
