//! Stop sequences for targets that have none: they are taken out of the request, and the answer is cut
//! where one of them occurs. The vendor does not know and says the rest, which is left out.

use std::collections::BTreeMap;

use abp_core::ir::{
    IrBlockStart, IrCitation, IrContentBlock, IrConversation, IrDelta, IrFinish, IrFinishReason,
    IrResponse, Leaf, Origin,
};
use abp_dialect::{Exchange, Fate, How, Note};

use crate::undo::Undone;

/// How many sequences an answer is searched for; vendors take a handful.
const MAX_STOPS: usize = 64;
/// How long they may be together: every piece of a stream is held against all of them.
const MAX_STOP_BYTES: usize = 4096;

/// Takes the stop sequences out of a request; its answer has to be cut.
pub(crate) fn take_stops(
    conversation: &mut IrConversation,
    exchange: &mut Exchange,
    notes: &mut Vec<Note>,
) {
    let stop = conversation.settings.stop.take();
    let (mut number, mut length) = (0, 0);
    for sequence in stop.into_iter().flat_map(|stop| stop.sequences) {
        number += 1;
        length += sequence.value.len();
        let origin = sequence.origin;
        if number > MAX_STOPS || length > MAX_STOP_BYTES {
            let fate = Fate::Unsupported {
                label: "too_many_stop_sequences".into(),
                reason: "the target has none, and an answer is not searched for so many".into(),
            };
            notes.push(Note { origin, fate });
            continue;
        }
        let reason = "the target has none; the answer is cut where one occurs";
        let fate = Fate::Carried(How::emulated("stop_sequences", reason));
        notes.push(Note { origin, fate });
        // A vendor that has them ignores an empty one, or refuses it.
        if !sequence.value.is_empty() {
            exchange.stop_at.push(sequence.value);
        }
    }
}

/// Cuts every choice of an answer at the first stop sequence in its text.
pub(crate) fn cut_response(response: &mut IrResponse, stops: &[String], notes: &mut Vec<Note>) {
    for choice in &mut response.choices {
        let content = &mut choice.message.content;
        let met = content.iter().enumerate().find_map(|(index, block)| {
            let IrContentBlock::Text { text, .. } = &block.body else {
                return None;
            };
            let (at, stop) = first_stop(text, stops)?;
            Some((index, at, stop))
        });
        let Some((index, at, stop)) = met else {
            continue;
        };
        for block in content.drain(index + 1..) {
            notes.push(after_stop(block.origin));
        }
        if let Some(block) = content.last_mut()
            && let IrContentBlock::Text { text, citations } = &mut block.body
        {
            notes.push(cut_at_stop(text.origin));
            text.value.truncate(at);
            let length = text.chars().count() as u64;
            for cited in citations.extract_if(.., |cited| reaches_beyond(cited, length)) {
                notes.push(after_stop(cited.native.origin));
            }
            block.origin = Origin::Host;
        }
        choice.message.origin = Origin::Host;
        choice.origin = Origin::Host;
        let finish = choice.finish.replace(stopped_at(stop));
        notes.extend(finish.iter().flat_map(after_stop_finish));
    }
}

fn reaches_beyond(citation: &IrCitation, length: u64) -> bool {
    let range = citation.range.as_ref();
    range.is_some_and(|range| range.end.value > length)
}

/// A remark on the text that is cut.
pub(crate) fn cut_at_stop(origin: Origin) -> Note {
    Note {
        origin,
        fate: Fate::Carried(How::emulated("stop_sequences", "cut at a stop sequence")),
    }
}

/// Remarks on the ending that the vendor gave, in the place of which the caller gets another.
pub(crate) fn after_stop_finish(finish: &IrFinish) -> impl Iterator<Item = Note> {
    let IrFinish {
        reason: _,
        native,
        stop_sequence,
        details,
    } = finish;
    let origins = [
        native.as_ref().map(|leaf| leaf.origin),
        stop_sequence.as_ref().map(|leaf| leaf.origin),
        details.as_ref().map(|leaf| leaf.origin),
    ];
    let in_source = |origin: &Origin| matches!(origin, Origin::Node(_));
    origins
        .into_iter()
        .flatten()
        .filter(in_source)
        .map(after_stop)
}

/// A remark on what is left out because it comes after the end.
pub(crate) fn after_stop(origin: Origin) -> Note {
    let (label, reason) = (
        "after_stop_sequence",
        "the answer ends at the stop sequence before it",
    );
    Note {
        origin,
        fate: Fate::Dropped {
            label: label.into(),
            reason: reason.into(),
        },
    }
}

fn stopped_at(stop: &str) -> IrFinish {
    let mut finish = IrFinish::new(IrFinishReason::StopSequence, None);
    finish.stop_sequence = Some(Leaf::from(stop));
    finish
}

/// Where the text begins that is complete first, and which one it is: a model that says word by word
/// would stop there.
fn first_stop<'s>(text: &str, stops: &'s [String]) -> Option<(usize, &'s str)> {
    let found = stops
        .iter()
        .filter_map(|stop| Some((text.find(stop.as_str())?, stop.as_str())));
    found.min_by_key(|(at, stop)| (at + stop.len(), *at))
}

/// How many bytes at the end of a text may be the beginning of one of these texts.
fn undecided(text: &str, stops: &[String]) -> usize {
    let longest = stops.iter().map(|stop| stop.len() - 1).max().unwrap_or(0);
    let tails = text.char_indices().rev().map(|(at, _)| text.len() - at);
    tails
        .take_while(|length| *length <= longest)
        .filter(|length| {
            let tail = &text[text.len() - length..];
            stops.iter().any(|stop| stop.starts_with(tail))
        })
        .last()
        .unwrap_or(0)
}

/// Cuts a streamed answer. It holds back no more than may be the beginning of a stop sequence.
#[derive(Debug)]
pub(crate) struct StopCut {
    stops: Vec<String>,
    /// The open blocks of text, with what is held back of each.
    open: BTreeMap<(u32, u32), String>,
    /// The choices that are over, with the sequence that ended each.
    ended: BTreeMap<u32, String>,
}

impl StopCut {
    pub(crate) fn new(stops: &[String]) -> Self {
        Self {
            stops: stops.to_vec(),
            open: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }

    /// What the caller gets for a piece.
    pub(crate) fn delta(&mut self, mut delta: IrDelta, undone: &mut Undone) -> Vec<IrDelta> {
        match &mut delta {
            IrDelta::BlockStart {
                choice,
                block,
                start,
            } => {
                if self.ended.contains_key(choice) {
                    undone.leave_out();
                    return Vec::new();
                }
                if matches!(start, IrBlockStart::Text) {
                    self.open.insert((*choice, *block), String::new());
                }
            }
            IrDelta::Append {
                choice,
                block,
                text,
            } => return self.append(*choice, *block, text, undone),
            IrDelta::Signature { choice, .. } | IrDelta::Citation { choice, .. }
                if self.ended.contains_key(choice) =>
            {
                undone.leave_out();
                return Vec::new();
            }
            IrDelta::BlockStop { choice, block } => {
                let (choice, block) = (*choice, *block);
                let held = self.open.remove(&(choice, block));
                if held.is_none() && self.ended.contains_key(&choice) {
                    return Vec::new();
                }
                let rest = held.filter(|held| !held.is_empty());
                return rest
                    .map(|rest| piece(choice, block, rest))
                    .into_iter()
                    .chain([delta])
                    .collect();
            }
            IrDelta::Finish { choice, finish } => {
                if let Some(stop) = self.ended.get(choice) {
                    undone.remark(after_stop_finish(finish));
                    *finish = stopped_at(stop);
                }
            }
            _ => {}
        }
        vec![delta]
    }

    fn append(
        &mut self,
        choice: u32,
        block: u32,
        text: &Leaf<String>,
        undone: &mut Undone,
    ) -> Vec<IrDelta> {
        if self.ended.contains_key(&choice) {
            undone.leave_out();
            return Vec::new();
        }
        let Some(held) = self.open.get_mut(&(choice, block)) else {
            let text = text.clone();
            return vec![IrDelta::Append {
                choice,
                block,
                text,
            }];
        };
        held.push_str(&undone.hold(text));
        let said = match first_stop(held, &self.stops) {
            Some((at, stop)) => {
                undone.remark([cut_at_stop(text.origin)]);
                self.ended.insert(choice, stop.to_owned());
                let mut said = std::mem::take(held);
                said.truncate(at);
                said
            }
            None => {
                let certain = held.len() - undecided(held, &self.stops);
                let rest = held.split_off(certain);
                std::mem::replace(held, rest)
            }
        };
        if said.is_empty() {
            return Vec::new();
        }
        vec![piece(choice, block, said)]
    }
}

fn piece(choice: u32, block: u32, text: String) -> IrDelta {
    IrDelta::Append {
        choice,
        block,
        text: Leaf::new(text, Origin::Made("streamed")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text and the end of an answer that is said in these pieces.
    fn cut(pieces: &[&str], stops: &[String]) -> (String, Option<String>) {
        let mut cut = StopCut::new(stops);
        let (choice, block, start) = (0, 0, IrBlockStart::Text);
        let mut deltas = vec![IrDelta::BlockStart {
            choice,
            block,
            start,
        }];
        deltas.extend(
            pieces
                .iter()
                .map(|text| piece(choice, block, (*text).to_owned())),
        );
        deltas.push(IrDelta::BlockStop { choice, block });
        let finish = IrFinish::new(IrFinishReason::Stop, None);
        deltas.push(IrDelta::Finish { choice, finish });
        let mut undone = Undone::default();
        let (mut said, mut end) = (String::new(), None);
        for delta in deltas {
            for delta in cut.delta(delta, &mut undone) {
                match delta {
                    IrDelta::Append { text, .. } => said.push_str(&text.value),
                    IrDelta::Finish { finish, .. } => end = finish.stop_sequence,
                    _ => {}
                }
            }
        }
        (said, end.map(|end| end.value))
    }

    proptest! {
        #[test]
        fn pieces_are_cut_where_the_whole_is(
            text in "[abé]{0,30}",
            stops in prop::collection::vec("[abé]{1,4}", 1..4),
            at in prop::collection::vec(0_usize..31, 0..6),
        ) {
            let mut bounds: Vec<usize> = at.into_iter().filter(|at| text.is_char_boundary(*at)).collect();
            bounds.extend([0, text.len()]);
            bounds.sort_unstable();
            let pieces: Vec<&str> = bounds.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            let expected = match first_stop(&text, &stops) {
                Some((at, _)) => &text[..at],
                None => &text,
            };
            let (said, end) = cut(&pieces, &stops);
            prop_assert_eq!(&said, expected);
            prop_assert_eq!(end.is_some(), expected.len() < text.len());
        }

        #[test]
        fn nothing_is_held_back_that_is_certain(text in "[ab]{1,20}") {
            let stops = ["abab".to_owned(), "bb".to_owned()];
            let held = undecided(&text, &stops);
            prop_assert!(held < 4);
            let tail = &text[text.len() - held..];
            prop_assert!(held == 0 || stops.iter().any(|stop| stop.starts_with(tail)));
        }
    }
}
