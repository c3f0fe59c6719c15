//! What a model can do, whichever vendor's it is.

use abp_core::CapabilityManifest;
use abp_dialect::Dialect;

/// What a model can do when it is asked in a dialect, as far as its name tells. Nothing for a
/// dialect that is newer than this hub.
#[must_use]
pub fn manifest(dialect: Dialect, model: Option<&str>) -> CapabilityManifest {
    match dialect {
        Dialect::OpenAi => abp_openai_sdk::manifest(model),
        Dialect::Claude => abp_claude_sdk::manifest(model),
        Dialect::Gemini => abp_gemini_sdk::manifest(model),
        Dialect::Codex => abp_codex_sdk::manifest(model),
        Dialect::Kimi => abp_kimi_sdk::manifest(model),
        Dialect::Copilot => abp_copilot_sdk::manifest(model),
        _ => CapabilityManifest::new(),
    }
}

#[cfg(test)]
mod tests {
    use abp_core::{Capability, SupportLevel};

    use super::*;

    /// Each dialect asks its own crate: nobody else has this combination.
    #[test]
    fn every_dialect_answers_for_itself() {
        let telling = [
            (Dialect::OpenAi, "gpt-4o", Capability::FrequencyPenalty),
            (Dialect::Claude, "claude-opus-4-8", Capability::ToolWebFetch),
            (Dialect::Gemini, "gemini-2.0-flash", Capability::Audio),
            (Dialect::Codex, "gpt-4o", Capability::McpClient),
            (Dialect::Kimi, "kimi-k2.6", Capability::JsonMode),
            (Dialect::Copilot, "gemini", Capability::ImageInput),
        ];
        for (dialect, model, capability) in telling {
            for asked in Dialect::ALL {
                let manifest = manifest(asked, Some(model));
                let has = manifest.get(&capability) == Some(&SupportLevel::Native);
                assert_eq!(has, asked == dialect, "{model} in {asked}: {capability}");
            }
        }
    }
}
