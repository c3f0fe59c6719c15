//! The ledger of a stream: the same places come again and again, so they are counted.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use abp_core::ir::Origin;
use abp_dialect::{Dialect, Fate, How, Made, Mark, Note, Reader, WrittenEvent};
use abp_json::{Limits, NodeId, Tape};
use foldhash::fast::RandomState;

use super::known::Written;
use super::{Action, Ledger, LedgerEntry, account};

/// The label of what goes from one event of the source to another of the target.
const STREAMED: &str = "streamed";

/// How many shapes of events are remembered; what comes after is accounted for each time.
const MAX_SHAPES: usize = 1024;

/// Counts what became of the parts of events.
///
/// Most events of a stream look alike: the same members, read and written in the same way. Each such
/// shape is accounted for once; when it comes again its entries are counted.
#[derive(Debug)]
pub(crate) struct StreamLedger {
    target: Dialect,
    entries: Vec<(u64, LedgerEntry)>,
    /// The places of entries, by what they are counted together for.
    places: HashMap<u64, usize>,
    shapes: HashMap<u64, Vec<usize>>,
    /// Its seed is random, so that nobody can make two shapes pass for one.
    hashing: RandomState,
}

/// What entries have in common that are counted together.
type Key<'e> = (Option<&'e str>, Option<&'e str>, Action, Option<&'e str>);

fn key(entry: &LedgerEntry) -> Key<'_> {
    let (source, target) = (entry.source.as_deref(), entry.target.as_deref());
    (source, target, entry.action, entry.label.as_deref())
}

impl StreamLedger {
    pub(crate) fn new(target: Dialect) -> Self {
        Self {
            target,
            entries: Vec::new(),
            places: HashMap::new(),
            shapes: HashMap::new(),
            hashing: RandomState::default(),
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
        let shape = reader.map(|reader| self.shape(reader, events, notes, held));
        if let Some(known) = shape.and_then(|shape| self.shapes.get(&shape)) {
            for place in known {
                if let Some((count, _)) = self.entries.get_mut(*place) {
                    *count += 1;
                }
            }
            return;
        }
        let (output, marks) = joined(events);
        let held = held.iter().map(|node| Note {
            origin: Origin::Node(*node),
            fate: Fate::Carried(How::Converted(STREAMED)),
        });
        let notes: Vec<Note> = notes.iter().cloned().chain(held).collect();
        let entries = match reader {
            Some(reader) => account::account(Written {
                reader,
                target: self.target,
                output: account::parsed(&output).as_ref(),
                marks: &marks,
                notes: [&reader.notes(), &notes],
            }),
            None => without_source(self.target, &output, &marks),
        };
        let places = entries.into_iter().map(|entry| self.count(entry)).collect();
        if let Some(shape) = shape
            && self.shapes.len() < MAX_SHAPES
        {
            self.shapes.insert(shape, places);
        }
    }

    /// Enters an event that passed as it was.
    pub(crate) fn enter_native(&mut self) {
        self.count(LedgerEntry {
            action: Action::Kept,
            source: Some(String::new()),
            target: Some("/0".to_owned()),
            label: None,
            reason: None,
            unsupported: false,
            count: None,
        });
    }

    /// Enters an event that cannot be read, and was left out.
    pub(crate) fn enter_malformed(&mut self, reason: impl Into<Cow<'static, str>>) {
        self.enter_loss("malformed_event", reason.into());
    }

    /// Enters that the source ended before its answer did.
    pub(crate) fn enter_broken_off(&mut self) {
        self.enter_loss(
            "broken_off",
            Cow::Borrowed("the source ended before its answer"),
        );
    }

    fn enter_loss(&mut self, label: &'static str, reason: Cow<'static, str>) {
        self.count(LedgerEntry {
            action: Action::Dropped,
            source: Some(String::new()),
            target: None,
            label: Some(Cow::Borrowed(label)),
            reason: Some(reason),
            unsupported: false,
            count: None,
        });
    }

    /// Counts an entry; returns its place.
    fn count(&mut self, mut entry: LedgerEntry) -> usize {
        // What was kept from an earlier event has no place in this one.
        if entry.action == Action::Synthesised && entry.is_labelled(&["host", STREAMED]) {
            entry.label = Some(Cow::Borrowed(STREAMED));
            entry.reason = Some(Cow::Borrowed("from an earlier event of the stream"));
        }
        entry.source = entry.source.map(|place| pattern("/*/data", &place));
        entry.target = entry.target.map(|place| {
            let inside = place.get(1..).and_then(|rest| rest.find('/'));
            let inside = inside
                .and_then(|at| place.get(at + 1..))
                .unwrap_or_default();
            pattern("/*/data", inside)
        });
        let key = self.hashing.hash_one(key(&entry));
        let place = *self.places.entry(key).or_insert_with(|| {
            self.entries.push((0, entry));
            self.entries.len() - 1
        });
        if let Some((count, _)) = self.entries.get_mut(place) {
            *count += 1;
        }
        place
    }

    /// A number for how an event was read and written, without regard to its values.
    fn shape(
        &self,
        reader: &Reader<'_>,
        events: &[WrittenEvent],
        notes: &[Note],
        held: &[NodeId],
    ) -> u64 {
        let mut hash = self.hashing.build_hasher();
        for view in reader.tape().nodes() {
            if view.is_key() {
                view.string_source().hash(&mut hash);
            } else {
                (view.kind() as u8, view.subtree().len()).hash(&mut hash);
                (reader.seen(view.id()) as u8).hash(&mut hash);
            }
        }
        for event in events {
            (event.name, event.marks.len()).hash(&mut hash);
            for mark in &event.marks {
                match &mark.made {
                    Made::From { node, how } => (0_u8, node, how).hash(&mut hash),
                    Made::Structure => 1_u8.hash(&mut hash),
                    Made::Synthesised { label, .. } => (2_u8, label).hash(&mut hash),
                }
            }
        }
        for note in notes.iter().chain(&reader.notes()) {
            if let Origin::Node(node) = note.origin {
                (node, &note.fate).hash(&mut hash);
            }
        }
        held.hash(&mut hash);
        hash.finish()
    }

    /// The entries, each with its count.
    pub(crate) fn ledger(&self) -> Ledger {
        let counted = self.entries.iter().map(|(count, entry)| LedgerEntry {
            count: Some(*count),
            ..entry.clone()
        });
        let mut entries: Vec<_> = counted.collect();
        entries.sort_by(|one, other| key(one).cmp(&key(other)));
        Ledger::from_entries(entries)
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
    account::account(Written {
        reader: &reader,
        target,
        output: account::parsed(output).as_ref(),
        marks,
        notes: [&[], &[]],
    })
    .into_iter()
    .filter(|entry| entry.action == Action::Synthesised)
    .collect()
}

/// A pointer with every number replaced, behind a prefix.
fn pattern(prefix: &str, place: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len() + place.len() + 1);
    pattern.push_str(prefix);
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
