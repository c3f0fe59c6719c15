//! Small changes to JSON objects; everything else stays byte for byte.

use abp_json::{Kind, Tape, View, Writer, push_string};

use crate::message::MESSAGE_LIMITS;
use crate::meta::{self, META};

/// The prefix of what belongs to one connection and is not passed on.
const OF_CONNECTION: &str = "io.modelcontextprotocol/";

/// An object of texts.
pub(super) fn object(members: &[(&str, &str)]) -> String {
    let mut out = Writer::default();
    out.begin_object();
    for (key, value) in members {
        out.key(key);
        out.string(value);
    }
    out.end_object();
    out.into_text()
}

/// A text as JSON.
pub(super) fn text(value: &str) -> String {
    let mut out = String::new();
    push_string(&mut out, value);
    out
}

/// Reads an object and gives what is made of it; `None` where it is none.
pub(super) fn read<T>(json: Option<&str>, make: impl FnOnce(View<'_>) -> T) -> Option<T> {
    let tape = Tape::parse_str(json?, &MESSAGE_LIMITS).ok()?;
    let root = tape.root();
    (root.kind() == Kind::Object).then(|| make(root))
}

/// A text of an object.
pub(super) fn member(json: Option<&str>, key: &str) -> Option<String> {
    read(json, |root| Some(root.get(key)?.as_str()?.into_owned())).flatten()
}

/// An object with members in the place of its own; one that is `None` is left out.
pub(super) fn replaced(object: View<'_>, members: &[(&str, Option<&str>)]) -> String {
    let keys: Vec<_> = members.iter().map(|(key, _)| *key).collect();
    let mut out = Writer::default();
    out.begin_object();
    meta::copy(&mut out, Some(object), &keys);
    for (key, json) in members {
        if let Some(json) = json {
            out.key(key);
            out.raw(json);
        }
    }
    out.end_object();
    out.into_text()
}

/// The `_meta` of a request as it is passed on: without what is between the client and this end, with
/// a token of ours for progress where the client wants any.
pub(super) fn passed_meta(
    params: View<'_>,
    token: &str,
    log_level: Option<&str>,
) -> Option<String> {
    let meta = params.get(META);
    let mut out = Writer::default();
    out.begin_object();
    let mut is_empty = true;
    for (key, value) in meta.into_iter().flat_map(View::entries) {
        let name = key.as_str().unwrap_or_default();
        if name == "progressToken" {
            out.key("progressToken");
            out.raw(token);
            is_empty = false;
        } else if !name.starts_with(OF_CONNECTION) {
            out.raw(&format!("{}:{}", key.raw(), value.raw()));
            is_empty = false;
        }
    }
    if let Some(level) = log_level {
        out.key(meta::LOG_LEVEL);
        out.string(level);
        is_empty = false;
    }
    out.end_object();
    (!is_empty).then(|| out.into_text())
}

/// An object with a member in its `_meta`.
pub(super) fn with_meta(object: View<'_>, key: &str, json: &str) -> String {
    let meta = match object.get(META) {
        Some(meta) => replaced(meta, &[(key, Some(json))]),
        None => format!("{{{}:{json}}}", text(key)),
    };
    replaced(object, &[(META, Some(&meta))])
}
