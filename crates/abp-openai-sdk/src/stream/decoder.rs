//! Reading a stream.
//!
//! Compatible servers repeat ids and names in every chunk or give them once, number calls or do not,
//! send usage in the last chunk or in all, end with `[DONE]` or just end. All of that is read here;
//! what is repeated is marked as such.

use std::collections::BTreeMap;

use abp_core::ir::{IrDelta, IrFinish, IrFinishReason, IrVendorField};
use abp_dialect::{DialectError, Item, StreamDecoder};

use super::choice::{Choice, frame};
use crate::lowering::{error, response_in, unplaced, usage};
use crate::{Flavour, wire};

/// Reads a stream.
#[derive(Debug)]
pub(crate) struct Decoder {
    flavour: &'static Flavour,
    started: bool,
    over: bool,
    choices: BTreeMap<u32, Choice>,
    /// The vendor's fields as they were last told.
    told: Vec<IrVendorField>,
}

impl Decoder {
    pub(crate) fn new(flavour: &'static Flavour) -> Self {
        Self {
            flavour,
            started: false,
            over: false,
            choices: BTreeMap::new(),
            told: Vec::new(),
        }
    }

    /// Reads what the chunks have in common. A chunk that names neither answer nor model announces
    /// the stream, and is not its start.
    fn head(&mut self, root: Item<'_>, deltas: &mut Vec<IrDelta>) -> Result<(), DialectError> {
        frame(root, &["object", "obfuscation"]);
        let vendor = self.news(root);
        if self.started {
            frame(root, &["id", "model", "created"]);
            deltas.extend(vendor.into_iter().map(IrDelta::Vendor));
            return Ok(());
        }
        let id = response_in::some_text(root, "id")?;
        let model = response_in::some_text(root, "model")?;
        let speaks = |key| root.some(key).is_some_and(|item| !item.view().is_empty());
        let created = root.opt_number("created")?;
        if id.is_none() && model.is_none() && !speaks("choices") {
            frame(root, &["id", "model", "created"]);
            self.told.clear();
            return Ok(());
        }
        self.started = true;
        deltas.push(IrDelta::Start {
            id,
            model,
            created,
            vendor,
        });
        Ok(())
    }

    /// The vendor's fields that say something new; the others repeat what was told.
    fn news(&mut self, root: Item<'_>) -> Vec<IrVendorField> {
        let fields = root.vendor_fields(wire::RESPONSE_MEMBERS);
        let (old, new): (Vec<_>, Vec<_>) = fields
            .into_iter()
            .partition(|field| self.told.contains(field));
        for item in old.iter().filter_map(|field| root.get(&field.name)) {
            item.repeats();
        }
        for IrVendorField { name, value } in &new {
            self.told.retain(|known| known.name != *name);
            self.told.push(IrVendorField {
                name: name.clone(),
                value: value.value.clone().into(),
            });
        }
        new
    }

    fn choice(&mut self, item: Item<'_>, deltas: &mut Vec<IrDelta>) -> Result<(), DialectError> {
        let number = response_in::read_index(item);
        frame(item, &["index"]);
        let choice = self.choices.entry(number).or_default();
        unplaced(item, wire::CHOICE_MEMBERS);
        // Some servers send the whole message so far beside each delta, a few nothing else.
        let delta = match (item.some("delta"), item.some("message")) {
            (Some(delta), whole) => {
                whole.into_iter().for_each(Item::repeats);
                Some(delta)
            }
            (None, whole) => whole,
        };
        if let Some(delta) = delta {
            choice.delta(self.flavour, number, delta.object()?, deltas)?;
        }
        match response_in::read_finish(item)? {
            // Other parts of the answer may follow: its end waits for the end of the stream.
            Some(finish) if self.flavour.splits_answers => {
                frame(item, &["finish_reason"]);
                choice.hold(&finish);
            }
            Some(finish) => {
                choice.close(number, deltas);
                choice.finished = true;
                deltas.push(IrDelta::Finish {
                    choice: number,
                    finish,
                });
            }
            None => {}
        }
        if let Some(counts) = item.some("usage") {
            deltas.push(IrDelta::Usage(usage::read(counts)?));
        }
        Ok(())
    }

    /// Ends the stream; an answer that gave no reason to end broke off.
    fn finish(&mut self, deltas: &mut Vec<IrDelta>) {
        if self.over {
            return;
        }
        self.over = true;
        if !self.started {
            deltas.push(IrDelta::Start {
                id: None,
                model: None,
                created: None,
                vendor: Vec::new(),
            });
        }
        if self.choices.is_empty() {
            self.choices.insert(0, Choice::default());
        }
        for (number, choice) in &mut self.choices {
            if !choice.finished {
                choice.close(*number, deltas);
                let broke_off = || IrFinish::new(IrFinishReason::Incomplete, None);
                deltas.push(IrDelta::Finish {
                    choice: *number,
                    finish: choice.held.take().unwrap_or_else(broke_off),
                });
            }
        }
        deltas.push(IrDelta::End);
    }
}

impl StreamDecoder for Decoder {
    fn event(
        &mut self,
        name: Option<&str>,
        data: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        if self.over {
            return Ok(());
        }
        let root = data.object()?;
        self.head(root, deltas)?;
        if let Some(choices) = root.some("choices") {
            for item in choices.array()? {
                self.choice(item.object()?, deltas)?;
            }
        }
        if let Some(counts) = root.some("usage") {
            deltas.push(IrDelta::Usage(usage::read(counts)?));
        }
        if root.some("error").is_some() || name == Some("error") {
            let error = error::read(self.flavour.dialect, root, None)?;
            for (number, choice) in &mut self.choices {
                choice.close(*number, deltas);
            }
            self.over = true;
            deltas.push(IrDelta::Error(error));
        }
        Ok(())
    }

    fn terminator(&mut self, deltas: &mut Vec<IrDelta>) {
        self.finish(deltas);
    }

    fn end(&mut self, deltas: &mut Vec<IrDelta>) {
        self.finish(deltas);
    }
}
