//! The tape: one node for every key and every value, in document order.
//!
//! A node is sixteen bytes. A container is followed by its children, a key by its value, so a
//! node's first child and a value's key need no link; what is stored is the span of source bytes,
//! the parent, and for containers the node after their last descendant.

use crate::error::JsonError;
use crate::parse;
use crate::pointer;
use crate::view::{Kind, View};

/// Bounds on a document, checked while it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest source text in bytes. 4 GiB − 1 is a hard ceiling.
    pub max_bytes: usize,
    /// The deepest nesting of arrays and objects; a lone number has depth 0.
    pub max_depth: usize,
    /// The largest number of keys and values together. 2^24 − 2 is a hard ceiling.
    pub max_nodes: usize,
}

/// A stable handle to one key or value of a tape; the root is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

/// A key that an earlier member of the same object already has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Duplicate {
    /// The object.
    pub object: NodeId,
    /// The later key. Keys count as equal however they are escaped.
    pub key: NodeId,
}

/// A parsed document: nodes over its source text.
#[derive(Clone, Debug)]
pub struct Tape<'s> {
    source: &'s str,
    nodes: Vec<Node>,
    duplicates: Vec<Duplicate>,
}

/// One key or value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    /// The first source byte.
    pub(crate) start: u32,
    /// The byte after the last.
    pub(crate) end: u32,
    /// For a container the node after its last descendant, for a key its fingerprint.
    pub(crate) link: u32,
    /// The parent above the lowest byte, flags in it, the kind in its lowest three bits.
    meta: u32,
}

/// Facts about a node, combined with `|`. Numbers, strings and objects reuse the same bits.
pub(crate) mod flag {
    /// A string that is a key.
    pub(crate) const KEY: u8 = 1 << 3;
    /// A string that holds an escape.
    pub(crate) const ESCAPED: u8 = 1 << 4;
    /// A string whose escapes are not all spelled as RFC 8785 spells them.
    pub(crate) const RESPELL: u8 = 1 << 5;
    /// A string that holds half of a surrogate pair.
    pub(crate) const LONE: u8 = 1 << 6;
    /// A number with a fraction or an exponent.
    pub(crate) const FLOAT: u8 = 1 << 4;
    /// An object that has a key twice.
    pub(crate) const DUPLICATE: u8 = 1 << 4;
}

/// The parent of the root.
pub(crate) const NO_PARENT: u32 = MAX_NODES + 1;
const MAX_NODES: u32 = (1 << 24) - 2;

impl Default for Limits {
    /// Returns the limits for a document from outside: 32 MiB, 128 levels, 4,194,304 nodes.
    ///
    /// With these the tape of a hostile document stays below 100 MiB; an ordinary document has ten
    /// or more bytes to a node of sixteen.
    fn default() -> Self {
        Self {
            max_bytes: 32 << 20,
            max_depth: 128,
            max_nodes: 4 << 20,
        }
    }
}

impl Limits {
    pub(crate) fn node_ceiling(&self) -> usize {
        self.max_nodes.min(MAX_NODES as usize)
    }

    pub(crate) fn byte_ceiling(&self) -> usize {
        self.max_bytes.min(u32::MAX as usize)
    }
}

impl NodeId {
    /// Returns the position of the node in document order, below [`Tape::node_count`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl<'s> Tape<'s> {
    /// Parses one JSON document, bounded by `limits`.
    ///
    /// # Errors
    ///
    /// Refuses what is not UTF-8, not JSON as RFC 8259 defines it (a byte order mark included), or
    /// over a limit. Duplicate keys and lone surrogates are no errors here: see
    /// [`duplicates`](Self::duplicates) and [`View::has_lone_surrogate`].
    pub fn parse(source: &'s [u8], limits: &Limits) -> Result<Self, JsonError> {
        parse::check_size(source.len(), limits)?;
        match std::str::from_utf8(source) {
            Ok(text) => Self::parse_str(text, limits),
            Err(error) => Err(JsonError::InvalidUtf8 {
                offset: error.valid_up_to(),
            }),
        }
    }

    /// Parses one JSON document that is already known to be UTF-8.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn parse_str(source: &'s str, limits: &Limits) -> Result<Self, JsonError> {
        let (nodes, duplicates) = parse::parse(source, limits)?;
        Ok(Self {
            source,
            nodes,
            duplicates,
        })
    }

    /// Returns the source text.
    pub fn source(&self) -> &'s str {
        self.source
    }

    /// Returns the document's value.
    pub fn root(&self) -> View<'_> {
        View::new(self, 0)
    }

    /// Returns the number of nodes, keys included.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the node with this handle, or `None` when the handle is another tape's.
    pub fn view(&self, id: NodeId) -> Option<View<'_>> {
        (id.index() < self.nodes.len()).then(|| View::new(self, id.0))
    }

    /// Returns every node in document order; a key comes right before its value.
    pub fn nodes(&self) -> impl Iterator<Item = View<'_>> {
        (0..self.nodes.len() as u32).map(|id| View::new(self, id))
    }

    /// Returns the key or value whose text starts at a byte of the source, or `None` when none does.
    pub fn starting_at(&self, offset: usize) -> Option<View<'_>> {
        let found = self
            .nodes
            .binary_search_by(|node| (node.start as usize).cmp(&offset))
            .ok()?;
        Some(View::new(self, found as u32))
    }

    /// Returns every key that repeats an earlier key of its object, in document order of the
    /// objects' ends.
    pub fn duplicates(&self) -> &[Duplicate] {
        &self.duplicates
    }

    /// Returns the value a JSON pointer names, or `None` when there is none.
    ///
    /// Where a key is duplicated the last member is meant, as in [`View::get`].
    pub fn resolve(&self, pointer: &str) -> Option<View<'_>> {
        pointer::parse(pointer)?
            .iter()
            .try_fold(self.root(), |view, segment| match view.kind() {
                Kind::Object => view.get(segment),
                Kind::Array => view.items().nth(pointer::index(segment)?),
                _ => None,
            })
    }

    /// Returns a node; an id that is not on the tape reads as a null at the start of the text.
    pub(crate) fn node(&self, id: u32) -> Node {
        self.nodes
            .get(id as usize)
            .copied()
            .unwrap_or(Node::new(Kind::Null, 0, NO_PARENT, 0))
    }
}

impl Node {
    pub(crate) fn new(kind: Kind, flags: u8, parent: u32, start: usize) -> Self {
        let meta = parent << 8 | u32::from(flags | kind as u8);
        Self {
            start: start as u32,
            end: start as u32,
            link: 0,
            meta,
        }
    }

    pub(crate) fn kind(self) -> Kind {
        match self.meta & 0b111 {
            0 => Kind::Null,
            1 => Kind::Bool,
            2 => Kind::Number,
            3 => Kind::String,
            4 => Kind::Array,
            _ => Kind::Object,
        }
    }

    pub(crate) fn has(self, flags: u8) -> bool {
        self.meta & u32::from(flags) != 0
    }

    pub(crate) fn set(&mut self, flags: u8) {
        self.meta |= u32::from(flags);
    }

    pub(crate) fn parent(self) -> u32 {
        self.meta >> 8
    }

    /// Returns the node that follows this one and its descendants, given this one's id.
    pub(crate) fn next(self, id: u32) -> u32 {
        if self.meta & 0b100 != 0 {
            self.link
        } else {
            id + 1
        }
    }
}
