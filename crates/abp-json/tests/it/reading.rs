//! The tape and its views.

use abp_json::{JsonError, Kind, Limits, Tape, View};
use proptest::prelude::*;
use serde_json::Value;

use crate::generate::{near_json, safe_value};

fn parse(text: &[u8]) -> Result<Tape<'_>, JsonError> {
    Tape::parse(text, &Limits::default())
}

#[test]
fn refuses_what_is_not_json() {
    let syntax = |offset, what| JsonError::Syntax { offset, what };
    let end = |offset| JsonError::UnexpectedEnd { offset };
    for (text, error) in [
        (&b""[..], end(0)),
        (b" \n", end(2)),
        (b"\xef\xbb\xbf{}", syntax(0, "expected a value")),
        (b"\0", syntax(0, "expected a value")),
        (b"[1]\0", syntax(3, "expected the end of the document")),
        (b"01", syntax(0, "number with a leading zero")),
        (b"-01", syntax(1, "number with a leading zero")),
        (b"1.", end(2)),
        (b"1.e3", syntax(2, "expected a digit")),
        (b".5", syntax(0, "expected a value")),
        (b"+1", syntax(0, "expected a value")),
        (b"1e+", end(3)),
        (b"NaN", syntax(0, "expected a value")),
        (b"trux", syntax(3, "expected a value")),
        (b"truex", syntax(4, "expected the end of the document")),
        (b"[1,]", syntax(3, "expected a value")),
        (b"[1 2]", syntax(3, "expected `,` or `]`")),
        (b"[1}", syntax(2, "expected `,` or `]`")),
        (b"{\"a\":1]", syntax(6, "expected `,` or `}`")),
        (b"{\"a\" 1}", syntax(5, "expected `:`")),
        (b"{\"a\":1,}", syntax(7, "expected a key")),
        (b"{a:1}", syntax(1, "expected a key")),
        (b"'a'", syntax(0, "expected a value")),
        (b"\"a\nb\"", syntax(2, "control character in a string")),
        (b"\"a\0\"", syntax(2, "control character in a string")),
        (
            b"\"~ a long run\x1fof text\"",
            syntax(13, "control character in a string"),
        ),
        (b"\"\\x\"", syntax(2, "invalid escape")),
        (b"\"\\u12g4\"", syntax(5, "invalid escape")),
        (b"\"\\u+123\"", syntax(3, "invalid escape")),
        (b"\"\\ud83d\\u12\"", syntax(11, "invalid escape")),
        (b"\"\\", end(2)),
        (b"\"abc", end(4)),
        (b"\"\xff\"", JsonError::InvalidUtf8 { offset: 1 }),
        (b"\"\xed\xa0\x80\"", JsonError::InvalidUtf8 { offset: 1 }),
        (
            b"[1]// comment",
            syntax(3, "expected the end of the document"),
        ),
    ] {
        assert_eq!(
            parse(text).err(),
            Some(error),
            "{:?}",
            String::from_utf8_lossy(text)
        );
    }
}

#[test]
fn errors_name_line_and_column() {
    let text = "{\n  \"é\": 01\n}";
    let error = parse(text.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "number with a leading zero at byte 10");
    assert_eq!(error.line_column(text.as_bytes()), (2, 8));
}

#[test]
fn views_read_every_kind() {
    let text = r#" { "n" : null, "t": true, "i": -12, "u": 18446744073709551615, "f": 1.50e1,
        "s": "plain", "e": "\u00e9\ud83d\ude02\n", "l": "x\ud800",
        "a": [ 1, [ ], {} ], "o": {"k": 1} } "#;
    let tape = parse(text.as_bytes()).unwrap();
    let root = tape.root();
    let get = |key| root.get(key).unwrap();
    assert!(get("n").is_null());
    assert_eq!((get("t").as_bool(), get("n").as_bool()), (Some(true), None));
    assert_eq!(
        (get("i").as_i64(), get("i").as_u64(), get("i").as_f64()),
        (Some(-12), None, Some(-12.0))
    );
    assert_eq!(
        (get("u").as_i64(), get("u").as_u64()),
        (None, Some(u64::MAX))
    );
    assert_eq!(
        (get("f").as_u64(), get("f").as_f64(), get("f").number_text()),
        (None, Some(15.0), Some("1.50e1"))
    );
    assert_eq!(get("s").as_str().as_deref(), Some("plain"));
    assert_eq!(get("e").as_str().as_deref(), Some("é😂\n"));
    assert_eq!(
        (get("l").as_str(), get("l").has_lone_surrogate()),
        (None, true)
    );
    assert_eq!(get("l").string_source(), Some(r"x\ud800"));
    assert_eq!(
        (get("a").kind(), get("a").len(), get("a").raw()),
        (Kind::Array, 3, "[ 1, [ ], {} ]")
    );
    assert_eq!(text.get(get("o").span()), Some(r#"{"k": 1}"#));
    assert_eq!(get("o").parent().map(View::id), Some(root.id()));
    assert_eq!(get("o").key().and_then(View::as_str).as_deref(), Some("o"));
    let keys: Vec<_> = root
        .entries()
        .filter_map(|(key, _)| key.string_source())
        .collect();
    assert_eq!(keys.concat(), "ntiufselao");
    let spans: Vec<_> = get("a")
        .items()
        .map(|item| (item.raw(), item.is_empty(), item.subtree().len()))
        .collect();
    assert_eq!(spans, [("1", true, 1), ("[ ]", true, 1), ("{}", true, 1)]);
    assert!(root.get("nothing").is_none() && get("s").get("s").is_none());
    let small = parse(b"1").unwrap();
    assert!(small.view(get("o").id()).is_none() && small.view(small.root().id()).is_some());
}

#[test]
fn b23_duplicate_keys_are_recorded_however_they_are_spelled() {
    let text = r#"{"model":"cheap","tools":[{"a":{},"a":1,"\u0061":2}],
        "\u006dodel":"dear","\ud800":1,"\uD800":2}"#;
    let tape = parse(text.as_bytes()).unwrap();
    let found: Vec<_> = tape
        .duplicates()
        .iter()
        .map(|duplicate| {
            let (object, key) = (
                tape.view(duplicate.object).unwrap(),
                tape.view(duplicate.key).unwrap(),
            );
            (object.pointer(), key.raw())
        })
        .collect();
    let tools = || "/tools/0".to_owned();
    assert_eq!(
        found,
        [
            (tools(), r#""a""#),
            (tools(), r#""\u0061""#),
            (String::new(), r#""\u006dodel""#),
            (String::new(), r#""\uD800""#),
        ]
    );
    // The last one counts, as in serde_json.
    assert_eq!(tape.root().get("model").map(View::raw), Some(r#""dear""#));
    assert_eq!(tape.resolve("/tools/0/a").map(View::raw), Some("2"));
}

#[test]
fn e12_lone_surrogates_are_told_from_pairs() {
    for (text, text_or_lone) in [
        (r#""\ud83d\ude02""#, Some("😂")),
        (r#""\uD83D\uDE02x""#, Some("😂x")),
        (r#""\ud83d\udbff""#, None),
        (r#""\ud83d\u0061""#, None),
        (r#""\ud83d \ude02""#, None),
        (r#""\ude02\ud83d""#, None),
        (r#""\ud83d\ud83d\ude02""#, None),
        (r#""\ud83d""#, None),
    ] {
        let tape = parse(text.as_bytes()).unwrap();
        assert_eq!(tape.root().as_str().as_deref(), text_or_lone, "{text}");
        assert_eq!(
            tape.root().has_lone_surrogate(),
            text_or_lone.is_none(),
            "{text}"
        );
    }
}

#[test]
fn b22_bombs_meet_a_limit_or_cost_what_their_size_does() {
    let limits = Limits {
        max_bytes: 1 << 20,
        max_depth: 128,
        max_nodes: 1000,
    };
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let parse = |text: &str| Tape::parse_str(text, &limits).map(|tape| tape.node_count());
    assert_eq!(parse(&nested(128)), Ok(128));
    assert_eq!(
        parse(&nested(129)),
        Err(JsonError::TooDeep {
            offset: 128,
            limit: 128
        })
    );
    assert_eq!(
        parse(&"{\"a\":".repeat(1 << 17)),
        Err(JsonError::TooDeep {
            offset: 640,
            limit: 128
        })
    );
    assert_eq!(
        parse(&format!("[{}0]", "0,".repeat(999))),
        Err(JsonError::TooManyNodes {
            offset: 1999,
            limit: 1000
        })
    );
    let size = (1 << 20) + 1;
    assert_eq!(
        parse(&" ".repeat(size)),
        Err(JsonError::TooLarge {
            size,
            limit: 1 << 20
        })
    );

    // Without a depth limit nothing overflows: neither reading nor dropping recurses.
    let unlimited = Limits {
        max_depth: usize::MAX,
        ..Limits::default()
    };
    let deep = nested(1_000_000);
    let tape = Tape::parse_str(&deep, &unlimited).unwrap();
    assert_eq!(tape.node_count(), 1_000_000);
    assert!(matches!(
        tape.root().to_value(),
        Err(JsonError::TooDeep { offset: 128, .. })
    ));

    for number in [
        "1".repeat(10 << 20),
        format!("0.{}", "1".repeat(10 << 20)),
        "1e400".to_owned(),
    ] {
        let tape = Tape::parse_str(&number, &unlimited).unwrap();
        assert_eq!(tape.root().as_f64().is_some(), number.starts_with("0."));
    }

    // More keys than are compared pairwise, the last one twice.
    let members: Vec<_> = (0..41)
        .map(|index| format!("\"{}\":0", index % 40))
        .collect();
    let many = format!("{{{}}}", members.join(","));
    assert_eq!(
        Tape::parse_str(&many, &unlimited)
            .unwrap()
            .duplicates()
            .len(),
        1
    );

    // Keys chosen to look alike to the fingerprint: quadratic work would take minutes here.
    let alike = |index: usize| format!("\"aaaaaaaa{index:06}bbbbbbbb\":0");
    let members: Vec<_> = (0..200_000).map(|index| alike(index % 199_999)).collect();
    let text = format!("{{{}}}", members.join(","));
    assert_eq!(
        Tape::parse_str(&text, &unlimited)
            .unwrap()
            .duplicates()
            .len(),
        1
    );
    let same = format!("{{{}\"x\":0}}", "\"\\u0061\":0,".repeat(200_000));
    assert_eq!(
        Tape::parse_str(&same, &unlimited)
            .unwrap()
            .duplicates()
            .len(),
        199_999
    );
}

#[test]
fn every_byte_in_every_place_is_judged_as_serde_json_does() {
    for byte in 0..=u8::MAX {
        for (before, after) in [
            (&b""[..], &b""[..]),
            (b"\"", b"\""),
            (b"\"a run of words", b"more words\""),
            (b"\"\\", b"\""),
            (b"\"\\u00", b"1\""),
            (b"[1", b"0]"),
            (b"{\"a\"", b"1}"),
            (b"nul", b""),
        ] {
            let bytes = [before, &[byte], after].concat();
            let accepted = serde_json::from_slice::<Value>(&bytes).is_ok();
            assert_eq!(parse(&bytes).is_ok(), accepted, "{}", bytes.escape_ascii());
        }
    }
}

#[test]
fn every_truncation_is_an_error() {
    let text = r#"{"a":[1,-2.5e+10,true,false,null,"é\u00e9\ud83d\ude02\n"],"b":{"":{}}}"#;
    assert!(parse(text.as_bytes()).is_ok());
    for end in 0..text.len() {
        assert!(parse(&text.as_bytes()[..end]).is_err(), "{end}");
    }
}

proptest! {
    #[test]
    fn reads_back_what_serde_json_prints(value in safe_value()) {
        for text in [value.to_string(), format!("{value:#}")] {
            let tape = parse(text.as_bytes()).unwrap();
            prop_assert_eq!(tape.root().to_value().unwrap(), value.clone());
            prop_assert!(tape.duplicates().is_empty());
        }
    }

    /// The tape keeps lone surrogates and numbers beyond the doubles, which `serde_json` refuses;
    /// `to_value` refuses them too, and everything else agrees.
    #[test]
    fn agrees_with_serde_json_about_any_bytes(bytes in near_json()) {
        let ours = parse(&bytes).and_then(|tape| tape.root().to_value()).ok();
        prop_assert_eq!(ours, serde_json::from_slice::<Value>(&bytes).ok());
    }
}
