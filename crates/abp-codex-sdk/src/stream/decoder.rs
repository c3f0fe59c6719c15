//! Reading a streamed answer.
//!
//! Everything is told several times: in pieces, as a whole when a part, an item and the answer are
//! done. Pieces count; a whole is used where there were none, as some servers send no pieces and some
//! send no items in the end.

mod whole;

use std::collections::BTreeMap;

use abp_core::ir::{
    IrBlockStart, IrDelta, IrError, IrErrorKind, IrFinish, IrFinishReason, IrThinkingKind, Leaf,
};
use abp_dialect::{Dialect, DialectError, Item, MAX_OPEN_BLOCKS, StreamDecoder};

use crate::lowering::{
    item_kind, read_citation, read_failure, read_finish, read_usage, settle_empty,
};
use crate::stream::slot::{Place, Slot, append, count, output_index, place};
use crate::wire::{self, Streamed};

/// Reads the events of one answer.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    started: bool,
    over: bool,
    any_item: bool,
    called: bool,
    refused: bool,
    next_block: u32,
    items: BTreeMap<u64, Vec<Slot>>,
}

impl StreamDecoder for Decoder {
    fn event(
        &mut self,
        _name: Option<&str>,
        data: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let data = data.object()?;
        // The data names its event as well, and not every server names it twice.
        let Some(kind) = data.get("type").and_then(|kind| kind.view().as_str()) else {
            return Err(DialectError::NotThis {
                dialect: Dialect::Codex,
                what: "stream event",
                problem: "it has no type".to_owned(),
            });
        };
        if self.over {
            data.repeats();
            return Ok(());
        }
        let known = wire::BOOKKEEPING.iter().filter_map(|key| data.get(key));
        known.for_each(Item::repeats);
        self.dispatch(&kind, data, deltas)
    }

    fn terminator(&mut self, deltas: &mut Vec<IrDelta>) {
        self.end(deltas);
    }

    fn end(&mut self, deltas: &mut Vec<IrDelta>) {
        if self.over {
            return;
        }
        self.over = true;
        self.close_all(deltas);
        deltas.push(IrDelta::Finish {
            choice: 0,
            finish: IrFinish::new(IrFinishReason::Incomplete, None),
        });
        deltas.push(IrDelta::End);
    }
}

impl Decoder {
    fn dispatch(
        &mut self,
        kind: &str,
        data: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        match kind {
            "response.created" | "response.in_progress" | "response.queued" => {
                self.begin(data.need("response")?, deltas)
            }
            "response.output_item.added" => self.item_added(data, deltas),
            "response.output_item.done" => self.item_done(data, deltas),
            "response.content_part.added" | "response.reasoning_summary_part.added" => {
                self.part_added(data, deltas)
            }
            "response.content_part.done" | "response.reasoning_summary_part.done" => {
                self.part_done(data, deltas)
            }
            "response.output_text.annotation.added" => {
                self.cited(data, deltas);
                Ok(())
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => self.finish(kind, data.need("response")?, deltas),
            "error" => self.fail(data, deltas),
            "keepalive" | "ping" => {
                deltas.push(IrDelta::Ping);
                Ok(())
            }
            _ => match Streamed::of_event(kind) {
                Some((streamed, false)) => self.piece(streamed, data, deltas),
                Some((streamed, true)) => self.whole(streamed, data, deltas),
                None if wire::is_progress(kind) => {
                    data.repeats();
                    Ok(())
                }
                None => Ok(()),
            },
        }
    }

    fn begin(&mut self, response: Item<'_>, deltas: &mut Vec<IrDelta>) -> Result<(), DialectError> {
        let response = response.object()?;
        if self.started {
            response.repeats();
            return Ok(());
        }
        self.started = true;
        settle_empty(response);
        for key in ["object", "status", "output", "output_text"] {
            if let Some(member) = response.get(key) {
                member.repeats();
            }
        }
        deltas.push(IrDelta::Start {
            id: response.opt_text("id")?,
            model: response.opt_text("model")?,
            created: response.opt_number("created_at")?,
            vendor: response.vendor_fields(wire::RESPONSE_VENDOR),
        });
        Ok(())
    }

    fn item_added(
        &mut self,
        data: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let item = data.need("item")?.object()?;
        self.any_item = true;
        self.items.insert(output_index(data), Vec::new());
        item.repeats();
        let kind = item.get("type").and_then(|kind| kind.view().as_str());
        let (custom, member) = match kind.as_deref() {
            Some("function_call") => (false, "arguments"),
            Some("custom_tool_call") => (true, "input"),
            _ => return Ok(()),
        };
        let start = IrBlockStart::ToolUse {
            id: item.opt_text("call_id")?,
            name: item.need("name")?.text()?,
            custom,
            item_id: item.opt_text("id")?,
        };
        self.open(output_index(data), Place::Call, start, deltas)?;
        match (
            self.slot(output_index(data), Place::Call),
            item.some(member),
        ) {
            (Some(slot), Some(input)) => slot.catch_up(input, deltas),
            _ => Ok(()),
        }
    }

    fn part_added(
        &mut self,
        data: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let Some(part) = data.get("part") else {
            return Ok(());
        };
        part.repeats();
        let kind = part.get("type").and_then(|kind| kind.view().as_str());
        let streamed = kind.and_then(|kind| Streamed::of_part(&kind));
        streamed.map_or(Ok(()), |streamed| self.ensure(streamed, data, deltas))
    }

    fn piece(
        &mut self,
        streamed: Streamed,
        data: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let text = data.need("delta")?;
        match data.some("logprobs") {
            Some(logprobs) if logprobs.view().is_empty() => logprobs.repeats(),
            // There is no place for them in the pieces; the mark names them in the ledger.
            Some(logprobs) => drop(logprobs.vendor("logprobs")),
            None => {}
        }
        self.ensure(streamed, data, deltas)?;
        let Some(slot) = self.slot(output_index(data), place(streamed, data)) else {
            text.repeats();
            return Ok(());
        };
        let piece = text.text()?;
        slot.streamed += piece.len();
        deltas.push(append(slot.block, piece));
        Ok(())
    }

    fn whole(
        &mut self,
        streamed: Streamed,
        data: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        data.repeats();
        let slot = self.slot(output_index(data), place(streamed, data));
        match (slot, data.some(streamed.names().member)) {
            (Some(slot), Some(text)) if slot.open => slot.catch_up(text, deltas),
            _ => Ok(()),
        }
    }

    fn cited(&mut self, data: Item<'_>, deltas: &mut Vec<IrDelta>) {
        if let Some(item_id) = data.get("item_id") {
            item_id.repeats();
        }
        let slot = self.slot(output_index(data), place(Streamed::Text, data));
        if let (Some(slot), Some(annotation)) = (slot, data.get("annotation")) {
            slot.cited = true;
            deltas.push(IrDelta::Citation {
                choice: 0,
                block: slot.block,
                citation: read_citation(annotation),
            });
        }
    }

    fn part_done(&mut self, data: Item<'_>, deltas: &mut Vec<IrDelta>) -> Result<(), DialectError> {
        data.repeats();
        let index = output_index(data);
        let place = match count(data, "summary_index") {
            Some(summary) => Place::Summary(summary),
            None => Place::Content(count(data, "content_index").unwrap_or_default()),
        };
        match (self.slot(index, place), data.get("part")) {
            (Some(slot), Some(part)) => slot.complete(part, deltas),
            _ => Ok(()),
        }
    }

    fn item_done(&mut self, data: Item<'_>, deltas: &mut Vec<IrDelta>) -> Result<(), DialectError> {
        self.any_item = true;
        let item = data.need("item")?.object()?;
        let slots = self.items.remove(&output_index(data)).unwrap_or_default();
        let kind = item_kind(item);
        if slots.is_empty() {
            return self.emit_item(item, &kind, deltas);
        }
        item.repeats();
        self.reconcile(item, slots, deltas)
    }

    fn finish(
        &mut self,
        kind: &str,
        response: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let response = response.object()?;
        if !self.started {
            self.begin(response, deltas)?;
        }
        self.close_all(deltas);
        settle_empty(response);
        let told = ["created_at", "id", "model", "object", "output_text"];
        let known = told.iter().chain(wire::RESPONSE_VENDOR);
        known
            .filter_map(|key| response.get(key))
            .for_each(Item::repeats);
        self.finish_output(response, deltas)?;
        self.over = true;
        if let Some(usage) = response.some("usage") {
            deltas.push(IrDelta::Usage(read_usage(usage)?));
        }
        if kind == "response.failed" {
            deltas.push(IrDelta::Error(failure_of(response)?));
            return Ok(());
        }
        let mut vendor = response.vendor_fields(wire::RESPONSE_VENDOR_AT_END);
        let finish = read_finish(response, self.completed_reason(), &mut vendor)?;
        deltas.extend(vendor.into_iter().map(IrDelta::Vendor));
        let finish = finish.unwrap_or_else(|| {
            let reason = match kind {
                "response.completed" => self.completed_reason(),
                _ => IrFinishReason::Incomplete,
            };
            IrFinish::new(reason, None)
        });
        deltas.push(IrDelta::Finish { choice: 0, finish });
        deltas.push(IrDelta::End);
        Ok(())
    }

    /// The whole output once more, unless it is told for the first time.
    fn finish_output(
        &mut self,
        response: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let Some(output) = response.some("output") else {
            return Ok(());
        };
        if self.any_item {
            output.repeats();
            return Ok(());
        }
        for item in output.array()? {
            let item = item.object()?;
            self.emit_item(item, &item_kind(item), deltas)?;
        }
        Ok(())
    }

    fn completed_reason(&self) -> IrFinishReason {
        if self.called {
            IrFinishReason::ToolUse
        } else if self.refused {
            IrFinishReason::Refusal
        } else {
            IrFinishReason::Stop
        }
    }

    /// An error after the answer began. Its members are in an object of their own, or not.
    fn fail(&mut self, data: Item<'_>, deltas: &mut Vec<IrDelta>) -> Result<(), DialectError> {
        let error = match data.some("error") {
            Some(error) => {
                let native = error.object()?.opt_text("type")?;
                read_failure(error, native, None)?
            }
            None => read_failure(data, None, None)?,
        };
        self.over = true;
        self.close_all(deltas);
        deltas.push(IrDelta::Error(error));
        Ok(())
    }

    /// Opens the block of a part where nobody announced it. A call has to be announced: nothing
    /// else names its tool.
    fn ensure(
        &mut self,
        streamed: Streamed,
        data: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let (index, place) = (output_index(data), place(streamed, data));
        let item_id = data.get("item_id");
        if let Some(item_id) = item_id {
            item_id.repeats();
        }
        if self.slot(index, place).is_some() {
            return Ok(());
        }
        let first = self.items.get(&index).is_none_or(Vec::is_empty);
        let item_id = || item_id.filter(|_| first)?.text().ok();
        let thinking = |kind| IrBlockStart::Thinking {
            kind,
            item_id: item_id(),
            encrypted: None,
        };
        let start = match streamed {
            Streamed::Text => IrBlockStart::Text,
            Streamed::Refusal => IrBlockStart::Refusal,
            Streamed::Summary => thinking(IrThinkingKind::Summary),
            Streamed::Reasoning => thinking(IrThinkingKind::Raw),
            Streamed::Arguments | Streamed::Input => return Ok(()),
        };
        self.any_item = true;
        self.open(index, place, start, deltas)
    }

    fn open(
        &mut self,
        index: u64,
        place: Place,
        start: IrBlockStart,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let parts = self.items.get(&index).map_or(0, Vec::len);
        if parts >= MAX_OPEN_BLOCKS {
            return Err(DialectError::too_many_open("parts of an item"));
        }
        let block = self.start(start, deltas);
        self.items.entry(index).or_default().push(Slot {
            place,
            block,
            open: true,
            streamed: 0,
            cited: false,
        });
        Ok(())
    }

    fn start(&mut self, start: IrBlockStart, deltas: &mut Vec<IrDelta>) -> u32 {
        self.called |= matches!(start, IrBlockStart::ToolUse { .. });
        self.refused |= matches!(start, IrBlockStart::Refusal);
        let block = self.next_block;
        self.next_block += 1;
        deltas.push(IrDelta::BlockStart {
            choice: 0,
            block,
            start,
        });
        block
    }

    fn slot(&mut self, index: u64, place: Place) -> Option<&mut Slot> {
        let slots = self.items.get_mut(&index)?;
        slots.iter_mut().find(|slot| slot.place == place)
    }

    fn close_all(&mut self, deltas: &mut Vec<IrDelta>) {
        let slots = std::mem::take(&mut self.items).into_values().flatten();
        for mut slot in slots {
            slot.close(deltas);
        }
    }
}

fn failure_of(response: Item<'_>) -> Result<IrError, DialectError> {
    if let Some(status) = response.get("status") {
        status.repeats();
    }
    match response.some("error") {
        Some(error) => read_failure(error.object()?, None, None),
        None => Ok(IrError {
            kind: IrErrorKind::Server,
            status: None,
            message: Leaf::from("the answer failed"),
            native: None,
            code: None,
            param: None,
            request_id: None,
            vendor: Vec::new(),
        }),
    }
}
