//! A whole answer in pieces, as a model would give it.

use abp_core::ir::{
    IrBlock, IrBlockStart, IrChoice, IrContentBlock, IrDelta, IrResponse, IrToolInput, IrUsage,
};

/// The shortest piece of a text, and the most pieces of one.
const MIN_PIECE: usize = 12;
const MAX_PIECES: usize = 64;

/// The pieces of an answer.
pub(super) fn deltas(response: &IrResponse) -> Vec<IrDelta> {
    let mut deltas = vec![IrDelta::Start {
        id: response.id.clone(),
        model: response.model.clone(),
        created: response.created.clone(),
        vendor: Vec::new(),
    }];
    // What was read is known from the start, what was written only at the end.
    let usage = response.usage.as_ref();
    deltas.extend(usage.map(|usage| {
        IrDelta::Usage(IrUsage {
            input_tokens: usage.input_tokens,
            ..IrUsage::default()
        })
    }));
    for IrChoice {
        index,
        message,
        finish,
        ..
    } in &response.choices
    {
        for (block, IrBlock { body, .. }) in (0..).zip(&message.content) {
            push_block(*index, block, body, &mut deltas);
        }
        deltas.extend(finish.clone().map(|finish| IrDelta::Finish {
            choice: *index,
            finish,
        }));
    }
    deltas.extend(usage.cloned().map(IrDelta::Usage));
    deltas.push(IrDelta::End);
    deltas
}

fn push_block(choice: u32, block: u32, body: &IrContentBlock, deltas: &mut Vec<IrDelta>) {
    let (start, text) = match body {
        IrContentBlock::ToolUse {
            id, name, input, ..
        } => {
            let (custom, text) = match input {
                IrToolInput::Json(json) => (false, json.text()),
                IrToolInput::Text(text) | IrToolInput::Invalid(text) => (true, text.as_str()),
            };
            let start = IrBlockStart::ToolUse {
                id: id.clone(),
                name: name.clone(),
                custom,
                item_id: None,
            };
            (start, text)
        }
        IrContentBlock::Text { text, .. } => (IrBlockStart::Text, text.as_str()),
        // The model says nothing else.
        _ => return,
    };
    deltas.push(IrDelta::BlockStart {
        choice,
        block,
        start,
    });
    deltas.extend(pieces(text).map(|text| IrDelta::Append {
        choice,
        block,
        text: text.into(),
    }));
    deltas.push(IrDelta::BlockStop { choice, block });
}

/// Cuts a text into several pieces, but never into more than anybody wants to read.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let size = MIN_PIECE.max(text.len().div_ceil(MAX_PIECES));
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.ceil_char_boundary(size.min(rest.len()));
        let (piece, after) = rest.split_at_checked(end)?;
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}
