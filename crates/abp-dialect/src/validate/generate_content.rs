//! Generate content.
//!
//! The vendor takes every member in camel case and in snake case, and an object where a list of one
//! would do.

use abp_json::{Kind, View};

use super::findings::Shape::{Integer, List, ListOrObject, Object, Text};
use super::findings::{Findings, Shape, present};
use crate::DocumentKind;

/// Members in camel case and in snake case.
type Spelled = (&'static str, &'static str, Shape);

const REQUEST: [Spelled; 5] = [
    ("generationConfig", "generation_config", Object),
    ("systemInstruction", "system_instruction", Object),
    ("toolConfig", "tool_config", Object),
    ("safetySettings", "safety_settings", List),
    ("cachedContent", "cached_content", Text),
];

const ROLES: [&str; 4] = ["user", "model", "function", "system"];

pub(super) fn check(kind: DocumentKind, root: View<'_>, findings: &mut Findings) {
    // A stream, or an error in its stead, comes as an array.
    if root.kind() == Kind::Array && kind != DocumentKind::Request {
        for part in root.items() {
            check(kind, part, findings);
        }
        return;
    }
    if !findings.expect(root, Object) {
        return;
    }
    match kind {
        DocumentKind::Request => request(root, findings),
        DocumentKind::Response | DocumentKind::StreamEvent => response(root, findings),
        DocumentKind::Error => error(root, findings),
    }
}

fn either<'k>(object: View<'_>, camel: &'k str, snake: &'k str) -> &'k str {
    if present(object, snake).is_some() {
        snake
    } else {
        camel
    }
}

fn request(root: View<'_>, findings: &mut Findings) {
    // A count of tokens may hold a whole request.
    if let Some(inner) = findings.optional(root, "generateContentRequest", Object) {
        return request(inner, findings);
    }
    for (camel, snake, shape) in REQUEST {
        findings.optional(root, either(root, camel, snake), shape);
    }
    let contents = findings.require(root, "contents", ListOrObject);
    for content in findings.filled(contents) {
        if present(content, "role").is_some() {
            findings.word(content, "role", &ROLES);
        }
        let parts = findings.require(content, "parts", ListOrObject);
        for part in findings.filled(parts) {
            request_part(part, findings);
        }
    }
    let tools = findings.optional(root, "tools", ListOrObject);
    for tool in findings.objects(tools) {
        let key = either(tool, "functionDeclarations", "function_declarations");
        let declarations = findings.optional(tool, key, ListOrObject);
        for declaration in findings.objects(declarations) {
            findings.tool_name(declaration);
        }
    }
}

fn request_part(part: View<'_>, findings: &mut Findings) {
    findings.optional(part, "text", Text);
    let call = either(part, "functionCall", "function_call");
    if let Some(call) = findings.optional(part, call, Object) {
        findings.require(call, "name", Text);
        findings.optional(call, "args", Object);
    }
    let answer = either(part, "functionResponse", "function_response");
    if let Some(answer) = findings.optional(part, answer, Object) {
        findings.requires(answer, &[("name", Text), ("response", Object)]);
    }
}

fn response(root: View<'_>, findings: &mut Findings) {
    findings.optionals(root, &[("usageMetadata", Object), ("totalTokens", Integer)]);
    let candidates = findings.optional(root, "candidates", List);
    for candidate in findings.objects(candidates) {
        findings.optional(candidate, "finishReason", Text);
        if let Some(content) = findings.optional(candidate, "content", Object) {
            let parts = findings.optional(content, "parts", List);
            findings.objects(parts);
        }
    }
}

fn error(root: View<'_>, findings: &mut Findings) {
    if let Some(error) = findings.require(root, "error", Object) {
        findings.requires(error, &[("code", Integer), ("message", Text)]);
    }
}
