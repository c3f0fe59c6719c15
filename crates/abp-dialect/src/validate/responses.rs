//! Responses.

use abp_json::View;

use super::findings::Shape::{Flag, Integer, List, Number, Object, Text, TextOrList, TextOrObject};
use super::findings::{Findings, Shape, present, text};
use crate::DocumentKind;

const REQUEST: [(&str, Shape); 16] = [
    ("background", Flag),
    ("conversation", TextOrObject),
    ("include", List),
    ("instructions", TextOrList),
    ("max_output_tokens", Integer),
    ("metadata", Object),
    ("parallel_tool_calls", Flag),
    ("previous_response_id", Text),
    ("prompt", Object),
    ("reasoning", Object),
    ("store", Flag),
    ("stream", Flag),
    ("temperature", Number),
    ("text", Object),
    ("tool_choice", TextOrObject),
    ("top_p", Number),
];

const ROLES: [&str; 4] = ["system", "developer", "user", "assistant"];

/// What a request may build on instead of an input of its own.
const INSTEAD_OF_INPUT: [&str; 3] = ["prompt", "conversation", "previous_response_id"];

/// The events that hold the whole response so far.
const LIFECYCLE: [&str; 6] = [
    "response.created",
    "response.queued",
    "response.in_progress",
    "response.completed",
    "response.incomplete",
    "response.failed",
];

pub(super) fn check(kind: DocumentKind, root: View<'_>, findings: &mut Findings) {
    if !findings.expect(root, Object) {
        return;
    }
    match kind {
        DocumentKind::Request => request(root, findings),
        DocumentKind::Response => response(root, findings),
        DocumentKind::StreamEvent => stream_event(root, findings),
        DocumentKind::Error => error(root, findings),
    }
}

fn request(root: View<'_>, findings: &mut Findings) {
    findings.advise_text(root, "model");
    findings.optionals(root, &REQUEST);
    let stands_alone = INSTEAD_OF_INPUT
        .iter()
        .all(|key| present(root, key).is_none());
    let input = if stands_alone {
        findings.require(root, "input", TextOrList)
    } else {
        findings.optional(root, "input", TextOrList)
    };
    for item in findings.objects(input) {
        input_item(item, findings);
    }
    let tools = findings.optional(root, "tools", List);
    for tool in findings.objects(tools) {
        findings.require(tool, "type", Text);
        if matches!(text(tool, "type").as_str(), "function" | "custom") {
            findings.tool_name(tool);
        }
    }
}

fn input_item(item: View<'_>, findings: &mut Findings) {
    match text(item, "type").as_str() {
        "" | "message" => {
            findings.word(item, "role", &ROLES);
            let content = findings.require(item, "content", TextOrList);
            content_parts(content, findings);
        }
        "function_call_output" => {
            findings.requires(item, &[("call_id", Text), ("output", TextOrList)]);
        }
        word => call(word, item, findings),
    }
}

fn content_parts(content: Option<View<'_>>, findings: &mut Findings) {
    for part in findings.objects(content) {
        findings.require(part, "type", Text);
        if matches!(text(part, "type").as_str(), "input_text" | "output_text") {
            findings.require(part, "text", Text);
        }
    }
}

fn call(word: &str, item: View<'_>, findings: &mut Findings) {
    match word {
        "function_call" => {
            findings.requires(
                item,
                &[("call_id", Text), ("name", Text), ("arguments", Text)],
            );
        }
        "custom_tool_call" => {
            findings.requires(item, &[("call_id", Text), ("name", Text), ("input", Text)]);
        }
        _ => {}
    }
}

fn response(root: View<'_>, findings: &mut Findings) {
    findings.optionals(root, &[("id", Text), ("status", Text), ("usage", Object)]);
    if text(root, "object") == "response.input_tokens" {
        findings.require(root, "input_tokens", Integer);
        return;
    }
    let output = findings.require(root, "output", List);
    for item in findings.objects(output) {
        findings.require(item, "type", Text);
        match text(item, "type").as_str() {
            "message" => {
                let content = findings.require(item, "content", List);
                content_parts(content, findings);
            }
            word => call(word, item, findings),
        }
    }
}

fn stream_event(root: View<'_>, findings: &mut Findings) {
    findings.require(root, "type", Text);
    findings.optional(root, "sequence_number", Integer);
    match text(root, "type").as_str() {
        "response.output_text.delta"
        | "response.function_call_arguments.delta"
        | "response.reasoning_summary_text.delta" => {
            findings.require(root, "delta", Text);
        }
        "response.output_item.added" | "response.output_item.done" => {
            findings.require(root, "item", Object);
        }
        word if LIFECYCLE.contains(&word) => {
            findings.require(root, "response", Object);
        }
        _ => {}
    }
}

fn error(root: View<'_>, findings: &mut Findings) {
    if let Some(error) = findings.require(root, "error", Object) {
        findings.require(error, "message", Text);
    }
}
