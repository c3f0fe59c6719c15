//! The dialect as the hub sees it.

use abp_core::ir::{IrConversation, IrError, IrResponse, IrUsage, RawJson};
use abp_dialect::{
    Codec, Dialect, DialectError, DialectRules, Exchange, IdRule, Item, Lowering, MidSystem,
    NameRule, StreamDecoder, StreamEncoder, TargetProfile,
};
use abp_json::View;

use crate::{lowering, stream};

/// OpenAI Responses.
#[derive(Debug, Clone, Copy, Default)]
pub struct CodexCodec;

impl Codec for CodexCodec {
    fn dialect(&self) -> Dialect {
        Dialect::Codex
    }

    fn rules(&self, _profile: &TargetProfile) -> DialectRules {
        DialectRules {
            tool_name: NameRule {
                max_length: 64,
                letter_first: false,
                also: "-",
            },
            tool_id: IdRule {
                required: true,
                // Only the length is limited; these are the characters that vendors use in ids.
                shape: Some(NameRule {
                    max_length: 64,
                    letter_first: false,
                    also: "-.:|/+=~",
                }),
            },
            developer_role: true,
            mid_system: MidSystem::Kept,
            user_first: false,
            prefill: false,
            custom_tools: true,
            answered_calls: true,
            defined_tools: false,
            named_results: false,
            stop_sequences: false,
        }
    }

    fn read_request(&self, root: Item<'_>) -> Result<IrConversation, DialectError> {
        lowering::read_request(root)
    }

    fn echo(&self, request: View<'_>) -> Vec<(String, RawJson)> {
        lowering::echo(request)
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
        Box::new(stream::Decoder::default())
    }

    fn stream_encoder(&self, exchange: &Exchange) -> Box<dyn StreamEncoder> {
        Box::new(stream::Encoder::new(exchange))
    }
}
