//! Messages.

use abp_json::View;

use super::findings::Shape::{Flag, Integer, List, Number, Object, Text, TextOrList};
use super::findings::{Findings, Shape, present, text};
use crate::DocumentKind;

const REQUEST: [(&str, Shape); 9] = [
    ("metadata", Object),
    ("stop_sequences", List),
    ("stream", Flag),
    ("system", TextOrList),
    ("temperature", Number),
    ("thinking", Object),
    ("tool_choice", Object),
    ("top_k", Integer),
    ("top_p", Number),
];

const ROLES: [&str; 3] = ["user", "assistant", "system"];

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
    findings.require(root, "max_tokens", Integer);
    findings.optionals(root, &REQUEST);
    let messages = findings.require(root, "messages", List);
    for message in findings.filled(messages) {
        findings.word(message, "role", &ROLES);
        let content = findings.require(message, "content", TextOrList);
        content_blocks(content, findings);
    }
    let tools = findings.optional(root, "tools", List);
    for tool in findings.objects(tools) {
        request_tool(tool, findings);
    }
}

fn content_blocks(content: Option<View<'_>>, findings: &mut Findings) {
    for block in findings.objects(content) {
        findings.require(block, "type", Text);
        match text(block, "type").as_str() {
            "text" => findings.requires(block, &[("text", Text)]),
            "image" | "document" => findings.requires(block, &[("source", Object)]),
            "thinking" => findings.requires(block, &[("thinking", Text)]),
            "tool_use" => {
                findings.requires(block, &[("id", Text), ("name", Text), ("input", Object)]);
            }
            "tool_result" => {
                findings.require(block, "tool_use_id", Text);
                findings.optional(block, "content", TextOrList);
            }
            _ => {}
        }
    }
}

fn request_tool(tool: View<'_>, findings: &mut Findings) {
    match text(tool, "type").as_str() {
        "" | "custom" => {
            findings.tool_name(tool);
            findings.require(tool, "input_schema", Object);
        }
        // Its tools are named by the server.
        "mcp_toolset" => {}
        _ => findings.tool_name(tool),
    }
}

fn response(root: View<'_>, findings: &mut Findings) {
    let counts_tokens = present(root, "type").is_none() && present(root, "input_tokens").is_some();
    if counts_tokens {
        findings.optional(root, "input_tokens", Integer);
        return;
    }
    findings.requires(root, &[("type", Text), ("role", Text)]);
    let content = findings.require(root, "content", List);
    content_blocks(content, findings);
    let optional = [
        ("id", Text),
        ("model", Text),
        ("stop_reason", Text),
        ("usage", Object),
    ];
    findings.optionals(root, &optional);
}

fn stream_event(root: View<'_>, findings: &mut Findings) {
    findings.require(root, "type", Text);
    match text(root, "type").as_str() {
        "message_start" => findings.requires(root, &[("message", Object)]),
        "message_delta" => findings.requires(root, &[("delta", Object)]),
        "content_block_start" => {
            findings.requires(root, &[("index", Integer), ("content_block", Object)]);
        }
        "content_block_delta" => {
            findings.requires(root, &[("index", Integer), ("delta", Object)]);
        }
        "content_block_stop" => findings.requires(root, &[("index", Integer)]),
        _ => {}
    }
}

fn error(root: View<'_>, findings: &mut Findings) {
    findings.require(root, "type", Text);
    if let Some(error) = findings.require(root, "error", Object) {
        findings.requires(error, &[("type", Text), ("message", Text)]);
    }
}
