//! Reading documents in which a value is not of the type that its dialect gives it.
//!
//! Vendors change their answers and clients send what their server happens to accept: a number where a text
//! should be, a list of parts with a bare string in it. One such value is no reason to give up the rest.
//! The document is read again as if the value were not there, and the ledger names what was left out:
//! `{"id": 7, "content": [...]}` is an answer without an id. Where a part cannot do without the value, the
//! part is left out instead, and so on outwards; a document that cannot do without it fails.

use abp_core::ir::Origin;
use abp_dialect::{DialectError, Fate, Item, Note, Reader, UNEXPECTED_TYPE};
use abp_json::{Tape, View};

/// How many values may be left out. Each costs one more reading, and a document with more of them is
/// hardly of its dialect.
const MAX_LEFT_OUT: usize = 16;

/// What is left out of a document counts as much as the document's reader relies on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeftOut {
    /// What somebody asks for: without it the request is another one, so only a caller who allows that
    /// may lose it.
    IsUnsupported,
    /// What somebody was told: the rest of it is still true.
    IsDropped,
}

/// Reads a document, without those values that are in the way.
pub(crate) fn read_document<'t, T>(
    tape: &'t Tape<'t>,
    loss: LeftOut,
    read: impl Fn(Item<'_>) -> Result<T, DialectError>,
) -> Result<(Reader<'t>, T), DialectError> {
    let reader = Reader::new(tape);
    let first = match read(reader.root()) {
        Ok(document) => return Ok((reader, document)),
        Err(error) => error,
    };
    let mut left_out: Vec<Note> = Vec::new();
    let mut problem = first.clone();
    while left_out.len() < MAX_LEFT_OUT {
        let Some(value) = in_the_way(tape, &problem) else {
            break;
        };
        left_out.push(note(value, &problem, loss));
        let reader = Reader::without(tape, &left_out);
        match read(reader.root()) {
            Ok(document) => return Ok((reader, document)),
            Err(error) => problem = error,
        }
    }
    Err(first)
}

/// The value without which the document might be read; none where that is the document.
fn in_the_way<'t>(tape: &'t Tape<'t>, problem: &DialectError) -> Option<View<'t>> {
    let value = match problem {
        DialectError::Shape { pointer, .. } => tape.resolve(pointer),
        DialectError::Missing { pointer } => tape.resolve(pointer.rsplit_once('/')?.0),
        _ => None,
    };
    value.filter(|value| value.parent().is_some())
}

fn note(value: View<'_>, problem: &DialectError, loss: LeftOut) -> Note {
    let label = UNEXPECTED_TYPE.into();
    let reason = problem.to_string().into();
    Note {
        origin: Origin::Node(value.id()),
        fate: match loss {
            LeftOut::IsUnsupported => Fate::Unsupported { label, reason },
            LeftOut::IsDropped => Fate::Dropped { label, reason },
        },
    }
}
