//! From the vendor's language to JSON Schema.

use std::borrow::Cow;

use abp_json::{Kind, View, Writer};

use crate::wire::{is_named, numbered, numbered_word};

/// Keywords that the wire may spell in snake case.
const KEYWORDS: [&str; 10] = [
    "anyOf",
    "additionalProperties",
    "maxItems",
    "maxLength",
    "maxProperties",
    "minItems",
    "minLength",
    "minProperties",
    "prefixItems",
    "propertyOrdering",
];

/// The schema as JSON Schema; `None` where it is that already.
pub(crate) fn to_json_schema(schema: View<'_>) -> Option<String> {
    let mut converter = Converter {
        writer: Writer::with_capacity(schema.raw().len()),
        changed: false,
    };
    converter.schema(schema);
    converter.changed.then(|| converter.writer.into_text())
}

struct Converter {
    writer: Writer,
    changed: bool,
}

impl Converter {
    fn schema(&mut self, schema: View<'_>) {
        if schema.kind() != Kind::Object {
            self.writer.raw(schema.raw());
            return;
        }
        let nullable = schema.get("nullable").and_then(View::as_bool) == Some(true);
        self.writer.begin_object();
        for (key, value) in schema.entries() {
            let name = key.as_str_lossy().unwrap_or_default();
            let known = KEYWORDS.into_iter().find(|word| is_named(&name, word));
            // Where a client's language reserves the word.
            let known = known.or((name == "type_").then_some("type"));
            self.changed |= known.is_some_and(|word| word != name);
            self.keyword(known.unwrap_or(&name), value, nullable);
        }
        self.writer.end_object();
    }

    fn keyword(&mut self, name: &str, value: View<'_>, nullable: bool) {
        match name {
            "nullable" => self.changed = true,
            "type" => self.types(value, nullable),
            "enum" if nullable => self.list(name, value, Some("null"), |this, item| {
                this.writer.raw(item.raw());
            }),
            "anyOf" => {
                let absent = nullable.then_some(r#"{"type":"null"}"#);
                self.list(name, value, absent, Self::schema);
            }
            "items" | "additionalProperties" => {
                self.writer.key(name);
                self.schema(value);
            }
            "prefixItems" => self.list(name, value, None, Self::schema),
            "properties" | "$defs" | "defs" => self.properties(name, value),
            "example" => {
                self.changed = true;
                self.writer.key("examples");
                self.writer.begin_array();
                self.writer.raw(value.raw());
                self.writer.end_array();
            }
            "maxItems" | "maxLength" | "maxProperties" | "minItems" | "minLength"
            | "minProperties" => self.count(name, value),
            _ => {
                self.writer.key(name);
                self.writer.raw(value.raw());
            }
        }
    }

    /// Types are written in capitals; a value that may be absent has one more.
    fn types(&mut self, value: View<'_>, nullable: bool) {
        let numbered = numbered_word(value, numbered::TYPE).map(Cow::Borrowed);
        let word = value.as_str().or(numbered);
        if word.as_deref() == Some("TYPE_UNSPECIFIED") {
            self.changed = true;
            return;
        }
        self.writer.key("type");
        let Some(word) = word else {
            self.writer.raw(value.raw());
            return;
        };
        let lower = word.to_ascii_lowercase();
        self.changed |= value.kind() != Kind::String || lower != word;
        if nullable {
            self.writer.begin_array();
            self.writer.string(&lower);
            self.writer.string("null");
            self.writer.end_array();
        } else {
            self.writer.string(&lower);
        }
    }

    fn properties(&mut self, name: &str, value: View<'_>) {
        self.writer.key(name);
        if value.kind() != Kind::Object {
            self.writer.raw(value.raw());
            return;
        }
        self.writer.begin_object();
        for (key, property) in value.entries() {
            self.writer.key(&key.as_str_lossy().unwrap_or_default());
            self.schema(property);
        }
        self.writer.end_object();
    }

    fn list(
        &mut self,
        name: &str,
        value: View<'_>,
        last: Option<&str>,
        item: impl Fn(&mut Self, View<'_>),
    ) {
        self.writer.key(name);
        if value.kind() != Kind::Array {
            self.writer.raw(value.raw());
            return;
        }
        self.writer.begin_array();
        for entry in value.items() {
            item(self, entry);
        }
        if let Some(last) = last {
            self.writer.raw(last);
        }
        self.writer.end_array();
    }

    /// Protobuf writes 64-bit counts as strings.
    fn count(&mut self, name: &str, value: View<'_>) {
        self.writer.key(name);
        match value.as_str() {
            Some(digits) if digits.parse::<u64>().is_ok() => {
                self.changed = true;
                self.writer.raw(digits.trim_start_matches('+'));
            }
            _ => self.writer.raw(value.raw()),
        }
    }
}
