//! What an answer repeats of its request.

use abp_core::ir::RawJson;
use abp_json::{View, Writer};

/// The members that are repeated as they are.
const REPEATED: [&str; 14] = [
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "reasoning",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

/// What a server's tools are reached with is not repeated: answers are kept.
const SECRET: [&str; 2] = ["authorization", "headers"];

/// Reads what an answer to a request has to repeat.
pub(crate) fn echo(request: View<'_>) -> Vec<(String, RawJson)> {
    let member = |name: &&str| {
        let value = request.get(name).filter(|value| !value.is_null())?;
        Some(((*name).to_owned(), RawJson::trusted(value.raw())))
    };
    let mut echo: Vec<_> = REPEATED.iter().filter_map(member).collect();
    if let Some(tools) = request.get("tools") {
        echo.push(("tools".to_owned(), without_secrets(tools)));
    }
    echo
}

fn without_secrets(tools: View<'_>) -> RawJson {
    let mut out = Writer::with_capacity(tools.raw().len());
    out.begin_array();
    for tool in tools.items() {
        if SECRET.iter().all(|name| tool.get(name).is_none()) {
            out.raw(tool.raw());
            continue;
        }
        out.begin_object();
        for (key, value) in tool.entries() {
            let name = key.as_str_lossy().unwrap_or_default();
            if !SECRET.contains(&name.as_ref()) {
                out.key(&name);
                out.raw(value.raw());
            }
        }
        out.end_object();
    }
    out.end_array();
    RawJson::trusted(out.into_text())
}
