//! The codec, and what the vendor asks of requests, by model and by version of the wire.

use abp_core::ir::{IrConversation, IrError, IrResponse, IrUsage};
use abp_dialect::{
    Codec, Dialect, DialectError, DialectRules, Exchange, IdRule, Item, Lowering, MidSystem,
    NameRule, StreamDecoder, StreamEncoder, TargetProfile,
};

use crate::lowering;
use crate::stream::{ClaudeDecoder, ClaudeEncoder};

/// Anthropic Messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClaudeCodec;

impl Codec for ClaudeCodec {
    fn dialect(&self) -> Dialect {
        Dialect::Claude
    }

    fn rules(&self, profile: &TargetProfile) -> DialectRules {
        let target = Target::new(profile.model.as_deref(), profile);
        let name = NameRule {
            max_length: 128,
            letter_first: false,
            also: "-",
        };
        DialectRules {
            tool_name: name,
            tool_id: IdRule {
                required: true,
                shape: Some(NameRule {
                    max_length: 256,
                    ..name
                }),
            },
            developer_role: false,
            mid_system: if target.mid_system() {
                MidSystem::Kept
            } else {
                MidSystem::UserText
            },
            user_first: true,
            prefill: target.model.prefill,
            custom_tools: false,
            answered_calls: true,
            defined_tools: true,
            named_results: false,
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
        Box::<ClaudeDecoder>::default()
    }

    fn stream_encoder(&self, exchange: &Exchange) -> Box<dyn StreamEncoder> {
        Box::new(ClaudeEncoder::new(exchange.model.clone()))
    }
}

/// The version of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireVersion {
    /// 2023-06-01, and whatever nobody knows.
    V2023,
    /// 2026-10-21: no sampling parameters, instructions as messages, stricter content.
    V2026,
}

/// How a model can be told to reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThinkingSupport {
    /// It does not.
    None,
    /// By a budget of tokens.
    Budget,
    /// By a budget, or as it finds fit.
    Both,
    /// As it finds fit; effort guides it.
    Adaptive,
}

/// Which sampling parameters a model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sampling {
    /// All of them.
    All,
    /// `temperature` or `top_p`, not both.
    One,
    /// None.
    None,
}

/// What a model can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ModelTraits {
    pub(crate) thinking: ThinkingSupport,
    /// Reasoning cannot be turned off.
    pub(crate) always_thinks: bool,
    pub(crate) sampling: Sampling,
    pub(crate) prefill: bool,
    /// Instructions may stand in the conversation; `None` where nobody knows.
    mid_system: Option<bool>,
    /// The most tokens to ask for where the source sets no limit.
    pub(crate) max_tokens: u64,
}

/// What is known of the target of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) model: ModelTraits,
    pub(crate) version: WireVersion,
}

impl Target {
    pub(crate) fn new(model: Option<&str>, profile: &TargetProfile) -> Self {
        let version = match profile.wire_version.as_deref() {
            Some(version) if version >= "2026-10-21" => WireVersion::V2026,
            _ => WireVersion::V2023,
        };
        Self {
            model: ModelTraits::of(model.unwrap_or_default()),
            version,
        }
    }

    fn mid_system(&self) -> bool {
        self.model
            .mid_system
            .unwrap_or(self.version == WireVersion::V2026)
    }

    /// Which sampling parameters a request may have.
    pub(crate) fn sampling(&self) -> Sampling {
        match self.version {
            WireVersion::V2023 => self.model.sampling,
            WireVersion::V2026 => Sampling::None,
        }
    }
}

impl ModelTraits {
    /// What a model can do, as far as its name tells.
    pub(crate) fn of(name: &str) -> Self {
        // Nothing is known of a name that is not the vendor's: what most servers take is safest.
        let unknown = Self {
            thinking: ThinkingSupport::Budget,
            always_thinks: false,
            sampling: Sampling::All,
            prefill: true,
            mid_system: None,
            max_tokens: 8192,
        };
        let Some(name) = name.find("claude").and_then(|at| name.get(at..)) else {
            return unknown;
        };
        if name.contains("fable") || name.contains("mythos") {
            return Self {
                always_thinks: true,
                ..Self::of_version((5, 0))
            };
        }
        version(name).map_or(unknown, Self::of_version)
    }

    fn of_version(version: (u8, u8)) -> Self {
        let oldest = Self {
            thinking: ThinkingSupport::None,
            always_thinks: false,
            sampling: Sampling::All,
            prefill: true,
            mid_system: Some(false),
            max_tokens: 4096,
        };
        let budgeted = Self {
            thinking: ThinkingSupport::Budget,
            max_tokens: 32_000,
            ..oldest
        };
        let choosy = Self {
            sampling: Sampling::One,
            ..budgeted
        };
        let adapting = Self {
            thinking: ThinkingSupport::Both,
            prefill: false,
            max_tokens: 64_000,
            ..choosy
        };
        let adaptive = Self {
            thinking: ThinkingSupport::Adaptive,
            sampling: Sampling::None,
            ..adapting
        };
        let newest = Self {
            mid_system: Some(true),
            ..adaptive
        };
        let until = [
            ((3, 7), oldest),
            ((4, 1), budgeted),
            ((4, 6), choosy),
            ((4, 7), adapting),
            ((4, 8), adaptive),
        ];
        let found = until.into_iter().find(|(next, _)| version < *next);
        found.map_or(newest, |(_, traits)| traits)
    }

    /// Whether the model knows the effort `xhigh`, which came with those that only adapt.
    pub(crate) fn knows_xhigh(&self) -> bool {
        self.thinking == ThinkingSupport::Adaptive
    }
}

/// The version in a model's name: `claude-3-5-haiku-20241022`, `claude-opus-4-8`, `claude-sonnet-5`.
/// Dates are no versions.
fn version(name: &str) -> Option<(u8, u8)> {
    let mut numbers = name
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .map_while(|word| (word.len() < 8).then_some(word))
        .filter_map(|word| word.parse().ok());
    let major = numbers.next()?;
    Some((major, numbers.next().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_versions() {
        let cases = [
            ("claude-3-5-haiku-20241022", Some((3, 5))),
            ("claude-sonnet-4-20250514", Some((4, 0))),
            ("claude-sonnet-4-5@20250929", Some((4, 5))),
            ("claude-opus-4.8", Some((4, 8))),
            ("claude-sonnet-5", Some((5, 0))),
            ("claude-next", None),
        ];
        for (name, expected) in cases {
            assert_eq!(version(name), expected, "{name}");
        }
    }

    #[test]
    fn rules_follow_model_and_version() {
        let rules = |model: Option<&str>, version: Option<&str>| {
            let rules = ClaudeCodec.rules(&TargetProfile {
                model: model.map(str::to_owned),
                wire_version: version.map(str::to_owned),
                ..TargetProfile::default()
            });
            (rules.mid_system == MidSystem::Kept, rules.prefill)
        };
        let newest = Some("2026-10-21");
        assert_eq!(rules(None, None), (false, true));
        assert_eq!(rules(None, newest), (true, true));
        assert_eq!(rules(Some("claude-sonnet-4-5"), newest), (false, true));
        assert_eq!(rules(Some("claude-opus-4-6"), None), (false, false));
        assert_eq!(
            rules(Some("us.anthropic.claude-opus-4-8-v1:0"), None),
            (true, false)
        );
        assert_eq!(rules(Some("claude-fable-5"), None), (true, false));
    }
}
