//! Putting a streamed answer together.

use std::collections::BTreeMap;

use abp_core::ir::{
    IrBlock, IrBlockStart, IrChoice, IrContentBlock, IrDelta, IrError, IrFinish, IrMessage,
    IrResponse, IrRole, IrToolInput, IrUsage, IrVendorField, Leaf, Origin, RawJson,
};
use abp_json::{Kind, Limits, Tape};

/// Puts the pieces of a streamed answer together to what it would have been in one piece.
#[derive(Debug, Default)]
pub struct Accumulator {
    response: IrResponse,
    choices: BTreeMap<u32, Choice>,
    error: Option<IrError>,
    ended: bool,
}

#[derive(Debug, Default)]
struct Choice {
    role: Option<IrRole>,
    blocks: BTreeMap<u32, Block>,
    finish: Option<IrFinish>,
}

#[derive(Debug)]
struct Block {
    start: IrBlockStart,
    text: String,
    signature: Option<String>,
    citations: Vec<abp_core::ir::IrCitation>,
}

impl Accumulator {
    /// Takes a piece.
    pub fn push(&mut self, delta: &IrDelta) {
        match delta {
            IrDelta::Start {
                id,
                model,
                created,
                vendor,
            } => {
                replace(&mut self.response.id, id.as_ref());
                replace(&mut self.response.model, model.as_ref());
                replace(&mut self.response.created, created.as_ref());
                for field in vendor {
                    self.vendor(field);
                }
            }
            IrDelta::Role { choice, role } => self.choice(*choice).role = Some(role.value),
            IrDelta::BlockStart {
                choice,
                block,
                start,
            } => {
                let begun = Block {
                    start: start.clone(),
                    text: String::new(),
                    signature: None,
                    citations: Vec::new(),
                };
                self.choice(*choice).blocks.insert(*block, begun);
            }
            IrDelta::Append {
                choice,
                block,
                text,
            } => {
                if let Some(open) = self.choice(*choice).blocks.get_mut(block) {
                    open.text.push_str(text);
                }
            }
            IrDelta::Signature {
                choice,
                block,
                signature,
            } => {
                if let Some(open) = self.choice(*choice).blocks.get_mut(block) {
                    open.signature.get_or_insert_default().push_str(signature);
                }
            }
            IrDelta::Citation {
                choice,
                block,
                citation,
            } => {
                if let Some(open) = self.choice(*choice).blocks.get_mut(block) {
                    open.citations.push(citation.clone());
                }
            }
            IrDelta::Finish { choice, finish } => {
                self.choice(*choice).finish = Some(finish.clone());
            }
            IrDelta::Usage(usage) => {
                let sum = self.response.usage.get_or_insert_default();
                merge_usage(sum, usage);
            }
            IrDelta::Vendor(field) => self.vendor(field),
            IrDelta::End => self.ended = true,
            IrDelta::Error(error) => self.error = Some(error.clone()),
            _ => {}
        }
    }

    /// Whether the answer came to its end.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// The answer as it is so far, or the error it ended in.
    ///
    /// # Errors
    /// Fails with the error the stream told of.
    pub fn finish(self) -> Result<IrResponse, Box<IrError>> {
        if let Some(error) = self.error {
            return Err(Box::new(error));
        }
        let mut response = self.response;
        response.choices = self
            .choices
            .into_iter()
            .map(|(index, choice)| choice.finish(index))
            .collect();
        Ok(response)
    }

    fn choice(&mut self, choice: u32) -> &mut Choice {
        self.choices.entry(choice).or_default()
    }

    fn vendor(&mut self, field: &IrVendorField) {
        let fields = &mut self.response.vendor;
        match fields.iter_mut().find(|known| known.name == field.name) {
            Some(known) => known.value = field.value.clone(),
            None => fields.push(field.clone()),
        }
    }
}

impl Choice {
    fn finish(self, index: u32) -> IrChoice {
        let mut message = IrMessage::new(self.role.unwrap_or(IrRole::Assistant), Vec::new());
        message.content = self.blocks.into_values().map(Block::finish).collect();
        IrChoice {
            index,
            message,
            finish: self.finish,
            vendor: Vec::new(),
            origin: Origin::Host,
        }
    }
}

impl Block {
    fn finish(self) -> IrBlock {
        let text = Leaf::from(self.text);
        let signature = self.signature.map(Leaf::from);
        let body = match self.start {
            IrBlockStart::Text => IrContentBlock::Text {
                text,
                citations: self.citations,
            },
            IrBlockStart::Refusal => IrContentBlock::Refusal { text },
            IrBlockStart::Thinking {
                kind,
                item_id,
                encrypted,
            } => IrContentBlock::Thinking {
                text,
                kind,
                signature,
                encrypted,
                item_id,
            },
            IrBlockStart::RedactedThinking { data } => IrContentBlock::RedactedThinking { data },
            IrBlockStart::ToolUse {
                id,
                name,
                custom,
                item_id,
            } => IrContentBlock::ToolUse {
                id,
                name,
                input: input(text, custom),
                item_id,
                signature,
            },
            IrBlockStart::Opaque { kind, native } => IrContentBlock::Opaque { kind, native },
            _ => IrContentBlock::text(text),
        };
        body.into()
    }
}

fn input(text: Leaf<String>, custom: bool) -> IrToolInput {
    if custom {
        return IrToolInput::Text(text);
    }
    if text.is_empty() {
        return IrToolInput::Json(RawJson::trusted("{}").into());
    }
    let object = Tape::parse_str(&text, &Limits::default())
        .is_ok_and(|tape| tape.root().kind() == Kind::Object);
    if object {
        IrToolInput::Json(RawJson::trusted(text.value).into())
    } else {
        IrToolInput::Invalid(text)
    }
}

fn replace<T: Clone>(known: &mut Option<T>, new: Option<&T>) {
    if let Some(new) = new {
        *known = Some(new.clone());
    }
}

/// Takes over every count that the newer usage has.
pub(crate) fn merge_usage(sum: &mut IrUsage, new: &IrUsage) {
    let IrUsage {
        input_tokens,
        output_tokens,
        cache_creation_tokens,
        cache_read_tokens,
        reasoning_tokens,
        total_tokens,
        vendor,
        origin: _,
    } = new;
    replace(&mut sum.input_tokens, input_tokens.as_ref());
    replace(&mut sum.output_tokens, output_tokens.as_ref());
    replace(
        &mut sum.cache_creation_tokens,
        cache_creation_tokens.as_ref(),
    );
    replace(&mut sum.cache_read_tokens, cache_read_tokens.as_ref());
    replace(&mut sum.reasoning_tokens, reasoning_tokens.as_ref());
    replace(&mut sum.total_tokens, total_tokens.as_ref());
    for field in vendor {
        match sum.vendor.iter_mut().find(|known| known.name == field.name) {
            Some(known) => known.value = field.value.clone(),
            None => sum.vendor.push(field.clone()),
        }
    }
}
