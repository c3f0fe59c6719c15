//! Random JSON, well behaved and otherwise.

use proptest::prelude::*;
use proptest::sample::{Index, Select, select};
use serde_json::{Number, Value};

/// Values, numbers above all, that RFC 8785 or a parser stumbles over.
const NASTY: &str = r#"null true -0 1e400 -1e999 1e-400 1E30 1e20 0.1 -0.0 9007199254740991
    9007199254740992 -9007199254740993 18446744073709551616 9007199254740993.0 9007199254740992.0
    0.1234567890123456789012 0.10000000000000000000 "\ud800" "\udc00\ud800x" "\ud83d\ude02"
    "\u00e9\/\"" [] {}"#;
const KEYS: &str = r#""a" "\u0061" "b" "" "~/" "\ud800""#;
/// Pieces of JSON text; `~` stands for a space.
const TOKENS: &str = r#"{ } [ ] , : " "a" "\u0061" \ \u \n d83d \ud83d\ude02 \udead 0 1 12 - + . e E
    1e400 1e-400 00 123456789012345678901234567890 0.1 true false null nul ~ x"#;
/// Bytes that JSON forbids outside strings, within them, or everywhere.
const BYTES: &[&[u8]] = &[
    b"\n",
    b"\x0c",
    b"\0",
    b"\x1f",
    b"\x7f",
    b"\xef\xbb\xbf",
    b"\xc3\xa9",
    b"\xc3",
    b"\xed\xa0\x80",
];

fn one_of(words: &'static str) -> Select<&'static str> {
    select(words.split_whitespace().collect::<Vec<_>>())
}

/// Any value that RFC 8785 can carry.
pub(crate) fn safe_value() -> impl Strategy<Value = Value> {
    let integer = -((1_i64 << 53) - 1)..1_i64 << 53;
    let finite = any::<f64>().prop_filter_map("finite", Number::from_f64);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        integer.prop_map(Value::from),
        (-1000_i32..1000).prop_map(|hundredths| Value::from(f64::from(hundredths) / 100.0)),
        finite.prop_map(Value::Number),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::hash_map(key(), inner, 0..24)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Keys that are hard to sort: shared beginnings, and characters whose UTF-8 and UTF-16 orders
/// differ.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[ab !\"\\\\\u{e9}\u{e000}\u{ffff}\u{1f602}\u{0}]{0,12}"
    ]
}

/// The text of a document that nobody should send.
pub(crate) fn nasty_text() -> impl Strategy<Value = String> {
    let finite = any::<f64>().prop_filter("finite", |float| float.is_finite());
    let leaf = prop_oneof![
        one_of(NASTY).prop_map(str::to_owned),
        any::<i64>().prop_map(|integer| integer.to_string()),
        finite.prop_map(|float| format!("{float:e}")),
        Just(format!("{}1{}", "[".repeat(70), "]".repeat(70))),
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        let member = (one_of(KEYS), inner.clone());
        let member = member.prop_map(|(key, value)| format!("{key} : {value}"));
        let members = prop::collection::vec(member, 0..5);
        prop_oneof![
            prop::collection::vec(inner, 0..5)
                .prop_map(|items| format!("[{}]", items.join(" ,\n"))),
            members.prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

/// Bytes that are nearly JSON.
pub(crate) fn near_json() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        9 => one_of(TOKENS).prop_map(|token| token.replace('~', " ").into_bytes()),
        1 => select(BYTES).prop_map(<[u8]>::to_vec),
    ];
    let soup = prop::collection::vec(token, 0..12).prop_map(|tokens| tokens.concat());
    // A sound document with one byte replaced finds the places that soup never reaches.
    let damaged = (safe_value(), any::<Index>(), any::<u8>()).prop_map(|(value, at, byte)| {
        let mut text = value.to_string().into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        text
    });
    prop_oneof![soup, damaged, prop::collection::vec(any::<u8>(), 0..24)]
}
