//! The snippets and signatures of the capability documentation, as they stand there.

use abp_capability::{
    CompatibilityReport, SupportLevel as Level, check_capability, generate_report, negotiate,
};
use abp_core::ir::{IrConversation, IrMessage, IrRole};
use abp_core::{Capability, CapabilityManifest, CapabilityRequirements, NegotiationResult};
use abp_emulation::{
    EmulationConfig, EmulationEngine, EmulationEntry, EmulationReport, EmulationStrategy,
    apply_emulation, can_emulate, default_strategy,
};

#[test]
fn signatures() {
    let _: fn(&CapabilityManifest, &Capability) -> Level = check_capability;
    let _: fn(&CapabilityManifest, &CapabilityRequirements) -> NegotiationResult = negotiate;
    let _: fn(&NegotiationResult) -> CompatibilityReport = generate_report;
    let _: fn(&Capability) -> EmulationStrategy = default_strategy;
    let _: fn(&Capability) -> bool = can_emulate;
    let _: fn(&EmulationConfig, &[Capability], &mut IrConversation) -> EmulationReport =
        apply_emulation;
    let _: fn(&NegotiationResult) -> bool = NegotiationResult::is_compatible;
    let _: fn(&NegotiationResult) -> usize = NegotiationResult::total;
    let _: fn(&EmulationReport) -> bool = EmulationReport::is_empty;
    let _: fn(&EmulationReport) -> bool = EmulationReport::has_unemulatable;
}

#[test]
fn the_manifest_snippet() {
    use abp_core::*;

    // Build a manifest
    let mut manifest = CapabilityManifest::new();
    manifest.insert(Capability::Streaming, SupportLevel::Native);
    manifest.insert(Capability::ToolRead, SupportLevel::Emulated);

    // Check a single requirement
    let req = CapabilityRequirement {
        capability: Capability::Streaming,
        min_support: MinSupport::Native,
    };
    let level = manifest.get(&req.capability).unwrap();
    assert!(level.satisfies(&req.min_support));

    // Use the builder
    let wo = WorkOrderBuilder::new("task")
        .requirements(CapabilityRequirements {
            required: vec![req],
        })
        .build();

    assert_eq!(
        wo.requirements.required[0].capability,
        Capability::Streaming
    );
}

#[test]
fn the_engine_snippet() {
    let mut conversation = IrConversation::from_messages(vec![IrMessage::text(IrRole::User, "hi")]);

    let engine = EmulationEngine::with_defaults();
    let report = engine.apply(&[Capability::ExtendedThinking], &mut conversation);

    // Check results
    assert_eq!(report.applied.len(), 1);
    assert!(report.warnings.is_empty());

    assert_eq!(
        conversation.messages[0],
        IrMessage::text(IrRole::System, "Think step by step before answering.")
    );
}

#[test]
fn the_configuration_snippet() {
    let mut config = EmulationConfig::new();
    config.set(
        Capability::CodeExecution,
        EmulationStrategy::SystemPromptInjection {
            prompt: "Simulate code execution step by step.".into(),
        },
    );
    let engine = EmulationEngine::new(config);

    let mut conversation = IrConversation::default();
    let report = engine.apply(&[Capability::CodeExecution], &mut conversation);
    assert!(
        !report.has_unemulatable(),
        "an override replaces the disabled default"
    );
}

/// The result types can be built by literal with exactly the documented fields.
#[test]
fn literals() {
    let result = NegotiationResult {
        native: vec![Capability::Streaming],
        emulatable: vec![],
        unsupported: vec![],
    };
    let CompatibilityReport {
        compatible,
        native_count,
        emulated_count,
        unsupported_count,
        summary,
        details,
    } = generate_report(&result);
    assert!(compatible);
    assert_eq!(
        (
            native_count,
            emulated_count,
            unsupported_count,
            details.len()
        ),
        (1, 0, 0, 1)
    );
    assert_eq!(
        summary,
        "1 native, 0 emulatable, 0 unsupported — fully compatible"
    );
    let report = EmulationReport {
        applied: vec![EmulationEntry {
            capability: Capability::ExtendedThinking,
            strategy: default_strategy(&Capability::ExtendedThinking),
        }],
        warnings: vec![],
    };
    assert!(!report.is_empty());
}
