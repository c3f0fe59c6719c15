//! Chat completions.

use abp_json::View;

use super::findings::Shape::{Flag, Integer, List, Number, Object, Text, TextOrList, TextOrObject};
use super::findings::{Findings, Shape, present, text};
use crate::DocumentKind;

const REQUEST: [(&str, Shape); 22] = [
    ("frequency_penalty", Number),
    ("logit_bias", Object),
    ("logprobs", Flag),
    ("max_completion_tokens", Integer),
    ("max_tokens", Integer),
    ("metadata", Object),
    ("modalities", List),
    ("n", Integer),
    ("parallel_tool_calls", Flag),
    ("presence_penalty", Number),
    ("reasoning_effort", Text),
    ("response_format", Object),
    ("seed", Integer),
    ("stop", TextOrList),
    ("store", Flag),
    ("stream", Flag),
    ("stream_options", Object),
    ("temperature", Number),
    ("tool_choice", TextOrObject),
    ("top_logprobs", Integer),
    ("top_p", Number),
    ("user", Text),
];

const ANSWER: [(&str, Shape); 4] = [
    ("id", Text),
    ("model", Text),
    ("object", Text),
    ("usage", Object),
];

const ROLES: [&str; 6] = [
    "system",
    "developer",
    "user",
    "assistant",
    "tool",
    "function",
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
    let messages = findings.require(root, "messages", List);
    for message in findings.filled(messages) {
        request_message(message, findings);
    }
    let tools = findings.optional(root, "tools", List);
    for tool in findings.objects(tools) {
        request_tool(tool, findings);
    }
    let functions = findings.optional(root, "functions", List);
    for function in findings.objects(functions) {
        findings.tool_name(function);
    }
}

fn request_message(message: View<'_>, findings: &mut Findings) {
    findings.word(message, "role", &ROLES);
    let role = text(message, "role");
    if role == "tool" {
        findings.require(message, "tool_call_id", Text);
    }
    let content = match role.as_str() {
        "system" | "developer" | "user" | "tool" => {
            findings.require(message, "content", TextOrList)
        }
        _ => findings.optional(message, "content", TextOrList),
    };
    content_parts(content, findings);
    tool_calls(message, findings);
}

fn content_parts(content: Option<View<'_>>, findings: &mut Findings) {
    for part in findings.objects(content) {
        findings.require(part, "type", Text);
        match text(part, "type").as_str() {
            "text" => findings.require(part, "text", Text),
            "image_url" => findings.require(part, "image_url", TextOrObject),
            "input_audio" => findings.require(part, "input_audio", Object),
            "file" => findings.require(part, "file", Object),
            _ => None,
        };
    }
}

fn tool_calls(message: View<'_>, findings: &mut Findings) {
    let calls = findings.optional(message, "tool_calls", List);
    for call in findings.objects(calls) {
        findings.require(call, "id", Text);
        if text(call, "type") == "custom" {
            if let Some(custom) = findings.require(call, "custom", Object) {
                findings.requires(custom, &[("name", Text), ("input", Text)]);
            }
        } else if let Some(function) = findings.require(call, "function", Object) {
            findings.requires(function, &[("name", Text), ("arguments", Text)]);
        }
    }
}

fn request_tool(tool: View<'_>, findings: &mut Findings) {
    findings.require(tool, "type", Text);
    match text(tool, "type").as_str() {
        "function" => {
            if let Some(function) = findings.require(tool, "function", Object) {
                findings.tool_name(function);
                findings.optional(function, "parameters", Object);
            }
        }
        "custom" => {
            if let Some(custom) = findings.require(tool, "custom", Object) {
                findings.tool_name(custom);
            }
        }
        _ => {}
    }
}

fn response(root: View<'_>, findings: &mut Findings) {
    findings.optionals(root, &ANSWER);
    let choices = findings.require(root, "choices", List);
    for choice in findings.objects(choices) {
        findings.optional(choice, "finish_reason", Text);
        if let Some(message) = findings.require(choice, "message", Object) {
            let content = findings.optional(message, "content", TextOrList);
            content_parts(content, findings);
            tool_calls(message, findings);
        }
    }
}

fn stream_event(root: View<'_>, findings: &mut Findings) {
    findings.optionals(root, &ANSWER);
    let choices = if present(root, "error").is_some() {
        findings.optional(root, "choices", List)
    } else {
        findings.require(root, "choices", List)
    };
    for choice in findings.objects(choices) {
        findings.optional(choice, "finish_reason", Text);
        if let Some(delta) = findings.optional(choice, "delta", Object) {
            findings.optional(delta, "content", TextOrList);
            findings.optional(delta, "tool_calls", List);
        }
    }
}

fn error(root: View<'_>, findings: &mut Findings) {
    if let Some(error) = findings.require(root, "error", Object) {
        findings.require(error, "message", Text);
    }
}
