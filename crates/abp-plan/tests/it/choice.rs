//! Which backend a plan settles on: lowering, models and dialects count, not only capabilities.

use abp_core::Capability;
use abp_dialect::Dialect;
use abp_error::ErrorCode;
use abp_plan::{Candidate, Payload, RunPlan, plan};
use abp_policy::Holders;
use serde_json::{Value, json};

use crate::support::{order, serving, settings, upstream};

const CHAT: &[Capability] = &[Capability::Streaming, Capability::ToolUse];

fn planned(
    order: abp_core::WorkOrder,
    candidates: &[Candidate],
) -> Result<RunPlan, abp_plan::PlanError> {
    plan(order, candidates, &settings(candidates))
}

/// The request that the chosen backend is sent.
fn sent(plan: &RunPlan) -> Value {
    let document = serde_json::to_value(plan).unwrap();
    let request = document["payload"]["request"].as_str();
    serde_json::from_str(request.unwrap_or_else(|| panic!("{document}"))).unwrap()
}

/// Two answers to one request: Claude cannot give them, so the next one is taken, whatever its name.
#[test]
fn a_request_that_cannot_be_written_goes_to_the_next_backend() {
    let request = json!({"model": "m", "n": 2, "messages": [{"role": "user", "content": "Hi"}]});
    let preferred = Candidate {
        priority: 9,
        ..upstream("a-claude", Dialect::Claude, CHAT)
    };
    let offered = [preferred, upstream("b-gemini", Dialect::Gemini, CHAT)];
    let with_request = || order(None, &json!({"request": request, "dialect": "openai"}));
    let plan = planned(with_request(), &offered).unwrap();
    assert_eq!(plan.projection().selected_backend, "b-gemini");
    assert_eq!(
        plan.projection().selection.reason,
        "chosen because it can do everything that is required, and no other real backend can"
    );
    let refused = &plan.projection().selection.candidates[1];
    assert!(!refused.eligible);
    assert!(
        refused.reasons[0].contains("the translation would lose /n"),
        "{:?}",
        refused.reasons
    );
    let alone = planned(with_request(), &offered[..1]).unwrap_err();
    assert_eq!(alone.code(), ErrorCode::MappingUnsupportedCapability);
    let neither = [offered[0].clone(), upstream("c-kimi", Dialect::Kimi, CHAT)];
    let error = planned(with_request(), &neither).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CapabilityUnsupported);
    let told = error.to_string();
    assert!(
        told.contains("a-claude (") && told.contains("c-kimi ("),
        "{told}"
    );
}

/// The model is settled for each backend: by its list, its aliases, or its first name.
#[test]
fn each_backend_is_asked_for_the_model_it_has() {
    let openai = serving(
        upstream("o", Dialect::OpenAi, CHAT),
        &["gpt-*"],
        &[("fast", "gpt-5-mini")],
    );
    let claude = serving(
        upstream("c", Dialect::Claude, CHAT),
        &["claude-*", "claude-opus-9"],
        &[],
    );
    let all = [openai, claude.clone()];
    let chat = |model: &str| json!({"dialect": "openai", "request": {"model": model, "messages": [{"role": "user", "content": "Hi"}]}});
    let plain = json!({});
    let cases = [
        (Some("gpt-5"), &plain, Some(("o", "gpt-5"))),
        (Some("claude-x"), &plain, Some(("c", "claude-x"))),
        (Some("fast"), &plain, Some(("o", "gpt-5-mini"))),
        (Some("gpt-5-mini"), &plain, Some(("o", "gpt-5-mini"))),
        (Some("gemini-3"), &plain, None),
        (None, &plain, Some(("c", "claude-opus-9"))),
        (None, &chat("claude-x"), Some(("c", "claude-x"))),
        (None, &chat("fast"), Some(("o", "gpt-5-mini"))),
        (None, &chat("mistral"), None),
    ];
    for (model, abp, expected) in cases {
        let found = planned(order(model, abp), &all);
        let found = found.as_ref().map(|plan| {
            let model = sent(plan)["model"].as_str().unwrap_or_default().to_owned();
            (plan.projection().selected_backend.clone(), model)
        });
        let found = found.ok();
        let found = found
            .as_ref()
            .map(|(backend, model)| (&**backend, &**model));
        assert_eq!(found, expected, "{model:?} {abp}");
    }
    // A backend that the caller names is held to its list, too.
    let error = planned(order(Some("gpt-5"), &plain), &[claude]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CapabilityUnsupported);
    assert!(
        error.to_string().contains(
            "it does not serve the model \"gpt-5\"; the configuration lists claude-*, claude-opus-9"
        ),
        "{error}"
    );
}

/// The vendor of a model that is only named counts as the dialect of the order.
#[test]
fn a_named_model_prefers_its_own_vendor() {
    let offered = [
        upstream("a-openai", Dialect::OpenAi, CHAT),
        upstream("b-claude", Dialect::Claude, CHAT),
    ];
    for (model, expected) in [
        (Some("claude-opus-4-8"), "b-claude"),
        (Some("gpt-5"), "a-openai"),
        (Some("nobody-knows"), "a-openai"),
        (None, "a-openai"),
    ] {
        let plan = planned(order(model, &json!({})), &offered).unwrap();
        assert_eq!(plan.projection().selected_backend, expected, "{model:?}");
    }
}

#[test]
fn passthrough_goes_where_its_dialect_is_spoken_and_its_model_keeps_its_name() {
    let claude = serving(
        upstream("a-claude", Dialect::Claude, CHAT),
        &["*"],
        &[("fast", "claude-haiku-9")],
    );
    let openai = upstream("b-openai", Dialect::OpenAi, CHAT);
    let passed = |model: &str, dialect: Value| {
        let request = json!({"model": model, "messages": []});
        order(
            None,
            &json!({"mode": "passthrough", "request": request, "dialect": dialect}),
        )
    };
    let both = [claude.clone(), openai];
    let plan = planned(passed("gpt-5", json!("openai")), &both).unwrap();
    assert_eq!(plan.projection().selected_backend, "b-openai");
    let refused = planned(passed("gpt-5", json!("openai")), &both[..1]).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("it does not speak openai, and passthrough translates nothing"),
        "{refused}"
    );
    let renamed = planned(
        passed("fast", json!("claude")),
        std::slice::from_ref(&claude),
    )
    .unwrap_err();
    assert_eq!(renamed.code(), ErrorCode::MappingLossyConversion);
    let kept = planned(passed("claude-haiku-9", json!("claude")), &[claude]).unwrap();
    let kept = kept.confirm(
        "a-claude",
        &CHAT.iter().cloned().map(native).collect(),
        &Holders::NONE,
    );
    let kept = kept.unwrap();
    let Payload::VendorRequest { request } = kept.payload() else {
        panic!("{:?}", kept.payload());
    };
    // Members come in the order that the map of the build keeps.
    let request: serde_json::Value = serde_json::from_str(request).unwrap();
    assert_eq!(
        request,
        json!({ "messages": [], "model": "claude-haiku-9" })
    );
    assert_eq!(kept.model(), Some("claude-haiku-9"));
}

fn native(capability: Capability) -> (Capability, abp_core::SupportLevel) {
    (capability, abp_core::SupportLevel::Native)
}

/// What the plan says about requirements is the report that capability negotiation makes.
#[test]
fn a_plan_carries_the_compatibility_report() {
    let offered = [upstream("o", Dialect::OpenAi, CHAT)];
    let mut order = order(Some("gpt-4o"), &json!({}));
    order.requirements.required = serde_json::from_value(json!([
        {"capability": "streaming", "min_support": "native"},
        {"capability": "extended_thinking", "min_support": "emulated"},
    ]))
    .unwrap();
    let plan = planned(order, &offered).unwrap();
    let document = serde_json::to_value(&plan).unwrap();
    assert_eq!(
        document["compatibility"],
        json!({
            "compatible": true,
            "native_count": 1,
            "emulated_count": 1,
            "unsupported_count": 0,
            "summary": "1 native, 1 emulatable, 0 unsupported — fully compatible",
            "details": [
                ["Streaming", {"level": "native"}],
                ["ExtendedThinking", {"level": "emulated", "strategy": "ABP (system prompt)"}],
            ],
        })
    );
    assert_eq!(document["model"], "gpt-4o");
    let manifest = offered[0].manifest.clone().unwrap();
    let confirmed = plan.confirm("o", &manifest, &Holders::NONE).unwrap();
    assert_eq!(
        confirmed.report().notes,
        ["requirements: 1 native, 1 emulatable, 0 unsupported — fully compatible"]
    );
}
