//! Output schemas and context files in the request that a model is sent.

use abp_core::{Capability, LossKind, WorkOrder};
use abp_dialect::Dialect;
use abp_error::ErrorCode;
use abp_plan::{Candidate, ConfirmedPlan, ContextFile, Payload, PlanError, plan};
use abp_policy::Holders;
use serde_json::{Value, json};

use crate::support::{order, settings, upstream};

const TALKS: &[Capability] = &[Capability::Streaming];
const SCHEMAS: &[Capability] = &[
    Capability::Streaming,
    Capability::StructuredOutputJsonSchema,
];

fn confirmed(order: WorkOrder, candidate: &Candidate) -> Result<ConfirmedPlan, PlanError> {
    let offered = [candidate.clone()];
    let manifest = candidate.manifest.clone().unwrap();
    plan(order, &offered, &settings(&offered))?.confirm(
        &candidate.backend,
        &manifest,
        &Holders::NONE,
    )
}

fn request(payload: &Payload) -> Value {
    let Payload::Lowered { request, .. } = payload else {
        panic!("{payload:?} is not lowered");
    };
    serde_json::from_str(request).unwrap()
}

fn closed() -> Value {
    json!({
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": false,
    })
}

fn open() -> Value {
    json!({"type": "object", "properties": {"city": {"type": "string"}}})
}

/// Each dialect has its own place for a schema.
#[test]
fn a_model_that_takes_schemas_gets_its_vendors_setting() {
    let named = |schema: Value, strict: Option<bool>| {
        let mut format = json!({"name": "output", "schema": schema});
        if let Some(strict) = strict {
            format["strict"] = json!(strict);
        }
        format
    };
    let chat = |schema: Value, strict| json!({"type": "json_schema", "json_schema": named(schema, strict)});
    let responses = |schema: Value, strict| {
        let mut format = named(schema, strict);
        format["type"] = json!("json_schema");
        format
    };
    let claude = json!({"type": "json_schema", "schema": closed()});
    let cases = [
        (
            Dialect::OpenAi,
            "gpt-5",
            closed(),
            "/response_format",
            chat(closed(), Some(true)),
        ),
        (
            Dialect::OpenAi,
            "gpt-5",
            open(),
            "/response_format",
            chat(open(), None),
        ),
        (
            Dialect::Copilot,
            "gpt-5",
            closed(),
            "/response_format",
            chat(closed(), Some(true)),
        ),
        (
            Dialect::Kimi,
            "kimi-k2.6",
            closed(),
            "/response_format",
            chat(closed(), Some(true)),
        ),
        (
            Dialect::Codex,
            "gpt-5",
            closed(),
            "/text/format",
            responses(closed(), Some(true)),
        ),
        (
            Dialect::Codex,
            "gpt-5",
            open(),
            "/text/format",
            responses(open(), None),
        ),
        (
            Dialect::Claude,
            "claude-opus-4-8",
            closed(),
            "/output_config/format",
            claude,
        ),
        (
            Dialect::Gemini,
            "gemini-3-pro",
            closed(),
            "/generationConfig/responseJsonSchema",
            closed(),
        ),
        (
            Dialect::Gemini,
            "gemini-1.5-pro",
            open(),
            "/generationConfig/responseSchema/type",
            json!("OBJECT"),
        ),
    ];
    for (dialect, model, schema, pointer, expected) in cases {
        let candidate = upstream("m", dialect, SCHEMAS);
        let order = order(Some(model), &json!({"output_schema": schema}));
        let plan = confirmed(order, &candidate).unwrap();
        let sent = request(plan.payload());
        assert_eq!(sent.pointer(pointer), Some(&expected), "{dialect}: {sent}");
        assert!(plan.post().is_empty(), "{dialect}: the vendor holds it");
        assert!(plan.report().emulation.is_empty(), "{dialect}");
        assert!(plan.check_native_output(r#"{"city":"Rome"}"#).is_ok());
        assert!(plan.check_native_output("Rome").is_err(), "{dialect}");
    }
}

/// A vendor's request in the model's own dialect gets the setting, too, and keeps everything else.
#[test]
fn a_vendors_request_gets_the_schema_unless_it_has_one() {
    let candidate = upstream("m", Dialect::OpenAi, SCHEMAS);
    let chat = |more: Value| {
        let mut request =
            json!({"model": "gpt-5", "messages": [{"role": "user", "content": "Hi"}], "user": "u"});
        let more = more.as_object().unwrap().clone();
        request.as_object_mut().unwrap().extend(more);
        order(
            None,
            &json!({"request": request, "output_schema": closed()}),
        )
    };
    let plan = confirmed(chat(json!({})), &candidate).unwrap();
    let sent = request(plan.payload());
    assert_eq!(sent["response_format"]["json_schema"]["schema"], closed());
    assert_eq!(sent["user"], "u");
    let twice = confirmed(
        chat(json!({"response_format": {"type": "text"}})),
        &candidate,
    );
    let error = twice.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ValidationFailed);
    assert!(
        error
            .to_string()
            .contains("names the form of its answer itself"),
        "{error}"
    );
}

/// A schema language that lacks something is a loss that is told; one that lacks the schema is refused.
#[test]
fn a_schema_that_is_not_carried_is_told_or_refused() {
    let candidate = upstream("m", Dialect::Gemini, SCHEMAS);
    let limited = json!({
        "type": "object",
        "properties": {"city": {"type": "string", "pattern": "^R", "not": {"const": "Rom"}}},
    });
    let order = order(Some("gemini-1.5-pro"), &json!({"output_schema": limited}));
    let plan = confirmed(order, &candidate).unwrap();
    let losses = &plan.report().losses;
    assert!(
        losses
            .iter()
            .any(|loss| loss.pointer == "/config/vendor/abp/output_schema"
                && loss.kind == LossKind::Degraded),
        "{losses:?}"
    );
}

/// A model that takes none is told in words, and its answer is checked.
#[test]
fn a_model_without_schemas_is_told_and_asked_again() {
    for dialect in Dialect::ALL {
        let candidate = upstream("m", dialect, TALKS);
        let order = order(Some("m"), &json!({"output_schema": closed()}));
        let plan = confirmed(order, &candidate).unwrap();
        let sent = request(plan.payload()).to_string();
        let told = "Answer with nothing but JSON that follows this JSON schema";
        assert_eq!(sent.matches(told).count(), 1, "{dialect}: {sent}");
        assert!(sent.contains("additionalProperties"), "{dialect}: {sent}");
        assert!(plan.post().check(r#"{"city": "Rome"}"#).is_ok());
        let problem = plan.post().check(r#"{"town": 1}"#).unwrap_err().to_string();
        let emulated: Vec<_> = plan
            .report()
            .emulation
            .applied
            .iter()
            .map(|one| &one.capability)
            .collect();
        assert_eq!(emulated, [&Capability::StructuredOutputJsonSchema]);
        let again = plan
            .repair_request(&[], r#"{"town": 1}"#, &problem)
            .unwrap();
        let again = request(&again).to_string();
        assert!(
            again.contains("This cannot be used: "),
            "{dialect}: {again}"
        );
        assert!(again.contains(r#"{\"town\": 1}"#), "{dialect}: {again}");
        assert_eq!(again.matches(told).count(), 1, "{dialect}: {again}");
    }
}

#[test]
fn an_unusable_schema_is_refused_before_the_run() {
    let large = json!({"type": "string", "description": "x".repeat(300 << 10)});
    let unusable = [
        json!({"type": 7}),
        json!(true),
        json!("string"),
        json!({"$ref": "#/missing"}),
        large,
    ];
    for native in [TALKS, SCHEMAS] {
        let candidate = upstream("m", Dialect::OpenAi, native);
        for schema in &unusable {
            let found = confirmed(
                order(Some("m"), &json!({"output_schema": schema})),
                &candidate,
            );
            let code = found.err().map(|error| error.code());
            assert_eq!(code, Some(ErrorCode::ValidationFailed), "{schema:.60}");
        }
    }
    // Nothing is known of this one before it is opened, and it is not opened for that.
    let unknown = Candidate {
        manifest: None,
        model: None,
        ..upstream("agent", Dialect::OpenAi, TALKS)
    };
    let found = plan(
        order(Some("m"), &json!({"output_schema": {"type": 7}})),
        std::slice::from_ref(&unknown),
        &settings(&[]),
    );
    let code = found.err().map(|error| error.code());
    assert_eq!(code, Some(ErrorCode::ValidationFailed));
    let passed = json!({
        "mode": "passthrough", "request": {"model": "m"}, "output_schema": closed(),
    });
    let candidate = upstream("m", Dialect::OpenAi, SCHEMAS);
    let error = confirmed(order(None, &passed), &candidate).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ValidationFailed);
}

/// The plan names the files; the contents are added when they are known.
#[test]
fn context_files_are_sent_with_their_contents() {
    let file = |path: &str, content: &str| ContextFile {
        path: path.to_owned(),
        content: content.to_owned(),
    };
    let with_files = |abp: &Value| {
        let mut order = order(Some("m"), abp);
        order.context.files = ["a.rs", "b.rs", "a.rs"].map(str::to_owned).to_vec();
        order
    };
    let candidate = upstream("m", Dialect::OpenAi, TALKS);
    let plan = confirmed(with_files(&json!({})), &candidate).unwrap();
    assert_eq!(plan.context_files(), ["a.rs", "b.rs"]);
    let before = request(plan.payload())["messages"][0]["content"].clone();
    let texts = |content: &Value| -> Vec<String> {
        let parts = content.as_array().unwrap().iter();
        parts
            .map(|part| part["text"].as_str().unwrap().to_owned())
            .collect()
    };
    let listed = "Files that matter:\na.rs\nb.rs\na.rs";
    assert_eq!(texts(&before), ["answer", listed]);
    let filled = plan
        .request_with(&[file("b.rs", "fn \"b\"() {}\n")])
        .unwrap();
    let filled = request(&filled)["messages"][0]["content"].clone();
    assert_eq!(
        texts(&filled),
        ["answer", listed, "File: b.rs\n\nfn \"b\"() {}\n"]
    );

    // An agent reads files itself, and a vendor's request stays what it is.
    let agent = Candidate {
        model: None,
        ..candidate.clone()
    };
    let plan = confirmed(with_files(&json!({})), &agent).unwrap();
    assert_eq!(plan.context_files(), Vec::<String>::new());
    let vendor =
        json!({"request": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}});
    let plan = confirmed(with_files(&vendor), &candidate).unwrap();
    assert_eq!(plan.context_files(), Vec::<String>::new());
    assert!(
        plan.report()
            .notes
            .iter()
            .any(|note| note.contains("its context (files and snippets)")),
        "{:?}",
        plan.report().notes
    );
}
