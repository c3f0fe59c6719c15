//! Admission: foreign JSON (tool input, vendor payloads) made safe to hash.
//!
//! A receipt carries what tools and vendors said, and must exist whatever they said. What RFC 8785
//! cannot carry becomes a string that holds the original text, and every such change is labelled
//! with its place and reason. What has been admitted always has a canonical form, and admitting it
//! again changes nothing.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::JsonError;
use crate::number::{self, Canonical, Fault};
use crate::pointer;
use crate::tape::{Limits, Tape, flag};
use crate::view::{Kind, View};

/// The deepest value that is admitted as it is: half the default limit of the reader, so that a
/// document can carry an admitted value and still be read.
pub const MAX_ADMITTED_DEPTH: usize = 64;

/// How many bytes of labels a value may collect. Beyond it the value as a whole becomes a string:
/// a long key above many bad numbers must not be repeated for each of them.
const MAX_LABEL_BYTES: usize = 1 << 20;
/// What a label costs besides its pointer.
const LABEL_BYTES: usize = 32;
/// The largest integer that a double keeps apart from its neighbours.
const MAX_SAFE: u64 = (1 << 53) - 1;

/// A value that is safe to hash, and what was changed to make it so.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Admitted {
    /// The value.
    pub value: Value,
    /// The changes, in document order; empty when the value is what was given.
    pub changes: Vec<AdmissionChange>,
}

/// One value that became a string.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionChange {
    /// The JSON pointer of the string.
    pub pointer: String,
    /// Why the original could not stay.
    pub reason: AdmissionReason,
}

/// Why a value became a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AdmissionReason {
    /// An integer outside ±(2^53−1); the string is its text.
    UnsafeInteger,
    /// A number too large for a double; the string is its text.
    NonFinite,
    /// A number that no double stands for: beyond ±(2^53−1), of more than seventeen digits, or so
    /// small that it would become zero. The string is its text.
    ImpreciseNumber,
    /// An object with a key twice; the string is the object's text.
    DuplicateKeys,
    /// A string with half of a surrogate pair, or an object with such a key; the string is the
    /// escaped text of the former, the text of the latter.
    LoneSurrogate,
    /// Nested deeper than [`MAX_ADMITTED_DEPTH`]; the string is the value's text.
    TooDeep,
    /// Too much to label or to read; the string is the whole value's text.
    TooLarge,
}

impl fmt::Display for AdmissionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnsafeInteger => "integer outside ±(2^53−1)",
            Self::NonFinite => "number too large for a double",
            Self::ImpreciseNumber => "number that no double stands for",
            Self::DuplicateKeys => "object with duplicate keys",
            Self::LoneSurrogate => "text with a lone surrogate",
            Self::TooDeep => "nested too deeply",
            Self::TooLarge => "too large to label",
        })
    }
}

/// Admits a JSON text.
///
/// # Errors
///
/// Refuses what [`Tape::parse`] refuses: a text that is not JSON, or is over a limit.
pub fn admit_text(source: &[u8], limits: &Limits) -> Result<Admitted, JsonError> {
    Ok(admit_tape(&Tape::parse(source, limits)?))
}

/// Admits a value that has already been parsed.
///
/// Its duplicate keys and lone surrogates were the concern of whoever parsed it; what is left are
/// integers and depth.
pub fn admit_value(value: Value) -> Admitted {
    if is_safe(&value, MAX_ADMITTED_DEPTH) {
        return Admitted {
            value,
            changes: Vec::new(),
        };
    }
    let text = value.to_string();
    let limits = Limits {
        max_bytes: usize::MAX,
        max_depth: usize::MAX,
        max_nodes: usize::MAX,
    };
    match Tape::parse_str(&text, &limits) {
        Ok(tape) => admit_tape(&tape),
        Err(_) => whole(&text, AdmissionReason::TooLarge),
    }
}

fn admit_tape(tape: &Tape<'_>) -> Admitted {
    let mut admission = Admission {
        path: Vec::new(),
        changes: Vec::new(),
        label_bytes: 0,
    };
    let value = admission.value(tape.root(), MAX_ADMITTED_DEPTH);
    if admission.label_bytes > MAX_LABEL_BYTES {
        return whole(tape.source(), AdmissionReason::TooLarge);
    }
    Admitted {
        value,
        changes: admission.changes,
    }
}

fn whole(text: &str, reason: AdmissionReason) -> Admitted {
    let changes = vec![AdmissionChange {
        pointer: String::new(),
        reason,
    }];
    Admitted {
        value: Value::String(text.to_owned()),
        changes,
    }
}

/// Tells whether a value may stay as it is, `depth` levels below being allowed.
fn is_safe(value: &Value, depth: usize) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (None, None) => true,
            (Some(integer), _) => integer <= MAX_SAFE,
            (None, Some(integer)) => integer.unsigned_abs() <= MAX_SAFE,
        },
        Value::Array(items) => depth > 0 && items.iter().all(|item| is_safe(item, depth - 1)),
        Value::Object(members) => {
            depth > 0 && members.values().all(|member| is_safe(member, depth - 1))
        }
    }
}

struct Admission<'t> {
    /// The way from the root to the value at hand. Asking each value for its pointer would count
    /// an array's items again for every change.
    path: Vec<Step<'t>>,
    changes: Vec<AdmissionChange>,
    label_bytes: usize,
}

enum Step<'t> {
    Item(usize),
    Member(Cow<'t, str>),
}

impl<'t> Admission<'t> {
    fn value(&mut self, view: View<'t>, depth: usize) -> Value {
        // Over the limit the result is thrown away: stop working on it.
        if self.label_bytes > MAX_LABEL_BYTES {
            return Value::Null;
        }
        match view.kind() {
            Kind::Null => Value::Null,
            Kind::Bool => Value::Bool(view.raw() == "true"),
            Kind::Number => self.number(view),
            Kind::String => match view.as_str() {
                Some(text) => Value::String(text.into_owned()),
                None => self.changed(
                    view.string_source().unwrap_or_default(),
                    AdmissionReason::LoneSurrogate,
                ),
            },
            Kind::Array | Kind::Object if depth == 0 => {
                self.changed(view.raw(), AdmissionReason::TooDeep)
            }
            Kind::Array => {
                let items = view.items().enumerate();
                items
                    .map(|(index, item)| self.below(Step::Item(index), item, depth - 1))
                    .collect()
            }
            Kind::Object => self.object(view, depth - 1),
        }
    }

    fn object(&mut self, view: View<'t>, depth: usize) -> Value {
        if view.has(flag::DUPLICATE) {
            return self.changed(view.raw(), AdmissionReason::DuplicateKeys);
        }
        if view.entries().any(|(key, _)| key.has_lone_surrogate()) {
            return self.changed(view.raw(), AdmissionReason::LoneSurrogate);
        }
        let mut members = Map::new();
        for (key, value) in view.entries() {
            let key = key.as_str().unwrap_or_default();
            let name = key.clone().into_owned();
            members.insert(name, self.below(Step::Member(key), value, depth));
        }
        Value::Object(members)
    }

    fn below(&mut self, step: Step<'t>, view: View<'t>, depth: usize) -> Value {
        self.path.push(step);
        let value = self.value(view, depth);
        self.path.pop();
        value
    }

    fn number(&mut self, view: View<'_>) -> Value {
        let text = view.raw();
        let reason = match number::canonical(text, view.is_integer()) {
            Ok(Canonical::Double(double)) if number::loses_digits(text, double) => {
                AdmissionReason::ImpreciseNumber
            }
            Ok(_) => match view.to_number() {
                Some(number) => return Value::Number(number),
                None => AdmissionReason::NonFinite,
            },
            Err(Fault::UnsafeInteger) => AdmissionReason::UnsafeInteger,
            Err(Fault::NotFinite) => AdmissionReason::NonFinite,
            Err(Fault::Imprecise) => AdmissionReason::ImpreciseNumber,
        };
        self.changed(text, reason)
    }

    fn changed(&mut self, text: &str, reason: AdmissionReason) -> Value {
        let pointer = pointer::build(self.path.iter().map(|step| match step {
            Step::Item(index) => Cow::Owned(index.to_string()),
            Step::Member(key) => Cow::Borrowed(&**key),
        }));
        self.label_bytes += pointer.len() + LABEL_BYTES;
        self.changes.push(AdmissionChange { pointer, reason });
        Value::String(text.to_owned())
    }
}
