//! What a vendor's document holds besides the answer: fields that only the vendor knows, which are
//! attached to the run's events, and parts that the dialect's reader does not know, which are named in
//! a warning. So nothing of an answer is lost without a word.
//!
//! The reader marks every node that it takes. Everything else is found by walking the document once
//! more; a part is named by its place, with `*` for the places of a list:
//! `{"choices":[{"message":{…},"novelty":1}]}` gives `choices/*/novelty`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use abp_core::AgentEventKind;
use abp_dialect::{Reader, Seen};
use abp_json::{Kind, Limits, View};
use serde_json::Value;

/// The most bytes of vendor's fields that are attached; what goes beyond is named instead.
const MAX_FIELD_BYTES: usize = 64 << 10;
/// The most unknown parts that are named one by one.
const MAX_NAMED: usize = 20;

/// Gathers what is left of the documents of one answer.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// Fields that repeat the request; their names are known from it.
    repeated: BTreeSet<String>,
    fields: BTreeMap<String, Value>,
    bytes: usize,
    unknown: BTreeSet<String>,
    too_large: BTreeSet<String>,
}

/// A walk over one document.
struct Walk<'r, 't> {
    reader: &'r Reader<'t>,
    /// The nodes of what is kept elsewhere.
    kept: Vec<Range<usize>>,
    found: Vec<(String, Value)>,
}

/// What was found below a node.
#[derive(Default)]
struct Below {
    /// Whether the reader took anything of it.
    is_known: bool,
    unknown: Vec<String>,
}

impl Leftovers {
    /// Fields of these names only repeat what was asked.
    pub(super) fn without(repeated: impl IntoIterator<Item = String>) -> Self {
        Self {
            repeated: repeated.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Takes what the reader of a document, or of an event of a stream, left, but for the parts that
    /// are kept elsewhere.
    pub(super) fn observe<'t>(
        &mut self,
        reader: &Reader<'_>,
        kept: impl IntoIterator<Item = View<'t>>,
        event: Option<&str>,
    ) {
        let mut walk = Walk {
            reader,
            kept: kept.into_iter().map(View::subtree).collect(),
            found: Vec::new(),
        };
        let below = walk.look(reader.tape().root(), String::new());
        for (place, value) in walk.found {
            self.attach(place, value);
        }
        let named = below.unknown.into_iter().map(|place| match place.as_str() {
            "" => format!("event {}", event.unwrap_or("without a name")),
            _ => place,
        });
        self.unknown.extend(named);
    }

    /// Adds what is known of the answer besides.
    pub(super) fn add(&mut self, fields: Vec<(&'static str, Value)>) {
        for (name, value) in fields {
            self.attach(name.to_owned(), value);
        }
    }

    /// The fields, under their places; `None` where there are none.
    pub(super) fn take_fields(&mut self) -> Option<Value> {
        let fields = std::mem::take(&mut self.fields);
        (!fields.is_empty()).then(|| Value::Object(fields.into_iter().collect()))
    }

    /// Warnings that name what the events do not show.
    pub(super) fn warnings(&self) -> Vec<AgentEventKind> {
        let unknown = "the vendor's answer has parts that are not known and not told";
        let too_large = "the vendor's answer has fields that are too large to be told";
        let lists = [(unknown, &self.unknown), (too_large, &self.too_large)];
        let told = lists.into_iter().filter(|(_, places)| !places.is_empty());
        let told = told.map(|(what, places)| AgentEventKind::Warning {
            message: format!("{what}: {}", listed(places)),
        });
        told.collect()
    }

    /// Vendors repeat their fields in every event, which adds nothing. Other values of the same place are
    /// kept as a list; lists are parts of one list.
    fn attach(&mut self, place: String, value: Value) {
        let name = place.rsplit('/').next().unwrap_or_default();
        if self.repeated.contains(name) || self.fields.get(&place) == Some(&value) {
            return;
        }
        self.bytes = self.bytes.saturating_add(value.to_string().len());
        if self.bytes > MAX_FIELD_BYTES {
            self.too_large.insert(place);
            return;
        }
        let known = match self.fields.remove(&place) {
            None => {
                self.fields.insert(place, value);
                return;
            }
            Some(Value::Array(known)) => known,
            Some(known) => vec![known],
        };
        let more = match value {
            Value::Array(more) => more,
            value if known.last() == Some(&value) => Vec::new(),
            value => vec![value],
        };
        let all = known.into_iter().chain(more).collect();
        self.fields.insert(place, Value::Array(all));
    }
}

impl Walk<'_, '_> {
    fn look(&mut self, view: View<'_>, place: String) -> Below {
        let node = view.id().index();
        if self.kept.iter().any(|nodes| nodes.contains(&node)) {
            return Below {
                is_known: true,
                ..Below::default()
            };
        }
        match self.reader.seen(view.id()) {
            Seen::Vendor => {
                if let Some(value) = said(view) {
                    self.found.push((place, value));
                }
                Below {
                    is_known: true,
                    ..Below::default()
                }
            }
            Seen::Structure | Seen::Repeats | Seen::Taken => Below {
                is_known: true,
                ..Below::default()
            },
            Seen::Unread => self.look_inside(view, place),
        }
    }

    fn look_inside(&mut self, view: View<'_>, place: String) -> Below {
        let mut below = Below::default();
        let mut add = |inner: Below| {
            below.is_known |= inner.is_known;
            below.unknown.extend(inner.unknown);
        };
        let inside = |name: &str| match place.as_str() {
            "" => name.to_owned(),
            outer => format!("{outer}/{name}"),
        };
        match view.kind() {
            Kind::Object => {
                for (key, value) in view.entries() {
                    let key = key.as_str().unwrap_or_default();
                    add(self.look(value, inside(&key)));
                }
            }
            Kind::Array => {
                for item in view.items() {
                    add(self.look(item, inside("*")));
                }
            }
            _ => {
                if said(view).is_some() {
                    below.unknown.push(place.clone());
                }
            }
        }
        // A part of which nothing is known is named as a whole.
        if !below.is_known && !below.unknown.is_empty() {
            below.unknown = vec![place];
        }
        below
    }
}

/// The value of a node, unless it says nothing: `null`, or an empty text, list or object.
fn said(view: View<'_>) -> Option<Value> {
    let admitted = abp_json::admit_text(view.raw().as_bytes(), &Limits::default());
    let value = admitted.ok()?.value;
    let is_empty = match &value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    (!is_empty).then_some(value)
}

fn listed(places: &BTreeSet<String>) -> String {
    let named: Vec<_> = places.iter().take(MAX_NAMED).map(String::as_str).collect();
    let rest = places.len().saturating_sub(MAX_NAMED);
    match rest {
        0 => named.join(", "),
        rest => format!("{} and {rest} more", named.join(", ")),
    }
}
