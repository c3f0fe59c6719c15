//! What an answer used, in the vendor's own words.

use abp_json::View;
use serde_json::{Map, Value};

/// The counts so far. Claude tells some at the beginning and others at the end, the others repeat all
/// of them: a later count replaces the earlier one of its name.
#[derive(Debug, Default)]
pub(super) struct VendorUsage(Map<String, Value>);

impl VendorUsage {
    /// Takes over what an answer or an event of a stream tells.
    pub(super) fn observe(&mut self, document: View<'_>) {
        for (name, count) in told(document).into_iter().flat_map(View::entries) {
            if let (Some(name), Ok(count)) = (name.as_str(), count.to_value()) {
                self.0.insert(name.into_owned(), count);
            }
        }
    }

    /// Everything that was told; null where that is nothing.
    pub(super) fn into_value(self) -> Value {
        if self.0.is_empty() {
            return Value::Null;
        }
        Value::Object(self.0)
    }
}

/// Where a document tells its usage: Claude's streams in the message they begin with, those of
/// Responses in the answer they end with, Kimi's in the choice they end with.
pub(super) fn told(document: View<'_>) -> Option<View<'_>> {
    let inside = |outer: &str| document.get(outer)?.get("usage");
    let choices = || {
        document
            .get("choices")?
            .items()
            .find_map(|c| c.get("usage"))
    };
    let plain = document.get("usage").filter(|usage| !usage.is_null());
    plain
        .or_else(|| inside("message"))
        .or_else(|| inside("response"))
        .or_else(|| document.get("usageMetadata"))
        .or_else(choices)
}
