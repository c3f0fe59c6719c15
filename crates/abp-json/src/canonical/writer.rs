//! The writer: a walk over the tape with its own stack, members sorted as they are opened.

use crate::error::{CanonicalError, shorten};
use crate::number::{self, Canonical, Fault};
use crate::string::{Piece, Pieces, compare_utf16, utf16_rank};
use crate::tape::{Node, Tape, flag};
use crate::view::{Kind, View};

/// How much is collected before it is handed on.
const PIECE: usize = 8 * 1024;
/// As a member's key or value: the member that is written as null, not a node of the tape.
const REPLACED: u32 = u32::MAX;

/// The state of writing one document.
pub(super) struct Writer<'t, F> {
    tape: &'t Tape<'t>,
    sink: F,
    out: Vec<u8>,
    /// The member of the root object that is written as null.
    replaced: Option<&'t str>,
    /// The open containers, innermost last.
    frames: Vec<Frame>,
    /// The members of the open objects, each object's sorted.
    members: Vec<Member>,
}

/// An open container.
#[derive(Clone, Copy)]
struct Frame {
    kind: Kind,
    /// The next item as a node, or the next member as a position.
    next: u32,
    end: u32,
    /// Where an object's members begin.
    base: u32,
}

/// A member of an open object.
#[derive(Clone, Copy)]
struct Member {
    /// The first bytes of the key, ranked so that they sort as UTF-16 does.
    prefix: u64,
    key: u32,
    value: u32,
}

impl<'t, F: FnMut(&[u8])> Writer<'t, F> {
    pub(super) fn new(root: View<'t>, sink: F) -> Self {
        Self {
            tape: root.tape(),
            sink,
            out: Vec::with_capacity(root.span().len().min(PIECE + PIECE / 8)),
            replaced: None,
            frames: Vec::with_capacity(8),
            members: Vec::with_capacity(32),
        }
    }

    /// Writes one member of the root object as null, present or not.
    pub(super) fn with_null(self, member: &'t str) -> Self {
        Self {
            replaced: Some(member),
            ..self
        }
    }

    pub(super) fn document(mut self, root: View<'t>) -> Result<(), CanonicalError> {
        self.value(root.id().0)?;
        while let Some(frame) = self.frames.last_mut() {
            let first = frame.next == frame.base;
            if frame.next == frame.end {
                self.close();
                continue;
            }
            let next = frame.next;
            if frame.kind == Kind::Array {
                frame.next = self.tape.node(next).next(next);
                if !first {
                    self.out.push(b',');
                }
                self.value(next)?;
            } else {
                frame.next += 1;
                if !first {
                    self.out.push(b',');
                }
                self.member(next)?;
            }
        }
        (self.sink)(&self.out);
        Ok(())
    }

    fn value(&mut self, id: u32) -> Result<(), CanonicalError> {
        let node = self.tape.node(id);
        match node.kind() {
            Kind::Null | Kind::Bool => self.raw(node),
            Kind::Number => self.number(id, node)?,
            Kind::String => self.string(id, node)?,
            Kind::Array => {
                self.out.push(b'[');
                let base = id + 1;
                self.frames.push(Frame {
                    kind: Kind::Array,
                    next: base,
                    end: node.link,
                    base,
                });
            }
            Kind::Object => {
                self.out.push(b'{');
                self.open_object(id, node)?;
            }
        }
        Ok(())
    }

    fn member(&mut self, position: u32) -> Result<(), CanonicalError> {
        let Some(&Member { key, value, .. }) = self.members.get(position as usize) else {
            return Ok(());
        };
        if key == REPLACED {
            self.out.push(b'"');
            for character in self.replaced.unwrap_or_default().chars() {
                push_escaped(&mut self.out, character);
            }
            self.out.push(b'"');
        } else {
            self.string(key, self.tape.node(key))?;
        }
        self.out.push(b':');
        if value == REPLACED {
            self.out.extend_from_slice(b"null");
            return Ok(());
        }
        self.value(value)
    }

    fn close(&mut self) {
        if let Some(frame) = self.frames.pop() {
            if frame.kind == Kind::Object {
                self.members.truncate(frame.base as usize);
                self.out.push(b'}');
            } else {
                self.out.push(b']');
            }
        }
    }

    /// Collects and sorts the members of an object.
    fn open_object(&mut self, id: u32, node: Node) -> Result<(), CanonicalError> {
        if node.has(flag::DUPLICATE) {
            let mut duplicates = self.tape.duplicates().iter();
            let found = duplicates.find(|found| found.object.0 == id);
            let pointer = self.pointer(found.map_or(id, |found| found.key.0));
            return Err(CanonicalError::DuplicateKey { pointer });
        }
        let (tape, base) = (self.tape, self.members.len());
        let replaced = if self.frames.is_empty() {
            self.replaced
        } else {
            None
        };
        let mut escaped = false;
        let mut key = id + 1;
        while key < node.link {
            let value = key + 1;
            let key_node = tape.node(key);
            escaped |= key_node.has(flag::ESCAPED);
            self.members.push(Member {
                prefix: prefix(tape, key_node),
                key,
                value,
            });
            key = tape.node(value).next(value);
        }
        if let Some(name) = replaced {
            let members = self.members.get_mut(base..).unwrap_or_default();
            let text = |member: &Member| View::new(tape, member.key).key_bytes();
            match members
                .iter_mut()
                .find(|member| *text(member) == *name.as_bytes())
            {
                Some(member) => member.value = REPLACED,
                None => self.members.push(Member {
                    prefix: 0,
                    key: REPLACED,
                    value: REPLACED,
                }),
            }
        }
        let members = self.members.get_mut(base..).unwrap_or_default();
        if escaped || replaced.is_some() {
            members.sort_by_cached_key(|member| match replaced {
                Some(name) if member.key == REPLACED => ranked(name.as_bytes()),
                _ => ranked(&View::new(tape, member.key).key_bytes()),
            });
        } else {
            let text = |member: &Member| View::new(tape, member.key).string_source();
            members.sort_unstable_by(|left, right| {
                left.prefix.cmp(&right.prefix).then_with(|| {
                    let (left, right) = (text(left).unwrap_or_default(), text(right));
                    compare_utf16(left.as_bytes(), right.unwrap_or_default().as_bytes())
                })
            });
        }
        let (base, end) = (base as u32, self.members.len() as u32);
        self.frames.push(Frame {
            kind: Kind::Object,
            next: base,
            end,
            base,
        });
        Ok(())
    }

    fn string(&mut self, id: u32, node: Node) -> Result<(), CanonicalError> {
        if node.has(flag::LONE) {
            return Err(CanonicalError::LoneSurrogate {
                pointer: self.pointer(id),
            });
        }
        if !node.has(flag::RESPELL) {
            self.raw(node);
            return Ok(());
        }
        self.out.push(b'"');
        for piece in Pieces::new(View::new(self.tape, id).string_source().unwrap_or_default()) {
            match piece {
                Piece::Plain(plain) => self.put(plain.as_bytes()),
                Piece::Char(character) => push_escaped(&mut self.out, character),
                Piece::Lone(_) => {}
            }
        }
        self.out.push(b'"');
        Ok(())
    }

    fn number(&mut self, id: u32, node: Node) -> Result<(), CanonicalError> {
        let text = View::new(self.tape, id).raw();
        match number::canonical(text, !node.has(flag::FLOAT)) {
            Ok(Canonical::AsSpelled) => self.raw(node),
            Ok(Canonical::Double(double)) => {
                let mut buffer = ryu_js::Buffer::new();
                self.put(buffer.format_finite(double).as_bytes());
            }
            Err(fault) => {
                let pointer = self.pointer(id);
                let text = shorten(text).into_owned();
                return Err(match fault {
                    Fault::UnsafeInteger => CanonicalError::UnsafeInteger { pointer, text },
                    Fault::NotFinite => CanonicalError::NotFinite { pointer, text },
                    Fault::Imprecise => CanonicalError::Imprecise { pointer, text },
                });
            }
        }
        Ok(())
    }

    /// Copies a node whose spelling is canonical.
    fn raw(&mut self, node: Node) {
        let span = node.start as usize..node.end as usize;
        self.put(self.tape.source().as_bytes().get(span).unwrap_or_default());
    }

    /// Appends bytes, handing on what has been collected when it is enough.
    fn put(&mut self, bytes: &[u8]) {
        if self.out.len() + bytes.len() > PIECE {
            (self.sink)(&self.out);
            self.out.clear();
            if bytes.len() > PIECE {
                return (self.sink)(bytes);
            }
        }
        self.out.extend_from_slice(bytes);
    }

    fn pointer(&self, id: u32) -> String {
        View::new(self.tape, id).pointer()
    }
}

/// Returns the first eight bytes of an unescaped key, ranked, the first in the highest place.
fn prefix(tape: &Tape<'_>, key: Node) -> u64 {
    let (start, end) = (key.start as usize + 1, key.end as usize - 1);
    let bytes = tape.source().as_bytes();
    let word = match bytes.get(start..).and_then(<[u8]>::first_chunk::<8>) {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => {
            let mut chunk = [0; 8];
            chunk
                .iter_mut()
                .zip(bytes.get(start..end).unwrap_or_default())
                .for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(chunk)
        }
    };
    let unused = 8_u32.saturating_sub((end - start) as u32) * 8;
    let word = word.checked_shr(unused).map_or(0, |kept| kept << unused);
    if word & u64::from_be_bytes([0x80; 8]) == 0 {
        return word;
    }
    u64::from_be_bytes(word.to_be_bytes().map(utf16_rank))
}

fn ranked(key: &[u8]) -> Vec<u8> {
    key.iter().map(|&byte| utf16_rank(byte)).collect()
}

/// Appends a character of a string, escaped as RFC 8785 escapes it.
fn push_escaped(out: &mut Vec<u8>, character: char) {
    let short = match character {
        '"' | '\\' => character,
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\0'..' ' => {
            out.extend_from_slice(format!("\\u{:04x}", character as u32).as_bytes());
            return;
        }
        _ => {
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short as u8]);
}
