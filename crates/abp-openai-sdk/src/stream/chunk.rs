//! The pieces that chunks are made of.

use abp_core::ir::{Leaf, RawJson};
use abp_dialect::{Dialect, How, Lowering};

/// What every chunk says it is.
pub(super) const CHUNK: &str = "chat.completion.chunk";

/// What every chunk says again.
#[derive(Debug, Default)]
pub(super) struct Head {
    pub(super) id: String,
    pub(super) created: Option<RawJson>,
    pub(super) model: Option<String>,
}

impl Head {
    /// Writes it.
    pub(super) fn put(&self, out: &mut Lowering<'_>) {
        out.tag("id", &self.id);
        out.tag("object", CHUNK);
        match &self.created {
            Some(created) => out.tag("created", created),
            None => out.tag("created", &0),
        }
        if let Some(model) = &self.model {
            out.tag("model", model);
        }
    }
}

/// Writes the model of the first chunk.
pub(super) fn put_first_model(
    named: Option<&String>,
    model: Option<&Leaf<String>>,
    out: &mut Lowering<'_>,
) {
    let Some(named) = named else {
        return;
    };
    let from = model.map(|model| model.origin).unwrap_or_default();
    let how = match model {
        Some(model) if model.value == *named => How::AsIs,
        _ => How::Converted("model_alias"),
    };
    out.put_as("model", named, &[from], &how);
}

/// Writes the choices of a chunk: one, that has not ended.
pub(super) fn put_choice(
    choice: u32,
    out: &mut Lowering<'_>,
    fill: impl FnOnce(&mut Lowering<'_>),
) {
    out.put_array("choices", |out| {
        out.object(|out| {
            out.tag("index", &u64::from(choice));
            out.put_object("delta", fill);
            out.tag("finish_reason", &RawJson::trusted("null"));
        });
    });
}

/// Writes the calls of a delta: one, by its number.
pub(super) fn put_call(number: u64, out: &mut Lowering<'_>, fill: impl FnOnce(&mut Lowering<'_>)) {
    out.put_array("tool_calls", |out| {
        out.object(|out| {
            out.tag("index", &number);
            fill(out);
        });
    });
}

/// Writes how a call begins.
pub(super) fn put_call_start(
    number: u64,
    id: Option<&Leaf<String>>,
    name: &Leaf<String>,
    custom: bool,
    out: &mut Lowering<'_>,
) {
    match id {
        Some(id) => out.put("id", id),
        None => {
            let id = format!("call_{number}");
            out.made("id", &id, "minted_tool_id", "a call needs an id");
        }
    }
    let (kind, argument) = match custom {
        true => ("custom", "input"),
        false => ("function", "arguments"),
    };
    out.tag("type", kind);
    out.put_object(kind, |out| {
        out.put("name", name);
        out.tag(argument, "");
    });
}

/// Writes a piece of arguments. Gemini gives them as JSON, everybody else as text.
pub(super) fn put_argument(key: &str, text: &Leaf<String>, out: &mut Lowering<'_>) {
    let how = match out.source() {
        Some(Dialect::Gemini) => How::Converted("json_in_text"),
        _ => How::AsIs,
    };
    out.put_as(key, &text.value, &[text.origin], &how);
}
