//! The dialects by name. This is the only place that names them all.

use abp_claude_sdk::ClaudeCodec;
use abp_codex_sdk::CodexCodec;
use abp_copilot_sdk::CopilotCodec;
use abp_dialect::{Codec, Dialect};
use abp_gemini_sdk::GeminiCodec;
use abp_kimi_sdk::KimiCodec;
use abp_openai_sdk::OpenAiCodec;

/// The codec of a dialect; `None` for one that is newer than this hub.
#[must_use]
pub fn codec(dialect: Dialect) -> Option<&'static dyn Codec> {
    match dialect {
        Dialect::OpenAi => Some(&OpenAiCodec),
        Dialect::Claude => Some(&ClaudeCodec),
        Dialect::Gemini => Some(&GeminiCodec),
        Dialect::Codex => Some(&CodexCodec),
        Dialect::Kimi => Some(&KimiCodec),
        Dialect::Copilot => Some(&CopilotCodec),
        _ => None,
    }
}
