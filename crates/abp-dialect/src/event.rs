//! The events of a stream in the making.

use abp_core::ir::{Leaf, Origin};
use abp_json::NodeId;

use crate::{Dialect, Fate, Lowering, Mark, Note, Reader, TargetProfile};

/// Where a stream encoder puts its events.
#[derive(Debug)]
pub struct EventSink<'s> {
    source: Option<(Dialect, &'s Reader<'s>)>,
    target: Dialect,
    profile: &'s TargetProfile,
    events: Vec<WrittenEvent>,
    notes: Vec<Note>,
    held: Vec<NodeId>,
}

/// An event of the target.
#[derive(Debug)]
pub struct WrittenEvent {
    /// Its name, where the dialect has names.
    pub name: Option<&'static str>,
    /// Its data.
    pub data: String,
    /// What the values in the data are made of; empty for a terminator that is no JSON.
    pub marks: Vec<Mark>,
}

impl<'s> EventSink<'s> {
    /// A sink for what follows from one event of the source.
    #[must_use]
    pub fn new(
        source: Option<(Dialect, &'s Reader<'s>)>,
        target: Dialect,
        profile: &'s TargetProfile,
    ) -> Self {
        Self {
            source,
            target,
            profile,
            events: Vec::new(),
            notes: Vec::new(),
            held: Vec::new(),
        }
    }

    /// The dialect that is read.
    #[must_use]
    pub fn source(&self) -> Option<Dialect> {
        self.source.map(|(dialect, _)| dialect)
    }

    /// What is known of the target.
    #[must_use]
    pub fn profile(&self) -> &'s TargetProfile {
        self.profile
    }

    /// Writes an event whose data is an object.
    pub fn event(&mut self, name: Option<&'static str>, fill: impl FnOnce(&mut Lowering<'s>)) {
        let mut lowering = Lowering::new(self.source, self.target, self.profile);
        lowering.object(fill);
        let (data, marks, notes) = lowering.finish();
        self.notes.extend(notes);
        self.events.push(WrittenEvent { name, data, marks });
    }

    /// Writes data that is no JSON.
    pub fn terminator(&mut self, data: &'static str) {
        self.events.push(WrittenEvent {
            name: None,
            data: data.to_owned(),
            marks: Vec::new(),
        });
    }

    /// Keeps a leaf for a later event, or says that what was written earlier covers it: it counts as
    /// carried from now on, and its place in this event of the source is forgotten.
    pub fn hold<T: Clone>(&mut self, leaf: &Leaf<T>) -> Leaf<T> {
        self.carried(leaf.origin);
        Leaf::new(leaf.value.clone(), Origin::Made("streamed"))
    }

    /// Says that a part of this event is carried by the stream as a whole.
    pub fn carried(&mut self, origin: Origin) {
        if let Origin::Node(node) = origin {
            self.held.push(node);
        }
    }

    /// Remarks on a part of this event, as [`Lowering::note`] and its siblings do.
    pub fn remark(&mut self, origin: Origin, fate: Fate) {
        if matches!(origin, Origin::Node(_)) {
            self.notes.push(Note { origin, fate });
        }
    }

    /// The events written so far, the remarks, and what was held.
    #[must_use]
    pub fn finish(self) -> (Vec<WrittenEvent>, Vec<Note>, Vec<NodeId>) {
        (self.events, self.notes, self.held)
    }
}
