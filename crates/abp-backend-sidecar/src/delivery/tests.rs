//! What a sidecar is told, and what is refused.

use abp_core::WorkOrderBuilder;
use abp_emulation::default_strategy;

use super::*;

fn entry(capability: Capability) -> EmulationEntry {
    let strategy = default_strategy(&capability);
    EmulationEntry {
        capability,
        strategy,
    }
}

fn checked(capability: Capability) -> EmulationEntry {
    let detail = "change the answer".to_owned();
    EmulationEntry {
        capability,
        strategy: EmulationStrategy::PostProcessing { detail },
    }
}

/// An order whose author tries to have a say in what ABP adds.
fn order(vendor: &Value) -> WorkOrder {
    let mut order = WorkOrderBuilder::new("Fix the test.").build();
    order.config.vendor = serde_json::from_value(vendor.clone()).unwrap();
    order
}

#[test]
fn instructions_are_part_of_the_task_and_listed() {
    let schema = json!({ "type": "object" });
    let mut order = order(&json!({ "abp": { "output_schema": schema } }));
    let applied = [
        entry(Capability::ExtendedThinking),
        entry(Capability::StructuredOutputJsonSchema),
    ];
    let conversation = IrConversation::default();
    deliver_emulations(&mut order, &applied, Some(&conversation)).unwrap();
    assert_eq!(
        order.task,
        "Fix the test.\n\n<abp-instructions>\n\
         [extended_thinking] Think step by step before answering.\n\
         [structured_output_json_schema] Answer with nothing but JSON that follows this JSON schema: {\"type\":\"object\"}\n\
         </abp-instructions>"
    );
    assert_eq!(
        order.config.abp_setting("emulation").unwrap(),
        &json!([
            {
                "capability": "extended_thinking",
                "strategy": { "type": "system_prompt_injection", "prompt": "Think step by step before answering." },
                "instruction": "Think step by step before answering.",
            },
            {
                "capability": "structured_output_json_schema",
                "strategy": { "type": "post_processing", "detail": "Parse and validate JSON from text response" },
                "instruction": "Answer with nothing but JSON that follows this JSON schema: {\"type\":\"object\"}",
            },
        ])
    );
}

#[test]
fn the_schema_of_a_vendors_request_is_told_too() {
    let mut conversation = IrConversation::default();
    let entries = [entry(Capability::StructuredOutputJsonSchema)];
    let mut plain = order(&json!({}));
    deliver_emulations(&mut plain, &entries, Some(&conversation)).unwrap();
    assert!(
        plain.task.contains("Answer with nothing but JSON.\n"),
        "{}",
        plain.task
    );
    let format = json!({ "type": "json_schema", "schema": { "type": "array" } });
    conversation.settings.response_format = serde_json::from_value(format).unwrap();
    let mut told = order(&json!({}));
    deliver_emulations(&mut told, &entries, Some(&conversation)).unwrap();
    assert!(told.task.contains(r#"{"type":"array"}"#), "{}", told.task);
}

#[test]
fn an_order_without_emulations_stays_and_cannot_claim_any() {
    for vendor in [
        json!({ "abp": { "emulation": ["mine"], "mcp": true } }),
        json!({ "abp.emulation": ["mine"] }),
    ] {
        let mut order = order(&vendor);
        deliver_emulations(&mut order, &[], None).unwrap();
        assert_eq!(order.task, "Fix the test.");
        assert_eq!(order.config.abp_setting("emulation"), None, "{vendor}");
    }
}

#[test]
fn emulations_that_cannot_be_delivered_are_refused() {
    let conversation = IrConversation::default();
    let thinking = entry(Capability::ExtendedThinking);
    for (case, entry, conversation) in [
        ("passthrough", &thinking, None),
        (
            "answers",
            &checked(Capability::StopSequences),
            Some(&conversation),
        ),
        (
            "disabled",
            &entry(Capability::CodeExecution),
            Some(&conversation),
        ),
    ] {
        let mut refused = order(&json!({}));
        let entries = std::slice::from_ref(entry);
        let error = deliver_emulations(&mut refused, entries, conversation).unwrap_err();
        assert_eq!(error.code(), ErrorCode::CapabilityUnsupported, "{case}");
        assert_eq!(error.context()["capability"], entry.capability.as_str());
        assert_eq!(refused.task, "Fix the test.", "{case}");
    }
}
