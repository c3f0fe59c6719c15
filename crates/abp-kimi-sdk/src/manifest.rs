//! What Kimi's models can do when they are asked in this dialect, by family.

use abp_core::Capability::{
    ExtendedThinking, FrequencyPenalty, ImageInput, JsonMode, MaxTokens, PresencePenalty,
    StopSequences, Streaming, SystemMessage, Temperature, ToolUse, ToolWebSearch, TopP,
};
use abp_core::{Capability, CapabilityManifest};
use abp_dialect::{CapabilityGroups, manifest_of};

use crate::wire::Model;

const CHAT: &[Capability] = &[
    Streaming,
    SystemMessage,
    MaxTokens,
    StopSequences,
    ToolUse,
    JsonMode,
];
const SAMPLING: &[Capability] = &[Temperature, TopP, FrequencyPenalty, PresencePenalty];
const IMAGES: &[Capability] = &[ImageInput];
const THINKING: &[Capability] = &[ExtendedThinking];

/// The vendor searches, but the caller has to hand the call back as if it were its result.
const SEARCH: &[Capability] = &[ToolWebSearch];
const SEARCHED: &str = "the caller has to give the call's arguments back as its result";

/// What some models have.
const SOME: CapabilityGroups = &[SAMPLING, IMAGES, THINKING, SEARCH];

/// What a model can do. Where nothing is known of its name, what only some models have is
/// restricted.
#[must_use]
pub fn manifest(model: Option<&str>) -> CapabilityManifest {
    let name = model.unwrap_or_default();
    let sees = name.contains("vision") || name.contains("kimi-latest");
    let has: CapabilityGroups = match Model::of(name) {
        Model::Classic if sees => &[CHAT, SAMPLING, IMAGES],
        Model::Classic => &[CHAT, SAMPLING],
        Model::Thinking => &[CHAT, SAMPLING, THINKING],
        Model::Switchable | Model::Third => &[CHAT, IMAGES, THINKING],
        Model::Other => return manifest_of(&[CHAT], SOME, "nothing is known of this model"),
    };
    manifest_of(has, &[SEARCH], SEARCHED)
}
