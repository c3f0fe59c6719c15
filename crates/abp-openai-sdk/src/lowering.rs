//! Between the vendor's documents and the intermediate representation.

pub(crate) mod assistant_out;
pub(crate) mod error;
mod media;
pub(crate) mod message_in;
mod message_out;
pub(crate) mod request_in;
pub(crate) mod request_out;
pub(crate) mod response_in;
pub(crate) mod response_out;
mod settings_out;
pub(crate) mod usage;

use abp_dialect::Item;

/// Marks members that give the source its shape.
pub(crate) fn shape(item: Item<'_>, keys: &[&str]) {
    for member in keys.iter().filter_map(|key| item.get(key)) {
        member.structure();
    }
}

/// Marks members that the dialect knows and the representation has no place for.
pub(crate) fn unplaced(item: Item<'_>, keys: &[&str]) {
    drop(item.vendor_fields(keys));
}
