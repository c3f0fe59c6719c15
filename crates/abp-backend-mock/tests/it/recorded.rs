//! Requests that other people's programs really sent.

use std::fs;
use std::path::Path;

use abp_backend_core::ModelOperation;
use abp_core::ir::{
    IrContentBlock, IrMessage, IrRole, IrToolChoice, IrToolChoiceMode, IrToolInput, IrToolKind,
    Origin,
};
use abp_dialect::Dialect;
use abp_json::Limits;
use abp_testkit::{shared_dir, skip};
use abp_translate::read_request;
use serde_json::Value;

use crate::support::{body_of, send, streamed, whole};

const FOLDERS: [(&str, Dialect); 4] = [
    ("openai-chat", Dialect::OpenAi),
    ("openai-responses", Dialect::Codex),
    ("anthropic", Dialect::Claude),
    ("gemini", Dialect::Gemini),
];

fn requests(corpus: &Path) -> Vec<(Dialect, String)> {
    let mut found = Vec::new();
    for (folder, dialect) in FOLDERS {
        for entry in fs::read_dir(corpus.join(folder).join("request")).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            found.push((dialect, text));
        }
    }
    found
}

#[tokio::test]
async fn recorded_requests_are_answered() {
    let Some(corpus) = shared_dir().map(|dir| dir.join("corpus")) else {
        return skip(
            "the mock model on recorded requests",
            "there is no shared data",
        );
    };
    let mut answered = 0;
    for (dialect, body) in requests(&corpus) {
        let operation = ModelOperation::Generate { stream: false };
        let (status, _, parts) = send(dialect, operation, "mock", None, &body).await;
        if status != 200 {
            // Counts of tokens set no limit to an answer.
            let counts = dialect == Dialect::Claude && !body.contains("\"max_tokens\"");
            assert!(counts, "{dialect} {status} {parts:?}");
            continue;
        }
        answered += 1;
        let (in_pieces, _) = streamed(dialect, Some("alt=sse"), &body).await;
        let mut said = whole(dialect, &body).await;
        // A chat's stream tells its usage only to those who ask for it.
        if dialect == Dialect::OpenAi && !body.contains("include_usage") {
            (said.input, said.output) = (None, None);
        }
        assert_eq!(in_pieces, said, "{dialect}: {body}");
    }
    assert!(answered > 100, "{answered} answered");
}

#[tokio::test]
async fn recorded_tools_accept_their_calls() {
    let Some(corpus) = shared_dir().map(|dir| dir.join("corpus")) else {
        return skip(
            "the mock model on recorded tools",
            "there is no shared data",
        );
    };
    let (mut accepted, mut not) = (0, Vec::new());
    for (dialect, body) in requests(&corpus) {
        let Ok(mut conversation) = read_request(body.as_bytes(), dialect, &Limits::default())
        else {
            continue;
        };
        conversation
            .tools
            .retain(|tool| tool.kind == IrToolKind::Function);
        conversation.messages = vec![IrMessage::text(IrRole::User, "Hi")];
        for tool in conversation.tools.clone() {
            let name = tool.name.clone();
            conversation.tools = vec![tool.clone()];
            let mode = IrToolChoiceMode::Named { name };
            let origin = Origin::Host;
            conversation.settings.tool_choice = Some(IrToolChoice { mode, origin });
            let said = whole(Dialect::OpenAi, &body_of(&conversation, Dialect::OpenAi)).await;
            let Some(IrContentBlock::ToolUse {
                input: IrToolInput::Json(arguments),
                ..
            }) = said.choices[0].0.last()
            else {
                panic!("no call: {said:?}");
            };
            let schema = tool.parameters_schema.as_ref().map(|schema| schema.text());
            let schema: Value = serde_json::from_str(schema.unwrap_or("true")).unwrap();
            let arguments: Value = serde_json::from_str(arguments.text()).unwrap();
            match jsonschema::validator_for(&schema) {
                Ok(validator) if validator.is_valid(&arguments) => accepted += 1,
                Ok(_) => not.push(format!("{schema} {arguments}")),
                Err(_) => {}
            }
        }
    }
    assert!(
        accepted > 50 && not.is_empty(),
        "{accepted} accepted, {not:#?}"
    );
}
