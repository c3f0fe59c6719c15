//! Validation: broken documents are caught, recorded ones are not.

use abp_dialect::Dialect::{self, Claude, Codex, Gemini, OpenAi};
use abp_dialect::DocumentKind::{self, Error, Request, Response, StreamEvent};
use abp_dialect::{DialectDetector, DialectValidator, Issue, IssueSeverity, NameRule};
use abp_json::{Limits, Tape};

use crate::corpus::{Recording, recordings};

const NAMES: NameRule = NameRule {
    max_length: 64,
    letter_first: false,
    also: "-",
};

fn issues(dialect: Dialect, kind: Option<DocumentKind>, document: &[u8]) -> Vec<Issue> {
    let tape = Tape::parse(document, &Limits::default()).expect("JSON");
    let kind = kind.unwrap_or_else(|| DialectDetector::detect_kind(tape.root(), dialect));
    DialectValidator::new(dialect, NAMES).validate(kind, tape.root())
}

fn show(issue: &Issue) -> String {
    let mark = match issue.severity {
        IssueSeverity::Error => "",
        IssueSeverity::Warning => "warning: ",
    };
    format!("{mark}{issue}")
}

#[rustfmt::skip]
const BROKEN: [(Dialect, DocumentKind, &str, &[&str]); 37] = [
    (OpenAi, Request, "[]", &[r#""" should be an object"#]),
    (OpenAi, Request, "{}", &[r#"warning: "/model" is missing"#, r#""/messages" is missing"#]),
    (OpenAi, Request, r#"{"model":1,"messages":[],"n":1.5,"stream":"yes","stop":null}"#,
        &[r#""/model" should be a string"#, r#""/n" should be an integer"#, r#""/stream" should be a boolean"#, r#""/messages" is empty"#]),
    (OpenAi, Request, r#"{"model":"m","messages":[1,{"role":"poet"},{"role":"user","content":null},{"role":"tool","content":"c"}]}"#,
        &[r#""/messages/0" should be an object"#, r#"warning: "/messages/1/role" is no word of this dialect: "poet""#,
          r#""/messages/2/content" is missing"#, r#""/messages/3/tool_call_id" is missing"#]),
    (OpenAi, Request, r#"{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":{}}},{"type":"custom","custom":{"name":"c"}}]}]}"#,
        &[r#""/messages/0/tool_calls/0/function/arguments" should be a string"#, r#""/messages/0/tool_calls/1/id" is missing"#, r#""/messages/0/tool_calls/1/custom/input" is missing"#]),
    (OpenAi, Request, r#"{"model":"m","messages":[{"role":"user","content":[{},{"type":"text"},{"type":"image_url","image_url":1},{"type":"new"}]}]}"#,
        &[r#""/messages/0/content/0/type" is missing"#, r#""/messages/0/content/1/text" is missing"#, r#""/messages/0/content/2/image_url" should be a string or an object"#]),
    (OpenAi, Request, r#"{"model":"m","messages":[{"role":"user","content":"c"}],"tools":[{"type":"function","function":{"name":"a b"}},{"type":"function","name":"f"},{"type":"builtin_function","function":{"name":"$s"}}],"functions":[{}]}"#,
        &[r#""/tools/0/function/name" is no name for a tool: "a b""#, r#""/tools/1/function" is missing"#, r#""/functions/0/name" is missing"#]),
    (OpenAi, Response, r#"{"choices":[{"message":{"content":{}}},{"finish_reason":1}]}"#,
        &[r#""/choices/0/message/content" should be a string or an array"#, r#""/choices/1/finish_reason" should be a string"#, r#""/choices/1/message" is missing"#]),
    (OpenAi, Response, "{}", &[r#""/choices" is missing"#]),
    (OpenAi, StreamEvent, r#"{"choices":[{"delta":{"tool_calls":{}}}]}"#, &[r#""/choices/0/delta/tool_calls" should be an array"#]),
    (OpenAi, StreamEvent, "{}", &[r#""/choices" is missing"#]),
    (OpenAi, Error, r#"{"error":{}}"#, &[r#""/error/message" is missing"#]),
    (Codex, Request, "{}", &[r#"warning: "/model" is missing"#, r#""/input" is missing"#]),
    (Codex, Request, r#"{"model":"m","previous_response_id":"r"}"#, &[]),
    (Codex, Request, r#"{"model":"m","input":[{"role":"user"},{"content":"c"},{"type":"function_call","call_id":"c","name":"n"},{"type":"function_call_output","output":1},{"type":"new"}]}"#,
        &[r#""/input/0/content" is missing"#, r#""/input/1/role" is missing"#, r#""/input/2/arguments" is missing"#, r#""/input/3/call_id" is missing"#, r#""/input/3/output" should be a string or an array"#]),
    (Codex, Request, r#"{"model":"m","input":"i","max_output_tokens":"9","tools":[{"type":"function"},{"type":"web_search"},{"name":"n"}]}"#,
        &[r#""/max_output_tokens" should be an integer"#, r#""/tools/0/name" is missing"#, r#""/tools/2/type" is missing"#]),
    (Codex, Response, r#"{"object":"response"}"#, &[r#""/output" is missing"#]),
    (Codex, Response, r#"{"output":[{},{"type":"message","content":"c"},{"type":"custom_tool_call","call_id":"c","name":"n"}]}"#,
        &[r#""/output/0/type" is missing"#, r#""/output/1/content" should be an array"#, r#""/output/2/input" is missing"#]),
    (Codex, Response, r#"{"object":"response.input_tokens"}"#, &[r#""/input_tokens" is missing"#]),
    (Codex, StreamEvent, r#"{"type":"response.completed"}"#, &[r#""/response" is missing"#]),
    (Codex, StreamEvent, r#"{"type":"response.output_text.delta","delta":{}}"#, &[r#""/delta" should be a string"#]),
    (Codex, StreamEvent, r#"{"sequence_number":1}"#, &[r#""/type" is missing"#]),
    (Claude, Request, r#"{"model":"m","messages":[{"role":"user","content":"c"}]}"#, &[r#""/max_tokens" is missing"#]),
    (Claude, Request, r#"{"model":"m","max_tokens":1,"messages":[],"tool_choice":"auto","system":{}}"#,
        &[r#""/system" should be a string or an array"#, r#""/tool_choice" should be an object"#, r#""/messages" is empty"#]),
    (Claude, Request, r#"{"model":"m","max_tokens":1,"messages":[{"role":"tool","content":[{"type":"tool_use","id":"1","name":"n","input":"{}"},{"type":"tool_result"},{"type":"image"},{"type":"new"}]}]}"#,
        &[r#"warning: "/messages/0/role" is no word of this dialect: "tool""#, r#""/messages/0/content/0/input" should be an object"#, r#""/messages/0/content/1/tool_use_id" is missing"#, r#""/messages/0/content/2/source" is missing"#]),
    (Claude, Request, r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"c"}],"tools":[{"name":"a.b"},{"type":"bash_20250124"},{"type":"mcp_toolset"}]}"#,
        &[r#""/tools/0/name" is no name for a tool: "a.b""#, r#""/tools/0/input_schema" is missing"#, r#""/tools/1/name" is missing"#]),
    (Claude, Response, r#"{"type":"message","content":"c"}"#, &[r#""/role" is missing"#, r#""/content" should be an array"#]),
    (Claude, StreamEvent, r#"{"type":"content_block_delta","delta":{}}"#, &[r#""/index" is missing"#]),
    (Claude, StreamEvent, r#"{"type":"message_start"}"#, &[r#""/message" is missing"#]),
    (Claude, Error, r#"{"type":"error","error":{"message":"m"}}"#, &[r#""/error/type" is missing"#]),
    (Gemini, Request, "{}", &[r#""/contents" is missing"#]),
    (Gemini, Request, r#"{"contents":[{"role":"assistant","parts":[]},{"parts":[{"functionCall":{}},{"function_response":{"name":"n"}},{"text":1}]}],"generation_config":[]}"#,
        &[r#""/generation_config" should be an object"#, r#"warning: "/contents/0/role" is no word of this dialect: "assistant""#, r#""/contents/0/parts" is empty"#,
          r#""/contents/1/parts/0/functionCall/name" is missing"#, r#""/contents/1/parts/1/function_response/response" is missing"#, r#""/contents/1/parts/2/text" should be a string"#]),
    (Gemini, Request, r#"{"contents":{"parts":{"text":"t"}},"tools":{"function_declarations":[{"name":""}]}}"#,
        &[r#""/tools/function_declarations/0/name" is no name for a tool: """#]),
    (Gemini, Request, r#"{"generateContentRequest":{}}"#, &[r#""/generateContentRequest/contents" is missing"#]),
    (Gemini, Response, r#"{"candidates":[{"content":{"parts":["t"]}}]}"#, &[r#""/candidates/0/content/parts/0" should be an object"#]),
    (Gemini, Response, r#"[{"candidates":[]},{"candidates":{}}]"#, &[r#""/1/candidates" should be an array"#]),
    (Gemini, Error, r#"{"error":{"code":"503","message":"m"}}"#, &[r#""/error/code" should be an integer"#]),
];

#[test]
fn broken_documents() {
    for (dialect, kind, document, expected) in BROKEN {
        let found = issues(dialect, Some(kind), document.as_bytes());
        let found: Vec<_> = found.iter().map(show).collect();
        assert_eq!(found, expected, "{dialect} {kind}: {document}");
    }
}

fn is_excused(recording: &Recording, issue: &Issue) -> bool {
    // A count of tokens is a request that says nothing of the answer.
    recording.operation == "count_tokens" && issue.pointer == "/max_tokens"
}

#[test]
fn recorded_documents() {
    let mut wrong = Vec::new();
    let recordings = recordings("validating recorded documents");
    for recording in recordings
        .iter()
        .filter(|recording| recording.status == 200)
    {
        if recording.part == "stream" {
            continue;
        }
        for issue in issues(recording.dialect, None, &recording.bytes) {
            if issue.severity == IssueSeverity::Error && !is_excused(recording, &issue) {
                wrong.push(format!("{}: {issue}", recording.file));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
