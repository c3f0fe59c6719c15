//! The codec, and what is known of the models behind it.

use abp_core::ir::{IrConversation, IrError, IrResponse, IrUsage};
use abp_dialect::{
    Codec, Dialect, DialectError, DialectRules, Exchange, IdRule, Item, Lowering, MidSystem,
    NameRule, StreamDecoder, StreamEncoder, TargetProfile,
};

use crate::lowering;
use crate::stream::{GeminiDecoder, GeminiEncoder};

/// Reads and writes Gemini `generateContent`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GeminiCodec;

impl Codec for GeminiCodec {
    fn dialect(&self) -> Dialect {
        Dialect::Gemini
    }

    fn rules(&self, _profile: &TargetProfile) -> DialectRules {
        DialectRules {
            tool_name: NameRule {
                max_length: 64,
                letter_first: true,
                also: ".:-",
            },
            tool_id: IdRule {
                required: false,
                shape: None,
            },
            developer_role: false,
            mid_system: MidSystem::Hoisted,
            user_first: true,
            prefill: false,
            custom_tools: false,
            answered_calls: true,
            defined_tools: false,
            named_results: true,
            stop_sequences: true,
        }
    }

    fn read_request(&self, root: Item<'_>) -> Result<IrConversation, DialectError> {
        lowering::read_request(root)
    }

    fn write_request(&self, conversation: &IrConversation, out: &mut Lowering<'_>) {
        lowering::write_request(conversation, out);
    }

    fn read_response(&self, root: Item<'_>) -> Result<IrResponse, DialectError> {
        lowering::read_response(root)
    }

    fn read_usage(&self, root: Item<'_>) -> Result<Option<IrUsage>, DialectError> {
        lowering::read_usage_of(root)
    }

    fn write_response(&self, response: &IrResponse, exchange: &Exchange, out: &mut Lowering<'_>) {
        lowering::write_response(response, exchange, out);
    }

    fn read_error(&self, root: Item<'_>, status: Option<u16>) -> Result<IrError, DialectError> {
        lowering::read_error(root, status)
    }

    fn write_error(&self, error: &IrError, out: &mut Lowering<'_>) -> u16 {
        lowering::write_error(error, out)
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(GeminiDecoder::default())
    }

    fn stream_encoder(&self, exchange: &Exchange) -> Box<dyn StreamEncoder> {
        Box::new(GeminiEncoder::new(exchange.model.clone()))
    }
}

/// Models that understand the same requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// Gemini 1: no JSON Schema, no reasoning.
    One,
    /// Gemini 2.0: no reasoning.
    Two,
    /// Gemini 2.5: a budget of tokens for reasoning.
    TwoFive,
    /// Gemini 3 and newer: a level of reasoning, proofs of it with every call.
    Three,
    /// Not named, or named in a way that says nothing: taken for one that can do everything.
    Unknown,
}

impl Family {
    pub(crate) fn of(model: Option<&str>) -> Self {
        let version = model.and_then(|name| Some(name.split_once("gemini-")?.1));
        let Some(version) = version else {
            return Self::Unknown;
        };
        let major = version.split(['.', '-']).next().unwrap_or_default();
        match major.parse::<u32>() {
            Ok(0 | 1) => Self::One,
            Ok(2) if version.starts_with("2.5") => Self::TwoFive,
            Ok(2) => Self::Two,
            Ok(_) => Self::Three,
            Err(_) => Self::Unknown,
        }
    }

    /// Whether schemas may be JSON Schema instead of Google's own.
    pub(crate) fn has_json_schema(self) -> bool {
        self != Self::One
    }

    /// Whether an answer may be bound to JSON while tools are on offer.
    pub(crate) fn combines_json_and_tools(self) -> bool {
        matches!(self, Self::Three | Self::Unknown)
    }

    /// Whether a tool's answer may hold images and the like.
    pub(crate) fn has_media_in_results(self) -> bool {
        matches!(self, Self::Three | Self::Unknown)
    }
}
