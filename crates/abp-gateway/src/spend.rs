//! What a request may cost, before it is sent.
//!
//! A budget holds only if the estimate cannot be shaped by the caller, so it is an upper bound: a token of
//! input is a byte at least, an answer ends at the limit that is sent along, and whatever a vendor reads
//! that the request only refers to is counted as the longest there is.

use abp_backend_core::ModelOperation;
use abp_core::{MicroUsd, ModelPrice, UsageNormalized};
use abp_dialect::Dialect;
use abp_json::{Kind, Limits, Tape, View};

use crate::Principal;
use crate::scan::Scan;

/// The limit of an answer under a budget where neither the request nor the key names one.
const USUAL_OUTPUT: u64 = 8_192;

/// Tokens that vendors add of their own: templates, descriptions of tools.
const FRAME: u64 = 1_024;

/// The most tokens that a picture makes at any vendor.
const PICTURE: u64 = 50_000;

/// The longest context of any model: for what a vendor reads and we do not see.
const CONTEXT: u64 = 1 << 20;

/// The most that a request can use and cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Most {
    pub(crate) cost: MicroUsd,
    pub(crate) tokens: u64,
}

/// The limit for an answer that has to be written into a request, if any.
pub(crate) fn output_limit(
    principal: &Principal,
    operation: &ModelOperation,
    scan: &Scan,
) -> Option<u64> {
    let generates = matches!(operation, ModelOperation::Generate { .. });
    let usual = principal.has_budget().then_some(USUAL_OUTPUT);
    let limit = principal.max_output_tokens.or(usual);
    limit.filter(|_| generates && scan.max_output.is_none())
}

impl Most {
    /// The most of a request with this body, wherever it is sent of those with these prices.
    pub(crate) fn of(
        body: &[u8],
        dialect: Dialect,
        scan: &Scan,
        prices: impl Iterator<Item = ModelPrice>,
    ) -> Self {
        let read = (body.len() as u64).saturating_add(FRAME);
        let input = read.saturating_add(unseen(dialect, body));
        let output = scan.max_output.unwrap_or(USUAL_OUTPUT);
        let output = output.saturating_mul(scan.choices.max(1));
        let costs = prices.map(|price| highest_cost(&price, input, output));
        Self {
            cost: costs.max().unwrap_or_default(),
            tokens: input.saturating_add(output),
        }
    }
}

/// What a budget has to have room for.
fn highest_cost(price: &ModelPrice, input: u64, output: u64) -> MicroUsd {
    let fresh = UsageNormalized {
        input_tokens: Some(input),
        output_tokens: Some(output),
        request_units: Some(1),
        ..UsageNormalized::default()
    };
    let as_read = price.cost(&fresh);
    let as_cached = price.cost(&UsageNormalized {
        input_tokens: None,
        cache_write_tokens: Some(input),
        ..fresh
    });
    as_read.max(as_cached)
}

/// The tokens that a vendor may read beyond the bytes of a request.
fn unseen(dialect: Dialect, body: &[u8]) -> u64 {
    let limits = Limits {
        max_bytes: body.len().max(1),
        ..Limits::default()
    };
    // What is no JSON was refused before.
    let Ok(tape) = Tape::parse(body, &limits) else {
        return CONTEXT;
    };
    let mut found = Unseen::default();
    found.root(dialect, tape.root());
    let context = if found.refers { CONTEXT } else { 0 };
    found
        .pictures
        .saturating_mul(PICTURE)
        .saturating_add(context)
}

#[derive(Default)]
struct Unseen {
    pictures: u64,
    /// To something whose length only the vendor knows.
    refers: bool,
}

impl Unseen {
    fn root(&mut self, dialect: Dialect, root: View<'_>) {
        const REFERRING: [&str; 8] = [
            "previous_response_id",
            "conversation",
            "prompt",
            "cachedContent",
            "cached_content",
            "container",
            "web_search_options",
            "mcp_servers",
        ];
        for (key, value) in root.entries() {
            let key = key.as_str().unwrap_or_default();
            self.refers |= REFERRING.contains(&key.as_ref()) && !value.is_null();
            match key.as_ref() {
                "tools" => self.tools(dialect, value),
                _ => self.part(value),
            }
        }
    }

    /// Tools that the vendor runs itself read as much as they like.
    fn tools(&mut self, dialect: Dialect, tools: View<'_>) {
        for tool in tools.items() {
            self.refers |= match (dialect, tool.get("type").and_then(View::as_str)) {
                (Dialect::Gemini, _) => tool.entries().any(|(key, _)| {
                    let key = key.as_str().unwrap_or_default();
                    !matches!(
                        key.as_ref(),
                        "functionDeclarations" | "function_declarations"
                    )
                }),
                (Dialect::Claude, Some(kind)) => {
                    let run = ["web_", "code_execution", "tool_search", "mcp_", "advisor"];
                    run.iter().any(|start| kind.starts_with(start))
                }
                (_, Some(kind)) => !matches!(kind.as_ref(), "function" | "custom"),
                (_, None) => false,
            };
        }
    }

    fn part(&mut self, value: View<'_>) {
        match value.kind() {
            Kind::Object => {
                self.object(value);
                value.entries().for_each(|(_, value)| self.part(value));
            }
            Kind::Array => value.items().for_each(|value| self.part(value)),
            _ => {}
        }
    }

    fn object(&mut self, part: View<'_>) {
        let kind = part.get("type").and_then(View::as_str);
        match kind.as_deref() {
            Some("image" | "image_url" | "input_image" | "computer_screenshot") => {
                self.pictures += 1;
            }
            Some("document" | "file" | "input_file" | "container_upload" | "item_reference") => {
                self.refers = true;
            }
            _ => {}
        }
        for (name, snake) in [("fileData", "file_data"), ("inlineData", "inline_data")] {
            let Some(data) = part.get(name).or_else(|| part.get(snake)) else {
                continue;
            };
            let kind = data.get("mimeType").or_else(|| data.get("mime_type"));
            let kind = kind.and_then(View::as_str).unwrap_or_default();
            match kind.starts_with("image/") {
                true => self.pictures += 1,
                false => self.refers = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_request_only_refers_to_is_counted() {
        use Dialect::{Claude, Codex, Gemini, OpenAi};
        let cases = [
            (OpenAi, r#"{"messages":[{"role":"user","content":"x"}]}"#, 0),
            (
                OpenAi,
                r#"{"messages":[{"content":[{"type":"image_url","image_url":{"url":"https://x"}},{"type":"text"}]}]}"#,
                PICTURE,
            ),
            (
                OpenAi,
                r#"{"messages":[{"content":[{"type":"file","file":{"file_id":"f"}}]}]}"#,
                CONTEXT,
            ),
            (
                OpenAi,
                r#"{"messages":[],"web_search_options":{}}"#,
                CONTEXT,
            ),
            (
                OpenAi,
                r#"{"tools":[{"type":"function","function":{}}]}"#,
                0,
            ),
            (Codex, r#"{"tools":[{"type":"web_search"}]}"#, CONTEXT),
            (
                Codex,
                r#"{"input":"x","previous_response_id":"resp_1"}"#,
                CONTEXT,
            ),
            (Codex, r#"{"input":"x","previous_response_id":null}"#, 0),
            (
                Codex,
                r#"{"input":[{"content":[{"type":"input_image","file_id":"a"},{"type":"input_image","file_id":"b"}]}]}"#,
                2 * PICTURE,
            ),
            (
                Claude,
                r#"{"messages":[{"content":[{"type":"document","source":{"type":"url","url":"https://x"}}]}]}"#,
                CONTEXT,
            ),
            (
                Claude,
                r#"{"messages":[{"content":[{"type":"tool_use","input":{"url":"https://x"}}]}],"tools":[{"name":"f","input_schema":{}},{"type":"bash_20250124","name":"bash"}]}"#,
                0,
            ),
            (
                Claude,
                r#"{"tools":[{"type":"web_search_20250305"}]}"#,
                CONTEXT,
            ),
            (
                Gemini,
                r#"{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":""}}]}]}"#,
                PICTURE,
            ),
            (
                Gemini,
                r#"{"contents":[{"parts":[{"fileData":{"mimeType":"video/mp4","fileUri":"x"}}]}]}"#,
                CONTEXT,
            ),
            (Gemini, r#"{"tools":[{"functionDeclarations":[]}]}"#, 0),
            (Gemini, r#"{"tools":[{"googleSearch":{}}]}"#, CONTEXT),
        ];
        for (dialect, body, expected) in cases {
            assert_eq!(unseen(dialect, body.as_bytes()), expected, "{body}");
        }
    }
}
