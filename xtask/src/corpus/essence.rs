//! What an answer says, in whatever dialect it was said.

use abp_core::ir::{IrContentBlock, IrFinishReason, IrResponse, IrToolInput, IrUsage, Leaf};
use serde_json::Value;

/// What an answer says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Essence {
    choices: Vec<Choice>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Choice {
    text: String,
    thinking: String,
    refusal: String,
    calls: Vec<(String, String)>,
    finish: Option<IrFinishReason>,
}

impl Essence {
    pub(super) fn of(response: &IrResponse) -> Self {
        let usage = response.usage.as_ref();
        let count = |pick: fn(&IrUsage) -> Option<&Leaf<u64>>| {
            usage.and_then(pick).map(|count| count.value)
        };
        Self {
            choices: response.choices.iter().map(Choice::of).collect(),
            input_tokens: count(|usage| usage.input_tokens.as_ref()),
            output_tokens: count(|usage| usage.output_tokens.as_ref()),
        }
    }

    /// The first difference, in words.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        (self != other).then(|| format!("{self:?} is not {other:?}"))
    }
}

impl Choice {
    fn of(choice: &abp_core::ir::IrChoice) -> Self {
        let mut said = Self {
            finish: choice.finish.as_ref().map(|finish| finish.reason),
            ..Self::default()
        };
        for block in &choice.message.content {
            match &block.body {
                IrContentBlock::Text { text, .. } => said.text.push_str(text),
                IrContentBlock::Thinking { text, .. } => said.thinking.push_str(text),
                IrContentBlock::Refusal { text } => said.refusal.push_str(text),
                IrContentBlock::ToolUse { name, input, .. } => {
                    said.calls.push((name.value.clone(), arguments(input)));
                }
                _ => {}
            }
        }
        said
    }
}

/// The arguments, without regard to blanks between their tokens. Arguments that broke off can be
/// streamed as they are, but in one piece they have to be wrapped to be an object.
fn arguments(input: &IrToolInput) -> String {
    match input {
        IrToolInput::Json(json) => {
            let value: Value = serde_json::from_str(json.text()).unwrap_or_default();
            match value.get("_invalid_arguments").and_then(Value::as_str) {
                Some(broken) => broken.to_owned(),
                None => value.to_string(),
            }
        }
        IrToolInput::Text(text) | IrToolInput::Invalid(text) => text.value.clone(),
    }
}
