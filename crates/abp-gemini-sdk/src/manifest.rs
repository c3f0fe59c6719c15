//! What Google's models can do when they are asked in this dialect, by family.
//!
//! Batches, embeddings and whatever else has a method of its own are no part of it. A cache of this
//! vendor is a resource, not a mark in the prompt.

use abp_core::Capability::{
    Audio, CodeExecution, ExtendedThinking, FrequencyPenalty, ImageGeneration, ImageInput,
    JsonMode, Logprobs, MaxTokens, PdfInput, PresencePenalty, SeedDeterminism, StopSequences,
    Streaming, StructuredOutputJsonSchema, SystemMessage, Temperature, ToolUse, ToolWebFetch,
    ToolWebSearch, TopK, TopP,
};
use abp_core::{Capability, CapabilityManifest};
use abp_dialect::{CapabilityGroups, manifest_of};

use crate::dialect::Family;

const TEXT: &[Capability] = &[
    Streaming,
    MaxTokens,
    StopSequences,
    Temperature,
    TopP,
    TopK,
    SeedDeterminism,
];
const CHAT: &[Capability] = &[SystemMessage, ToolUse, JsonMode];
const MEDIA: &[Capability] = &[ImageInput, PdfInput, Audio];
const SCHEMA: &[Capability] = &[StructuredOutputJsonSchema];
/// Tools that the vendor carries out.
const HOSTED: &[Capability] = &[ToolWebSearch, CodeExecution];
const READING: &[Capability] = &[ToolWebFetch];
const THINKING: &[Capability] = &[ExtendedThinking];
const PAINTING: &[Capability] = &[ImageInput, ImageGeneration];

/// What the vendor turns on model by model, and endpoint by endpoint.
const RARE: &[Capability] = &[Logprobs, FrequencyPenalty, PresencePenalty];

/// What some models have.
const SOME: CapabilityGroups = &[
    CHAT, MEDIA, SCHEMA, HOSTED, READING, THINKING, PAINTING, RARE,
];

/// What a model can do. Where nothing is known of its name, what only some models have is
/// restricted.
#[must_use]
pub fn manifest(model: Option<&str>) -> CapabilityManifest {
    let name = model.unwrap_or_default();
    if name.contains("-image") {
        return manifest_of(&[TEXT, PAINTING], &[], "");
    }
    if name.contains("-tts") {
        return manifest_of(&[TEXT, &[Audio]], &[], "");
    }
    let has: CapabilityGroups = match Family::of(model) {
        Family::One => {
            let reason = "its schemas are Google's own, a part of JSON Schema";
            return manifest_of(&[TEXT, CHAT, MEDIA, HOSTED], &[SCHEMA], reason);
        }
        Family::Two => &[TEXT, CHAT, MEDIA, SCHEMA, HOSTED],
        Family::TwoFive | Family::Three => &[TEXT, CHAT, MEDIA, SCHEMA, HOSTED, READING, THINKING],
        Family::Unknown => return manifest_of(&[TEXT], SOME, "nothing is known of this model"),
    };
    manifest_of(has, &[RARE], "not every model and endpoint takes it")
}
