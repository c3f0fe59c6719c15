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

#[cfg(test)]
mod tests {
    use abp_core::SupportLevel;

    use super::*;

    /// A model, what it has, and what it lacks or has under a condition only.
    const CASES: &str = "
        | streaming tool_use | extended_thinking temperature
        kimi-next | json_mode | image_input
        moonshot-v1-32k | temperature tool_use | image_input extended_thinking
        moonshot-v1-8k-vision-preview | image_input | extended_thinking
        moonshotai/kimi-k2-0905-preview | presence_penalty | image_input
        kimi-k2-thinking-turbo | extended_thinking | image_input tool_web_search
        kimi-k2.6 | extended_thinking image_input | temperature
        kimi-k3 | extended_thinking image_input | top_p
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
