//! The least JSON that a schema accepts, for schemas of the kinds that tools and answers have.
//!
//! Patterns, `not`, `if` and unique items are not understood.

use serde_json::{Map, Value, json};

/// How deep and how large a value gets; what is left out beyond is `null`.
const MAX_DEPTH: usize = 24;
const MAX_VALUES: usize = 2_000;

/// Texts of the usual formats.
const FORMATS: [(&str, &str); 8] = [
    ("date-time", "2025-01-01T00:00:00Z"),
    ("date", "2025-01-01"),
    ("time", "00:00:00Z"),
    ("email", "text@example.com"),
    ("uri", "https://example.com"),
    ("uuid", "00000000-0000-4000-8000-000000000000"),
    ("ipv4", "127.0.0.1"),
    ("hostname", "example.com"),
];

/// A value that a schema accepts.
pub(super) fn instance(schema: &Value) -> Value {
    let mut maker = Maker {
        root: schema,
        left: MAX_VALUES,
    };
    maker.value(schema, 0)
}

struct Maker<'s> {
    root: &'s Value,
    left: usize,
}

impl Maker<'_> {
    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        if depth == MAX_DEPTH || self.left == 0 {
            return Value::Null;
        }
        self.left -= 1;
        let Some(rules) = schema.as_object() else {
            return json!("text");
        };
        if let Some(only) = rules.get("const").or(first(rules, "enum")) {
            return only.clone();
        }
        if let Some(name) = rules.get("$ref").and_then(Value::as_str) {
            let target = name
                .strip_prefix('#')
                .and_then(|place| self.root.pointer(place));
            return target
                .cloned()
                .map_or(Value::Null, |target| self.value(&target, depth + 1));
        }
        for word in ["allOf", "anyOf", "oneOf"] {
            if let Some(parts) = rules.get(word).and_then(Value::as_array) {
                let parts = if word == "allOf" {
                    parts
                } else {
                    parts.get(..1).unwrap_or(&[])
                };
                let joined = self.joined(rules, word, parts);
                return self.value(&joined, depth + 1);
            }
        }
        match kind(rules).as_str() {
            "object" => self.object(rules, depth),
            "array" => self.array(rules, depth),
            "integer" | "number" => number(rules),
            "boolean" => json!(true),
            "null" => Value::Null,
            _ => string(rules),
        }
    }

    /// A schema with its parts put into it.
    fn joined(&self, rules: &Map<String, Value>, word: &str, parts: &[Value]) -> Value {
        let mut joined = rules.clone();
        joined.remove(word);
        for part in parts {
            let name = part.get("$ref").and_then(Value::as_str);
            let target = name.and_then(|name| self.root.pointer(name.strip_prefix('#')?));
            for (key, value) in target.unwrap_or(part).as_object().into_iter().flatten() {
                match (joined.get_mut(key), value) {
                    (Some(Value::Object(known)), Value::Object(more)) => {
                        known.extend(more.clone());
                    }
                    (Some(Value::Array(known)), Value::Array(more)) if key == "required" => {
                        known.extend(more.iter().cloned());
                    }
                    _ => {
                        joined.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        Value::Object(joined)
    }

    fn object(&mut self, rules: &Map<String, Value>, depth: usize) -> Value {
        let empty = Map::new();
        let known = rules
            .get("properties")
            .and_then(Value::as_object)
            .unwrap_or(&empty);
        let required = rules.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        let mut members = Map::new();
        let least = rules
            .get("minProperties")
            .and_then(Value::as_u64)
            .unwrap_or(0);
        let named: Vec<&str> = required.collect();
        let optional = known
            .keys()
            .map(String::as_str)
            .filter(|name| !named.contains(name));
        for name in named.iter().copied().chain(optional) {
            if members.len() as u64 >= least && !named.contains(&name) {
                break;
            }
            let schema = known.get(name).or(rules.get("additionalProperties"));
            let value = self.value(schema.unwrap_or(&Value::Null), depth + 1);
            members.insert(name.to_owned(), value);
        }
        Value::Object(members)
    }

    fn array(&mut self, rules: &Map<String, Value>, depth: usize) -> Value {
        let least = rules.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        let count = usize::try_from(least).unwrap_or(MAX_VALUES).min(self.left);
        let first = rules.get("prefixItems").and_then(Value::as_array);
        let first = first.map_or(&[][..], Vec::as_slice);
        let rest = rules.get("items").unwrap_or(&Value::Null);
        let schemas = first.iter().chain(std::iter::repeat(rest)).take(count);
        schemas
            .map(|schema| self.value(schema, depth + 1))
            .collect()
    }
}

fn first<'r>(rules: &'r Map<String, Value>, word: &str) -> Option<&'r Value> {
    rules.get(word)?.as_array()?.first()
}

/// The type of a value; Google writes it in capitals, and some do not write it.
fn kind(rules: &Map<String, Value>) -> String {
    let written = rules.get("type").and_then(Value::as_str);
    let written = written.or_else(|| first(rules, "type")?.as_str());
    let has = |words: &[&str]| words.iter().any(|word| rules.contains_key(*word));
    match written {
        Some(word) => word.to_ascii_lowercase(),
        None if has(&["properties", "required"]) => "object".to_owned(),
        None if has(&["items", "minItems"]) => "array".to_owned(),
        None if has(&["minimum", "maximum"]) => "number".to_owned(),
        None => "string".to_owned(),
    }
}

fn string(rules: &Map<String, Value>) -> Value {
    let format = rules.get("format").and_then(Value::as_str);
    if let Some((_, text)) = FORMATS.iter().find(|(name, _)| Some(*name) == format) {
        return json!(text);
    }
    let limit = |word: &str, usual: usize| {
        let limit = rules.get(word).and_then(Value::as_u64);
        limit.map_or(usual, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
    };
    let usual = "text";
    let length = usual
        .len()
        .max(limit("minLength", 0))
        .min(limit("maxLength", usize::MAX))
        .min(MAX_VALUES);
    json!(usual.chars().cycle().take(length).collect::<String>())
}

/// One, or what is nearest to it within the limits.
fn number(rules: &Map<String, Value>) -> Value {
    let limit = |word: &str| rules.get(word).and_then(Value::as_f64);
    let above = limit("exclusiveMinimum").map(|least| least + 1.0);
    let below = limit("exclusiveMaximum").map(|most| most - 1.0);
    let least = limit("minimum")
        .into_iter()
        .chain(above)
        .fold(f64::MIN, f64::max);
    let most = limit("maximum")
        .into_iter()
        .chain(below)
        .fold(f64::MAX, f64::min);
    let nearest = 1.0_f64.min(most).max(least);
    let number = match limit("multipleOf") {
        Some(step) if step > 0.0 => (nearest / step).ceil() * step,
        _ => nearest,
    };
    // A whole number is written as one: `1.0` is no integer to everybody.
    if number.fract() == 0.0 && number.abs() < 9e15 {
        json!(number as i64)
    } else {
        json!(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(schema: &Value) -> bool {
        let validator = jsonschema::validator_for(schema).unwrap();
        validator.is_valid(&instance(schema))
    }

    #[test]
    fn schemas_accept_what_is_made_for_them() {
        let object = json!({
            "type": "object",
            "properties": {
                "city": {"type": "string", "minLength": 6, "maxLength": 9},
                "unit": {"enum": ["c", "f"]},
                "days": {"type": "integer", "minimum": 3, "maximum": 5},
                "at": {"$ref": "#/$defs/point"},
                "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
                "note": {"type": ["null", "string"]},
                "left": {"type": "string", "pattern": "never"},
            },
            "required": ["city", "unit", "days", "at", "tags", "note"],
            "additionalProperties": false,
            "$defs": {"point": {
                "type": "object",
                "properties": {"x": {"type": "number", "exclusiveMinimum": 1}},
                "required": ["x"],
            }},
        });
        let schemas = [
            object,
            json!(true),
            json!({}),
            json!({"const": {"a": [1]}}),
            json!({"type": "boolean"}),
            json!({"type": "number", "minimum": 2.5, "multipleOf": 2}),
            json!({"type": "integer", "maximum": -3}),
            json!({"type": "integer", "exclusiveMaximum": 1}),
            json!({"type": "string", "maxLength": 2}),
            json!({"type": "array", "prefixItems": [{"type": "integer"}], "minItems": 2}),
            json!({"type": "object", "minProperties": 1, "properties": {"a": {"type": "null"}}}),
            json!({"required": ["a"], "additionalProperties": {"type": "integer"}}),
            json!({"anyOf": [{"type": "null"}, {"type": "string"}]}),
            json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({"allOf": [
                {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"properties": {"b": {"type": "string"}}, "required": ["b"]},
            ]}),
            json!({"type": "object", "properties": {"next": {"$ref": "#"}}}),
        ];
        for schema in schemas {
            assert!(
                accepted(&schema),
                "{schema} does not accept {}",
                instance(&schema)
            );
        }
        for (format, _) in FORMATS {
            let schema = json!({"type": "string", "format": format});
            let checked = jsonschema::options().should_validate_formats(true);
            let validator = checked.build(&schema).unwrap();
            assert!(validator.is_valid(&instance(&schema)), "{format}");
        }
        let googles = json!({"type": "OBJECT", "properties": {"a": {"type": "INTEGER"}},
            "required": ["a"]});
        assert_eq!(instance(&googles), json!({"a": 1}));
    }

    #[test]
    fn schemas_without_end_are_ended() {
        let endless = json!({"type": "array", "minItems": 9, "items": {"$ref": "#"}});
        let wide = json!({"type": "array", "minItems": u64::MAX, "items": true});
        let long = json!({"type": "string", "minLength": u64::MAX});
        let itself = json!({"$ref": "#"});
        for schema in [endless, wide, long, itself] {
            assert!(instance(&schema).to_string().len() < 20_000, "{schema}");
        }
    }
}
