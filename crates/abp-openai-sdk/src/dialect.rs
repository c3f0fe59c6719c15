//! The codec, and what the members of the chat family differ in.

use abp_core::ir::{IrConversation, IrError, IrResponse, IrUsage};
use abp_dialect::{
    Codec, Dialect, DialectError, DialectRules, Exchange, IdRule, Item, Lowering, MidSystem,
    NameRule, StreamDecoder, StreamEncoder, TargetProfile,
};

use crate::lowering::{error, request_in, request_out, response_in, response_out};
use crate::stream::{Decoder, Encoder};
use crate::wire;

/// What one member of the family has and the others do not.
#[derive(Debug, Clone, Copy)]
pub struct Flavour {
    /// The dialect it is.
    pub dialect: Dialect,
    /// What it asks of every request.
    pub rules: fn(&TargetProfile) -> DialectRules,
    /// What kind of model a name stands for.
    pub model_family: fn(&str) -> ModelFamily,
    /// Members of a request that have no common form; those a relative sends are written too.
    pub request_members: &'static [&'static str],
    /// The same for messages.
    pub message_members: &'static [&'static str],
    /// Types of tools that the vendor carries out itself.
    pub server_tools: &'static [&'static str],
    /// How reasoning is asked for.
    pub reasoning: ReasoningForm,
    /// The member of a message that holds reasoning.
    pub reasoning_member: &'static str,
    /// Whether an assistant's message carries its reasoning back.
    pub replays_reasoning: bool,
    /// Whether several answers can be asked for.
    pub several_answers: bool,
    /// Whether choices of one number may be parts of one answer, each with its own end.
    pub splits_answers: bool,
    /// Whether the limit of tokens goes by its older name too, `max_tokens`.
    pub older_limit: bool,
    /// Whether a message can hold a film.
    pub video: bool,
}

/// How reasoning is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningForm {
    /// `reasoning_effort`, a word.
    Effort,
    /// `thinking: {type}`, on or off.
    Thinking,
}

/// What kind of model a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelFamily {
    /// It reasons: it takes an effort and no sampling parameters.
    Reasoning,
    /// It does not reason: it takes sampling parameters and no effort.
    Classic,
    /// Nobody knows: it takes whatever was asked.
    Other,
}

/// Reads and writes a member of the family.
#[derive(Debug, Clone, Copy)]
pub struct ChatCodec {
    /// Which one.
    pub flavour: &'static Flavour,
}

impl Codec for ChatCodec {
    fn dialect(&self) -> Dialect {
        self.flavour.dialect
    }

    fn rules(&self, profile: &TargetProfile) -> DialectRules {
        (self.flavour.rules)(profile)
    }

    fn read_request(&self, root: Item<'_>) -> Result<IrConversation, DialectError> {
        request_in::read(self.flavour, root)
    }

    fn write_request(&self, conversation: &IrConversation, out: &mut Lowering<'_>) {
        request_out::write(self.flavour, conversation, out);
    }

    fn read_response(&self, root: Item<'_>) -> Result<IrResponse, DialectError> {
        response_in::read(self.flavour, root)
    }

    fn read_usage(&self, root: Item<'_>) -> Result<Option<IrUsage>, DialectError> {
        response_in::read_usage(root)
    }

    fn write_response(&self, response: &IrResponse, exchange: &Exchange, out: &mut Lowering<'_>) {
        response_out::write(self.flavour, response, exchange, out);
    }

    fn read_error(&self, root: Item<'_>, status: Option<u16>) -> Result<IrError, DialectError> {
        error::read(self.flavour.dialect, root, status)
    }

    fn write_error(&self, error: &IrError, out: &mut Lowering<'_>) -> u16 {
        error::write(error, out)
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(Decoder::new(self.flavour))
    }

    fn stream_encoder(&self, exchange: &Exchange) -> Box<dyn StreamEncoder> {
        Box::new(Encoder::new(self.flavour, exchange))
    }
}

/// OpenAI's own flavour.
pub const OPENAI: Flavour = Flavour {
    dialect: Dialect::OpenAi,
    rules,
    model_family,
    request_members: wire::REQUEST_MEMBERS,
    message_members: wire::MESSAGE_MEMBERS,
    server_tools: &[],
    reasoning: ReasoningForm::Effort,
    reasoning_member: "reasoning_content",
    replays_reasoning: false,
    several_answers: true,
    splits_answers: false,
    older_limit: true,
    video: false,
};

/// The longest id of a call that OpenAI takes.
const MAX_CALL_ID: usize = 40;

fn rules(profile: &TargetProfile) -> DialectRules {
    DialectRules {
        tool_name: NameRule {
            max_length: 64,
            letter_first: false,
            also: "-",
        },
        tool_id: IdRule {
            required: true,
            shape: Some(NameRule {
                max_length: MAX_CALL_ID,
                letter_first: false,
                also: "-.:|",
            }),
        },
        developer_role: profile.model.as_deref().is_none_or(takes_developers),
        mid_system: MidSystem::Kept,
        user_first: false,
        prefill: false,
        custom_tools: true,
        answered_calls: true,
        defined_tools: false,
        named_results: false,
        stop_sequences: true,
    }
}

/// Compatible servers and the first reasoning models know one role for instructions.
fn takes_developers(model: &str) -> bool {
    let name = base_name(model);
    model_family(model) != ModelFamily::Other
        && !name.starts_with("o1-mini")
        && !name.starts_with("o1-preview")
}

fn model_family(model: &str) -> ModelFamily {
    let name = base_name(model);
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if starts(&["gpt-3.5", "gpt-4", "chatgpt-4o"]) || name.contains("-chat-latest") {
        ModelFamily::Classic
    } else if starts(&["o1", "o3", "o4", "gpt-5", "codex-"]) {
        ModelFamily::Reasoning
    } else {
        ModelFamily::Other
    }
}

/// The name without the route that some gateways put before it.
fn base_name(model: &str) -> &str {
    model.rsplit('/').next().unwrap_or(model)
}

/// OpenAI's own Chat Completions.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenAiCodec;

const CODEC: ChatCodec = ChatCodec { flavour: &OPENAI };

impl Codec for OpenAiCodec {
    fn dialect(&self) -> Dialect {
        CODEC.dialect()
    }

    fn rules(&self, profile: &TargetProfile) -> DialectRules {
        CODEC.rules(profile)
    }

    fn read_request(&self, root: Item<'_>) -> Result<IrConversation, DialectError> {
        CODEC.read_request(root)
    }

    fn write_request(&self, conversation: &IrConversation, out: &mut Lowering<'_>) {
        CODEC.write_request(conversation, out);
    }

    fn read_response(&self, root: Item<'_>) -> Result<IrResponse, DialectError> {
        CODEC.read_response(root)
    }

    fn read_usage(&self, root: Item<'_>) -> Result<Option<IrUsage>, DialectError> {
        CODEC.read_usage(root)
    }

    fn write_response(&self, response: &IrResponse, exchange: &Exchange, out: &mut Lowering<'_>) {
        CODEC.write_response(response, exchange, out);
    }

    fn read_error(&self, root: Item<'_>, status: Option<u16>) -> Result<IrError, DialectError> {
        CODEC.read_error(root, status)
    }

    fn write_error(&self, error: &IrError, out: &mut Lowering<'_>) -> u16 {
        CODEC.write_error(error, out)
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        CODEC.stream_decoder()
    }

    fn stream_encoder(&self, exchange: &Exchange) -> Box<dyn StreamEncoder> {
        CODEC.stream_encoder(exchange)
    }
}
