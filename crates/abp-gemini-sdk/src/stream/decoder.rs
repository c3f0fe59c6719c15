//! Reading a stream.

use std::collections::BTreeMap;

use abp_core::ir::{
    IrBlock, IrBlockStart, IrContentBlock, IrDelta, IrFinish, IrFinishReason, IrThinkingKind,
    IrToolInput, Leaf, RawJson,
};
use abp_dialect::{DialectError, How, Item, StreamDecoder};
use abp_json::Kind;

use crate::grounding::{self, Segment, Source, Widths};
use crate::lowering::{
    Finish, block_reason, candidate_index, read_error, read_finish, read_part, read_usage,
};
use crate::wire::{Fields, SIGNATURE, vendor};

/// Reads a stream. The vendor has no terminator: a stream is complete when its candidates are.
#[derive(Debug, Default)]
pub(crate) struct GeminiDecoder {
    started: bool,
    over: bool,
    candidates: BTreeMap<u32, Candidate>,
}

/// What has to be remembered of a candidate.
#[derive(Debug, Default)]
struct Candidate {
    open: Option<Open>,
    next: u32,
    calls: bool,
    finished: bool,
    sources: Vec<Source>,
}

/// A block that the next piece may belong to.
#[derive(Debug)]
struct Open {
    block: u32,
    thought: bool,
    widths: Widths,
}

impl StreamDecoder for GeminiDecoder {
    fn event(
        &mut self,
        _name: Option<&str>,
        data: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        // Errors come as a list of one where a list was asked for.
        let pieces = data
            .items()
            .chain((data.kind() != Kind::Array).then_some(data));
        for piece in pieces {
            if !self.over {
                self.piece(Fields::of(piece)?, deltas)?;
            }
        }
        Ok(())
    }

    fn terminator(&mut self, deltas: &mut Vec<IrDelta>) {
        self.end(deltas);
    }

    fn end(&mut self, deltas: &mut Vec<IrDelta>) {
        if self.over {
            return;
        }
        self.over = true;
        if self.candidates.is_empty() {
            self.candidates.insert(0, Candidate::default());
        }
        for (choice, candidate) in &mut self.candidates {
            candidate.close(*choice, deltas);
            if !candidate.finished {
                deltas.push(IrDelta::Finish {
                    choice: *choice,
                    finish: IrFinish::new(IrFinishReason::Incomplete, None),
                });
            }
        }
        deltas.push(IrDelta::End);
    }
}

impl GeminiDecoder {
    fn piece(&mut self, fields: Fields<'_>, deltas: &mut Vec<IrDelta>) -> Result<(), DialectError> {
        if fields.has("error") {
            self.over = true;
            for (choice, candidate) in &mut self.candidates {
                candidate.close(*choice, deltas);
            }
            deltas.push(IrDelta::Error(read_error(fields.item(), None)?));
            return Ok(());
        }
        self.start(fields, deltas)?;
        for (position, item) in fields.repeated("candidates").enumerate() {
            let candidate = Fields::of(item)?;
            let choice = candidate_index(candidate, position);
            let known = self.candidates.entry(choice).or_default();
            known.piece(choice, candidate, deltas)?;
        }
        if let Some(feedback) = fields.fields("promptFeedback")? {
            let fields = feedback.vendor(vendor::PROMPT_FEEDBACK);
            deltas.extend(fields.into_iter().map(IrDelta::Vendor));
            if let Some(finish) = block_reason(feedback)? {
                self.candidates.entry(0).or_default().finished = true;
                deltas.push(IrDelta::Finish { choice: 0, finish });
            }
        }
        if let Some(usage) = fields.get("usageMetadata") {
            deltas.push(IrDelta::Usage(read_usage(usage)?));
        }
        Ok(())
    }

    /// The first piece names the answer; the others say it again.
    fn start(&mut self, fields: Fields<'_>, deltas: &mut Vec<IrDelta>) -> Result<(), DialectError> {
        if self.started {
            for name in ["responseId", "modelVersion"] {
                if let Some(item) = fields.get(name) {
                    item.repeats();
                }
            }
            let fields = fields.vendor(vendor::RESPONSE);
            deltas.extend(fields.into_iter().map(IrDelta::Vendor));
            return Ok(());
        }
        self.started = true;
        deltas.push(IrDelta::Start {
            id: fields.text("responseId")?,
            model: fields.text("modelVersion")?,
            created: None,
            vendor: fields.vendor(vendor::RESPONSE),
        });
        Ok(())
    }
}

impl Candidate {
    fn piece(
        &mut self,
        choice: u32,
        fields: Fields<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        if let Some(content) = fields.fields("content")? {
            if let Some(role) = content.get("role") {
                role.structure();
            }
            for part in content.repeated("parts") {
                if let Some(block) = read_part(part)? {
                    self.block(choice, part, block, deltas);
                }
            }
        }
        self.cite(choice, fields, deltas)?;
        fields.vendor(vendor::CANDIDATE);
        if let Some(finish) = read_finish(fields, Finish { calls: self.calls })? {
            self.close(choice, deltas);
            self.finished = true;
            deltas.push(IrDelta::Finish { choice, finish });
        }
        Ok(())
    }

    fn block(&mut self, choice: u32, part: Item<'_>, block: IrBlock, deltas: &mut Vec<IrDelta>) {
        match block.body {
            IrContentBlock::Text { text, .. } => {
                // An empty piece says nothing, and must not start a block.
                if text.is_empty() {
                    part.structure();
                } else {
                    self.append(choice, text, false, deltas);
                }
                let proofs = block
                    .vendor
                    .into_iter()
                    .filter(|field| field.name == SIGNATURE);
                deltas.extend(proofs.map(IrDelta::Vendor));
            }
            IrContentBlock::Thinking {
                text, signature, ..
            } => self.thought(choice, part, text, signature, deltas),
            IrContentBlock::ToolUse {
                id,
                name,
                input,
                signature,
                ..
            } => {
                let start = IrBlockStart::ToolUse {
                    id,
                    name,
                    custom: false,
                    item_id: None,
                };
                let block = self.begin(choice, start, deltas);
                self.calls = true;
                let text = arguments(part, input);
                deltas.push(IrDelta::Append {
                    choice,
                    block,
                    text,
                });
                deltas.extend(signature.map(|signature| IrDelta::Signature {
                    choice,
                    block,
                    signature,
                }));
                deltas.push(IrDelta::BlockStop { choice, block });
            }
            IrContentBlock::Opaque { kind, native } => {
                self.opaque(choice, kind, native, deltas);
            }
            // Pieces of streams have no form for media and the like but the vendor's own.
            _ => {
                let kind = part.entries().next().map(|(key, _)| key.into_owned());
                self.opaque(choice, kind.unwrap_or_default(), part.raw(), deltas);
            }
        }
    }

    /// A thought. Its proof may come with a piece of its own, after the text or without any.
    fn thought(
        &mut self,
        choice: u32,
        part: Item<'_>,
        text: Leaf<String>,
        signature: Option<Leaf<String>>,
        deltas: &mut Vec<IrDelta>,
    ) {
        let thinking = self.open.as_ref().is_some_and(|open| open.thought);
        if text.is_empty() && !thinking {
            let fields = Fields::of(part).map(|part| part.vendor(&[SIGNATURE]));
            deltas.extend(fields.unwrap_or_default().into_iter().map(IrDelta::Vendor));
            if let Some(text) = part.get("text") {
                text.structure();
            }
            return;
        }
        self.append(choice, text, true, deltas);
        if let (Some(signature), Some(open)) = (signature, &self.open) {
            deltas.push(IrDelta::Signature {
                choice,
                block: open.block,
                signature,
            });
        }
    }

    fn append(
        &mut self,
        choice: u32,
        text: Leaf<String>,
        thought: bool,
        deltas: &mut Vec<IrDelta>,
    ) {
        if self
            .open
            .as_ref()
            .is_none_or(|open| open.thought != thought)
        {
            let start = if thought {
                IrBlockStart::Thinking {
                    kind: IrThinkingKind::Summary,
                    item_id: None,
                    encrypted: None,
                }
            } else {
                IrBlockStart::Text
            };
            let block = self.begin(choice, start, deltas);
            self.open = Some(Open {
                block,
                thought,
                widths: Widths::default(),
            });
        }
        if let Some(open) = &mut self.open {
            if !thought {
                open.widths.push(&text);
            }
            deltas.push(IrDelta::Append {
                choice,
                block: open.block,
                text,
            });
        }
    }

    fn opaque(
        &mut self,
        choice: u32,
        kind: String,
        native: Leaf<RawJson>,
        deltas: &mut Vec<IrDelta>,
    ) {
        let block = self.begin(choice, IrBlockStart::Opaque { kind, native }, deltas);
        deltas.push(IrDelta::BlockStop { choice, block });
    }

    /// Starts a block behind whatever was open. Returns its number.
    fn begin(&mut self, choice: u32, start: IrBlockStart, deltas: &mut Vec<IrDelta>) -> u32 {
        self.close(choice, deltas);
        let block = self.next;
        self.next += 1;
        deltas.push(IrDelta::BlockStart {
            choice,
            block,
            start,
        });
        block
    }

    fn close(&mut self, choice: u32, deltas: &mut Vec<IrDelta>) {
        if let Some(Open { block, .. }) = self.open.take() {
            deltas.push(IrDelta::BlockStop { choice, block });
        }
    }

    /// Sources belong to the text that is open; offsets count from its start.
    fn cite(
        &mut self,
        choice: u32,
        fields: Fields<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let open = self.open.as_ref().filter(|open| !open.thought);
        let locate = |segment: &Segment| {
            let open = open?;
            let start = open.widths.characters(segment.start)?;
            Some((0, start, open.widths.characters(segment.end)?))
        };
        let earlier = self.sources.len();
        let found = grounding::read(fields, &mut self.sources, locate)?;
        for source in self.sources.iter_mut().skip(earlier) {
            *source = source.kept();
        }
        if let Some(open) = open {
            let citations = found.citations.into_iter();
            deltas.extend(citations.map(|(_, citation)| IrDelta::Citation {
                choice,
                block: open.block,
                citation,
            }));
        }
        Ok(())
    }
}

/// Arguments come whole, as JSON; in pieces they are text.
fn arguments(part: Item<'_>, input: IrToolInput) -> Leaf<String> {
    let args = Fields::of(part)
        .and_then(|part| part.fields("functionCall"))
        .ok()
        .flatten()
        .and_then(|call| call.get("args"));
    if let Some(args) = args {
        args.note(How::Converted("json_in_text"));
    }
    match input {
        IrToolInput::Json(json) => Leaf::new(json.value.into_text(), json.origin),
        IrToolInput::Text(text) | IrToolInput::Invalid(text) => text,
    }
}
