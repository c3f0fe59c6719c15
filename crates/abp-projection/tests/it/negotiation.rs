//! The tables and JSON examples of the capability documentation.

use abp_capability::{SupportLevel as Level, check_capability, generate_report, infer, negotiate};
use abp_core::ir::{
    IrContentBlock, IrConversation, IrMedia, IrMediaData, IrMessage, IrRole, IrToolDefinition,
};
use abp_core::{
    Capability, CapabilityManifest, CapabilityRequirement, CapabilityRequirements, MinSupport,
    NegotiationResult, SupportLevel,
};
use abp_emulation::{
    EmulationEngine, EmulationReport, EmulationStrategy, can_emulate, default_strategy,
};
use serde_json::{Value, json};

fn restricted(reason: &str) -> SupportLevel {
    SupportLevel::Restricted {
        reason: reason.into(),
    }
}

fn requirements(required: &[(Capability, MinSupport)]) -> CapabilityRequirements {
    let required =
        required
            .iter()
            .cloned()
            .map(|(capability, min_support)| CapabilityRequirement {
                capability,
                min_support,
            });
    CapabilityRequirements {
        required: required.collect(),
    }
}

#[test]
fn support_levels_and_thresholds() {
    let rows = [
        (SupportLevel::Native, json!("native"), [true, true, true]),
        (
            SupportLevel::Emulated,
            json!("emulated"),
            [false, true, true],
        ),
        (
            restricted("sandbox only"),
            json!({"restricted": {"reason": "sandbox only"}}),
            [false, true, true],
        ),
        (
            SupportLevel::Unsupported,
            json!("unsupported"),
            [false, false, true],
        ),
    ];
    for (level, wire, satisfied) in rows {
        assert_eq!(serde_json::to_value(&level).unwrap(), wire);
        assert_eq!(serde_json::from_value::<SupportLevel>(wire).unwrap(), level);
        let thresholds = [MinSupport::Native, MinSupport::Emulated, MinSupport::Any];
        assert_eq!(
            thresholds.map(|min| level.satisfies(&min)),
            satisfied,
            "{level:?}"
        );
    }
}

#[test]
fn classification_rules() {
    let emulated = |strategy: &str| Level::Emulated {
        strategy: strategy.into(),
    };
    let rows = [
        (
            Some(SupportLevel::Native),
            Level::Native,
            json!({"level": "native"}),
        ),
        (
            Some(SupportLevel::Emulated),
            emulated("adapter"),
            json!({"level": "emulated", "strategy": "adapter"}),
        ),
        (
            Some(restricted("sandbox only")),
            emulated("restricted: sandbox only"),
            json!({"level": "emulated", "strategy": "restricted: sandbox only"}),
        ),
        (
            Some(SupportLevel::Unsupported),
            Level::Unsupported,
            json!({"level": "unsupported"}),
        ),
        (None, Level::Unsupported, json!({"level": "unsupported"})),
    ];
    for (entry, expected, wire) in rows {
        let manifest: CapabilityManifest = entry
            .into_iter()
            .map(|level| (Capability::ToolBash, level))
            .collect();
        let level = check_capability(&manifest, &Capability::ToolBash);
        assert_eq!(level, expected);
        assert_eq!(serde_json::to_value(level).unwrap(), wire);
    }
}

/// The four worked examples of the matching algorithm, and the one of the negotiation flow.
#[test]
fn matching_examples() {
    use Capability::{McpClient, Streaming, ToolBash, ToolEdit, ToolRead};
    let check = |manifest: &[(Capability, SupportLevel)],
                 required: &[(Capability, MinSupport)],
                 satisfied: bool| {
        let manifest: CapabilityManifest = manifest.iter().cloned().collect();
        let is_met = |(capability, least): &(Capability, MinSupport)| {
            manifest
                .get(capability)
                .is_some_and(|level| level.satisfies(least))
        };
        assert_eq!(required.iter().all(is_met), satisfied, "{required:?}");
    };
    let (native, emulated) = (MinSupport::Native, MinSupport::Emulated);
    check(
        &[
            (Streaming, SupportLevel::Native),
            (ToolRead, SupportLevel::Emulated),
        ],
        &[(Streaming, native), (ToolRead, emulated)],
        true,
    );
    check(
        &[(Streaming, SupportLevel::Emulated)],
        &[(Streaming, native)],
        false,
    );
    check(
        &[(Streaming, SupportLevel::Native)],
        &[(Streaming, native), (McpClient, emulated)],
        false,
    );
    check(
        &[(ToolBash, restricted("sandbox only"))],
        &[(ToolBash, emulated)],
        true,
    );

    let manifest = CapabilityManifest::from([
        (Streaming, SupportLevel::Native),
        (ToolRead, SupportLevel::Emulated),
        (ToolBash, restricted("sandbox only")),
    ]);
    let result = negotiate(
        &manifest,
        &requirements(&[
            (Streaming, native),
            (ToolRead, emulated),
            (ToolEdit, emulated),
        ]),
    );
    let expected = NegotiationResult {
        native: vec![Streaming],
        emulatable: vec![ToolRead],
        unsupported: vec![ToolEdit],
    };
    assert_eq!(result, expected);
    assert!(!result.is_compatible());
    assert_eq!(result.total(), 3);
}

#[test]
fn json_examples() {
    let result: NegotiationResult = round_trip(
        &json!({"native": ["streaming", "tool_read"], "emulatable": ["tool_write"], "unsupported": []}),
    );
    let report = json!({
        "compatible": true,
        "native_count": 2,
        "emulated_count": 1,
        "unsupported_count": 0,
        "summary": "2 native, 1 emulatable, 0 unsupported — fully compatible",
        "details": [
            ["Streaming", {"level": "native"}],
            ["ToolRead", {"level": "native"}],
            ["ToolWrite", {"level": "emulated", "strategy": "adapter"}],
        ],
    });
    assert_eq!(
        serde_json::to_value(generate_report(&result)).unwrap(),
        report
    );

    let emulation = json!({
        "applied": [{
            "capability": "extended_thinking",
            "strategy": {"type": "system_prompt_injection", "prompt": "Think step by step before answering."},
        }],
        "warnings": ["Capability CodeExecution not emulated: Cannot safely emulate sandboxed code execution"],
    });
    let read: EmulationReport = round_trip(&emulation);
    let capabilities = [Capability::ExtendedThinking, Capability::CodeExecution];
    let produced =
        EmulationEngine::with_defaults().apply(&capabilities, &mut IrConversation::default());
    assert_eq!(produced, read);

    let order: abp_core::WorkOrder = serde_json::from_value(json!({
        "task": "t",
        "requirements": {"required": [
            {"capability": "streaming", "min_support": "native"},
            {"capability": "tool_read", "min_support": "emulated"},
        ]},
    }))
    .unwrap();
    let expected = requirements(&[
        (Capability::Streaming, MinSupport::Native),
        (Capability::ToolRead, MinSupport::Emulated),
    ]);
    assert_eq!(order.requirements, expected);
}

#[test]
fn default_strategies() {
    let rows = [
        (
            Capability::ExtendedThinking,
            EmulationStrategy::SystemPromptInjection {
                prompt: "Think step by step before answering.".into(),
            },
        ),
        (
            Capability::StructuredOutputJsonSchema,
            EmulationStrategy::PostProcessing {
                detail: "Parse and validate JSON from text response".into(),
            },
        ),
        (
            Capability::CodeExecution,
            EmulationStrategy::Disabled {
                reason: "Cannot safely emulate sandboxed code execution".into(),
            },
        ),
    ];
    for capability in Capability::KNOWN {
        let named = rows
            .iter()
            .find(|(name, _)| name == capability)
            .map(|(_, strategy)| strategy.clone());
        let expected = named.unwrap_or_else(|| EmulationStrategy::Disabled {
            reason: format!("No emulation available for {capability:?}"),
        });
        assert_eq!(
            can_emulate(capability),
            !matches!(expected, EmulationStrategy::Disabled { .. })
        );
        assert_eq!(default_strategy(capability), expected);
    }
}

/// Only the prompt strategy changes the conversation; it appends where there is a system message.
#[test]
fn strategies_and_the_conversation() {
    let system = IrMessage::text(IrRole::System, "Be brief.");
    let user = IrMessage::text(IrRole::User, "hi");
    let engine = EmulationEngine::with_defaults();
    let check = |capability: Capability, messages: &[IrMessage], expected: &[IrMessage]| {
        let mut conversation = IrConversation::from_messages(messages.to_vec());
        engine.apply(&[capability], &mut conversation);
        assert_eq!(conversation.messages, expected);
    };
    let prompt = "Think step by step before answering.";
    let mut appended = system.clone();
    appended.push(IrContentBlock::text(prompt));
    check(
        Capability::ExtendedThinking,
        &[system.clone(), user.clone()],
        &[appended, user.clone()],
    );
    check(
        Capability::ExtendedThinking,
        std::slice::from_ref(&user),
        &[IrMessage::text(IrRole::System, prompt), user.clone()],
    );
    for unchanged in [
        Capability::StructuredOutputJsonSchema,
        Capability::CodeExecution,
        Capability::ToolBash,
    ] {
        check(
            unchanged,
            &[system.clone(), user.clone()],
            &[system.clone(), user.clone()],
        );
    }
}

#[test]
fn requirements_that_follow_from_a_conversation() {
    let image = IrContentBlock::Image {
        media: IrMedia {
            media_type: Some("image/png".into()),
            data: IrMediaData::Base64("".into()),
        },
        detail: None,
    };
    let answer = IrContentBlock::ToolResult {
        tool_use_id: Some("1".into()),
        name: None,
        content: vec![image.into()],
        plain: false,
        is_error: None,
    };
    let check = |conversation: &IrConversation, expected: &[Capability]| {
        let names: Vec<_> = infer(conversation)
            .required
            .into_iter()
            .map(|required| required.capability)
            .collect();
        assert_eq!(names, expected);
    };
    check(
        &IrConversation::from_messages(vec![IrMessage::text(IrRole::User, "hi")]),
        &[],
    );
    let nested = IrConversation::from_messages(vec![IrMessage::new(IrRole::Tool, vec![answer])]);
    check(&nested, &[Capability::ToolUse, Capability::ImageInput]);
    let tool = IrToolDefinition::function("f", None, None);
    let with_tools = IrConversation {
        tools: vec![tool],
        ..IrConversation::default()
    };
    check(&with_tools, &[Capability::ToolUse]);
}

fn round_trip<T: serde::Serialize + serde::de::DeserializeOwned>(wire: &Value) -> T {
    let value: T = serde_json::from_value(wire.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&value).unwrap(), wire);
    value
}

/// What the vendors' hosts advertise (claude, copilot, gemini, kimi, codex): native, emulated or
/// nothing.
const HOSTS: [(&str, &str); 18] = [
    ("streaming", "NNNNN"),
    ("tool_read", "ENNNN"),
    ("tool_write", "ENNNN"),
    ("tool_edit", "ENNNN"),
    ("tool_bash", "ENNNN"),
    ("tool_glob", "ENNNN"),
    ("tool_grep", "ENNNN"),
    ("tool_web_search", "ENNNN"),
    ("tool_web_fetch", "ENNNN"),
    ("tool_ask_user", "-NNN-"),
    ("hooks_pre_tool_use", "NEEEN"),
    ("hooks_post_tool_use", "NEEEN"),
    ("session_resume", "ENNNE"),
    ("session_fork", "-NNN-"),
    ("checkpointing", "EEEE-"),
    ("structured_output_json_schema", "ENEEN"),
    ("mcp_client", "ENNN-"),
    ("mcp_server", "-EEE-"),
];

/// The compatibility matrix: each cell lands in its bucket, and decides about both thresholds.
#[test]
fn compatibility_matrix() {
    for host in 0..5 {
        let cell = |row: &(&str, &str)| (Capability::from_wire(row.0), row.1.as_bytes()[host]);
        let cells: Vec<_> = HOSTS.iter().map(cell).collect();
        let manifest: CapabilityManifest = cells
            .iter()
            .filter_map(|(capability, cell)| match cell {
                b'N' => Some((capability.clone(), SupportLevel::Native)),
                b'E' => Some((capability.clone(), SupportLevel::Emulated)),
                _ => None,
            })
            .collect();
        let in_column = |wanted: u8| -> Vec<Capability> {
            let cells = cells.iter().filter(|(_, cell)| *cell == wanted);
            cells.map(|(capability, _)| capability.clone()).collect()
        };
        let all: Vec<_> = cells
            .iter()
            .map(|(capability, _)| (capability.clone(), MinSupport::Native))
            .collect();
        let result = negotiate(&manifest, &requirements(&all));
        let expected = NegotiationResult {
            native: in_column(b'N'),
            emulatable: in_column(b'E'),
            unsupported: in_column(b'-'),
        };
        assert_eq!(result, expected, "host {host}");
    }
}
