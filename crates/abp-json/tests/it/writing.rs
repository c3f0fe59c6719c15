//! What the writer writes is what was meant, and a view finds nothing outside its own value.

use abp_json::{Limits, Tape, View, Writer, push_string};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::generate::safe_value;

/// Writes a value through every function of the writer, and notes where each part starts.
fn write(writer: &mut Writer, value: &Value, starts: &mut Vec<(usize, Value)>) {
    starts.push((writer.position(), value.clone()));
    match value {
        Value::Object(members) => {
            writer.begin_object();
            for (key, member) in members {
                writer.key(key);
                write(writer, member, starts);
            }
            writer.end_object();
        }
        Value::Array(items) => {
            writer.begin_array();
            items.iter().for_each(|item| write(writer, item, starts));
            writer.end_array();
        }
        Value::String(text) => writer.string(text),
        Value::Number(number) if number.is_u64() => {
            writer.integer(number.as_u64().expect("an integer"));
        }
        other => writer.raw(&other.to_string()),
    }
}

fn check(value: &Value) {
    let mut writer = Writer::with_capacity(16);
    let mut starts = Vec::new();
    write(&mut writer, value, &mut starts);
    let text = writer.text().to_owned();
    assert_eq!(text, writer.into_text());
    let read: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(read, *value);
    // Without blanks.
    assert_eq!(text, serde_json::to_string(value).expect("a text"));
    let tape = Tape::parse_str(&text, &Limits::default()).expect("a document");
    for (start, part) in starts {
        let found = tape.starting_at(start).expect("a value starts there");
        assert_eq!(
            found.to_value().expect("a value"),
            part,
            "{start} in {text}"
        );
    }
}

#[test]
fn every_form_of_value_is_written() {
    for value in [
        json!([]),
        json!({}),
        json!([1, [2, [], {}], {"a": [], "b": {"c": null}}, "x", true, -1, 1.5]),
        json!({"": "", "a\"\\/\n\u{0}\u{7f}é\u{1f600}": ["\u{8}\u{c}\r\t\u{1f}"], "z": 18446744073709551615_u64}),
        json!("only a text"),
        json!(7),
    ] {
        check(&value);
    }
}

#[test]
fn every_character_is_escaped_as_serde_json_does() {
    for character in (0..=0x2ff_u32)
        .chain([0x2028, 0xfeff, 0x1f600])
        .filter_map(char::from_u32)
    {
        for text in [
            format!("{character}"),
            format!("eight or more{character}and on"),
        ] {
            let mut written = String::from("x");
            push_string(&mut written, &text);
            let expected = serde_json::to_string(&text).expect("a text");
            assert_eq!(written, format!("x{expected}"));
        }
    }
}

/// An inner value is not searched beyond its end, where its neighbours are.
#[test]
fn a_view_ends_where_its_value_does() {
    let text = r#"{"e":{},"x":1,"o":{"a":1},"y":{"b":2},"l":[{}, {"z":3}],"n":{"m":{}},"z":4}"#;
    let tape = Tape::parse_str(text, &Limits::default()).expect("a document");
    let at = |pointer: &str| tape.resolve(pointer).expect(pointer);
    for (pointer, own) in [
        ("/e", vec![]),
        ("/o", vec!["a"]),
        ("/y", vec!["b"]),
        ("/l/0", vec![]),
        ("/l/1", vec!["z"]),
        ("/n", vec!["m"]),
        ("/n/m", vec![]),
        ("/x", vec![]),
        ("/l", vec![]),
    ] {
        let view = at(pointer);
        for key in ["a", "b", "e", "l", "m", "n", "o", "x", "y", "z"] {
            let found = view.get(key).is_some();
            assert_eq!(found, own.contains(&key), "{key} in {pointer}");
        }
        let keys: Vec<_> = view.entries().filter_map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, own, "{pointer}");
    }
    let lengths: Vec<_> = ["", "/e", "/o", "/l", "/l/0", "/n", "/x"]
        .map(|pointer| (at(pointer).len(), at(pointer).is_empty()))
        .to_vec();
    let expected = [
        (7, false),
        (0, true),
        (1, false),
        (2, false),
        (0, true),
        (1, false),
        (0, true),
    ];
    assert_eq!(lengths, expected);
    assert_eq!(at("/l").items().map(View::len).collect::<Vec<_>>(), [0, 1]);
}

/// Every value through every accessor: each answers for its own kind and for no other.
#[test]
fn accessors_answer_for_their_own_kind() {
    // The value, and what it is as a boolean, a text, a text with replacements, integers and a double.
    type Seen = (
        Option<bool>,
        Option<&'static str>,
        Option<&'static str>,
        Option<u64>,
        Option<i64>,
        Option<f64>,
    );
    const NOTHING: Seen = (None, None, None, None, None, None);
    let text = |plain| (None, Some(plain), Some(plain), None, None, None);
    let cases: [(&str, Seen); 15] = [
        ("null", NOTHING),
        ("true", (Some(true), None, None, None, None, None)),
        ("false", (Some(false), None, None, None, None, None)),
        ("0", (None, None, None, Some(0), Some(0), Some(0.0))),
        ("-0", (None, None, None, None, Some(0), Some(-0.0))),
        ("-7", (None, None, None, None, Some(-7), Some(-7.0))),
        ("7.0", (None, None, None, None, None, Some(7.0))),
        ("7e0", (None, None, None, None, None, Some(7.0))),
        ("1e999", NOTHING),
        ("\"\"", text("")),
        ("\"true\"", text("true")),
        (r#""a\u00e9\n""#, text("a\u{e9}\n")),
        (
            r#""a\ud800b""#,
            (None, None, Some("a\u{fffd}b"), None, None, None),
        ),
        ("[1]", NOTHING),
        ("{\"a\":1}", NOTHING),
    ];
    for (source, expected) in cases {
        let tape = Tape::parse_str(source, &Limits::default()).expect(source);
        let view = tape.root();
        let (plain, lossy) = (view.as_str(), view.as_str_lossy());
        let seen = (
            view.as_bool(),
            plain.as_deref(),
            lossy.as_deref(),
            view.as_u64(),
            view.as_i64(),
            view.as_f64(),
        );
        assert_eq!(seen, expected, "{source}");
        assert_eq!(view.is_null(), source == "null", "{source}");
        assert_eq!(
            view.has_lone_surrogate(),
            source.contains("ud800"),
            "{source}"
        );
        let is_integer = source
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'-');
        assert_eq!(view.is_integer(), is_integer, "{source}");
        let is_number = source.starts_with(['-', '0', '1', '7']);
        assert_eq!(view.number_text(), is_number.then_some(source));
        assert_eq!(view.raw(), source);
        assert!(!view.is_key());
        assert!(
            view.entries()
                .all(|(key, value)| key.is_key() && !value.is_key())
        );
    }
}

proptest! {
    #[test]
    fn any_value_is_written(value in safe_value()) {
        check(&value);
    }
}
