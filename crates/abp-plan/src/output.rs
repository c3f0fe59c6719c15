//! The form of the answer: a JSON schema that an order, or a vendor's request, holds it to.
//!
//! A backend that has the capability gets the schema as its vendor's own setting. For any other the
//! model is told in words, and the answer is checked.

use abp_core::ir::{
    IrContentBlock, IrConversation, IrMessage, IrResponseFormat, IrResponseFormatKind, IrRole,
    Leaf, Origin, RawJson,
};
use abp_core::{Loss, LossKind, RuntimeConfig};
use abp_emulation::PostProcessor;
use serde_json::Value;

use crate::PlanError;

/// Where the schema of an order is, as a JSON pointer into it.
const POINTER: &str = "/config/vendor/abp/output_schema";
/// The largest schema that is taken, in bytes of JSON.
const MAX_SCHEMA_BYTES: usize = 256 * 1024;
/// The schema's name where a vendor wants one.
const NAME: &str = "output";

/// How the answer is made to follow a schema.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum AnswerForm {
    /// Any answer will do, or the vendor's request says it itself.
    #[default]
    Free,
    /// The vendor holds the model to the schema.
    Native(Value),
    /// The model is told the schema, and the answer is checked.
    Told(Value),
}

/// The schema that an order names.
///
/// # Errors
/// Fails where it is not a usable JSON schema.
pub(crate) fn schema_of(config: &RuntimeConfig) -> Result<Option<Value>, PlanError> {
    let Some(schema) = config.abp_setting("output_schema") else {
        return Ok(None);
    };
    let unusable = |problem: String| PlanError::Setting {
        key: "output_schema",
        problem,
    };
    if !schema.is_object() {
        return Err(unusable(
            "is not a JSON object, as a schema has to be".to_owned(),
        ));
    }
    let bytes = schema.to_string().len();
    if bytes > MAX_SCHEMA_BYTES {
        let problem = format!("has {bytes} bytes, more than the {MAX_SCHEMA_BYTES} that are taken");
        return Err(unusable(problem));
    }
    PostProcessor::for_schema(schema)?;
    Ok(Some(schema.clone()))
}

/// The schema that a conversation's own settings name.
pub(crate) fn schema_in(conversation: &IrConversation) -> Option<Value> {
    let format = conversation.settings.response_format.as_ref()?;
    let IrResponseFormatKind::JsonSchema { schema, .. } = &format.kind else {
        return None;
    };
    serde_json::from_str(schema.as_ref()?.text()).ok()
}

impl AnswerForm {
    /// Puts the form into a conversation.
    pub(crate) fn apply(&self, conversation: &mut IrConversation) {
        match self {
            Self::Free => {}
            Self::Native(schema) => conversation.settings.response_format = Some(native(schema)),
            Self::Told(schema) => tell_schema(conversation, schema),
        }
    }
}

fn native(schema: &Value) -> IrResponseFormat {
    IrResponseFormat {
        kind: IrResponseFormatKind::JsonSchema {
            schema: Some(Leaf::from(RawJson::from(schema))),
            name: Some(Leaf::from(NAME)),
            description: None,
            // A vendor that is told to be strict refuses a schema that leaves anything open.
            strict: is_closed(schema).then(|| Leaf::from(true)),
        },
        vendor: Vec::new(),
        origin: Origin::Host,
    }
}

/// Whether every object of a schema names all its members, requires them and allows no others.
fn is_closed(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => {
            let properties = members.get("properties").and_then(Value::as_object);
            let is_object = properties.is_some()
                || members.get("type").is_some_and(|kind| match kind {
                    Value::String(kind) => kind == "object",
                    Value::Array(kinds) => kinds.iter().any(|kind| kind == "object"),
                    _ => false,
                });
            let required = members.get("required").and_then(Value::as_array);
            let is_required = |name: &String| {
                required.is_some_and(|names| names.iter().any(|one| one == name.as_str()))
            };
            let all_required = properties.is_none_or(|known| known.keys().all(is_required));
            let no_others = members.get("additionalProperties") == Some(&Value::Bool(false));
            (!is_object || (all_required && no_others)) && members.values().all(is_closed)
        }
        Value::Array(items) => items.iter().all(is_closed),
        _ => true,
    }
}

/// Tells the model in words what it has no setting for. What it answers is checked.
pub(crate) fn tell_schema(conversation: &mut IrConversation, schema: &Value) {
    let words = format!("Answer with nothing but JSON that follows this JSON schema: {schema}");
    match conversation.system_mut() {
        Some(system) => system.push(IrContentBlock::text(words)),
        None => conversation
            .messages
            .insert(0, IrMessage::text(IrRole::System, words)),
    }
}

/// Shows the model an answer that cannot be used, and asks for another one.
pub(crate) fn ask_again(conversation: &mut IrConversation, answer: &str, problem: &str) {
    let again = format!(
        "This cannot be used: {problem}. Answer again, with nothing but JSON that follows the schema."
    );
    let turns = [(IrRole::Assistant, answer), (IrRole::User, again.as_str())];
    let turns = turns.map(|(role, text)| IrMessage::text(role, text));
    conversation.messages.extend(turns);
}

/// What a vendor's setting holds of the schema: all of it, a part, or nothing.
///
/// # Errors
/// Fails where it holds nothing: the answer would be held to nothing then.
pub(crate) fn written_schema(
    schema: &Value,
    written: &IrConversation,
) -> Result<Option<Loss>, &'static str> {
    match schema_in(written) {
        None => Err("its dialect cannot carry the output schema"),
        Some(found) if found == *schema => Ok(None),
        Some(_) => Ok(Some(Loss {
            pointer: POINTER.to_owned(),
            kind: LossKind::Degraded,
            reason: "output_schema: the vendor's own schema language cannot say all of it"
                .to_owned(),
        })),
    }
}
