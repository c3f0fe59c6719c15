//! Reading a source, and remembering what was read.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};

use abp_core::ir::{IrVendorField, Leaf, Origin, RawJson};
use abp_json::{Kind, NodeId, Tape, View, pointer};

use crate::DialectError;
use crate::lowering::{Fate, How, Note};

/// What the reading dialect did with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Nothing: the dialect does not know it, or has no use for it.
    Unread,
    /// It gave the source its shape (a type tag, a role); every target has its own way to say it.
    Structure,
    /// It says again what other parts say (a sum, a final copy of what was streamed).
    Repeats,
    /// It is in the intermediate representation, under its vendor's name.
    Vendor,
    /// It is in the intermediate representation.
    Taken,
}

/// What happens to an optional member whose value is of another type than the dialect's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnexpectedType {
    /// Reading fails and names it.
    Fails,
    /// It is left unread, and the ledger names it.
    IsLeftOut,
}

/// The label of what was left out because its value is of another type than the dialect's.
pub const UNEXPECTED_TYPE: &str = "unexpected_type";

/// Reads a tape. Whatever is taken is marked, so what is left can be found.
#[derive(Debug)]
pub struct Reader<'t> {
    tape: &'t Tape<'t>,
    seen: Vec<Cell<Seen>>,
    notes: RefCell<Vec<Note>>,
    unexpected: UnexpectedType,
    /// Values that are read as if they were not there.
    left_out: Vec<NodeId>,
}

/// A value of a source, at its place.
#[derive(Debug, Clone, Copy)]
pub struct Item<'t> {
    reader: &'t Reader<'t>,
    view: View<'t>,
}

impl<'t> Reader<'t> {
    /// A reader of a whole tape.
    #[must_use]
    pub fn new(tape: &'t Tape<'t>) -> Self {
        Self {
            tape,
            seen: vec![Cell::new(Seen::Unread); tape.node_count()],
            notes: RefCell::default(),
            unexpected: UnexpectedType::Fails,
            left_out: Vec::new(),
        }
    }

    /// A reader that leaves out optional members whose value is of an unexpected type.
    ///
    /// For streams: an event changes the state of its decoder while it is read, so it cannot be read a
    /// second time without the value that was in the way.
    #[must_use]
    pub fn lenient(tape: &'t Tape<'t>) -> Self {
        Self {
            unexpected: UnexpectedType::IsLeftOut,
            ..Self::new(tape)
        }
    }

    /// A reader to which the values of these notes are not there.
    #[must_use]
    pub fn without(tape: &'t Tape<'t>, left_out: &[Note]) -> Self {
        let node = |note: &Note| match note.origin {
            Origin::Node(node) => Some(node),
            _ => None,
        };
        Self {
            left_out: left_out.iter().filter_map(node).collect(),
            notes: RefCell::new(left_out.to_vec()),
            ..Self::new(tape)
        }
    }

    /// The document.
    #[must_use]
    pub fn root(&'t self) -> Item<'t> {
        self.item(self.tape.root())
    }

    /// The tape.
    #[must_use]
    pub fn tape(&self) -> &'t Tape<'t> {
        self.tape
    }

    /// What was done with a node.
    #[must_use]
    pub fn seen(&self, node: NodeId) -> Seen {
        self.seen.get(node.index()).map_or(Seen::Unread, Cell::get)
    }

    /// What the dialect remarked while reading.
    #[must_use]
    pub fn notes(&self) -> Vec<Note> {
        self.notes.borrow().clone()
    }

    fn item(&'t self, view: View<'t>) -> Item<'t> {
        Item { reader: self, view }
    }

    #[inline]
    fn is_there(&self, view: View<'_>) -> bool {
        self.left_out.is_empty() || !self.left_out.contains(&view.id())
    }

    fn mark(&self, view: View<'_>, seen: Seen) {
        for cell in self.seen.get(view.subtree()).unwrap_or_default() {
            cell.set(seen);
        }
    }
}

impl<'t> Item<'t> {
    /// The view below.
    #[must_use]
    pub fn view(self) -> View<'t> {
        self.view
    }

    /// Where it is, for values made of it.
    #[must_use]
    pub fn origin(self) -> Origin {
        Origin::Node(self.view.id())
    }

    /// Its kind.
    #[must_use]
    pub fn kind(self) -> Kind {
        self.view.kind()
    }

    /// A member, `null` included.
    #[must_use]
    #[inline]
    pub fn get(self, key: &str) -> Option<Self> {
        let view = self.view.get(key)?;
        self.reader.is_there(view).then_some(self.reader.item(view))
    }

    /// A member that is there and not `null`.
    #[must_use]
    #[inline]
    pub fn some(self, key: &str) -> Option<Self> {
        self.get(key).filter(|item| !item.view.is_null())
    }

    /// A member that has to be there.
    ///
    /// # Errors
    /// Fails where it is missing.
    pub fn need(self, key: &str) -> Result<Self, DialectError> {
        self.get(key).ok_or_else(|| {
            let mut place = self.view.pointer();
            pointer::push(&mut place, key);
            DialectError::Missing { pointer: place }
        })
    }

    /// The items of an array.
    pub fn items(self) -> impl Iterator<Item = Self> + 't {
        let views = self.view.items();
        views
            .filter(move |view| self.reader.is_there(*view))
            .map(move |view| self.reader.item(view))
    }

    /// The members of an object with their keys.
    pub fn entries(self) -> impl Iterator<Item = (Cow<'t, str>, Self)> + 't {
        let entries = self.view.entries();
        let there = entries.filter(move |(_, value)| self.reader.is_there(*value));
        there.map(move |(key, value)| {
            let name = key.as_str().or(key.string_source().map(Cow::Borrowed));
            (name.unwrap_or_default(), self.reader.item(value))
        })
    }

    /// The items of an array.
    ///
    /// # Errors
    /// Fails where it is no array.
    pub fn array(self) -> Result<impl Iterator<Item = Self> + 't, DialectError> {
        self.expect(Kind::Array, "an array")?;
        Ok(self.items())
    }

    /// The object itself.
    ///
    /// # Errors
    /// Fails where it is no object.
    pub fn object(self) -> Result<Self, DialectError> {
        self.expect(Kind::Object, "an object")?;
        Ok(self)
    }

    /// Takes a string.
    ///
    /// A lone surrogate is no text: it is replaced, and the replacement noted.
    ///
    /// # Errors
    /// Fails where it is no string.
    pub fn text(self) -> Result<Leaf<String>, DialectError> {
        self.expect(Kind::String, "a string")?;
        self.reader.mark(self.view, Seen::Taken);
        let text = self.view.as_str().unwrap_or_else(|| {
            self.note(How::degraded(
                "lone_surrogate",
                "half of a surrogate pair is no text; it was replaced by U+FFFD",
            ));
            self.view.as_str_lossy().unwrap_or_default()
        });
        Ok(Leaf::new(text.into_owned(), self.origin()))
    }

    /// Takes a boolean.
    ///
    /// # Errors
    /// Fails where it is none.
    pub fn flag(self) -> Result<Leaf<bool>, DialectError> {
        let value = self.view.as_bool().ok_or_else(|| self.wrong("a boolean"))?;
        self.reader.mark(self.view, Seen::Taken);
        Ok(Leaf::new(value, self.origin()))
    }

    /// Takes a count: an integer that is not negative.
    ///
    /// # Errors
    /// Fails where it is none.
    pub fn count(self) -> Result<Leaf<u64>, DialectError> {
        let value = self.view.as_u64().ok_or_else(|| self.wrong("a count"))?;
        self.reader.mark(self.view, Seen::Taken);
        Ok(Leaf::new(value, self.origin()))
    }

    /// Takes a number with its spelling.
    ///
    /// # Errors
    /// Fails where it is none.
    pub fn number(self) -> Result<Leaf<RawJson>, DialectError> {
        self.expect(Kind::Number, "a number")?;
        Ok(self.raw())
    }

    /// Takes everything below as it is spelled.
    #[must_use]
    pub fn raw(self) -> Leaf<RawJson> {
        self.reader.mark(self.view, Seen::Taken);
        Leaf::new(RawJson::trusted(self.view.raw()), self.origin())
    }

    /// Takes everything below as something that only this dialect knows.
    #[must_use]
    pub fn vendor(self, name: &str) -> IrVendorField {
        self.reader.mark(self.view, Seen::Vendor);
        IrVendorField {
            name: name.to_owned(),
            value: Leaf::new(RawJson::trusted(self.view.raw()), self.origin()),
        }
    }

    /// Takes those members of an object that only this dialect knows; `null` is not taken.
    #[must_use]
    pub fn vendor_fields(self, names: &[&str]) -> Vec<IrVendorField> {
        self.entries()
            .filter(|(key, value)| names.contains(&key.as_ref()) && !value.view.is_null())
            .map(|(key, value)| value.vendor(&key))
            .collect()
    }

    /// Reads a string that says what the source is (a type, a role). Unknown words are returned
    /// like any other; `None` where it is no text.
    #[must_use]
    pub fn tag(self) -> Option<Cow<'t, str>> {
        self.reader.mark(self.view, Seen::Structure);
        self.view.as_str()
    }

    /// The tag in a member, where it is there. Callers who only mark it may ignore the word.
    #[inline]
    pub fn tag_of(self, key: &str) -> Option<Cow<'t, str>> {
        self.get(key)?.tag()
    }

    /// Marks everything below as part of the source's shape: every target has its own way to say it.
    pub fn structure(self) {
        self.reader.mark(self.view, Seen::Structure);
    }

    /// Marks everything below as said elsewhere in the source.
    pub fn repeats(self) {
        self.reader.mark(self.view, Seen::Repeats);
    }

    /// Takes everything below without a copy: its parts are in the representation in other forms,
    /// and whoever writes them names this node.
    pub fn taken(self) {
        self.reader.mark(self.view, Seen::Taken);
    }

    /// Remarks on what reading does to this value.
    pub fn note(self, how: How) {
        self.reader.notes.borrow_mut().push(Note {
            origin: self.origin(),
            fate: Fate::Carried(how),
        });
    }

    /// Takes an optional string member; `null` is absent.
    ///
    /// # Errors
    /// Fails where it is there and no string.
    #[inline]
    pub fn opt_text(self, key: &str) -> Result<Option<Leaf<String>>, DialectError> {
        self.optional(key, Self::text)
    }

    /// Takes an optional boolean member; `null` is absent.
    ///
    /// # Errors
    /// Fails where it is there and no boolean.
    #[inline]
    pub fn opt_flag(self, key: &str) -> Result<Option<Leaf<bool>>, DialectError> {
        self.optional(key, Self::flag)
    }

    /// Takes an optional count; `null` is absent.
    ///
    /// # Errors
    /// Fails where it is there and no count.
    #[inline]
    pub fn opt_count(self, key: &str) -> Result<Option<Leaf<u64>>, DialectError> {
        self.optional(key, Self::count)
    }

    /// Takes an optional number with its spelling; `null` is absent.
    ///
    /// # Errors
    /// Fails where it is there and no number.
    #[inline]
    pub fn opt_number(self, key: &str) -> Result<Option<Leaf<RawJson>>, DialectError> {
        self.optional(key, Self::number)
    }

    fn optional<T>(
        self,
        key: &str,
        take: impl FnOnce(Self) -> Result<T, DialectError>,
    ) -> Result<Option<T>, DialectError> {
        match self.some(key) {
            Some(item) => item.or_left_out(take),
            None => Ok(None),
        }
    }

    /// Takes a value that reading can do without: where it is of an unexpected type, a lenient reader
    /// leaves it out.
    ///
    /// # Errors
    /// Fails as `take` does where the reader is not lenient.
    pub fn or_left_out<T>(
        self,
        take: impl FnOnce(Self) -> Result<T, DialectError>,
    ) -> Result<Option<T>, DialectError> {
        match (take(self), self.reader.unexpected) {
            (Err(error @ DialectError::Shape { .. }), UnexpectedType::IsLeftOut) => {
                self.reader.notes.borrow_mut().push(Note {
                    origin: self.origin(),
                    fate: Fate::Dropped {
                        label: UNEXPECTED_TYPE.into(),
                        reason: error.to_string().into(),
                    },
                });
                Ok(None)
            }
            (taken, _) => taken.map(Some),
        }
    }

    /// Takes an optional member as it is spelled; `null` is absent.
    #[must_use]
    #[inline]
    pub fn opt_raw(self, key: &str) -> Option<Leaf<RawJson>> {
        self.some(key).map(Self::raw)
    }

    /// The error that this value is of the wrong kind.
    #[must_use]
    pub fn wrong(self, expected: &'static str) -> DialectError {
        DialectError::Shape {
            pointer: self.view.pointer(),
            expected,
        }
    }

    fn expect(self, kind: Kind, expected: &'static str) -> Result<(), DialectError> {
        if self.kind() == kind {
            Ok(())
        } else {
            Err(self.wrong(expected))
        }
    }
}
