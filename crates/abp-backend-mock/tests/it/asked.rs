//! What the model says, in every dialect, whole and streamed.

use abp_backend_core::{Backend as _, ModelOperation, Upstream as _};
use abp_backend_mock::{MockBackend, MockModel, MockScript};
use abp_core::ir::{
    IrContentBlock, IrConversation, IrFinishReason, IrMessage, IrResponseFormat,
    IrResponseFormatKind, IrRole, IrStop, IrToolChoice, IrToolChoiceMode, IrToolDefinition,
    IrToolInput, IrToolKind, Leaf, Origin, RawJson,
};
use abp_dialect::{Dialect, WireFamily};

use crate::support::{Said, body_of, send, streamed, whole};

const SCHEMA: &str = r#"{"type":"object","properties":{"city":{"type":"string"},
    "days":{"type":"integer"}},"required":["city","days"],"additionalProperties":false}"#;
const ARGUMENTS: &str = r#"{"city":"text","days":1}"#;

fn says(text: &str) -> IrConversation {
    let mut conversation = IrConversation::from_messages(vec![
        IrMessage::text(IrRole::System, "Be brief."),
        IrMessage::text(IrRole::User, text),
    ]);
    conversation.settings.model = Some("mock".into());
    conversation.settings.max_tokens = Some(RawJson::from(100).into());
    conversation.settings.include_usage = Some(true.into());
    conversation
}

fn with_tools(mut conversation: IrConversation, mode: IrToolChoiceMode) -> IrConversation {
    let tool = |name: &str| {
        let schema = Leaf::from(RawJson::trusted(SCHEMA));
        IrToolDefinition::function(name, Some("Tells.".into()), Some(schema))
    };
    conversation.tools = vec![tool("get"), tool("get_weather")];
    let origin = Origin::Host;
    conversation.settings.tool_choice = Some(IrToolChoice { mode, origin });
    conversation
}

fn answered(mut conversation: IrConversation) -> IrConversation {
    let call = IrContentBlock::ToolUse {
        id: Some("call_1".into()),
        name: "get".into(),
        input: IrToolInput::Json(RawJson::trusted(ARGUMENTS).into()),
        item_id: None,
        signature: None,
    };
    let result = IrContentBlock::ToolResult {
        tool_use_id: Some("call_1".into()),
        name: Some("get".into()),
        content: vec![IrContentBlock::text("sunny").into()],
        plain: true,
        is_error: None,
    };
    conversation
        .messages
        .push(IrMessage::new(IrRole::Assistant, vec![call]));
    conversation
        .messages
        .push(IrMessage::new(IrRole::Tool, vec![result]));
    conversation
}

/// The answer to a conversation, once it is the same whole and in pieces.
async fn said(conversation: &IrConversation, dialect: Dialect) -> Said {
    let body = body_of(conversation, dialect);
    let said = whole(dialect, &body).await;
    let (in_pieces, pieces) = streamed(dialect, Some("alt=sse"), &body).await;
    assert_eq!(in_pieces, said, "{dialect}");
    let is_text = |block: &IrContentBlock| matches!(block, IrContentBlock::Text { .. });
    if said.choices[0].0.iter().any(is_text) && said.text().len() > 12 {
        assert!(pieces > 1, "{dialect}: {pieces} pieces");
    }
    said
}

#[tokio::test]
async fn it_repeats_what_it_is_told() {
    let image = r#"{"contents":[{"role":"user","parts":[{"inlineData":
        {"mimeType":"image/png","data":"AAAA"}}]}]}"#;
    for dialect in Dialect::ALL {
        let said = said(&says("Tell me a täle\nof two lines"), dialect).await;
        assert_eq!(
            said.text(),
            "You said: Tell me a täle\nof two lines",
            "{dialect}"
        );
        assert_eq!(said.choices[0].1, IrFinishReason::Stop, "{dialect}");
        assert_eq!((said.input, said.output), (Some(9), Some(9)), "{dialect}");
        assert_eq!(said.model.as_deref(), Some("mock"), "{dialect}");
    }
    let (said, _) = streamed(Dialect::Gemini, None, image).await;
    assert_eq!(said.text(), "I am the mock model, and you said nothing.");
    assert_eq!(whole(Dialect::Gemini, image).await, said);
}

#[tokio::test]
async fn it_calls_tools_and_tells_what_they_said() {
    let named = |name: &str| IrToolChoiceMode::Named { name: name.into() };
    let asks = "Please use the tool get_weather now";
    let cases = [
        (
            with_tools(says("Hi"), IrToolChoiceMode::Required),
            Some("get"),
        ),
        (
            with_tools(says("Hi"), named("get_weather")),
            Some("get_weather"),
        ),
        (
            with_tools(says(asks), IrToolChoiceMode::Auto),
            Some("get_weather"),
        ),
        (with_tools(says(asks), IrToolChoiceMode::None), None),
        (with_tools(says("Hi"), IrToolChoiceMode::Auto), None),
        (
            answered(with_tools(says(asks), IrToolChoiceMode::Required)),
            None,
        ),
    ];
    for (number, (conversation, tool)) in cases.iter().enumerate() {
        for dialect in Dialect::ALL {
            let said = said(conversation, dialect).await;
            let (blocks, finish, _) = &said.choices[0];
            match (tool, blocks.as_slice()) {
                (
                    Some(tool),
                    [
                        IrContentBlock::ToolUse {
                            id, name, input, ..
                        },
                    ],
                ) => {
                    assert_eq!(name.as_str(), *tool, "{number} {dialect}");
                    assert_eq!(*finish, IrFinishReason::ToolUse, "{number} {dialect}");
                    assert_eq!(
                        id.is_none(),
                        dialect == Dialect::Gemini,
                        "{number} {dialect}"
                    );
                    let expected = IrToolInput::Json(RawJson::trusted(ARGUMENTS).into());
                    assert_eq!(*input, expected, "{number} {dialect}");
                }
                (None, [IrContentBlock::Text { text, .. }]) => {
                    let expected = if number == 5 {
                        "The tool said: sunny"
                    } else {
                        "You said:"
                    };
                    assert!(
                        text.starts_with(expected),
                        "{number} {dialect}: {}",
                        text.value
                    );
                }
                other => panic!("{number} {dialect}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn tools_of_free_text_get_text() {
    let mut conversation = with_tools(says("Hi"), IrToolChoiceMode::Required);
    conversation.tools[0].kind = IrToolKind::Custom { format: None };
    conversation.tools[0].parameters_schema = None;
    for dialect in [Dialect::OpenAi, Dialect::Codex] {
        let said = said(&conversation, dialect).await;
        let [IrContentBlock::ToolUse { input, .. }] = said.choices[0].0.as_slice() else {
            panic!("{said:?}");
        };
        assert_eq!(*input, IrToolInput::Text("text".into()), "{dialect}");
    }
}

#[tokio::test]
async fn it_fills_in_schemas() {
    let schema = IrResponseFormatKind::JsonSchema {
        schema: Some(RawJson::trusted(SCHEMA).into()),
        name: Some("weather".into()),
        description: None,
        strict: None,
    };
    let said_in = r#"{"text":"You said: Hi"}"#;
    for (kind, expected) in [
        (schema, ARGUMENTS),
        (IrResponseFormatKind::JsonObject, said_in),
    ] {
        let mut conversation = says("Hi");
        conversation.settings.response_format = Some(IrResponseFormat {
            kind: kind.clone(),
            vendor: Vec::new(),
            origin: Origin::Host,
        });
        for dialect in Dialect::ALL {
            // Messages know JSON with a schema only.
            let known = dialect != Dialect::Claude || kind != IrResponseFormatKind::JsonObject;
            let said = said(&conversation, dialect).await;
            assert!(
                !known || said.text() == expected,
                "{dialect}: {}",
                said.text()
            );
        }
    }
}

#[tokio::test]
async fn it_stops_where_it_has_to() {
    for dialect in Dialect::ALL {
        let mut limited = says(&"one  two ".repeat(20));
        limited.settings.max_tokens = Some(RawJson::from(20).into());
        let short = said(&limited, dialect).await;
        let expected = format!("You said: {}", "one  two ".repeat(9));
        assert_eq!(short.text(), expected.trim_end(), "{dialect}");
        assert_eq!(short.choices[0].1, IrFinishReason::Length, "{dialect}");
        assert_eq!(short.output, Some(20), "{dialect}");

        // Responses know no stop sequences.
        if dialect.family() == WireFamily::Responses {
            continue;
        }
        let mut stopped = says("one two three four");
        stopped.settings.stop = Some(IrStop {
            sequences: vec!["four".into(), " three".into()],
            plain: false,
        });
        let short = said(&stopped, dialect).await;
        assert_eq!(short.text(), "You said: one two", "{dialect}");
        let (_, finish, met) = &short.choices[0];
        let expected = match dialect.family() {
            WireFamily::Messages => (IrFinishReason::StopSequence, Some(" three")),
            _ => (IrFinishReason::Stop, None),
        };
        assert_eq!((*finish, met.as_deref()), expected, "{dialect}");
    }
}

#[tokio::test]
async fn it_gives_as_many_answers_as_are_asked() {
    let mut conversation = says("Hi");
    conversation.settings.candidate_count = Some(RawJson::from(3).into());
    for dialect in [Dialect::OpenAi, Dialect::Gemini] {
        let said = said(&conversation, dialect).await;
        assert_eq!(said.choices.len(), 3, "{dialect}");
        assert_eq!(said.output, Some(9), "{dialect}");
    }
}

#[tokio::test]
async fn it_counts_what_it_will_be_asked() {
    let conversation = answered(with_tools(says("How is it?"), IrToolChoiceMode::Auto));
    for dialect in [Dialect::Claude, Dialect::Gemini, Dialect::Codex] {
        let body = body_of(&conversation, dialect);
        let read = whole(dialect, &body).await.input;
        let mut bodies = vec![body.clone()];
        if dialect == Dialect::Gemini {
            bodies.push(format!(r#"{{"generateContentRequest": {body}}}"#));
        }
        for body in bodies {
            let (status, _, parts) =
                send(dialect, ModelOperation::CountTokens, "mock", None, &body).await;
            assert_eq!(status, 200, "{parts:?}");
            let count: serde_json::Value = serde_json::from_str(&parts.concat()).unwrap();
            let told = count
                .get("input_tokens")
                .or(count.get("totalTokens"))
                .unwrap();
            assert_eq!(told.as_u64(), read, "{dialect}");
        }
    }
}

#[tokio::test]
async fn the_same_request_gets_the_same_bytes() {
    for dialect in Dialect::ALL {
        let mut seen = Vec::new();
        for text in ["Hi", "Hi", "Ho"] {
            let body = body_of(&says(text), dialect);
            let operation = ModelOperation::Generate { stream: true };
            seen.push(
                send(dialect, operation, "mock", None, &body)
                    .await
                    .2
                    .concat(),
            );
        }
        assert_eq!(seen[0], seen[1], "{dialect}");
        assert_ne!(
            seen[0].replace("Hi", "Ho"),
            seen[2],
            "{dialect}: ids differ"
        );
    }
}

/// Only what is embedded demonstrates: a script that an operator wrote is a configured backend.
#[test]
fn embedded_backends_say_that_they_demonstrate() {
    let written = r#"{"name": "mine", "steps": []}"#;
    let written = serde_json::from_str(written).unwrap();
    let cases = [
        (MockBackend::new(), true),
        (MockBackend::from_script(MockScript::demonstration()), true),
        (MockBackend::from_script(written), false),
    ];
    for (backend, expected) in cases {
        let descriptor = backend.descriptor();
        assert_eq!(descriptor.is_demonstration, expected, "{}", descriptor.name);
    }
    let model = MockModel::new();
    assert!(model.descriptor().is_demonstration);
    assert_eq!(model.descriptor().address, None);
}
