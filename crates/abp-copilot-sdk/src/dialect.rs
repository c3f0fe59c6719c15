//! The codec.

use abp_core::ir::{IrConversation, IrError, IrResponse, IrUsage};
use abp_dialect::{
    Codec, Dialect, DialectError, DialectRules, Exchange, IdRule, Item, Lowering, MidSystem,
    NameRule, StreamDecoder, StreamEncoder, TargetProfile,
};
use abp_openai_sdk::{ChatCodec, Flavour, OPENAI};

use crate::stream::Decoder;
use crate::wire;

const COPILOT: Flavour = Flavour {
    dialect: Dialect::Copilot,
    rules,
    request_members: wire::REQUEST_MEMBERS,
    message_members: wire::MESSAGE_MEMBERS,
    reasoning_member: "reasoning_text",
    splits_answers: true,
    ..OPENAI
};

const CHAT: ChatCodec = ChatCodec { flavour: &COPILOT };

/// Reasoning goes back to Copilot only where it came from Copilot.
const REPLAY: ChatCodec = ChatCodec {
    flavour: &Flavour {
        replays_reasoning: true,
        ..COPILOT
    },
};

/// The rules are the strictest of all the vendors behind Copilot: nobody knows who answers.
fn rules(_: &TargetProfile) -> DialectRules {
    let name = |max_length| NameRule {
        max_length,
        letter_first: false,
        also: "-",
    };
    DialectRules {
        tool_name: name(64),
        tool_id: IdRule {
            required: true,
            shape: Some(name(40)),
        },
        developer_role: false,
        mid_system: MidSystem::Kept,
        user_first: false,
        prefill: false,
        custom_tools: false,
        answered_calls: true,
        defined_tools: false,
        named_results: false,
        stop_sequences: true,
    }
}

/// Copilot's chat completions.
#[derive(Debug, Clone, Copy, Default)]
pub struct CopilotCodec;

impl Codec for CopilotCodec {
    fn dialect(&self) -> Dialect {
        CHAT.dialect()
    }

    fn rules(&self, profile: &TargetProfile) -> DialectRules {
        CHAT.rules(profile)
    }

    fn read_request(&self, root: Item<'_>) -> Result<IrConversation, DialectError> {
        CHAT.read_request(root)
    }

    fn write_request(&self, conversation: &IrConversation, out: &mut Lowering<'_>) {
        match out.source() {
            Some(Dialect::Copilot) => REPLAY.write_request(conversation, out),
            _ => CHAT.write_request(conversation, out),
        }
    }

    fn read_response(&self, root: Item<'_>) -> Result<IrResponse, DialectError> {
        let mut response = CHAT.read_response(root)?;
        response.vendor.extend(root.vendor_fields(wire::EXTENSIONS));
        Ok(response)
    }

    fn read_usage(&self, root: Item<'_>) -> Result<Option<IrUsage>, DialectError> {
        CHAT.read_usage(root)
    }

    fn write_response(&self, response: &IrResponse, exchange: &Exchange, out: &mut Lowering<'_>) {
        CHAT.write_response(response, exchange, out);
    }

    fn read_error(&self, root: Item<'_>, status: Option<u16>) -> Result<IrError, DialectError> {
        CHAT.read_error(root, status)
    }

    fn write_error(&self, error: &IrError, out: &mut Lowering<'_>) -> u16 {
        CHAT.write_error(error, out)
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(Decoder::new(CHAT.stream_decoder()))
    }

    fn stream_encoder(&self, exchange: &Exchange) -> Box<dyn StreamEncoder> {
        CHAT.stream_encoder(exchange)
    }
}
