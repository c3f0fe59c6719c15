//! Ledgers that were made before.
//!
//! Documents of one form have one ledger: which members they have, how each was read and what each was
//! written as decide it, and the values do not, as long as whatever was carried as it is has arrived as
//! it was. So a ledger is made once for each form, and found again by comparing forms byte by byte.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use abp_core::ir::Origin;
use abp_dialect::{Dialect, Fate, How, Made, Mark, Note, Reader};
use abp_json::Tape;
use foldhash::fast::RandomState;

use super::{Ledger, account};

/// How many nodes source and target may have; larger documents are rarely of one form.
const MAX_NODES: usize = 512;

/// About how many bytes all known forms and their ledgers take.
const MAX_BYTES: usize = 4 << 20;

/// How many bytes a form may take: names of members can be as long as somebody likes.
const MAX_FORM: usize = 16 << 10;

/// About how many bytes an entry takes.
const ENTRY: usize = 256;

/// What stands for a key, where a value has its kind.
const KEY: usize = 0xff;

/// Ledgers by the form of their documents; for everybody who translates many.
#[derive(Debug, Default)]
pub struct KnownLedgers {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    ledgers: HashMap<Form, Ledger, RandomState>,
    bytes: usize,
}

/// Everything that a ledger is made of, one after the other.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct Form(Vec<u8>);

/// What a ledger is made of.
#[derive(Clone, Copy)]
pub(super) struct Written<'w> {
    pub(super) reader: &'w Reader<'w>,
    pub(super) target: Dialect,
    /// The target's document; `None` where it is no JSON.
    pub(super) output: Option<&'w Tape<'w>>,
    pub(super) marks: &'w [Mark],
    /// What was remarked in reading, then in writing.
    pub(super) notes: [&'w [Note]; 2],
}

impl KnownLedgers {
    /// The ledger of a document; made where its form is new.
    pub(super) fn ledger(&self, written: Written<'_>) -> Ledger {
        let Some(form) = Form::of(written) else {
            return Ledger::from_entries(account::account(written));
        };
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(ledger) = known.ledgers.get(&form) {
            return ledger.clone();
        }
        drop(known);
        let ledger = Ledger::from_entries(account::account(written));
        self.learn(form, ledger.clone());
        ledger
    }

    fn learn(&self, form: Form, ledger: Ledger) {
        let bytes = form.0.len() + ledger.entries().len() * ENTRY;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.bytes + bytes > MAX_BYTES {
            *known = Known::default();
        }
        known.bytes += bytes;
        known.ledgers.insert(form, ledger);
    }
}

impl Form {
    /// `None` where a document is too large to be remembered, and where the values decide.
    fn of(written: Written<'_>) -> Option<Self> {
        let (reader, output) = (written.reader, written.output?);
        let source = reader.tape();
        if source.node_count() + output.node_count() > MAX_NODES {
            return None;
        }
        let mut form = Self(Vec::with_capacity(2048));
        form.byte(written.target as u8);
        form.tape(source);
        form.0
            .extend(source.nodes().map(|view| reader.seen(view.id()) as u8));
        form.tape(output);
        form.number(written.marks.len());
        for mark in written.marks {
            let place = output.starting_at(mark.at);
            form.number(place.map_or(usize::MAX, |place| place.id().index()));
            match &mark.made {
                Made::From { node, how } => {
                    if *how == How::AsIs && !account::same_value(source.view(*node)?, place?) {
                        return None;
                    }
                    form.byte(0);
                    form.number(node.index());
                    form.how(how);
                }
                Made::Structure => form.byte(1),
                Made::Synthesised { label, reason } => {
                    form.byte(2);
                    form.words(label, reason);
                }
            }
        }
        for notes in written.notes {
            form.number(notes.len());
            for note in notes {
                form.note(note);
            }
        }
        (form.0.len() <= MAX_FORM).then_some(form)
    }

    /// The members and items of a document, without their values.
    fn tape(&mut self, tape: &Tape<'_>) {
        self.number(tape.node_count());
        for view in tape.nodes() {
            if view.is_key() {
                let name = view.string_source().unwrap_or_default();
                self.number(name.len() << 8 | KEY);
                self.0.extend_from_slice(name.as_bytes());
            } else {
                self.number(view.subtree().end << 8 | view.kind() as usize);
            }
        }
    }

    fn note(&mut self, note: &Note) {
        // Only remarks on parts of the source count.
        let Origin::Node(node) = note.origin else {
            return self.byte(0);
        };
        self.byte(1);
        self.number(node.index());
        match &note.fate {
            Fate::Carried(how) => {
                self.byte(0);
                self.how(how);
            }
            Fate::Dropped { label, reason } => {
                self.byte(1);
                self.words(label, reason);
            }
            Fate::Unsupported { label, reason } => {
                self.byte(2);
                self.words(label, reason);
            }
        }
    }

    fn how(&mut self, how: &How) {
        match how {
            How::AsIs => self.byte(0),
            How::Converted(label) => {
                self.byte(1);
                self.text(label);
            }
            How::Emulated { label, reason } => {
                self.byte(2);
                self.words(label, reason);
            }
            How::Degraded { label, reason } => {
                self.byte(3);
                self.words(label, reason);
            }
        }
    }

    fn words(&mut self, label: &str, reason: &str) {
        self.text(label);
        self.text(reason);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Whatever is longer than 2^24 bytes does not fit into a form anyway.
    fn number(&mut self, number: usize) {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use abp_json::Limits;

    use super::*;
    use crate::ledger::{Action, UNEXPLAINED};
    use crate::{Options, translate_request};

    fn ledger(known: &Arc<KnownLedgers>, request: &str) -> Ledger {
        let options = Options {
            known: Some(Arc::clone(known)),
            ..Options::default()
        };
        let (from, to) = (Dialect::OpenAi, Dialect::Claude);
        translate_request(request.as_bytes(), from, to, &options)
            .expect("a request")
            .ledger
    }

    #[test]
    fn a_form_has_one_ledger_whatever_the_values() {
        let known = Arc::default();
        let request = |text: &str, more: &str| {
            format!(
                r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}],"seed":3{more}}}"#
            )
        };
        let first = ledger(&known, &request("one", ""));
        let again = ledger(&known, &request("another \\n text", ""));
        assert!(Arc::ptr_eq(&first.account, &again.account));
        for more in [r#","n":1"#, r#","x":null"#, r#","x":{}"#, r#","user":"u""#] {
            let other = ledger(&known, &request("one", more));
            assert_ne!(first, other, "{more}");
        }
    }

    /// The values of what is carried as it is decide whether it was.
    #[test]
    fn a_changed_value_is_not_taken_for_a_known_form() {
        let known = KnownLedgers::default();
        let source = Tape::parse_str(r#"{"a":1}"#, &Limits::default()).expect("JSON");
        let reader = Reader::new(&source);
        let value = source.root().get("a").expect("a value").id();
        let marks = [Mark {
            at: 5,
            made: Made::From {
                node: value,
                how: How::AsIs,
            },
        }];
        let actions = ["1", "2", "1"].map(|written| {
            let output = format!(r#"{{"a":{written}}}"#);
            let ledger = known.ledger(Written {
                reader: &reader,
                target: Dialect::OpenAi,
                output: account::parsed(&output).as_ref(),
                marks: &marks,
                notes: [&[], &[]],
            });
            let entry = ledger.entries().first().expect("an entry").clone();
            (entry.action, entry.label.as_deref() == Some(UNEXPLAINED))
        });
        let kept = (Action::Kept, false);
        assert_eq!(actions, [kept, (Action::Degraded, true), kept]);
    }

    #[test]
    fn forms_without_end_do_not_fill_the_memory() {
        let known = Arc::default();
        for number in 0..3_000 {
            let members: String = (0..20)
                .map(|member| format!(r#","k{number}_{member}":0"#))
                .collect();
            let request = format!(r#"{{"model":"m","messages":[]{members}}}"#);
            ledger(&known, &request);
            let known = known.known.read().unwrap_or_else(PoisonError::into_inner);
            assert!(known.bytes <= MAX_BYTES);
        }
        let known = known.known.read().unwrap_or_else(PoisonError::into_inner);
        assert!(known.ledgers.len() < 3_000, "old ones were let go");
    }
}
