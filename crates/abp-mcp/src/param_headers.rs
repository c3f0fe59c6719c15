//! Parameters of tools that HTTP headers repeat, since 2026-07-28.
//!
//! A property of an input schema that says `x-mcp-header` is sent a second time as `Mcp-Param-*`, so that
//! whoever is in between can see it without reading the body. Both ends hold the two against each other.

use std::borrow::Cow;
use std::collections::BTreeMap;

use abp_json::{Kind, View};

use crate::headers::{decode_header, encode_header};
use crate::refusal::{RpcRefusal, shorten};

const ANNOTATION: &str = "x-mcp-header";
const PREFIX: &str = "mcp-param-";
/// Members of a schema that hold values and no schemas.
const VALUES: [&str; 4] = ["const", "default", "enum", "examples"];

/// The parameters of a tool that headers repeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParamHeaders {
    /// Where a parameter is, by the name of its header.
    by_header: BTreeMap<String, Vec<String>>,
}

/// The `Mcp-Param-*` headers that came with a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaidParams(BTreeMap<String, String>);

/// Why a tool may not be used over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamFault {
    /// The name cannot be part of a header's.
    #[error("x-mcp-header is not a name for a header")]
    Name,
    /// Two parameters would have the same header.
    #[error("two parameters have the same x-mcp-header")]
    Twice,
    /// Its values cannot be in a header.
    #[error("x-mcp-header is for a text, an integer or a boolean")]
    Type,
    /// It is not at a fixed place in the arguments.
    #[error("x-mcp-header is not at a property that is always at the same place")]
    Place,
}

impl ParamHeaders {
    /// Reads them from what is listed of a tool.
    ///
    /// # Errors
    /// Says what is wrong with the tool.
    pub fn of(tool: View<'_>) -> Result<Self, ParamFault> {
        let mut headers = Self::default();
        if let Some(schema) = tool.get("inputSchema") {
            headers.scan(schema, &mut Vec::new())?;
        }
        Ok(headers)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_header.is_empty()
    }

    /// The headers of a call, with their values.
    pub(crate) fn of_call(&self, params: Option<View<'_>>) -> Vec<(String, String)> {
        let said = self.by_header.iter().filter_map(|(header, path)| {
            let value = value_at(params, path)?;
            Some((header.clone(), encode_header(&value).into_owned()))
        });
        said.collect()
    }

    /// Holds the headers of a call against its arguments.
    ///
    /// # Errors
    /// Names the header that is missing or says something else.
    pub fn check(&self, params: Option<View<'_>>, said: &SaidParams) -> Result<(), RpcRefusal> {
        for (header, path) in &self.by_header {
            let body = value_at(params, path);
            let header_value = said.0.get(header).map(|value| decode_header(value));
            let what = match (body, header_value.transpose()?) {
                (None, None) => continue,
                (Some(body), Some(said)) if is_same(&body, &said) => continue,
                (Some(_), None) => format!("{header} is missing"),
                (body, Some(said)) => {
                    let body = shorten(&body.unwrap_or_default());
                    format!("{header} is {:?}, the body says {body:?}", shorten(&said))
                }
            };
            return Err(RpcRefusal::HeaderMismatch { what });
        }
        Ok(())
    }

    fn scan(&mut self, schema: View<'_>, path: &mut Vec<String>) -> Result<(), ParamFault> {
        for (key, member) in schema.entries() {
            match key.as_str().as_deref() {
                Some(ANNOTATION) => self.add(schema, member, path)?,
                Some("properties") => {
                    for (name, property) in member.entries() {
                        path.push(name.as_str().unwrap_or_default().into_owned());
                        self.scan(property, path)?;
                        path.pop();
                    }
                }
                Some(values) if VALUES.contains(&values) => {}
                _ if has_annotation(member) => return Err(ParamFault::Place),
                _ => {}
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        property: View<'_>,
        name: View<'_>,
        path: &[String],
    ) -> Result<(), ParamFault> {
        let name = name.as_str().filter(|name| is_token(name));
        let name = name.ok_or(ParamFault::Name)?;
        let kind = property.get("type").and_then(View::as_str);
        if !matches!(kind.as_deref(), Some("string" | "integer" | "boolean")) {
            return Err(ParamFault::Type);
        }
        if path.is_empty() {
            return Err(ParamFault::Place);
        }
        let header = format!("{PREFIX}{}", name.to_ascii_lowercase());
        match self.by_header.insert(header, path.to_vec()) {
            Some(_) => Err(ParamFault::Twice),
            None => Ok(()),
        }
    }
}

impl SaidParams {
    /// Takes them out of all the headers of a request.
    pub(crate) fn of(headers: &http::HeaderMap) -> Self {
        let said = headers.iter().filter_map(|(name, value)| {
            let value = value.to_str().ok()?;
            let name = name.as_str();
            name.starts_with(PREFIX)
                .then(|| (name.to_owned(), value.trim().to_owned()))
        });
        Self(said.collect())
    }
}

/// An argument as a header says it; `None` where there is none.
fn value_at<'t>(params: Option<View<'t>>, path: &[String]) -> Option<Cow<'t, str>> {
    let mut at = params?.get("arguments")?;
    for name in path {
        at = at.get(name)?;
    }
    match at.kind() {
        Kind::String => at.as_str(),
        Kind::Null | Kind::Object | Kind::Array => None,
        _ => Some(Cow::Borrowed(at.raw())),
    }
}

/// Numbers may be written in several ways.
fn is_same(body: &str, said: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    body == said || number(body).is_some_and(|body| number(said) == Some(body))
}

fn has_annotation(schema: View<'_>) -> bool {
    let keyed = schema.entries().any(|(key, member)| {
        let key = key.as_str();
        let is_value = key.as_deref().is_some_and(|key| VALUES.contains(&key));
        key.as_deref() == Some(ANNOTATION) || !is_value && has_annotation(member)
    });
    keyed || schema.items().any(has_annotation)
}

/// What HTTP calls a token.
fn is_token(name: &str) -> bool {
    let is_mark = |byte| b"!#$%&'*+-.^_`|~".contains(&byte);
    let mut bytes = name.bytes();
    !name.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || is_mark(byte))
}

#[cfg(test)]
mod tests {
    use abp_json::Tape;

    use super::*;
    use crate::message::MESSAGE_LIMITS;

    type Said = &'static [(&'static str, &'static str)];

    /// The headers of a tool whose input schema this is, or what is wrong with it.
    fn headers(schema: &str) -> Result<Vec<String>, ParamFault> {
        let tool = format!("{{\"name\":\"t\",\"inputSchema\":{schema}}}");
        let tape = Tape::parse_str(&tool, &MESSAGE_LIMITS).expect("a tool");
        let headers = ParamHeaders::of(tape.root())?;
        Ok(headers.by_header.into_keys().collect())
    }

    #[test]
    fn a_tool_is_read_or_refused() {
        let cases: [(&str, Result<&[&str], ParamFault>); 9] = [
            (r#"{"properties":{"a":{"type":"string"}}}"#, Ok(&[])),
            (
                r#"{"properties":{"a":{"type":"object","properties":{"b":{"type":"integer","x-mcp-header":"B"}}}}}"#,
                Ok(&["mcp-param-b"]),
            ),
            (
                r#"{"properties":{"a":{"type":"object","default":{"x-mcp-header":"A"}}}}"#,
                Ok(&[]),
            ),
            (
                r#"{"properties":{"a":{"type":"string","x-mcp-header":""}}}"#,
                Err(ParamFault::Name),
            ),
            (
                r#"{"properties":{"a":{"type":"string","x-mcp-header":"A:B"}}}"#,
                Err(ParamFault::Name),
            ),
            (
                r#"{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}"#,
                Err(ParamFault::Type),
            ),
            (
                r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}"#,
                Err(ParamFault::Twice),
            ),
            (
                r#"{"properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}"#,
                Err(ParamFault::Place),
            ),
            (
                r#"{"oneOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}"#,
                Err(ParamFault::Place),
            ),
        ];
        for (schema, expected) in cases {
            let expected = expected.map(|names| names.iter().map(|&name| name.into()).collect());
            assert_eq!(headers(schema), expected, "{schema}");
        }
    }

    #[test]
    fn headers_are_held_against_arguments() {
        let tool = r#"{"inputSchema":{"properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"}}}}"#;
        let tape = Tape::parse_str(tool, &MESSAGE_LIMITS).expect("a tool");
        let headers = ParamHeaders::of(tape.root()).expect("headers");
        let cases: [(&str, Said, bool); 7] = [
            (r#"{"region":"eu"}"#, &[("region", "eu")], true),
            (
                r#"{"region":"Hello"}"#,
                &[("region", "=?base64?SGVsbG8=?=")],
                true,
            ),
            (
                r#"{"region":"eu","n":1}"#,
                &[("region", "eu"), ("n", "1.0")],
                true,
            ),
            (r#"{"region":null}"#, &[], true),
            (r#"{"region":"eu"}"#, &[], false),
            (r#"{"region":"eu"}"#, &[("region", "us")], false),
            ("{}", &[("region", "eu")], false),
        ];
        for (arguments, said, is_right) in cases {
            let params = format!("{{\"arguments\":{arguments}}}");
            let tape = Tape::parse_str(&params, &MESSAGE_LIMITS).expect("params");
            let said = said
                .iter()
                .map(|&(name, value)| (format!("{PREFIX}{name}"), value.into()));
            let said = SaidParams(said.collect());
            let checked = headers.check(Some(tape.root()), &said);
            assert_eq!(checked.is_ok(), is_right, "{arguments} {said:?}");
        }
    }
}
