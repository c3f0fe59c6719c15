//! Queries, read by the schema that documents them.

use abp_error::ErrorCode;
use abp_gateway::Refusal;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The query of a route that takes none.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoQuery {}

/// Reads a query. A parameter that the type does not have, that is given twice, or that is no value of its
/// type is refused by name.
pub(crate) fn read_query<Q: DeserializeOwned + JsonSchema>(
    query: Option<&str>,
) -> Result<Q, Refusal> {
    let schema = SchemaGenerator::default()
        .into_root_schema_for::<Q>()
        .to_value();
    let empty = Map::new();
    let known = schema.get("properties").and_then(Value::as_object);
    let known = known.unwrap_or(&empty);
    let mut values = Map::new();
    for pair in query.unwrap_or_default().split('&') {
        if pair.is_empty() {
            continue;
        }
        let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decode(name).ok_or_else(|| wrong(name, "is not valid text"))?;
        let text = decode(text).ok_or_else(|| wrong(&name, "is not valid text"))?;
        let Some(wanted) = known.get(&name) else {
            return Err(wrong(&name, "is no parameter of this address"));
        };
        let value = typed(&name, &text, wanted)?;
        if values.insert(name.clone(), value).is_some() {
            return Err(wrong(&name, "is given twice"));
        }
    }
    serde_path_to_error::deserialize(Value::Object(values)).map_err(|error| {
        let name = error.path().to_string();
        wrong(&name, &error.inner().to_string())
    })
}

/// The value of a parameter, by the type in its schema.
fn typed(name: &str, text: &str, schema: &Value) -> Result<Value, Refusal> {
    let is = |kind: &str| match schema.get("type") {
        Some(Value::String(only)) => only == kind,
        Some(Value::Array(kinds)) => kinds.iter().any(|known| known == kind),
        _ => false,
    };
    if is("boolean") {
        return match text {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => Err(wrong(name, "is true or false")),
        };
    }
    if is("integer") {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<u64>().ok().filter(|_| digits);
        let number = number.ok_or_else(|| wrong(name, "is no whole number"))?;
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
        let least = bound("minimum").unwrap_or(0);
        let most = bound("maximum").unwrap_or(u64::MAX);
        if !(least..=most).contains(&number) {
            return Err(wrong(name, &format!("is a number from {least} to {most}")));
        }
        return Ok(Value::from(number));
    }
    Ok(Value::from(text))
}

fn wrong(name: &str, problem: &str) -> Refusal {
    let message = format!("the query parameter {name:?} {problem}");
    Refusal::new(ErrorCode::ValidationFailed, message).at(name)
}

/// Undoes the escapes of a form value.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[serde(default)]
        #[schemars(range(min = 1, max = 10))]
        limit: Option<u32>,
        #[serde(default)]
        ended: Option<bool>,
        #[serde(default)]
        name: Option<String>,
    }

    #[test]
    fn values_have_the_type_and_range_of_their_schema() {
        type Expected = Result<(Option<u32>, Option<bool>, Option<&'static str>), &'static str>;
        let cases: [(&str, Expected); 12] = [
            ("", Ok((None, None, None))),
            ("limit=3&ended=true", Ok((Some(3), Some(true), None))),
            ("name=a%20b+c", Ok((None, None, Some("a b c")))),
            ("name=12", Ok((None, None, Some("12")))),
            ("limit=0", Err("limit")),
            ("limit=11", Err("limit")),
            ("limit=-1", Err("limit")),
            ("limit=99999999999999999999", Err("limit")),
            ("ended=1", Err("ended")),
            ("limit=1&limit=2", Err("limit")),
            ("other=1", Err("other")),
            ("name=%ff", Err("name")),
        ];
        for (query, expected) in cases {
            let read = read_query::<Sample>(Some(query));
            match (read, expected) {
                (Ok(read), Ok((limit, ended, name))) => {
                    let name = name.map(str::to_owned);
                    assert_eq!(read, Sample { limit, ended, name }, "{query}");
                }
                (Err(refusal), Err(place)) => {
                    let named = refusal.error.context().get("place");
                    assert_eq!(named, Some(&Value::from(place)), "{query}");
                }
                (read, _) => panic!("{query}: {read:?}"),
            }
        }
    }
}
