//! The rules as they are today.

use abp_dialect::Dialect;

use crate::{Feature, Fidelity, MappingRegistry, MappingRule};

/// One feature between all pairs.
struct Grid {
    feature: Feature,
    /// A row for each source and a column for each target, in the order of [`Dialect::ALL`]:
    /// `=` lossless, `~` lossy, `x` unsupported, `.` the source has no such feature.
    cells: [&'static str; 6],
    /// What is lost where it is lossy.
    warning: &'static str,
    /// Why it is unsupported where it is.
    reason: &'static str,
}

const GRIDS: [Grid; 22] = [
    Grid {
        feature: Feature::SystemPrompt,
        cells: ["======", "======", "======", "======", "======", "======"],
        warning: "",
        reason: "",
    },
    Grid {
        feature: Feature::ToolUse,
        cells: ["======", "======", "======", "======", "======", "======"],
        warning: "",
        reason: "",
    },
    Grid {
        feature: Feature::ToolChoice,
        cells: ["======", "======", "======", "======", "======", "======"],
        warning: "",
        reason: "",
    },
    Grid {
        feature: Feature::SingleToolCalls,
        cells: ["==~===", "==~===", "......", "==~===", "==~===", "==~==="],
        warning: "Gemini may call several tools at once; it has no switch",
        reason: "",
    },
    Grid {
        feature: Feature::CustomTools,
        cells: ["=~~=~~", "......", "......", "=~~=~~", "......", "......"],
        warning: "a function with one text argument stands for it, and its grammar is not enforced",
        reason: "",
    },
    Grid {
        feature: Feature::ServerTools,
        cells: ["=xxx~~", "x=xxxx", "xx=xxx", "xxx=xx", "xxxx=x", "......"],
        warning: "the setting is left out",
        reason: "only the source's vendor carries the tool out",
    },
    Grid {
        feature: Feature::CodeExec,
        cells: ["......", "x=xxxx", "xx=xxx", "xxx=xx", "......", "......"],
        warning: "",
        reason: "only the source's vendor executes the code",
    },
    Grid {
        feature: Feature::Streaming,
        cells: ["======", "======", "......", "======", "======", "======"],
        warning: "",
        reason: "",
    },
    Grid {
        feature: Feature::Thinking,
        cells: ["......", "~=~~~~", "~~=~=~", "~~~=~~", "~~~~=~", "......"],
        warning: "signed or encrypted reasoning goes back to its own vendor only",
        reason: "",
    },
    Grid {
        feature: Feature::ReasoningControl,
        cells: ["=~==~~", "~==~~~", "~==~~~", "=~==~=", "~====~", "......"],
        warning: "efforts and budgets are translated by a table, and clamped",
        reason: "",
    },
    Grid {
        feature: Feature::ImageInput,
        cells: ["======", "======", "======", "======", "======", "======"],
        warning: "",
        reason: "",
    },
    Grid {
        feature: Feature::ImageUrl,
        cells: ["==~=~=", "==~=~=", "~~=~~~", "==~=~=", "......", "==~=~="],
        warning: "the target takes few addresses, or wants the media type with them",
        reason: "",
    },
    Grid {
        feature: Feature::DocumentInput,
        cells: ["==~=x=", "====x=", "====x=", "==~=x=", "......", "......"],
        warning: "the file's name is lost",
        reason: "Kimi takes documents by upload only",
    },
    Grid {
        feature: Feature::AudioInput,
        cells: ["=x=xx=", "......", "=x=xx=", "......", "......", "......"],
        warning: "",
        reason: "the target does not take sound",
    },
    Grid {
        feature: Feature::StructuredOutput,
        cells: ["=~~===", "======", "======", "=~~===", "=~~===", "=~~==="],
        warning: "name and strictness of the schema are lost",
        reason: "",
    },
    Grid {
        feature: Feature::StopSequences,
        cells: ["===x==", "===x==", "===x==", "......", "===x==", "===x=="],
        warning: "",
        reason: "Responses has no stop sequences",
    },
    Grid {
        feature: Feature::Sampling,
        cells: ["======", "======", "======", "~====~", "======", "======"],
        warning: "reasoning models take no sampling settings",
        reason: "",
    },
    Grid {
        feature: Feature::Seed,
        cells: ["=~=~==", "......", "=~=~==", "......", "......", "=~=~=="],
        warning: "the target samples without a seed",
        reason: "",
    },
    Grid {
        feature: Feature::Logprobs,
        cells: ["=x~===", "......", "=x====", "~x~==~", "......", "......"],
        warning: "the answer's log probabilities have another shape",
        reason: "the target gives no log probabilities",
    },
    Grid {
        feature: Feature::MultipleCandidates,
        cells: ["=x=xx=", "......", "=x=xx=", "......", "......", "=x=xx="],
        warning: "",
        reason: "the target gives one answer to a request",
    },
    Grid {
        feature: Feature::PromptCaching,
        cells: ["......", "~=~~~~", "xx=xxx", "......", "......", "......"],
        warning: "marks for the cache are left out; the target caches by itself or not at all",
        reason: "the cached content is kept by the source's vendor",
    },
    Grid {
        feature: Feature::StoredConversation,
        cells: ["......", "......", "......", "xxx=xx", "......", "......"],
        warning: "",
        reason: "the conversation is kept by the source's vendor",
    },
];

/// The registry of everything known: every feature between every ordered pair of dialects.
#[must_use]
pub fn known_rules() -> MappingRegistry {
    let mut registry = MappingRegistry::new();
    for grid in &GRIDS {
        for (from, row) in Dialect::ALL.into_iter().zip(grid.cells) {
            for (to, cell) in Dialect::ALL.into_iter().zip(row.chars()) {
                if let Some(fidelity) = grid.fidelity(cell) {
                    registry.insert(MappingRule {
                        source_dialect: from,
                        target_dialect: to,
                        feature: grid.feature,
                        fidelity,
                    });
                }
            }
        }
    }
    registry
}

impl Grid {
    fn fidelity(&self, cell: char) -> Option<Fidelity> {
        match cell {
            '=' => Some(Fidelity::Lossless),
            '~' => Some(Fidelity::LossyLabeled {
                warning: self.warning.to_owned(),
            }),
            'x' => Some(Fidelity::Unsupported {
                reason: self.reason.to_owned(),
            }),
            _ => None,
        }
    }
}
