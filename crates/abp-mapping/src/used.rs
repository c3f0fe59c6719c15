//! The features that a conversation makes use of.

use std::collections::BTreeSet;

use abp_core::ir::{
    IrBlock, IrContentBlock, IrConversation, IrMedia, IrMediaData, IrResponseFormatKind, IrRole,
    IrSettings, IrToolChoiceMode, IrToolDefinition, IrToolKind, IrVendorField,
};

use crate::Feature;

/// Fields by which vendors mark or name what they cached.
const CACHE_FIELDS: [&str; 2] = ["cache_control", "cachedContent"];
/// Fields by which a vendor is told to go on with a conversation that it stores.
const STORED_FIELDS: [&str; 2] = ["previous_response_id", "conversation"];
/// A setting that is a tool of the vendor's own.
const SEARCH_FIELD: &str = "web_search_options";

/// The features that a request uses. Only these matter when it is carried to another dialect.
#[must_use]
pub fn features_of(conversation: &IrConversation) -> BTreeSet<Feature> {
    let mut used = BTreeSet::new();
    add_settings(&conversation.settings, &mut used);
    for tool in &conversation.tools {
        used.insert(feature_of_tool(tool));
        add_fields(&tool.vendor, &mut used);
    }
    for message in &conversation.messages {
        if matches!(message.role, IrRole::System | IrRole::Developer) {
            used.insert(Feature::SystemPrompt);
        }
        add_fields(&message.vendor, &mut used);
        for block in &message.content {
            add_block(block, &mut used);
        }
    }
    used
}

fn add_settings(settings: &IrSettings, used: &mut BTreeSet<Feature>) {
    let format = settings.response_format.as_ref();
    let several = |count: &abp_core::ir::RawJson| count.as_u64() != Some(1);
    let asked = [
        (
            format.is_some_and(|one| matches!(one.kind, IrResponseFormatKind::JsonSchema { .. })),
            Feature::StructuredOutput,
        ),
        (
            settings.stream.as_ref().is_some_and(|stream| stream.value),
            Feature::Streaming,
        ),
        (settings.stop.is_some(), Feature::StopSequences),
        (
            settings.temperature.is_some() || settings.top_p.is_some(),
            Feature::Sampling,
        ),
        (settings.seed.is_some(), Feature::Seed),
        (
            settings
                .logprobs
                .as_ref()
                .is_some_and(|wanted| wanted.value),
            Feature::Logprobs,
        ),
        (
            settings.candidate_count.as_deref().is_some_and(several),
            Feature::MultipleCandidates,
        ),
        (settings.reasoning.is_some(), Feature::ReasoningControl),
        (
            settings
                .parallel_tool_calls
                .as_ref()
                .is_some_and(|parallel| !parallel.value),
            Feature::SingleToolCalls,
        ),
        (
            settings.tool_choice.as_ref().is_some_and(|choice| {
                !matches!(choice.mode, IrToolChoiceMode::Auto | IrToolChoiceMode::None)
            }),
            Feature::ToolChoice,
        ),
    ];
    let asked = asked.into_iter().filter(|(is_asked, _)| *is_asked);
    used.extend(asked.map(|(_, feature)| feature));
    add_fields(&settings.vendor, used);
}

fn feature_of_tool(tool: &IrToolDefinition) -> Feature {
    match &tool.kind {
        IrToolKind::Custom { .. } => Feature::CustomTools,
        IrToolKind::Server { kind, .. } if executes_code(kind) => Feature::CodeExec,
        IrToolKind::Server { .. } => Feature::ServerTools,
        _ => Feature::ToolUse,
    }
}

fn executes_code(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    ["code_execution", "codeexecution", "code_interpreter"]
        .iter()
        .any(|known| kind.contains(known))
}

fn add_fields(fields: &[IrVendorField], used: &mut BTreeSet<Feature>) {
    for field in fields {
        let name = field.name.as_str();
        if CACHE_FIELDS.contains(&name) {
            used.insert(Feature::PromptCaching);
        } else if STORED_FIELDS.contains(&name) {
            used.insert(Feature::StoredConversation);
        } else if name == SEARCH_FIELD {
            used.insert(Feature::ServerTools);
        }
    }
}

fn add_block(block: &IrBlock, used: &mut BTreeSet<Feature>) {
    add_fields(&block.vendor, used);
    match &block.body {
        IrContentBlock::Image { media, .. } => {
            used.insert(match media {
                IrMedia {
                    data: IrMediaData::Url(_),
                    ..
                } => Feature::ImageUrl,
                _ => Feature::ImageInput,
            });
        }
        IrContentBlock::Document { .. } => {
            used.insert(Feature::DocumentInput);
        }
        IrContentBlock::Audio { .. } => {
            used.insert(Feature::AudioInput);
        }
        IrContentBlock::Thinking { .. } | IrContentBlock::RedactedThinking { .. } => {
            used.insert(Feature::Thinking);
        }
        IrContentBlock::ToolUse { .. } => {
            used.insert(Feature::ToolUse);
        }
        IrContentBlock::ToolResult { content, .. } => {
            used.insert(Feature::ToolUse);
            for inner in content {
                add_block(inner, used);
            }
        }
        _ => {}
    }
}
