//! Tools that take free text, and tools that are called but not defined.

use std::collections::BTreeSet;

use abp_core::ir::{
    IrBlock, IrContentBlock, IrConversation, IrToolDefinition, IrToolInput, IrToolKind, Leaf,
    Origin, RawJson,
};
use abp_dialect::{DialectRules, How};
use abp_json::push_string;

use super::Fit;

/// The arguments of a function that stands for a tool of free text.
const INPUT_SCHEMA: &str =
    r#"{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}"#;

/// The arguments of a tool of which nothing is known.
const ANY_SCHEMA: &str = r#"{"type":"object","properties":{}}"#;

/// Every block of the conversation.
pub(super) fn blocks(conversation: &mut IrConversation) -> impl Iterator<Item = &mut IrBlock> {
    conversation
        .messages
        .iter_mut()
        .flat_map(|message| &mut message.content)
}

/// Writes tools of free text as functions with one text argument.
pub(super) fn without_custom_tools(
    conversation: &mut IrConversation,
    rules: &DialectRules,
    fit: &mut Fit<'_>,
) {
    if rules.custom_tools {
        return;
    }
    for tool in &mut conversation.tools {
        let IrToolKind::Custom { format } = &tool.kind else {
            continue;
        };
        let reason = "the target has no tools of free text; a function takes the text as `input`";
        fit.carried(tool.origin, How::emulated("custom_tool", reason));
        if let Some(format) = format {
            let how = How::degraded(
                "tool_grammar",
                "the target does not hold input to a grammar",
            );
            fit.carried(format.origin, how);
        }
        fit.exchange.custom_tools.push(tool.name.value.clone());
        tool.parameters_schema = Some(Leaf::new(
            RawJson::trusted(INPUT_SCHEMA),
            Origin::Made("custom_tool"),
        ));
        tool.kind = IrToolKind::Function;
        tool.origin = Origin::Host;
    }
    for message in &mut conversation.messages {
        for block in &mut message.content {
            let IrContentBlock::ToolUse { input, .. } = &mut block.body else {
                continue;
            };
            if let IrToolInput::Text(text) = input {
                let mut wrapped = String::from(r#"{"input":"#);
                push_string(&mut wrapped, text);
                wrapped.push('}');
                fit.carried(text.origin, How::Converted("custom_tool_input"));
                *input = IrToolInput::Json(text.with(RawJson::trusted(wrapped)));
                message.origin = Origin::Host;
            }
        }
    }
}

/// Defines tools that the conversation calls and the request does not.
pub(super) fn define_called_tools(conversation: &mut IrConversation, rules: &DialectRules) {
    if !rules.defined_tools || !conversation.tools.is_empty() {
        return;
    }
    let called: BTreeSet<String> = blocks(conversation)
        .filter_map(|block| match &block.body {
            IrContentBlock::ToolUse { name, .. } => Some(name.value.clone()),
            _ => None,
        })
        .collect();
    let made = Origin::Made("tool_stub");
    conversation.tools = called
        .into_iter()
        .map(|name| {
            let schema = Leaf::new(RawJson::trusted(ANY_SCHEMA), made);
            IrToolDefinition::function(Leaf::new(name, made), None, Some(schema))
        })
        .collect();
}
