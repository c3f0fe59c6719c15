//! Two languages for schemas: JSON Schema, and the vendor's own, which is a part of `OpenAPI`'s.
//!
//! Newer models take JSON Schema as it is. Older ones refuse a request with a word they do not know,
//! so for them a schema is rewritten, and whatever has no counterpart is remarked on at its place.

mod own;
mod standard;

use abp_core::ir::{Leaf, Origin, RawJson};
use abp_dialect::{How, Lowering};
use abp_json::pointer;

use crate::dialect::Family;

pub(crate) use standard::to_json_schema;

/// What a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The arguments of a function.
    Parameters,
    /// The answer.
    Answer,
}

/// Writes a JSON schema in the language of the model.
pub(crate) fn write(schema: &Leaf<RawJson>, place: Place, family: Family, out: &mut Lowering<'_>) {
    let (standard_key, own_key) = match place {
        Place::Parameters => ("parametersJsonSchema", "parameters"),
        Place::Answer => ("responseJsonSchema", "responseSchema"),
    };
    if family.has_json_schema() {
        out.put(standard_key, schema);
        return;
    }
    match own::rewrite(schema.text()) {
        // The model refuses a function whose arguments are an object of nothing.
        Ok(rewritten) if rewritten.is_empty_object && place == Place::Parameters => {
            out.note(schema.origin, How::Converted("empty_parameters"));
        }
        Ok(rewritten) => {
            let how = How::Converted("schema_dialect");
            out.put_as(
                own_key,
                &RawJson::trusted(rewritten.text),
                &[schema.origin],
                &how,
            );
            for own::Loss {
                place,
                label,
                reason,
            } in rewritten.losses
            {
                out.drop(inside(schema.origin, &place, out), label, reason);
            }
        }
        Err(refusal) => {
            let (label, reason) = refusal.explain();
            out.refuse(schema.origin, label, reason);
        }
    }
}

/// The part of the source that a pointer into a schema names, or the nearest one around it.
fn inside(schema: Origin, place: &str, out: &Lowering<'_>) -> Origin {
    let segments = pointer::parse(place).unwrap_or_default();
    segments
        .iter()
        .fold(schema, |origin, segment| out.member(origin, segment))
}

#[cfg(test)]
mod tests;
