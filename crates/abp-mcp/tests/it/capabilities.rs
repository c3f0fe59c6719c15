//! Capabilities: reading, writing, building, asking.

use std::collections::BTreeSet;

use abp_json::{Limits, Tape};
use abp_mcp::{
    Capabilities, CapabilityError, CapabilityFlag, ClientCapabilities, ClientFlag, ProtocolVersion,
    ServerCapabilities, ServerFlag, build_server_capabilities, build_server_capabilities_with,
    extract_client_capabilities, validate_capability, validate_feature,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{client_flags, fixture, names, server, server_flags, strings};

/// Reads, compares what is declared, and writes.
fn check<F: CapabilityFlag>(text: &str, case: &Value) {
    let what = &case["what"];
    let read = Capabilities::<F>::from_json(text).unwrap();
    assert_eq!(names(read.flags()), strings(&case["declares"]), "{what}");
    let owned =
        |ids: &mut dyn Iterator<Item = &str>| -> BTreeSet<_> { ids.map(str::to_owned).collect() };
    assert_eq!(
        owned(&mut read.extensions()),
        strings(&case["extensions"]),
        "{what}"
    );
    assert_eq!(
        owned(&mut read.experimental()),
        strings(&case["experimental"]),
        "{what}"
    );
    let written = case["written"].as_str().unwrap_or(text);
    assert_eq!(read.to_json(), written, "{what}");
    assert_eq!(
        Capabilities::from_json(written).as_ref(),
        Ok(&read),
        "{what}"
    );
}

#[test]
fn documents_are_read_and_written_without_loss() {
    let text = fixture("capabilities.json");
    let tape = Tape::parse_str(&text, &Limits::default()).unwrap();
    for view in tape.root().items() {
        let case: Value = serde_json::from_str(view.raw()).unwrap();
        // The text as it stands in the file; no string in it has white space.
        let source = |key: &str| Some(view.get(key)?.raw().replace([' ', '\n'], ""));
        match (
            source("server"),
            source("client"),
            case["server_text"].as_str(),
        ) {
            (Some(text), None, None) => check::<ServerFlag>(&text, &case),
            (None, Some(text), None) => check::<ClientFlag>(&text, &case),
            (None, None, Some(text)) => check::<ServerFlag>(text, &case),
            _ => panic!("{case} is of no side, or of several"),
        }
    }
}

#[test]
fn only_objects_are_capabilities() {
    for text in ["[]", "null", "true", "\"tools\"", "7"] {
        let read = ServerCapabilities::from_json(text);
        assert_eq!(read, Err(CapabilityError::NotAnObject), "{text}");
    }
    let read = ClientCapabilities::from_json("{");
    assert!(matches!(read, Err(CapabilityError::NotJson(_))));
}

#[test]
fn servers_are_built_with_all_features_or_with_some() {
    assert_eq!(
        build_server_capabilities().to_json(),
        r#"{"logging":{},"completions":{},"prompts":{"listChanged":true},"#.to_owned()
            + r#""resources":{"subscribe":true,"listChanged":true},"tools":{"listChanged":true}}"#
    );
    let some = build_server_capabilities_with([ServerFlag::Tools, ServerFlag::ResourcesSubscribe]);
    assert_eq!(
        some.to_json(),
        r#"{"tools":{},"resources":{"subscribe":true}}"#
    );
    assert_eq!(build_server_capabilities_with([]).to_json(), "{}");
}

#[test]
fn client_capabilities_are_extracted_from_either_era() {
    let modern = "io.modelcontextprotocol/clientCapabilities";
    let check = |params: Option<Value>, expected: &[&str]| {
        let text = params.map(|params| params.to_string());
        let text = text.as_deref();
        let tape = text.map(|text| Tape::parse_str(text, &Limits::default()).unwrap());
        let found = extract_client_capabilities(tape.as_ref().map(Tape::root));
        let expected = expected.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(names(found.flags()), expected, "{text:?}");
    };
    check(None, &[]);
    check(Some(json!({})), &[]);
    check(Some(json!({"capabilities": []})), &[]);
    check(Some(json!({"capabilities": {"roots": {}}})), &["roots"]);
    check(
        Some(json!({"capabilities": {"sampling": {}}})),
        &["sampling"],
    );
    check(Some(json!({"_meta": {modern: {"roots": {}}}})), &["roots"]);
    check(Some(json!({"_meta": {"sampling": {}}})), &[]);
}

#[test]
fn capabilities_and_features_are_validated_by_name() {
    let some = server(&json!({
        "resources": {"subscribe": true}, "tools": {"listChanged": true}, "logging": {},
        "tasks": {"requests": {"tools": {"call": {}}}}, "extensions": {"com.acme/x": {}},
    }));
    let not = |path: &str| {
        Err(CapabilityError::NotSupported {
            path: path.to_owned(),
        })
    };
    let unknown = |path: &str| {
        Err(CapabilityError::Unknown {
            path: path.to_owned(),
        })
    };
    for name in ["resources", "tools", "logging", "tasks", "extensions"] {
        assert_eq!(validate_capability(&some, name), Ok(()), "{name}");
    }
    for name in ["prompts", "completions", "experimental"] {
        assert_eq!(validate_capability(&some, name), not(name), "{name}");
    }
    // Sampling and roots are capabilities of clients.
    for name in [
        "sampling",
        "roots",
        "elicitation",
        "listChanged",
        "",
        "tools.listChanged",
    ] {
        assert_eq!(validate_capability(&some, name), unknown(name), "{name}");
    }
    let own = ClientCapabilities::of([ClientFlag::Sampling, ClientFlag::ElicitationUrl]);
    assert_eq!(validate_capability(&own, "sampling"), Ok(()));
    assert_eq!(validate_capability(&own, "roots"), not("roots"));
    assert_eq!(validate_capability(&own, "tools"), unknown("tools"));

    let feature = |capability: &str, feature: &str| validate_feature(&some, capability, feature);
    assert_eq!(feature("resources", "subscribe"), Ok(()));
    assert_eq!(feature("tools", "listChanged"), Ok(()));
    assert_eq!(feature("tasks", "requests.tools.call"), Ok(()));
    assert_eq!(
        feature("resources", "listChanged"),
        not("resources.listChanged")
    );
    assert_eq!(
        feature("prompts", "listChanged"),
        not("prompts.listChanged")
    );
    assert_eq!(feature("tools", "subscribe"), unknown("tools.subscribe"));
    assert_eq!(
        feature("sampling", "modelPreferences"),
        unknown("sampling.modelPreferences")
    );
    assert_eq!(validate_feature(&own, "elicitation", "url"), Ok(()));
    assert_eq!(
        validate_feature(&own, "elicitation", "form"),
        not("elicitation.form")
    );
}

#[test]
fn a_version_is_only_told_what_it_has() {
    let check = |version: ProtocolVersion, json: &str, expected: &str| {
        let kept = ClientCapabilities::from_json(json)
            .unwrap()
            .for_version(version);
        assert_eq!(kept.to_json(), expected, "{version}");
    };
    let both = r#"{"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true},"acme":1}"#;
    check(ProtocolVersion::V2025_11_25, both, both);
    check(
        ProtocolVersion::V2026_07_28,
        both,
        r#"{"elicitation":{"form":{},"url":{}},"roots":{},"acme":1}"#,
    );
    check(
        ProtocolVersion::V2025_06_18,
        both,
        r#"{"elicitation":{"form":{}},"roots":{"listChanged":true},"acme":1}"#,
    );
    check(
        ProtocolVersion::V2025_03_26,
        both,
        r#"{"roots":{"listChanged":true},"acme":1}"#,
    );
    // An empty `elicitation` would promise forms, which were never declared.
    check(
        ProtocolVersion::V2025_06_18,
        r#"{"elicitation":{"url":{}}}"#,
        "{}",
    );
}

/// Objects in which known names hold anything, and unknown ones too.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({})),
        Just(json!(true)),
        Just(json!(false)),
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let parts = ServerFlag::ALL.iter().flat_map(|flag| flag.path());
    let parts = parts.chain(ClientFlag::ALL.iter().flat_map(|flag| flag.path()));
    let known = prop::sample::select(parts.map(|part| (*part).to_owned()).collect::<Vec<_>>());
    let key = prop_oneof![4 => known, 1 => any::<String>()];
    let object = move |value| {
        let members = prop::collection::hash_map(key.clone(), value, 0..6);
        members.prop_map(|members| Value::Object(members.into_iter().collect()))
    };
    let nested = leaf.prop_recursive(4, 40, 6, object.clone());
    object(nested.boxed())
}

proptest! {
    #[test]
    fn any_document_survives(document in document()) {
        let text = document.to_string();
        prop_assert_eq!(ServerCapabilities::from_json(&text).unwrap().to_json(), text.as_str());
        prop_assert_eq!(ClientCapabilities::from_json(&text).unwrap().to_json(), text.as_str());
    }

    #[test]
    fn declaring_and_taking_back_touch_nothing_else(
        document in document(),
        flag in prop::sample::select(ClientFlag::ALL),
    ) {
        let before = ClientCapabilities::from_json(&document.to_string()).unwrap();
        let with = before.clone().with(flag);
        prop_assert!(with.declares(flag));
        prop_assert!(with.flags().is_superset(before.flags()), "{:?}", with);
        let without = before.clone().without(flag);
        prop_assert!(!without.declares(flag));
        prop_assert!(without.flags().is_subset(before.flags()), "{:?}", without);
        prop_assert_eq!(
            before.extensions().collect::<Vec<_>>(),
            without.extensions().collect::<Vec<_>>()
        );
    }

    #[test]
    fn what_is_built_is_what_was_asked_for(server in server_flags(), client in client_flags()) {
        let built = ServerCapabilities::of(server.iter().copied());
        prop_assert!(built.flags().is_superset(&server));
        let again = ServerCapabilities::of(built.flags().iter().copied());
        prop_assert_eq!(again.flags(), built.flags());
        let mut client = client;
        // `elicitation` alone cannot be written without meaning forms.
        if client.contains(&ClientFlag::Elicitation) && !client.contains(&ClientFlag::ElicitationUrl) {
            client.insert(ClientFlag::ElicitationForm);
        }
        let built = ClientCapabilities::of(client.iter().copied());
        let parents = built.flags().difference(&client).collect::<Vec<_>>();
        prop_assert!(
            parents.iter().all(|flag| flag.path().len() == 1),
            "only what a flag is written under comes along: {:?}", parents
        );
    }

    #[test]
    fn no_version_gets_more_than_was_declared(
        document in document(),
        version in prop::sample::select(&ProtocolVersion::ALL[..]),
    ) {
        let before = ClientCapabilities::from_json(&document.to_string()).unwrap();
        let kept = before.for_version(version);
        let mut expected = before.flags_in(version);
        prop_assert!(kept.flags().is_subset(&expected), "{:?}", kept);
        // It goes where none of its modes is left.
        expected.remove(&ClientFlag::Elicitation);
        prop_assert!(kept.flags().is_superset(&expected), "{:?}", kept);
    }
}
