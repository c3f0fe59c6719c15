//! Writing a target, and remembering what became of the source.

use std::borrow::Cow;

use abp_core::ir::{IrVendorField, Leaf, Origin, RawJson};
use abp_json::{NodeId, Tape, Writer};

use crate::{Dialect, Reader, TargetProfile};

/// How a part of the source reached the target.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum How {
    /// As it was.
    AsIs,
    /// In another form that says the same and can be undone (an enum's word, JSON in a string, a
    /// sum). The label names the conversion.
    Converted(&'static str),
    /// By other means that aim at the same effect.
    Emulated {
        /// A word for it, in snake case.
        label: &'static str,
        /// Why.
        reason: Cow<'static, str>,
    },
    /// In part, or with another meaning.
    Degraded {
        /// A word for it, in snake case.
        label: &'static str,
        /// Why.
        reason: Cow<'static, str>,
    },
}

impl How {
    /// Reached by other means.
    pub fn emulated(label: &'static str, reason: impl Into<Cow<'static, str>>) -> Self {
        let reason = reason.into();
        Self::Emulated { label, reason }
    }

    /// Reached in part.
    pub fn degraded(label: &'static str, reason: impl Into<Cow<'static, str>>) -> Self {
        let reason = reason.into();
        Self::Degraded { label, reason }
    }
}

/// What a dialect remarks on a part of the source.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It reached the target, in this way.
    Carried(How),
    /// It was left out.
    Dropped {
        /// A word for it, in snake case.
        label: Cow<'static, str>,
        /// Why.
        reason: Cow<'static, str>,
    },
    /// It was left out, and without it the request is another one. Only for callers who allow that.
    Unsupported {
        /// A word for it, in snake case.
        label: Cow<'static, str>,
        /// Why.
        reason: Cow<'static, str>,
    },
}

/// A remark on a part of the source; it holds for everything below that has no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The part.
    pub origin: Origin,
    /// The remark.
    pub fate: Fate,
}

/// A value in the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Where it starts in the target's text.
    pub at: usize,
    /// What it is made of.
    pub made: Made,
}

/// What a value in the target is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    /// A part of the source.
    From {
        /// The part.
        node: NodeId,
        /// The way.
        how: How,
    },
    /// The target's shape asks for it, and it says nothing of its own.
    Structure,
    /// ABP put it there.
    Synthesised {
        /// A word for it, in snake case.
        label: Cow<'static, str>,
        /// Why.
        reason: Cow<'static, str>,
    },
}

/// What can be written as one JSON value.
pub trait JsonValue {
    /// Writes it.
    fn write(&self, writer: &mut Writer);
}

impl JsonValue for str {
    fn write(&self, writer: &mut Writer) {
        writer.string(self);
    }
}

impl JsonValue for String {
    fn write(&self, writer: &mut Writer) {
        writer.string(self);
    }
}

impl JsonValue for RawJson {
    fn write(&self, writer: &mut Writer) {
        writer.raw(self.text());
    }
}

impl JsonValue for bool {
    fn write(&self, writer: &mut Writer) {
        writer.raw(if *self { "true" } else { "false" });
    }
}

impl JsonValue for u64 {
    fn write(&self, writer: &mut Writer) {
        writer.integer(*self);
    }
}

/// Writes a target document. Every value says what it is made of.
#[derive(Debug)]
pub struct Lowering<'s> {
    source: Option<(Dialect, &'s Reader<'s>)>,
    target: Dialect,
    profile: &'s TargetProfile,
    native: bool,
    writer: Writer,
    marks: Vec<Mark>,
    notes: Vec<Note>,
}

impl<'s> Lowering<'s> {
    /// A lowering of what was read from a source.
    #[must_use]
    pub fn new(
        source: Option<(Dialect, &'s Reader<'s>)>,
        target: Dialect,
        profile: &'s TargetProfile,
    ) -> Self {
        let tape = source.map(|(_, reader)| reader.tape());
        let bytes = tape.map_or(0, |tape| tape.source().len());
        let nodes = tape.map_or(0, Tape::node_count);
        Self {
            source,
            target,
            profile,
            native: source.is_some_and(|(dialect, _)| dialect == target),
            writer: Writer::with_capacity(bytes + bytes / 8),
            // About every other node is a value.
            marks: Vec::with_capacity(nodes / 2 + 16),
            notes: Vec::new(),
        }
    }

    /// The dialect that was read; `None` where the representation was made by ABP.
    #[must_use]
    pub fn source(&self) -> Option<Dialect> {
        self.source.map(|(dialect, _)| dialect)
    }

    /// The dialect that is written.
    #[must_use]
    pub fn target(&self) -> Dialect {
        self.target
    }

    /// What is known of the target.
    #[must_use]
    pub fn profile(&self) -> &'s TargetProfile {
        self.profile
    }

    /// Whether source and target speak the same dialect, and what is unchanged can be copied.
    #[must_use]
    pub fn native(&self) -> bool {
        self.native
    }

    /// Writes settings anew although the dialect is the same, because they were changed.
    pub fn rewrite(&mut self) {
        self.native = false;
    }

    /// Whether source and target have the same skeleton and the same names.
    #[must_use]
    pub fn same_family(&self) -> bool {
        self.source()
            .is_some_and(|source| source.family() == self.target.family())
    }

    /// Writes a member's key; a value has to follow.
    pub fn key(&mut self, key: &str) {
        self.writer.key(key);
    }

    /// Writes an object.
    pub fn object(&mut self, fill: impl FnOnce(&mut Self)) {
        self.writer.begin_object();
        fill(self);
        self.writer.end_object();
    }

    /// Writes an array.
    pub fn array(&mut self, fill: impl FnOnce(&mut Self)) {
        self.writer.begin_array();
        fill(self);
        self.writer.end_array();
    }

    /// Writes a member that is an object.
    pub fn put_object(&mut self, key: &str, fill: impl FnOnce(&mut Self)) {
        self.key(key);
        self.object(fill);
    }

    /// Writes a member that is an array.
    pub fn put_array(&mut self, key: &str, fill: impl FnOnce(&mut Self)) {
        self.key(key);
        self.array(fill);
    }

    /// Writes a value as it was read.
    pub fn value<T: JsonValue>(&mut self, leaf: &Leaf<T>) {
        self.value_as(&leaf.value, &[leaf.origin], &How::AsIs);
    }

    /// Writes a value that stands for one or more parts of the source.
    ///
    /// Parts that ABP made itself are no parts of the source; a value of nothing else is
    /// synthesised.
    pub fn value_as<T: JsonValue + ?Sized>(&mut self, value: &T, from: &[Origin], how: &How) {
        let at = self.writer.position();
        let before = self.marks.len();
        let mut label = "host";
        for origin in from {
            match *origin {
                Origin::Node(node) => self.marks.push(Mark {
                    at,
                    made: Made::From {
                        node,
                        how: how.clone(),
                    },
                }),
                Origin::Made(word) => label = word,
                Origin::Host => {}
            }
        }
        if self.marks.len() == before {
            self.marks.push(Mark {
                at,
                made: Made::Synthesised {
                    label: Cow::Borrowed(label),
                    reason: Cow::Borrowed("made by ABP, not read from the source"),
                },
            });
        }
        value.write(&mut self.writer);
    }

    /// Writes a value that the target's shape asks for and that says nothing of its own.
    pub fn tag_value<T: JsonValue + ?Sized>(&mut self, value: &T) {
        let at = self.writer.position();
        self.marks.push(Mark {
            at,
            made: Made::Structure,
        });
        value.write(&mut self.writer);
    }

    /// Writes a value that the source does not have.
    pub fn made_value<T: JsonValue + ?Sized>(
        &mut self,
        value: &T,
        label: impl Into<Cow<'static, str>>,
        reason: impl Into<Cow<'static, str>>,
    ) {
        let at = self.writer.position();
        self.marks.push(Mark {
            at,
            made: Made::Synthesised {
                label: label.into(),
                reason: reason.into(),
            },
        });
        value.write(&mut self.writer);
    }

    /// Writes a member as it was read.
    pub fn put<T: JsonValue>(&mut self, key: &str, leaf: &Leaf<T>) {
        self.key(key);
        self.value(leaf);
    }

    /// Writes a member as it was read, where there is one.
    pub fn put_opt<T: JsonValue>(&mut self, key: &str, leaf: Option<&Leaf<T>>) {
        if let Some(leaf) = leaf {
            self.put(key, leaf);
        }
    }

    /// Writes a member that stands for one or more parts of the source.
    pub fn put_as<T: JsonValue + ?Sized>(
        &mut self,
        key: &str,
        value: &T,
        from: &[Origin],
        how: &How,
    ) {
        self.key(key);
        self.value_as(value, from, how);
    }

    /// Writes a member that the target's shape asks for.
    pub fn tag<T: JsonValue + ?Sized>(&mut self, key: &str, value: &T) {
        self.key(key);
        self.tag_value(value);
    }

    /// Writes a member that the source does not have.
    pub fn made<T: JsonValue + ?Sized>(
        &mut self,
        key: &str,
        value: &T,
        label: impl Into<Cow<'static, str>>,
        reason: impl Into<Cow<'static, str>>,
    ) {
        self.key(key);
        self.made_value(value, label, reason);
    }

    /// Writes those vendor fields whose name, in the dialect they come from, means the same here.
    /// The others are left out, which the ledger sees by itself.
    pub fn put_vendor(&mut self, fields: &[IrVendorField], same: impl Fn(Dialect, &str) -> bool) {
        let Some(source) = self.source() else {
            return;
        };
        for field in fields.iter().filter(|field| same(source, &field.name)) {
            self.put(&field.name, &field.value);
        }
    }

    /// Copies a part of the source as it is spelled, where source and target speak the same
    /// dialect and the part is unchanged. Returns whether it did.
    pub fn copy_native(&mut self, origin: Origin) -> bool {
        let (true, Origin::Node(node), Some((_, reader))) = (self.native, origin, self.source)
        else {
            return false;
        };
        let Some(view) = reader.tape().view(node) else {
            return false;
        };
        self.value_as(
            &RawJson::trusted(view.raw()),
            &[Origin::Node(node)],
            &How::AsIs,
        );
        true
    }

    /// Copies the members of the source's root, except those named, where source and target speak
    /// the same dialect. Returns whether it did.
    pub fn copy_native_members(&mut self, except: &[&str]) -> bool {
        let (true, Some((_, reader))) = (self.native, self.source) else {
            return false;
        };
        for (key, value) in reader.root().entries() {
            if !except.contains(&key.as_ref()) {
                self.key(&key);
                self.copy_native(value.origin());
            }
        }
        true
    }

    /// The member of a part of the source; the part itself where it has no such member.
    #[must_use]
    pub fn member(&self, origin: Origin, key: &str) -> Origin {
        let Origin::Node(node) = origin else {
            return origin;
        };
        let member = self
            .source
            .and_then(|(_, reader)| reader.tape().view(node)?.get(key));
        member.map_or(origin, |view| Origin::Node(view.id()))
    }

    /// The key under which a part of the source stands, where source and target have the same
    /// names.
    #[must_use]
    pub fn source_key(&self, origin: Origin) -> Option<Cow<'s, str>> {
        let (true, Origin::Node(node), Some((_, reader))) =
            (self.same_family(), origin, self.source)
        else {
            return None;
        };
        reader.tape().view(node)?.key()?.as_str()
    }

    /// Remarks on how a part of the source reached the target.
    pub fn note(&mut self, origin: Origin, how: How) {
        self.remark(origin, Fate::Carried(how));
    }

    /// Leaves a part of the source out: the target has no place for it.
    pub fn drop(
        &mut self,
        origin: Origin,
        label: impl Into<Cow<'static, str>>,
        reason: impl Into<Cow<'static, str>>,
    ) {
        let (label, reason) = (label.into(), reason.into());
        self.remark(origin, Fate::Dropped { label, reason });
    }

    /// Leaves a part of the source out without which the request is another one.
    pub fn refuse(
        &mut self,
        origin: Origin,
        label: impl Into<Cow<'static, str>>,
        reason: impl Into<Cow<'static, str>>,
    ) {
        let (label, reason) = (label.into(), reason.into());
        self.remark(origin, Fate::Unsupported { label, reason });
    }

    fn remark(&mut self, origin: Origin, fate: Fate) {
        if matches!(origin, Origin::Node(_)) {
            self.notes.push(Note { origin, fate });
        }
    }

    /// Adds remarks that were made elsewhere.
    pub fn extend_notes(&mut self, notes: impl IntoIterator<Item = Note>) {
        self.notes.extend(notes);
    }

    /// The target's text, what each of its values is made of, and the remarks.
    #[must_use]
    pub fn finish(self) -> (String, Vec<Mark>, Vec<Note>) {
        (self.writer.into_text(), self.marks, self.notes)
    }
}
