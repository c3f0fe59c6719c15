//! Views: reading a tape, one node at a time.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::iter::FusedIterator;
use std::ops::Range;

use serde_json::{Map, Number, Value};

use crate::error::JsonError;
use crate::pointer;
use crate::string::{decode, decode_lossy, fingerprint, key_bytes};
use crate::tape::{NO_PARENT, Node, NodeId, Tape, flag};

/// The deepest value [`View::to_value`] builds; dropping a `Value` recurses.
const MAX_VALUE_DEPTH: usize = 128;

/// As long as most pointers are, or longer.
pub(crate) const USUAL_POINTER: usize = 48;

/// The kind of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// `null`.
    Null = 0,
    /// `true` or `false`.
    Bool = 1,
    /// A number.
    Number = 2,
    /// A string; keys are strings too.
    String = 3,
    /// An array.
    Array = 4,
    /// An object.
    Object = 5,
}

/// One key or value of a [`Tape`]; cheap to copy.
#[derive(Clone, Copy)]
pub struct View<'t> {
    tape: &'t Tape<'t>,
    id: u32,
    node: Node,
}

/// The items of an array, in order.
#[derive(Clone, Debug)]
pub struct Items<'t> {
    tape: &'t Tape<'t>,
    next: u32,
    end: u32,
}

/// The members of an object as (key, value), in order, duplicates included.
#[derive(Clone, Debug)]
pub struct Entries<'t> {
    tape: &'t Tape<'t>,
    next: u32,
    end: u32,
}

impl<'t> View<'t> {
    pub(crate) fn new(tape: &'t Tape<'t>, id: u32) -> Self {
        Self {
            tape,
            id,
            node: tape.node(id),
        }
    }

    pub(crate) fn has(self, flags: u8) -> bool {
        self.node.has(flags)
    }

    pub(crate) fn tape(self) -> &'t Tape<'t> {
        self.tape
    }

    /// Returns the kind of the value.
    pub fn kind(self) -> Kind {
        self.node.kind()
    }

    /// Returns the handle of the node.
    pub fn id(self) -> NodeId {
        NodeId(self.id)
    }

    /// Tells whether the node is a key rather than a value.
    pub fn is_key(self) -> bool {
        self.kind() == Kind::String && self.node.has(flag::KEY)
    }

    /// Tells whether the value is `null`.
    pub fn is_null(self) -> bool {
        self.kind() == Kind::Null
    }

    /// Returns the value of a boolean.
    pub fn as_bool(self) -> Option<bool> {
        (self.kind() == Kind::Bool).then(|| self.raw() == "true")
    }

    /// Returns the text of a string, borrowed when it holds no escapes.
    ///
    /// `None` for other kinds, and for a string with a lone surrogate: that is no Unicode text, and
    /// replacing the surrogate would lose it silently. [`has_lone_surrogate`] tells the two apart,
    /// and [`string_source`] returns the escaped spelling.
    ///
    /// [`has_lone_surrogate`]: Self::has_lone_surrogate
    /// [`string_source`]: Self::string_source
    pub fn as_str(self) -> Option<Cow<'t, str>> {
        let inner = self.string_source()?;
        if self.node.has(flag::LONE) {
            None
        } else if self.node.has(flag::ESCAPED) {
            decode(inner).map(Cow::Owned)
        } else {
            Some(Cow::Borrowed(inner))
        }
    }

    /// Returns the text of a string, each half of a surrogate pair replaced by U+FFFD.
    ///
    /// For callers that report the replacement; [`as_str`](Self::as_str) never replaces.
    pub fn as_str_lossy(self) -> Option<Cow<'t, str>> {
        let inner = self.string_source()?;
        if self.node.has(flag::ESCAPED) {
            Some(Cow::Owned(decode_lossy(inner)))
        } else {
            Some(Cow::Borrowed(inner))
        }
    }

    /// Tells whether the value is a string that holds half of a surrogate pair.
    pub fn has_lone_surrogate(self) -> bool {
        self.kind() == Kind::String && self.node.has(flag::LONE)
    }

    /// Returns the source text between the quotes of a string, escapes as they are spelled.
    pub fn string_source(self) -> Option<&'t str> {
        if self.kind() != Kind::String {
            return None;
        }
        self.tape
            .source()
            .get(self.node.start as usize + 1..self.node.end as usize - 1)
    }

    /// Returns the text of a number as it is spelled.
    pub fn number_text(self) -> Option<&'t str> {
        (self.kind() == Kind::Number).then(|| self.raw())
    }

    /// Tells whether the value is a number without fraction and exponent.
    pub fn is_integer(self) -> bool {
        self.kind() == Kind::Number && !self.node.has(flag::FLOAT)
    }

    /// Returns a number that is spelled as an integer and fits.
    pub fn as_u64(self) -> Option<u64> {
        if self.is_integer() {
            self.raw().parse().ok()
        } else {
            None
        }
    }

    /// Returns a number that is spelled as an integer and fits.
    pub fn as_i64(self) -> Option<i64> {
        if self.is_integer() {
            self.raw().parse().ok()
        } else {
            None
        }
    }

    /// Returns the double nearest to a number; `None` when that is infinite.
    pub fn as_f64(self) -> Option<f64> {
        self.number_text()?
            .parse()
            .ok()
            .filter(|double: &f64| double.is_finite())
    }

    /// Returns the value of an object's member; the last one where the key is duplicated, as
    /// `serde_json` does.
    #[inline]
    pub fn get(self, key: &str) -> Option<Self> {
        // Inlined, so that the fingerprint of a literal is reckoned once and for all.
        self.find(key, fingerprint(key.as_bytes()))
    }

    fn find(self, key: &str, wanted: u32) -> Option<Self> {
        let (mut at, end) = self.children(Kind::Object);
        let mut found = None;
        while at < end {
            let (name, node) = (self.tape.node(at), self.tape.node(at + 1));
            let is_same = || *Self::new(self.tape, at).key_bytes() == *key.as_bytes();
            if name.link == wanted && is_same() {
                let (tape, id) = (self.tape, at + 1);
                found = Some(Self { tape, id, node });
                if !self.node.has(flag::DUPLICATE) {
                    break;
                }
            }
            at = node.next(at + 1);
        }
        found
    }

    /// Returns the members of an object, or nothing for other kinds.
    pub fn entries(self) -> Entries<'t> {
        let (next, end) = self.children(Kind::Object);
        Entries {
            tape: self.tape,
            next,
            end,
        }
    }

    /// Returns the items of an array, or nothing for other kinds.
    pub fn items(self) -> Items<'t> {
        let (next, end) = self.children(Kind::Array);
        Items {
            tape: self.tape,
            next,
            end,
        }
    }

    /// Returns the number of items or members, found by walking them; 0 for other kinds.
    pub fn len(self) -> usize {
        if self.kind() == Kind::Object {
            self.entries().count()
        } else {
            self.items().count()
        }
    }

    /// Tells whether there are no items or members, as for every value that is no container.
    pub fn is_empty(self) -> bool {
        self.node.next(self.id) == self.id + 1
    }

    /// Returns the node's bytes in the source text.
    pub fn span(self) -> Range<usize> {
        self.node.start as usize..self.node.end as usize
    }

    /// Returns the node's exact source text.
    pub fn raw(self) -> &'t str {
        self.tape.source().get(self.span()).unwrap_or_default()
    }

    /// Returns the container a value or key is in; `None` for the root.
    pub fn parent(self) -> Option<Self> {
        let parent = self.node.parent();
        (parent != NO_PARENT).then(|| Self::new(self.tape, parent))
    }

    /// Returns the key of a member's value.
    pub fn key(self) -> Option<Self> {
        let in_object = self.parent()?.kind() == Kind::Object;
        (in_object && !self.is_key()).then(|| Self::new(self.tape, self.id - 1))
    }

    /// Returns the node and everything below it as positions of [`NodeId`]s.
    pub fn subtree(self) -> Range<usize> {
        self.id as usize..self.node.next(self.id) as usize
    }

    /// Builds the JSON pointer of the node; a key has that of its value.
    ///
    /// A key with a lone surrogate appears in its escaped spelling, so such a pointer is for
    /// people: it does not resolve.
    pub fn pointer(self) -> String {
        let mut pointer = String::with_capacity(USUAL_POINTER);
        self.write_pointer(&mut pointer);
        pointer
    }

    fn write_pointer(self, pointer: &mut String) {
        self.write_pointer_by(pointer, &|item, array| {
            array.items().take_while(|one| one.id < item.id).count()
        });
    }

    /// Writes a pointer; `place` tells where in its array an item is.
    pub(crate) fn write_pointer_by(
        self,
        pointer: &mut String,
        place: &impl Fn(Self, Self) -> usize,
    ) {
        let Some(parent) = self.parent() else { return };
        parent.write_pointer_by(pointer, place);
        if parent.kind() == Kind::Object {
            let key = self.key().unwrap_or(self);
            let name = key.as_str().or(key.string_source().map(Cow::Borrowed));
            pointer::push(pointer, &name.unwrap_or_default());
        } else {
            // Writing to a string cannot fail.
            let _ = write!(pointer, "/{}", place(self, parent));
        }
    }

    /// Converts to a `serde_json::Value`, doubles rounded to the nearest.
    ///
    /// Like `serde_json`, this rounds integers beyond 64 bits to doubles and keeps the last of
    /// duplicate members; [`admit_text`](crate::admit_text) does neither.
    ///
    /// # Errors
    ///
    /// Refuses a number beyond the doubles, a string that is no Unicode text, and more than 128
    /// levels.
    pub fn to_value(self) -> Result<Value, JsonError> {
        self.to_value_within(MAX_VALUE_DEPTH)
    }

    fn to_value_within(self, depth: usize) -> Result<Value, JsonError> {
        let offset = self.node.start as usize;
        let text = |view: Self| {
            let text = view.as_str().ok_or(JsonError::LoneSurrogate {
                offset: view.span().start,
            });
            text.map(Cow::into_owned)
        };
        let inside = || {
            let limit = MAX_VALUE_DEPTH;
            depth
                .checked_sub(1)
                .ok_or(JsonError::TooDeep { offset, limit })
        };
        Ok(match self.kind() {
            Kind::Null => Value::Null,
            Kind::Bool => Value::Bool(self.raw() == "true"),
            Kind::Number => Value::Number(
                self.to_number()
                    .ok_or(JsonError::NumberOutOfRange { offset })?,
            ),
            Kind::String => Value::String(text(self)?),
            Kind::Array => {
                let depth = inside()?;
                self.items()
                    .map(|item| item.to_value_within(depth))
                    .collect::<Result<_, _>>()?
            }
            Kind::Object => {
                let depth = inside()?;
                let member =
                    |(key, value): (Self, Self)| Ok((text(key)?, value.to_value_within(depth)?));
                Value::Object(
                    self.entries()
                        .map(member)
                        .collect::<Result<Map<_, _>, JsonError>>()?,
                )
            }
        })
    }

    pub(crate) fn to_number(self) -> Option<Number> {
        let negative_zero = self.raw() == "-0";
        match (self.as_u64(), self.as_i64()) {
            (Some(integer), _) => Some(Number::from(integer)),
            (None, Some(integer)) if !negative_zero => Some(Number::from(integer)),
            _ => self.as_f64().and_then(Number::from_f64),
        }
    }

    /// Returns the decoded bytes of a string, equal exactly when the strings are.
    pub(crate) fn key_bytes(self) -> Cow<'t, [u8]> {
        key_bytes(
            self.string_source().unwrap_or_default(),
            self.node.has(flag::ESCAPED),
        )
    }

    fn children(self, kind: Kind) -> (u32, u32) {
        if self.kind() == kind {
            (self.id + 1, self.node.link)
        } else {
            (0, 0)
        }
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("id", &self.id)
            .field("raw", &self.raw())
            .finish()
    }
}

impl<'t> Iterator for Items<'t> {
    type Item = View<'t>;

    fn next(&mut self) -> Option<View<'t>> {
        if self.next >= self.end {
            return None;
        }
        let item = View::new(self.tape, self.next);
        self.next = item.node.next(item.id);
        Some(item)
    }
}

impl<'t> Iterator for Entries<'t> {
    type Item = (View<'t>, View<'t>);

    fn next(&mut self) -> Option<(View<'t>, View<'t>)> {
        if self.next >= self.end {
            return None;
        }
        let key = View::new(self.tape, self.next);
        let value = View::new(self.tape, self.next + 1);
        self.next = value.node.next(value.id);
        Some((key, value))
    }
}

impl FusedIterator for Items<'_> {}
impl FusedIterator for Entries<'_> {}
