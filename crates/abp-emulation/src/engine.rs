//! Strategies, and applying them to a conversation.

use std::collections::BTreeMap;

use abp_core::ir::{IrContentBlock, IrConversation, IrMessage, IrRole};
use abp_core::{Capability, EmulationEntry, EmulationReport, EmulationStrategy};
use serde::{Deserialize, Serialize};

/// Strategies that replace the defaults, by capability.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EmulationConfig {
    strategies: BTreeMap<Capability, EmulationStrategy>,
}

impl EmulationConfig {
    /// No replacements.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the strategy for a capability.
    pub fn set(&mut self, capability: Capability, strategy: EmulationStrategy) {
        self.strategies.insert(capability, strategy);
    }
}

/// Applies strategies: the configured one where there is one, otherwise the default.
#[derive(Debug, Clone, Default)]
pub struct EmulationEngine {
    config: EmulationConfig,
}

impl EmulationEngine {
    /// An engine with replacements.
    #[must_use]
    pub fn new(config: EmulationConfig) -> Self {
        Self { config }
    }

    /// An engine with the default strategies.
    #[must_use]
    pub fn with_defaults() -> Self {
        Self::default()
    }

    /// The strategy for a capability.
    #[must_use]
    pub fn strategy(&self, capability: &Capability) -> EmulationStrategy {
        resolve(&self.config, capability)
    }

    /// Emulates the capabilities, as far as that is possible, and reports what was done.
    pub fn apply(&self, capabilities: &[Capability], conv: &mut IrConversation) -> EmulationReport {
        apply_emulation(&self.config, capabilities, conv)
    }
}

/// Return the default emulation strategy for a capability.
#[must_use]
pub fn default_strategy(capability: &Capability) -> EmulationStrategy {
    match capability {
        Capability::ExtendedThinking => EmulationStrategy::SystemPromptInjection {
            prompt: "Think step by step before answering.".to_owned(),
        },
        Capability::StructuredOutputJsonSchema => EmulationStrategy::PostProcessing {
            detail: "Parse and validate JSON from text response".to_owned(),
        },
        Capability::CodeExecution => EmulationStrategy::Disabled {
            reason: "Cannot safely emulate sandboxed code execution".to_owned(),
        },
        other => EmulationStrategy::Disabled {
            reason: format!("No emulation available for {other:?}"),
        },
    }
}

/// Returns true if the capability has a non-Disabled default strategy.
#[must_use]
pub fn can_emulate(capability: &Capability) -> bool {
    !matches!(
        default_strategy(capability),
        EmulationStrategy::Disabled { .. }
    )
}

/// Apply emulations with a given config (free function).
pub fn apply_emulation(
    config: &EmulationConfig,
    capabilities: &[Capability],
    conv: &mut IrConversation,
) -> EmulationReport {
    let mut report = EmulationReport::default();
    for capability in capabilities {
        let strategy = resolve(config, capability);
        match &strategy {
            EmulationStrategy::SystemPromptInjection { prompt } => inject(prompt, conv),
            // Carried out on the answer, by `PostProcessor`.
            EmulationStrategy::PostProcessing { .. } => {}
            EmulationStrategy::Disabled { reason } => {
                report
                    .warnings
                    .push(format!("Capability {capability:?} not emulated: {reason}"));
                continue;
            }
        }
        report.applied.push(EmulationEntry {
            capability: capability.clone(),
            strategy,
        });
    }
    report
}

fn resolve(config: &EmulationConfig, capability: &Capability) -> EmulationStrategy {
    config
        .strategies
        .get(capability)
        .cloned()
        .unwrap_or_else(|| default_strategy(capability))
}

/// Appends to the system message where there is one, otherwise puts a new one in front.
fn inject(prompt: &str, conversation: &mut IrConversation) {
    match conversation.system_mut() {
        Some(system) => system.push(IrContentBlock::text(prompt)),
        None => conversation
            .messages
            .insert(0, IrMessage::text(IrRole::System, prompt)),
    }
}
