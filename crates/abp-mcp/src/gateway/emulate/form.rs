//! Forms filled in with prepared answers.
//!
//! Consent is the operator's: a form is accepted only where every field that it requires has an answer
//! that was prepared and fits. Defaults of a server are its own words and fill in nothing.

use std::collections::BTreeMap;

use abp_json::{View, Writer};

use super::{begin_labelled, json, plain_label};
use crate::negotiate::Emulation;

/// What is known of a field and can be held against an answer. A schema that says more is not filled in.
const KNOWN: [&str; 16] = [
    "type",
    "title",
    "description",
    "default",
    "enum",
    "enumNames",
    "oneOf",
    "anyOf",
    "format",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "items",
    "minItems",
    "maxItems",
];

/// Answers to the fields of forms, as text; each becomes what its field wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreparedAnswers {
    /// For every server.
    pub everywhere: BTreeMap<String, String>,
    /// For one server, by its name; goes first.
    pub by_server: BTreeMap<String, BTreeMap<String, String>>,
}

impl PreparedAnswers {
    pub(super) fn limits(&self) -> String {
        let servers = self.by_server.values().map(BTreeMap::len);
        let count = self.everywhere.len() + servers.sum::<usize>();
        format!("{count} prepared, everything else is declined, never an address")
    }

    /// The result of `elicitation/create`.
    pub(super) fn fill_in(&self, server: &str, params: Option<&str>) -> String {
        let content = json::read(params, |params| self.content(server, params));
        let mut out = Writer::default();
        begin_labelled(&mut out, &plain_label(Emulation::Elicitation));
        out.key("action");
        match content.flatten() {
            Some(content) => {
                out.string("accept");
                out.key("content");
                out.raw(&content);
            }
            None => out.string("decline"),
        }
        out.end_object();
        out.into_text()
    }

    fn content(&self, server: &str, params: View<'_>) -> Option<String> {
        let schema = params.get("requestedSchema")?;
        let required = schema.get("required").into_iter().flat_map(View::items);
        let required: Vec<_> = required.map(View::as_str).collect::<Option<_>>()?;
        let mut out = Writer::default();
        let mut answered = Vec::new();
        out.begin_object();
        for (name, field) in schema.get("properties")?.entries() {
            let name = name.as_str()?;
            let Some(prepared) = self.find(server, &name) else {
                continue;
            };
            let Some(value) = fit(prepared, field) else {
                tracing::warn!(target: "abp.mcp", server, field = %name, "a prepared answer does not fit");
                return None;
            };
            out.key(&name);
            out.raw(&value);
            answered.push(name);
        }
        out.end_object();
        let is_complete = required.iter().all(|name| answered.contains(name));
        (is_complete && !answered.is_empty()).then(|| out.into_text())
    }

    fn find(&self, server: &str, field: &str) -> Option<&str> {
        let own = self.by_server.get(server).and_then(|own| own.get(field));
        own.or_else(|| self.everywhere.get(field))
            .map(String::as_str)
    }
}

/// An answer as the JSON that a field wants; `None` where it does not fit.
fn fit(answer: &str, field: View<'_>) -> Option<String> {
    let is_known = |key: View<'_>| key.as_str().is_some_and(|key| KNOWN.contains(&&*key));
    if !field.entries().all(|(key, _)| is_known(key)) {
        return None;
    }
    match field.get("type")?.as_str()?.as_ref() {
        "string" => {
            let length = answer.chars().count() as u64;
            let fits =
                is_within(field, length, "minLength", "maxLength") && is_offered(answer, field);
            fits.then(|| json::text(answer))
        }
        "integer" => {
            let number: i64 = answer.parse().ok()?;
            #[expect(clippy::cast_precision_loss, reason = "limits of forms are small")]
            let fits = is_between(field, number as f64);
            fits.then(|| number.to_string())
        }
        "number" => {
            let number: f64 = answer
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite())?;
            is_between(field, number).then(|| number.to_string())
        }
        "boolean" => matches!(answer, "true" | "false").then(|| answer.to_owned()),
        // One of several that may be chosen.
        "array" => {
            let fits = is_within(field, 1, "minItems", "maxItems")
                && is_offered(answer, field.get("items")?);
            fits.then(|| format!("[{}]", json::text(answer)))
        }
        _ => None,
    }
}

fn is_within(field: View<'_>, size: u64, least: &str, most: &str) -> bool {
    let limit = |key| field.get(key).map(View::as_u64);
    // A limit that cannot be read is none that is kept.
    limit(least).is_none_or(|least| least.is_some_and(|least| size >= least))
        && limit(most).is_none_or(|most| most.is_some_and(|most| size <= most))
}

fn is_between(field: View<'_>, number: f64) -> bool {
    let limit = |key| field.get(key).map(View::as_f64);
    limit("minimum").is_none_or(|least| least.is_some_and(|least| number >= least))
        && limit("maximum").is_none_or(|most| most.is_some_and(|most| number <= most))
}

/// Whether an answer is among the choices of a field that has any.
fn is_offered(answer: &str, field: View<'_>) -> bool {
    let is_it = |choice: View<'_>| choice.as_str().is_some_and(|choice| choice == answer);
    let is_among = |choices: View<'_>| choices.items().any(is_it);
    let is_titled = |choices: View<'_>| {
        let mut named = choices.items().filter_map(|choice| choice.get("const"));
        named.any(is_it)
    };
    field.get("enum").is_none_or(is_among)
        && field.get("oneOf").is_none_or(is_titled)
        && field.get("anyOf").is_none_or(is_titled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prepared_answers_that_fit_are_given() {
        let prepared = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(key, value)| ((*key).into(), (*value).into()));
            pairs.collect::<BTreeMap<String, String>>()
        };
        let answers = PreparedAnswers {
            everywhere: prepared(&[
                ("name", "Ann"),
                ("age", "7"),
                ("ok", "true"),
                ("size", "XL"),
            ]),
            by_server: [("other".to_owned(), prepared(&[("name", "Bob")]))].into(),
        };
        let cases = [
            (
                "s",
                r#"{"name":{"type":"string"}}"#,
                "[]",
                Some(r#"{"name":"Ann"}"#),
            ),
            (
                "other",
                r#"{"name":{"type":"string"}}"#,
                "[]",
                Some(r#"{"name":"Bob"}"#),
            ),
            (
                "s",
                r#"{"age":{"type":"integer","minimum":7},"ok":{"type":"boolean"},"more":{"type":"string"}}"#,
                r#"["ok"]"#,
                Some(r#"{"age":7,"ok":true}"#),
            ),
            (
                "s",
                r#"{"size":{"type":"array","items":{"enum":["M","XL"]}}}"#,
                "[]",
                Some(r#"{"size":["XL"]}"#),
            ),
            (
                "s",
                r#"{"size":{"type":"string","oneOf":[{"const":"XL","title":"x"}]}}"#,
                "[]",
                Some(r#"{"size":"XL"}"#),
            ),
            // What is not prepared, or does not fit, is not consented to.
            (
                "s",
                r#"{"size":{"type":"string","oneOf":[{"const":"M"}]}}"#,
                "[]",
                None,
            ),
            (
                "s",
                r#"{"size":{"type":"string","enum":["M","L"]}}"#,
                "[]",
                None,
            ),
            ("s", r#"{"age":{"type":"integer","maximum":6}}"#, "[]", None),
            (
                "s",
                r#"{"name":{"type":"string","minLength":4}}"#,
                "[]",
                None,
            ),
            (
                "s",
                r#"{"name":{"type":"string","pattern":"B.*"}}"#,
                "[]",
                None,
            ),
            ("s", r#"{"name":{"type":"integer"}}"#, "[]", None),
            (
                "s",
                r#"{"name":{"type":"string"},"more":{"type":"string","default":"x"}}"#,
                r#"["more"]"#,
                None,
            ),
            ("s", "{}", "[]", None),
        ];
        for (server, fields, required, expected) in cases {
            let schema =
                format!(r#"{{"type":"object","properties":{fields},"required":{required}}}"#);
            let params = format!(r#"{{"message":"?","requestedSchema":{schema}}}"#);
            let given = answers.fill_in(server, Some(&params));
            let label = r#"{"_meta":{"dev.abp/emulated":{"by":"elicitation"}},"#;
            let wanted = match expected {
                Some(content) => format!(r#"{label}"action":"accept","content":{content}}}"#),
                None => format!(r#"{label}"action":"decline"}}"#),
            };
            assert_eq!(given, wanted, "{fields}");
        }
    }
}
