//! The codec.

use abp_core::ir::{IrConversation, IrError, IrErrorKind, IrResponse, IrUsage};
use abp_dialect::{
    Codec, Dialect, DialectError, DialectRules, Exchange, IdRule, Item, Lowering, MidSystem,
    NameRule, StreamDecoder, StreamEncoder, TargetProfile,
};
use abp_openai_sdk::{ChatCodec, Flavour, ModelFamily, OPENAI, ReasoningForm};

use crate::lowering::{request_in, request_out};
use crate::wire::{self, Model};

const KIMI: Flavour = Flavour {
    dialect: Dialect::Kimi,
    rules,
    model_family,
    request_members: wire::REQUEST_MEMBERS,
    message_members: wire::MESSAGE_MEMBERS,
    server_tools: wire::SERVER_TOOLS,
    reasoning: ReasoningForm::Thinking,
    replays_reasoning: true,
    several_answers: false,
    older_limit: false,
    video: true,
    ..OPENAI
};

const CHAT: ChatCodec = ChatCodec { flavour: &KIMI };

fn rules(_: &TargetProfile) -> DialectRules {
    DialectRules {
        tool_name: NameRule {
            max_length: 64,
            letter_first: true,
            also: "-",
        },
        // Any id is taken; those that are not in the models' own form are changed when written.
        tool_id: IdRule {
            required: true,
            shape: None,
        },
        developer_role: false,
        mid_system: MidSystem::Kept,
        user_first: false,
        prefill: true,
        custom_tools: false,
        answered_calls: true,
        defined_tools: false,
        named_results: false,
        stop_sequences: true,
    }
}

fn model_family(model: &str) -> ModelFamily {
    match Model::of(model) {
        Model::Classic => ModelFamily::Classic,
        Model::Switchable | Model::Third => ModelFamily::Reasoning,
        Model::Thinking | Model::Other => ModelFamily::Other,
    }
}

/// Kimi's chat completions.
#[derive(Debug, Clone, Copy, Default)]
pub struct KimiCodec;

impl Codec for KimiCodec {
    fn dialect(&self) -> Dialect {
        CHAT.dialect()
    }

    fn rules(&self, profile: &TargetProfile) -> DialectRules {
        CHAT.rules(profile)
    }

    fn read_request(&self, root: Item<'_>) -> Result<IrConversation, DialectError> {
        let mut conversation = CHAT.read_request(root)?;
        request_in::adopt(&mut conversation, root);
        Ok(conversation)
    }

    fn write_request(&self, conversation: &IrConversation, out: &mut Lowering<'_>) {
        let fitted = request_out::fit(conversation, out);
        CHAT.write_request(&fitted, out);
    }

    fn read_response(&self, root: Item<'_>) -> Result<IrResponse, DialectError> {
        CHAT.read_response(root)
    }

    fn read_usage(&self, root: Item<'_>) -> Result<Option<IrUsage>, DialectError> {
        CHAT.read_usage(root)
    }

    fn write_response(&self, response: &IrResponse, exchange: &Exchange, out: &mut Lowering<'_>) {
        CHAT.write_response(response, exchange, out);
    }

    fn read_error(&self, root: Item<'_>, status: Option<u16>) -> Result<IrError, DialectError> {
        let mut error = CHAT.read_error(root, status)?;
        if error
            .native
            .as_ref()
            .is_some_and(|word| word.value == wire::OVERLOADED)
        {
            error.kind = IrErrorKind::Overloaded;
        }
        Ok(error)
    }

    fn write_error(&self, error: &IrError, out: &mut Lowering<'_>) -> u16 {
        CHAT.write_error(error, out)
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        CHAT.stream_decoder()
    }

    fn stream_encoder(&self, exchange: &Exchange) -> Box<dyn StreamEncoder> {
        CHAT.stream_encoder(exchange)
    }
}
