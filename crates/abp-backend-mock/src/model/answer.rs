//! What the model says.

use abp_core::ir::{
    IrBlock, IrChoice, IrContentBlock, IrConversation, IrError, IrErrorKind, IrFinish,
    IrFinishReason, IrMessage, IrResponse, IrResponseFormatKind, IrRole, IrSettings, IrToolChoice,
    IrToolChoiceMode, IrToolDefinition, IrToolInput, IrToolKind, IrUsage, Leaf, Origin, RawJson,
};
use abp_dialect::{Dialect, WireFamily};
use serde_json::{Value, json};

use super::failure;
use super::instance::instance;

/// What is said when nothing was asked in words.
const NOTHING_SAID: &str = "I am the mock model, and you said nothing.";
/// When every answer is given, as seconds since 1970: the same request gets the same answer.
const CREATED: u64 = 1_735_689_600;
/// The most answers to one request.
const MAX_CHOICES: u64 = 8;

/// The answer to a conversation; `seed` is what its ids are made of.
pub(super) fn answer(
    conversation: &IrConversation,
    model: &str,
    dialect: Dialect,
    seed: &str,
) -> Result<IrResponse, Box<IrError>> {
    let settings = &conversation.settings;
    let (content, finish) = match call(conversation)? {
        Some(tool) => {
            let call = tool_use(tool, dialect, seed);
            (call, IrFinish::new(IrFinishReason::ToolUse, None))
        }
        None => {
            let (text, finish) = cut(&words(conversation), settings);
            (IrContentBlock::text(text), finish)
        }
    };
    let asked = settings.candidate_count.as_ref();
    let count = asked
        .and_then(|count| count.as_u64())
        .unwrap_or(1)
        .clamp(1, MAX_CHOICES);
    let input = input_tokens(conversation);
    let output = tokens_of(&content).saturating_mul(count);
    let choice = |index| IrChoice {
        index,
        message: IrMessage::new(IrRole::Assistant, vec![content.clone()]),
        finish: Some(finish.clone()),
        vendor: Vec::new(),
        origin: Origin::Host,
    };
    let prefix = match dialect.family() {
        WireFamily::Chat => "chatcmpl-",
        WireFamily::Responses => "resp_",
        WireFamily::Messages => "msg_",
        _ => "",
    };
    Ok(IrResponse {
        id: Some(format!("{prefix}{seed}").into()),
        model: Some(model.into()),
        created: Some(RawJson::from(CREATED).into()),
        choices: (0..)
            .take_while(|index| u64::from(*index) < count)
            .map(choice)
            .collect(),
        usage: Some(IrUsage {
            input_tokens: Some(input.into()),
            output_tokens: Some(output.into()),
            total_tokens: Some(input.saturating_add(output).into()),
            ..IrUsage::default()
        }),
        vendor: Vec::new(),
    })
}

/// How many words a conversation has.
pub(super) fn input_tokens(conversation: &IrConversation) -> u64 {
    let messages = conversation.messages.iter();
    let blocks = messages.flat_map(|message| &message.content);
    blocks.map(|block| tokens_of(&block.body)).sum()
}

fn tokens_of(block: &IrContentBlock) -> u64 {
    let words = |text: &str| text.split_whitespace().count() as u64;
    match block {
        IrContentBlock::Text { text, .. }
        | IrContentBlock::Thinking { text, .. }
        | IrContentBlock::Refusal { text } => words(text),
        IrContentBlock::Json { value } => words(value.text()),
        IrContentBlock::ToolUse { name, input, .. } => words(name) + words(input_text(input)),
        IrContentBlock::ToolResult { content, .. } => {
            content.iter().map(|block| tokens_of(&block.body)).sum()
        }
        _ => 0,
    }
}

fn input_text(input: &IrToolInput) -> &str {
    match input {
        IrToolInput::Json(json) => json.text(),
        IrToolInput::Text(text) | IrToolInput::Invalid(text) => text,
    }
}

/// The tool that is called now, if one is. A tool's answer is told first, so that whoever always
/// asks for a call comes to an end.
fn call(conversation: &IrConversation) -> Result<Option<&IrToolDefinition>, Box<IrError>> {
    let tools: Vec<_> = conversation
        .tools
        .iter()
        .filter(|tool| !matches!(tool.kind, IrToolKind::Server { .. }))
        .collect();
    let named = |name: &str| tools.iter().copied().find(|tool| tool.name.value == name);
    let choice = conversation.settings.tool_choice.as_ref();
    let mode = choice.map_or(&IrToolChoiceMode::Auto, |IrToolChoice { mode, .. }| mode);
    if let IrToolChoiceMode::Named { name } = mode
        && named(name).is_none()
    {
        let message = format!("there is no tool {:?} to choose", name.value);
        return Err(failure(IrErrorKind::InvalidRequest, message));
    }
    if said_by_tools(conversation).is_some() {
        return Ok(None);
    }
    Ok(match mode {
        IrToolChoiceMode::None | IrToolChoiceMode::Other { .. } => None,
        IrToolChoiceMode::Named { name } => named(name),
        IrToolChoiceMode::Required => tools.first().copied(),
        IrToolChoiceMode::Allowed { names, required } => {
            let mut allowed = names.iter().filter_map(|name| named(name));
            if *required { allowed.next() } else { None }
        }
        _ => {
            let text = said_by_user(conversation).unwrap_or_default();
            let asked = tools
                .iter()
                .filter(|tool| text.contains(&format!("use the tool {}", tool.name.value)));
            // Of `get` and `get_weather`, the longer is meant where both fit.
            asked.max_by_key(|tool| tool.name.len()).copied()
        }
    })
}

fn tool_use(tool: &IrToolDefinition, dialect: Dialect, seed: &str) -> IrContentBlock {
    let id = match (dialect, dialect.family()) {
        (Dialect::Kimi, _) => Some(format!("functions.{}:0", tool.name.value)),
        (_, WireFamily::Messages) => Some(format!("toolu_{seed}")),
        (_, WireFamily::GenerateContent) => None,
        _ => Some(format!("call_{seed}")),
    };
    let input = match tool.kind {
        IrToolKind::Custom { .. } => IrToolInput::Text("text".into()),
        _ => {
            let schema = tool.parameters_schema.as_ref();
            let arguments = match instance(&parsed(schema)) {
                arguments @ Value::Object(_) => arguments,
                _ => json!({}),
            };
            IrToolInput::Json(RawJson::from(&arguments).into())
        }
    };
    IrContentBlock::ToolUse {
        id: id.map(Leaf::from),
        name: tool.name.value.as_str().into(),
        input,
        item_id: None,
        signature: None,
    }
}

fn parsed(schema: Option<&Leaf<RawJson>>) -> Value {
    let text = schema.map(|schema| schema.text());
    let value = text.and_then(|text| serde_json::from_str(text).ok());
    value.unwrap_or_else(|| json!({ "type": "object" }))
}

/// What is said in words, before it is cut.
fn words(conversation: &IrConversation) -> String {
    let said = match (said_by_tools(conversation), said_by_user(conversation)) {
        (Some(text), _) => format!("The tool said: {text}"),
        (None, Some(text)) => format!("You said: {text}"),
        (None, None) => NOTHING_SAID.to_owned(),
    };
    let format = conversation.settings.response_format.as_ref();
    match format.map(|format| &format.kind) {
        Some(IrResponseFormatKind::JsonSchema { schema, .. }) => {
            instance(&parsed(schema.as_ref())).to_string()
        }
        Some(IrResponseFormatKind::JsonObject) => json!({ "text": said }).to_string(),
        _ => said,
    }
}

/// The last text of the user, unless it is empty.
fn said_by_user(conversation: &IrConversation) -> Option<String> {
    let messages = conversation.messages.iter().rev();
    let last = messages
        .into_iter()
        .find(|message| message.role == IrRole::User)?;
    Some(texts(&last.content)).filter(|text| !text.trim().is_empty())
}

/// What the tools said whose answers end the conversation.
fn said_by_tools(conversation: &IrConversation) -> Option<String> {
    let results = conversation.messages.iter().rev();
    let mut said: Vec<_> = results
        .take_while(|message| message.role == IrRole::Tool)
        .map(|message| texts(&message.content))
        .collect();
    said.reverse();
    (!said.is_empty()).then(|| said.join(", "))
}

fn texts(blocks: &[IrBlock]) -> String {
    let texts: Vec<_> = blocks
        .iter()
        .filter_map(|block| match &block.body {
            IrContentBlock::Text { text, .. } => Some(text.value.clone()),
            IrContentBlock::Json { value } => Some(value.text().to_owned()),
            IrContentBlock::ToolResult { content, .. } => Some(texts(content)),
            _ => None,
        })
        .collect();
    texts.join(" ")
}

/// Ends a text at the first stop sequence, or after as many words as it may have.
fn cut(text: &str, settings: &IrSettings) -> (String, IrFinish) {
    let stops = settings
        .stop
        .as_ref()
        .map_or(&[][..], |stop| &stop.sequences);
    let met = stops
        .iter()
        .filter(|stop| !stop.is_empty())
        .filter_map(|stop| Some((text.find(stop.as_str())?, stop)))
        .min_by_key(|(at, _)| *at);
    let (text, mut finish) = match met {
        Some((at, stop)) => {
            let mut finish = IrFinish::new(IrFinishReason::StopSequence, None);
            finish.stop_sequence = Some(stop.value.as_str().into());
            (text.get(..at).unwrap_or_default(), finish)
        }
        None => (text, IrFinish::new(IrFinishReason::Stop, None)),
    };
    let limit = settings
        .max_tokens
        .as_ref()
        .and_then(|limit| limit.as_u64());
    let kept = match limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)) {
        Some(limit) if text.split_whitespace().count() > limit => {
            finish = IrFinish::new(IrFinishReason::Length, None);
            first_words(text, limit)
        }
        _ => text,
    };
    (kept.to_owned(), finish)
}

/// The beginning of a text that has so many words.
fn first_words(text: &str, count: usize) -> &str {
    let end = text
        .split_inclusive(char::is_whitespace)
        .scan(0, |at, part| {
            *at += part.len();
            Some((part, *at))
        })
        .filter(|(part, _)| !part.trim().is_empty())
        .take(count)
        .last();
    end.and_then(|(_, at)| text.get(..at))
        .unwrap_or_default()
        .trim_end()
}
