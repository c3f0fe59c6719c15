//! Work orders that carry a vendor's request, and backends that are models.

use abp_policy::Holders;
use std::collections::BTreeMap;

use abp_core::{
    Capability, CapabilityManifest, LossKind, SupportLevel, WorkOrder, WorkOrderBuilder,
};
use abp_dialect::{Dialect, TargetProfile};
use abp_error::ErrorCode;
use abp_plan::{Candidate, ConfirmedPlan, ModelTarget, Payload, PlanError, PlanSettings, plan};
use serde_json::{Value, json};

fn manifest() -> CapabilityManifest {
    [Capability::ToolUse, Capability::Streaming]
        .map(|capability| (capability, SupportLevel::Native))
        .into()
}

fn order(settings: &Value) -> WorkOrder {
    let mut order = WorkOrderBuilder::new("answer").build();
    order.config.vendor = BTreeMap::from([("abp".to_owned(), settings.clone())]);
    order
}

/// The confirmed plan of an order for a backend that is a model of this dialect, or an agent.
fn confirmed(order: WorkOrder, model: Option<Dialect>) -> Result<ConfirmedPlan, PlanError> {
    let candidate = Candidate {
        backend: "b".to_owned(),
        manifest: Some(manifest()),
        holders: Holders::NONE,
        priority: 0,
        is_demonstration: false,
        model: None,
    };
    let target = |dialect| ModelTarget {
        dialect,
        profile: TargetProfile::default(),
    };
    let settings = PlanSettings {
        models: model
            .map(|dialect| ("b".to_owned(), target(dialect)))
            .into_iter()
            .collect(),
        ..PlanSettings::default()
    };
    plan(order, &[candidate], &settings)?.confirm("b", &manifest(), &Holders::NONE)
}

fn chat() -> Value {
    json!({
        "model": "gpt-4.1",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
        "logit_bias": {"1": 1}
    })
}

/// The request as the model gets it.
fn lowered(plan: &ConfirmedPlan) -> Value {
    let Payload::Lowered { request, .. } = plan.payload() else {
        panic!("{:?} is not lowered", plan.payload());
    };
    serde_json::from_str(request).unwrap()
}

#[test]
fn an_agent_gets_the_conversation_of_the_request() {
    let plan = confirmed(order(&json!({"request": chat()})), None).unwrap();
    let Payload::Conversation { conversation } = plan.payload() else {
        panic!("{:?} is no conversation", plan.payload());
    };
    assert_eq!(conversation.messages.len(), 2);
    assert_eq!(conversation.tools.len(), 1);
    let required = &plan.report().requirements.required;
    assert!(
        required
            .iter()
            .any(|need| need.capability == Capability::ToolUse)
    );
}

#[test]
fn a_model_gets_the_request_in_its_own_dialect() {
    let plan = confirmed(order(&json!({"request": chat()})), Some(Dialect::Claude)).unwrap();
    let request = lowered(&plan);
    assert_eq!(request["system"], "Be brief.");
    assert_eq!(
        request["messages"],
        json!([{"role": "user", "content": "Hi"}])
    );
    assert_eq!(request["tools"][0]["name"], "look");
    let losses = &plan.report().losses;
    assert!(
        losses
            .iter()
            .any(|loss| loss.pointer == "/logit_bias" && loss.kind == LossKind::Dropped),
        "{losses:?}"
    );
}

#[test]
fn an_order_of_its_own_words_is_lowered_too() {
    let mut order = order(&json!({}));
    order.config.model = Some("gemini-2.5-pro".to_owned());
    let request = lowered(&confirmed(order, Some(Dialect::Gemini)).unwrap());
    assert_eq!(
        request["contents"],
        json!([{"role": "user", "parts": [{"text": "answer"}]}])
    );
}

#[test]
fn losses_are_refused_as_the_order_says() {
    let several = {
        let mut request = chat();
        request["n"] = json!(2);
        request
    };
    let cases = [
        (json!({"request": chat()}), None),
        (
            json!({"request": chat(), "on_loss": "reject"}),
            Some(ErrorCode::MappingLossyConversion),
        ),
        (
            json!({"request": several}),
            Some(ErrorCode::MappingUnsupportedCapability),
        ),
        (json!({"request": several, "on_loss": "label"}), None),
        (
            json!({"request": {"hello": 1}}),
            Some(ErrorCode::ValidationFailed),
        ),
        (
            json!({"request": chat(), "dialect": "latin"}),
            Some(ErrorCode::ValidationFailed),
        ),
        (
            json!({"request": "{", "dialect": "openai"}),
            Some(ErrorCode::ValidationFailed),
        ),
    ];
    for (settings, expected) in cases {
        let found = confirmed(order(&settings), Some(Dialect::Claude));
        let code = found.as_ref().err().map(PlanError::code);
        assert_eq!(code, expected, "{settings}: {:?}", found.err());
    }
}
