//! Finding NaN and infinities before a value is serialised.
//!
//! `serde_json` writes both as null and tells nobody, not even a custom formatter. A serializer that
//! writes nothing and only looks at floats is the way to see them.

use std::fmt;

use serde::ser::{
    Error, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use crate::pointer;

/// Returns a float that is not finite, with its JSON pointer.
///
/// A value that fails to serialise is left for the real serializer to report.
pub(crate) fn find_non_finite<T: Serialize + ?Sized>(value: &T) -> Option<(String, f64)> {
    match value.serialize(Finder) {
        Err(Stop::NonFinite(path, float)) => Some((pointer::build(path.iter().rev()), float)),
        Err(Stop::Failed) | Ok(()) => None,
    }
}

/// Why the search ended early.
#[derive(Debug)]
enum Stop {
    /// A float is not finite; its path, innermost segment first.
    NonFinite(Vec<String>, f64),
    /// The value itself failed.
    Failed,
}

struct Finder;

/// A container being searched.
struct Inside {
    items: usize,
    /// The variant that wraps the container.
    variant: Option<&'static str>,
    key: String,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not finite")
    }
}

impl std::error::Error for Stop {}

impl Error for Stop {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Failed
    }
}

impl Stop {
    fn below(self, segment: String) -> Self {
        match self {
            Self::NonFinite(mut path, float) => {
                path.push(segment);
                Self::NonFinite(path, float)
            }
            Self::Failed => Self::Failed,
        }
    }
}

impl Inside {
    fn new(variant: Option<&'static str>) -> Self {
        Self {
            items: 0,
            variant,
            key: String::new(),
        }
    }

    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stop> {
        let index = self.items;
        self.items += 1;
        self.look(value, || index.to_string())
    }

    fn look<T: Serialize + ?Sized>(
        &self,
        value: &T,
        segment: impl FnOnce() -> String,
    ) -> Result<(), Stop> {
        value.serialize(Finder).map_err(|stop| {
            let stop = stop.below(segment());
            match self.variant {
                Some(variant) => stop.below(variant.to_owned()),
                None => stop,
            }
        })
    }
}

/// Returns the text `serde_json` gives a key.
fn key_text<T: Serialize + ?Sized>(key: &T) -> String {
    match serde_json::to_value(key) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

macro_rules! nothing_to_find {
    ($($method:ident: $type:ty),+ $(,)?) => {
        $(fn $method(self, _: $type) -> Result<(), Stop> { Ok(()) })+
    };
}

impl Serializer for Finder {
    type Ok = ();
    type Error = Stop;
    type SerializeSeq = Inside;
    type SerializeTuple = Inside;
    type SerializeTupleStruct = Inside;
    type SerializeTupleVariant = Inside;
    type SerializeMap = Inside;
    type SerializeStruct = Inside;
    type SerializeStructVariant = Inside;

    nothing_to_find! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32,
        serialize_i64: i64, serialize_i128: i128, serialize_u8: u8, serialize_u16: u16,
        serialize_u32: u32, serialize_u64: u64, serialize_u128: u128, serialize_char: char,
        serialize_str: &str, serialize_bytes: &[u8], serialize_unit_struct: &'static str,
    }

    fn serialize_f32(self, float: f32) -> Result<(), Stop> {
        self.serialize_f64(f64::from(float))
    }

    fn serialize_f64(self, float: f64) -> Result<(), Stop> {
        if float.is_finite() {
            Ok(())
        } else {
            Err(Stop::NonFinite(Vec::new(), float))
        }
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, _: &T) -> Result<(), Stop> {
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Stop> {
        Ok(())
    }

    fn serialize_unit(self) -> Result<(), Stop> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Stop> {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Stop> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Stop> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Stop> {
        value
            .serialize(self)
            .map_err(|stop| stop.below(variant.to_owned()))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Inside, Stop> {
        Ok(Inside::new(None))
    }

    fn serialize_tuple(self, _: usize) -> Result<Inside, Stop> {
        Ok(Inside::new(None))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Inside, Stop> {
        Ok(Inside::new(None))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Inside, Stop> {
        Ok(Inside::new(Some(variant)))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Inside, Stop> {
        Ok(Inside::new(None))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Inside, Stop> {
        Ok(Inside::new(None))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Inside, Stop> {
        Ok(Inside::new(Some(variant)))
    }
}

macro_rules! search_items {
    ($($trait:ident::$method:ident),+ $(,)?) => {
        $(impl $trait for Inside {
            type Ok = ();
            type Error = Stop;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stop> {
                self.item(value)
            }

            fn end(self) -> Result<(), Stop> {
                Ok(())
            }
        })+
    };
}

macro_rules! search_fields {
    ($($trait:ident),+ $(,)?) => {
        $(impl $trait for Inside {
            type Ok = ();
            type Error = Stop;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Stop> {
                self.look(value, || name.to_owned())
            }

            fn end(self) -> Result<(), Stop> {
                Ok(())
            }
        })+
    };
}

search_items!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field,
);
search_fields!(SerializeStruct, SerializeStructVariant);

impl SerializeMap for Inside {
    type Ok = ();
    type Error = Stop;

    fn serialize_entry<K: Serialize + ?Sized, V: Serialize + ?Sized>(
        &mut self,
        key: &K,
        value: &V,
    ) -> Result<(), Stop> {
        self.look(value, || key_text(key))
    }

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Stop> {
        self.key = key_text(key);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stop> {
        self.look(value, || self.key.clone())
    }

    fn end(self) -> Result<(), Stop> {
        Ok(())
    }
}
