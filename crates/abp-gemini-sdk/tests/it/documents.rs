//! What documents mean: from the wire to the representation, and from there to models of all ages.

use abp_core::ir::{IrContentBlock, IrFinishReason, IrRole};
use abp_dialect::{Codec, Dialect, Lowering, Reader, TargetProfile};
use abp_gemini_sdk::GeminiCodec;
use abp_json::{Limits, Tape};
use serde_json::{Value, json};

use crate::support::{Document, Ir, Writing, fixtures, round_trip};

fn read(name: &str, document: Document) -> Ir {
    let (_, source) = fixtures(name).remove(0);
    round_trip(&source, document, Writing::Copied)
        .expect(name)
        .0
}

/// Everything that a fixture means, one line for each message.
#[test]
fn contents_become_messages() {
    let cases: [(&str, &[&str]); 4] = [
        ("request_single", &["System text", "User text"]),
        (
            "request_tool_results",
            &[
                "User text",
                "Assistant call(c1)+signature call()",
                "Tool result(Json) result(Text)",
                "User text",
                "Assistant call()",
                "Tool result(Text)!",
            ],
        ),
        (
            "request_media",
            &["User image document audio video image text"],
        ),
        (
            "request_thinking",
            &["User text", "Assistant thinking text", "User text"],
        ),
    ];
    for (name, expected) in cases {
        let Ir::Request(conversation) = read(name, Document::Request) else {
            panic!("{name} is a request");
        };
        let lines = conversation.messages.iter().map(|message| {
            let blocks = message
                .content
                .iter()
                .map(|block| format!(" {}", word(&block.body)));
            format!("{:?}{}", message.role, blocks.collect::<String>())
        });
        assert_eq!(lines.collect::<Vec<_>>(), expected, "{name}");
    }
}

fn word(block: &IrContentBlock) -> String {
    match block {
        IrContentBlock::Text { .. } => "text".to_owned(),
        IrContentBlock::Image { .. } => "image".to_owned(),
        IrContentBlock::Document { .. } => "document".to_owned(),
        IrContentBlock::Audio { .. } => "audio".to_owned(),
        IrContentBlock::Video { .. } => "video".to_owned(),
        IrContentBlock::Thinking { .. } => "thinking".to_owned(),
        IrContentBlock::ToolUse { id, signature, .. } => {
            let id = id.as_ref().map_or("", |id| &id.value);
            format!(
                "call({id}){}",
                if signature.is_some() {
                    "+signature"
                } else {
                    ""
                }
            )
        }
        IrContentBlock::ToolResult {
            content, is_error, ..
        } => {
            let kind = match content.first().map(|block| &block.body) {
                Some(IrContentBlock::Json { .. }) => "Json",
                Some(IrContentBlock::Text { .. }) => "Text",
                _ => "other",
            };
            format!(
                "result({kind}){}",
                if is_error.is_some() { "!" } else { "" }
            )
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn ends_and_counts_are_understood() {
    // Why it ended, and the tokens read, written and spent on reasoning.
    let cases = [
        (
            "response_text",
            IrFinishReason::Stop,
            [Some(12), Some(5), None],
        ),
        (
            "response_tool",
            IrFinishReason::ToolUse,
            [Some(12), Some(5), None],
        ),
        (
            "response_thinking",
            IrFinishReason::Stop,
            [Some(12), Some(25), Some(20)],
        ),
        (
            "response_cut",
            IrFinishReason::Length,
            [Some(12), Some(60), Some(60)],
        ),
        (
            "response_blocked",
            IrFinishReason::ContentFilter,
            [Some(9), Some(0), None],
        ),
        (
            "response_pieces",
            IrFinishReason::Stop,
            [Some(3), Some(2), None],
        ),
    ];
    for (name, reason, counts) in cases {
        let Ir::Response(response) = read(name, Document::Response) else {
            panic!("{name} is an answer");
        };
        let [choice] = response.choices.as_slice() else {
            panic!("{name} has one choice");
        };
        assert_eq!(
            choice.finish.as_ref().map(|finish| finish.reason),
            Some(reason),
            "{name}"
        );
        let usage = response.usage.expect("usage");
        let read = [
            usage.input_tokens,
            usage.output_tokens,
            usage.reasoning_tokens,
        ];
        assert_eq!(
            read.map(|count| count.map(|count| count.value)),
            counts,
            "{name}"
        );
        assert_eq!(choice.message.role, IrRole::Assistant);
    }
}

/// Writes a conversation for a model, without a source.
fn written_for(model: &str, request: &str) -> Value {
    let tape = Tape::parse_str(request, &Limits::default()).expect("JSON");
    let reader = Reader::new(&tape);
    let conversation = GeminiCodec.read_request(reader.root()).expect("a request");
    let profile = TargetProfile {
        model: Some(model.to_owned()),
        ..TargetProfile::default()
    };
    let mut out = Lowering::new(None, Dialect::Gemini, &profile);
    GeminiCodec.write_request(&conversation, &mut out);
    serde_json::from_str(&out.finish().0).expect("JSON")
}

#[test]
fn models_get_what_they_understand() {
    let thinking =
        r#"{"contents":[],"generationConfig":{"thinkingConfig":{"thinkingBudget":3000}}}"#;
    let effort =
        r#"{"contents":[],"generationConfig":{"thinkingConfig":{"thinkingLevel":"HIGH"}}}"#;
    let off = r#"{"contents":[],"generationConfig":{"thinkingConfig":{"thinkingBudget":0}}}"#;
    let tool = r#"{"contents":[],"tools":[{"functionDeclarations":[{"name":"f","parametersJsonSchema":
        {"type":"object","properties":{"n":{"type":["integer","null"]}}}}]}]}"#;
    let call = r#"{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f"}}]}]}"#;
    let config = "/generationConfig/thinkingConfig";
    let function = "/tools/0/functionDeclarations/0";
    let part = "/contents/0/parts/0";
    let cases = [
        (
            "gemini-2.5-pro",
            thinking,
            config,
            json!({"thinkingBudget": 3000}),
        ),
        (
            "gemini-3-pro",
            thinking,
            config,
            json!({"thinkingLevel": "MEDIUM"}),
        ),
        ("gemini-2.0-flash", thinking, config, Value::Null),
        (
            "gemini-flash-latest",
            thinking,
            config,
            json!({"thinkingBudget": 3000}),
        ),
        (
            "models/gemini-3.1-pro",
            effort,
            config,
            json!({"thinkingLevel": "HIGH"}),
        ),
        (
            "gemini-2.5-flash",
            effort,
            config,
            json!({"thinkingBudget": 24576}),
        ),
        (
            "gemini-3-flash",
            off,
            config,
            json!({"thinkingLevel": "MINIMAL"}),
        ),
        (
            "gemini-2.5-flash",
            off,
            config,
            json!({"thinkingBudget": 0}),
        ),
        (
            "gemini-2.0-flash",
            tool,
            function,
            json!({"name": "f", "parametersJsonSchema":
                {"type": "object", "properties": {"n": {"type": ["integer", "null"]}}}}),
        ),
        (
            "gemini-1.5-pro",
            tool,
            function,
            json!({"name": "f", "parameters":
                {"type": "OBJECT", "properties": {"n": {"type": "INTEGER", "nullable": true}}}}),
        ),
        (
            "gemini-3-flash",
            call,
            part,
            json!({"functionCall": {"name": "f", "args": {}},
                "thoughtSignature": "skip_thought_signature_validator"}),
        ),
        (
            "gemini-2.5-flash",
            call,
            part,
            json!({"functionCall": {"name": "f", "args": {}}}),
        ),
    ];
    for (model, request, pointer, expected) in cases {
        let written = written_for(model, request);
        let found = written.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(found, expected, "{model}: {request}");
    }
}
