//! The ledger of a stream: the same places come again and again, so they are counted.

use std::collections::BTreeMap;

use abp_core::ir::Origin;
use abp_dialect::{Dialect, How, Mark, Note, Reader, Verdict, WrittenEvent};
use abp_json::{Limits, NodeId, Tape};

use super::{Action, Ledger, LedgerEntry, account};

/// Counts what became of the parts of events.
#[derive(Debug)]
pub(crate) struct StreamLedger {
    target: Dialect,
    counts: BTreeMap<Key, (u64, LedgerEntry)>,
}

/// Entries that are counted together.
type Key = (Option<String>, Option<String>, Action, Option<String>);

impl StreamLedger {
    pub(crate) fn new(target: Dialect) -> Self {
        Self {
            target,
            counts: BTreeMap::new(),
        }
    }

    /// Enters what became of one event of the source, or what was written without one.
    pub(crate) fn enter(
        &mut self,
        reader: Option<&Reader<'_>>,
        events: &[WrittenEvent],
        notes: &[Note],
        held: &[NodeId],
    ) {
        let (output, marks) = joined(events);
        let held = held.iter().map(|node| Note {
            origin: Origin::Node(*node),
            verdict: Verdict::Carried(How::Converted("streamed")),
        });
        let notes: Vec<Note> = notes.iter().cloned().chain(held).collect();
        let entries = match reader {
            Some(reader) => account::account(reader, self.target, &output, &marks, &notes),
            None => without_source(self.target, &output, &marks),
        };
        for entry in entries {
            self.count(entry);
        }
    }

    fn count(&mut self, mut entry: LedgerEntry) {
        entry.source = entry.source.map(|place| pattern("/*/data", &place));
        entry.target = entry.target.map(|place| {
            let inside = place.get(1..).and_then(|rest| rest.find('/'));
            let inside = inside.and_then(|at| place.get(at + 1..)).unwrap_or_default();
            pattern("/*/data", inside)
        });
        let key = (
            entry.source.clone(),
            entry.target.clone(),
            entry.action,
            entry.label.as_deref().map(str::to_owned),
        );
        self.counts.entry(key).or_insert((0, entry)).0 += 1;
    }

    /// The entries, each with its count.
    pub(crate) fn ledger(&self) -> Ledger {
        let entries = self.counts.values().map(|(count, entry)| LedgerEntry {
            count: Some(*count),
            ..entry.clone()
        });
        Ledger::from_entries(entries.collect())
    }
}

/// The data of all events as one JSON array, with the marks where they are now.
fn joined(events: &[WrittenEvent]) -> (String, Vec<Mark>) {
    let mut output = String::from("[");
    let mut marks = Vec::new();
    for event in events.iter().filter(|event| event.data.starts_with('{')) {
        if output.len() > 1 {
            output.push(',');
        }
        marks.extend(event.marks.iter().map(|mark| Mark {
            at: mark.at + output.len(),
            made: mark.made.clone(),
        }));
        output.push_str(&event.data);
    }
    output.push(']');
    (output, marks)
}

/// Events that no event of the source led to: the end of a stream.
fn without_source(target: Dialect, output: &str, marks: &[Mark]) -> Vec<LedgerEntry> {
    let Ok(tape) = Tape::parse_str("null", &Limits::default()) else {
        return Vec::new();
    };
    let reader = Reader::new(&tape);
    account::account(&reader, target, output, marks, &[])
        .into_iter()
        .filter(|entry| entry.action == Action::Synthesised)
        .collect()
}

/// A pointer with every number replaced, behind a prefix.
fn pattern(prefix: &str, place: &str) -> String {
    let mut pattern = prefix.to_owned();
    for segment in place.split('/').skip(1) {
        if !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit()) {
            pattern.push_str("/*");
        } else {
            pattern.push('/');
            pattern.push_str(segment);
        }
    }
    pattern
}
