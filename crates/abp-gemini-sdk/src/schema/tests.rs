//! Tests of both directions of schemas.

use abp_json::{Limits, Tape, View};
use proptest::prelude::*;

use super::own::{Refusal, rewrite};
use super::to_json_schema;

/// Rewrites a schema and names what was lost, each as `place label`.
fn rewritten(schema: &str) -> Result<(String, Vec<String>), Refusal> {
    let result = rewrite(schema)?;
    let losses = result.losses.iter();
    let losses = losses.map(|loss| format!("{} {}", loss.place, loss.label));
    Ok((result.text, losses.collect()))
}

#[test]
fn json_schema_becomes_the_vendors() {
    let cases: [(&str, &str, &[&str]); 12] = [
        (
            r#"{"type":"object","properties":{"a":{"type":"string","minLength":1}},"required":["a"]}"#,
            r#"{"type":"OBJECT","properties":{"a":{"type":"STRING","minLength":1}},"required":["a"]}"#,
            &[],
        ),
        (
            r#"{"type":["string","null"]}"#,
            r#"{"type":"STRING","nullable":true}"#,
            &[],
        ),
        (
            r#"{"type":["string","integer"]}"#,
            r#"{"anyOf":[{"type":"STRING"},{"type":"INTEGER"}]}"#,
            &[],
        ),
        (
            r#"{"anyOf":[{"type":"string"},{"type":"null"}]}"#,
            r#"{"nullable":true,"anyOf":[{"type":"STRING"}]}"#,
            &[],
        ),
        (
            r#"{"type":"integer","enum":[1,2,null]}"#,
            r#"{"type":"STRING","nullable":true,"enum":["1","2"]}"#,
            &["/enum enum_as_text"],
        ),
        (r#"{"const":"a"}"#, r#"{"type":"STRING","enum":["a"]}"#, &[]),
        (
            r#"{"type":"integer","exclusiveMinimum":0}"#,
            r#"{"type":"INTEGER","minimum":1}"#,
            &[],
        ),
        (
            r#"{"type":"number","exclusiveMaximum":0.5}"#,
            r#"{"type":"NUMBER","maximum":0.5}"#,
            &["/exclusiveMaximum schema_exclusive_bound"],
        ),
        (
            r#"{"type":"string","format":"uri"}"#,
            r#"{"type":"STRING"}"#,
            &["/format schema_format"],
        ),
        (
            r##"{"$ref":"#/$defs/a","$defs":{"a":{"type":"string","$comment":"x"}}}"##,
            r#"{"type":"STRING"}"#,
            &["/$defs/a/$comment schema_keyword"],
        ),
        (
            r#"{"type":"array","prefixItems":[{"type":"string"}]}"#,
            r#"{"type":"ARRAY","items":{"type":"STRING"}}"#,
            &[" schema_any", "/prefixItems schema_keyword"],
        ),
        (
            r#"{"oneOf":[{"type":"string"}],"additionalProperties":false}"#,
            r#"{"anyOf":[{"type":"STRING"}]}"#,
            &[
                "/oneOf schema_one_of",
                "/additionalProperties schema_keyword",
            ],
        ),
    ];
    for (schema, expected, losses) in cases {
        let (text, lost) = rewritten(schema).expect(schema);
        assert_eq!(
            (text.as_str(), lost),
            (expected, losses.iter().map(ToString::to_string).collect())
        );
    }
}

#[test]
fn what_cannot_be_written_out_is_refused() {
    let doubling = (0..20).fold(String::new(), |defs, n| {
        let next = n + 1;
        format!(
            r##"{defs}"d{n}":{{"type":"object","properties":{{"l":{{"$ref":"#/$defs/d{next}"}},"r":{{"$ref":"#/$defs/d{next}"}}}}}},"##
        )
    });
    let cases = [
        (
            r##"{"type":"object","properties":{"next":{"$ref":"#"}}}"##.to_owned(),
            Refusal::Recursive,
        ),
        (
            format!(r##"{{"$ref":"#/$defs/d0","$defs":{{{doubling}"d20":{{"type":"string"}}}}}}"##),
            Refusal::TooLarge,
        ),
        ("[]".to_owned(), Refusal::Unreadable),
    ];
    for (schema, refusal) in cases {
        assert_eq!(rewritten(&schema), Err(refusal));
    }
}

#[test]
fn the_vendors_becomes_json_schema() {
    let cases = [
        (
            r#"{"type":"OBJECT","properties":{"min_items":{"type":"STRING","nullable":true}}}"#,
            Some(r#"{"type":"object","properties":{"min_items":{"type":["string","null"]}}}"#),
        ),
        (
            r#"{"type":"ARRAY","min_items":"2","items":{"type":"STRING","example":"x"}}"#,
            Some(r#"{"type":"array","minItems":2,"items":{"type":"string","examples":["x"]}}"#),
        ),
        (
            r#"{"any_of":[{"type":"STRING"}],"nullable":true}"#,
            Some(r#"{"anyOf":[{"type":"string"},{"type":"null"}]}"#),
        ),
        (r#"{"type":"object","properties":{}}"#, None),
    ];
    for (schema, expected) in cases {
        let tape = Tape::parse_str(schema, &Limits::default()).expect("JSON");
        assert_eq!(to_json_schema(tape.root()).as_deref(), expected);
    }
}

/// Schemas in the part of JSON Schema that both languages have.
fn shared() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just(r#"{"type":"string"}"#.to_owned()),
        Just(r#"{"type":"integer","minimum":3}"#.to_owned()),
        Just(r#"{"type":"string","enum":["a","b"]}"#.to_owned()),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            inner
                .clone()
                .prop_map(|items| format!(r#"{{"type":"array","items":{items}}}"#)),
            prop::collection::vec(inner, 1..3).prop_map(|properties| {
                let named = properties.iter().enumerate();
                let members: Vec<_> = named
                    .map(|(n, schema)| format!(r#""p{n}":{schema}"#))
                    .collect();
                format!(
                    r#"{{"type":"object","properties":{{{}}}}}"#,
                    members.join(",")
                )
            }),
        ]
    })
}

/// Anything that might be found where a schema should be.
fn anything() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("type"),
        Just("anyOf"),
        Just("allOf"),
        Just("items"),
        Just("properties"),
        Just("enum"),
        Just("const"),
        Just("format"),
        Just("exclusiveMinimum"),
        Just("nullable"),
        Just("not"),
    ];
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("-1.5".to_owned()),
        Just(r#""string""#.to_owned()),
        Just(r#"["integer","null"]"#.to_owned()),
        Just(r##"{"$ref":"#/properties/a"}"##.to_owned()),
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        let members = prop::collection::vec((word.clone(), inner.clone()), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..3).prop_map(|items| format!("[{}]", items.join(","))),
            members.prop_map(|members| {
                let members: Vec<_> = members
                    .iter()
                    .map(|(key, value)| format!(r#""{key}":{value}"#))
                    .collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

/// Whether a schema has only words that the vendor knows, and types in capitals.
fn is_own(schema: View<'_>) -> bool {
    const WORDS: [&str; 20] = [
        "anyOf",
        "default",
        "description",
        "enum",
        "example",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "nullable",
        "pattern",
        "properties",
        "required",
        "type",
    ];
    schema
        .entries()
        .all(|(key, value)| match &*key.as_str().unwrap_or_default() {
            "type" => value
                .as_str()
                .is_some_and(|word| *word == word.to_ascii_uppercase()),
            "items" => is_own(value),
            "anyOf" => value.items().all(is_own),
            "properties" => value.entries().all(|(_, property)| is_own(property)),
            word => WORDS.contains(&word),
        })
}

proptest! {
    #[test]
    fn there_and_back_is_the_same(schema in shared()) {
        let (own, losses) = rewritten(&schema).expect("shared schemas can be rewritten");
        let tape = Tape::parse_str(&own, &Limits::default()).expect("JSON");
        prop_assert_eq!(losses, Vec::<String>::new());
        prop_assert_eq!(to_json_schema(tape.root()), Some(schema));
    }

    #[test]
    fn the_model_gets_only_words_it_knows(schema in anything()) {
        if let Ok((own, _)) = rewritten(&schema) {
            let tape = Tape::parse_str(&own, &Limits::default()).expect("JSON");
            prop_assert!(is_own(tape.root()), "{}", own);
        }
    }
}
