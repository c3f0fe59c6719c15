//! RFC 8785.

use std::collections::HashMap;
use std::path::Path;

use abp_json::{CanonicalError, Limits, Tape, canonical};
use proptest::prelude::*;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::generate::{nasty_text, safe_value};

fn canonical_text(text: &str) -> Result<String, String> {
    let bytes = canonical::to_vec(text.as_bytes()).map_err(|error| error.to_string())?;
    Ok(String::from_utf8(bytes).unwrap())
}

#[test]
fn e7_official_vectors() {
    let folder = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/vectors/jcs"
    ));
    if !folder.exists() {
        return eprintln!("skipped: {} not found", folder.display());
    }
    for name in [
        "arrays",
        "french",
        "structures",
        "unicode",
        "values",
        "weird",
    ] {
        let read = |extension| std::fs::read(folder.join(name).with_extension(extension)).unwrap();
        let written = canonical::to_vec(&read("in")).unwrap();
        assert_eq!(
            String::from_utf8(written),
            String::from_utf8(read("out")),
            "{name}"
        );
    }
}

/// The official number file is the output of a published generator, so its digests can be checked
/// without the file: corner cases, a series, then doubles from a chain of SHA-256 blocks.
#[test]
fn e7_official_number_digests() {
    let series = (0..2000).map(|offset| f64::from_bits(0x0010_0000_0000_0000 + offset));
    let mut block = [0_u8; 32];
    let random = std::iter::repeat_with(move || {
        block = Sha256::digest(block).into();
        let words: [[u8; 8]; 4] =
            std::array::from_fn(|word| std::array::from_fn(|byte| block[8 * word + byte]));
        words.map(f64::from_le_bytes)
    });
    let random = random
        .flatten()
        .filter(|double| *double != 0.0 && double.is_finite());
    let mut hasher = Sha256::new();
    for (index, double) in corner_cases()
        .into_iter()
        .chain(series)
        .chain(random)
        .take(100_000)
        .enumerate()
    {
        let text = canonical_text(&format!("{double:e}")).unwrap();
        hasher.update(format!("{:x},{text}\n", double.to_bits()));
        let expected = match index + 1 {
            1_000 => "be18b62b6f69cdab33a7e0dae0d9cfa869fda80ddc712221570f9f40a5878687",
            10_000 => "b9f7a8e75ef22a835685a52ccba7f7d6bdc99e34b010992cbc5864cd12be6892",
            100_000 => "22776e6d4b49fa294a0d0f349268e5c28808fe7e0cb2bcbe28f63894e494d4c7",
            _ => continue,
        };
        assert_eq!(hex(hasher.clone()), expected, "first {} lines", index + 1);
    }
}

fn corner_cases() -> Vec<f64> {
    /// What follows `3.33333333333333` in approximations of a third, from 1e21 down to 1e-28.
    const THIRDS: &str = "35 3 36 4 4 4 4 4 44 4 44 4 4 4 36 35 3 36 3 3 36 35 3 3 35 \
        3 35 33 35 34 34 3 35 3 34 34 32 3 35 33 34 3 33 3 33 34 35 3 3 38";
    let thirds: Vec<f64> = THIRDS
        .split(' ')
        .zip((-28..=21).rev())
        .map(|(tail, exponent)| {
            format!("3.33333333333333{tail}e{exponent}")
                .parse()
                .unwrap()
        })
        .collect();
    let mut doubles = vec![0.0, -0.0, 5e-324, -5e-324];
    doubles.extend(thirds.iter().map(|third| -third));
    doubles.extend(&thirds);
    doubles.extend([10.0, 5.0]);
    doubles.extend((1..=9).map(|exponent| format!("5e-{exponent}").parse::<f64>().unwrap()));
    doubles.extend((1..=14).map(|zeros| {
        format!("5.{}6e-6", "0".repeat(zeros))
            .parse::<f64>()
            .unwrap()
    }));
    doubles.extend([5e-6, 1.0, -1.0]);
    doubles.extend([
        -0.9999999999999993,
        -0.9999999999999994,
        0.9999999999999993,
        0.9999999999999994,
    ]);
    doubles.extend([
        0.9999999999999996,
        0.9999999999999998,
        -0.9999999999999999,
        -0.9999999999999999,
    ]);
    doubles.extend([
        0.9999999999999999,
        0.9999999999999999,
        0.29999999999999993,
        0.3,
        0.30000000000000004,
    ]);
    doubles.extend([
        f64::MIN_POSITIVE,
        2.2250738585072e-308,
        2.225073858507201e-308,
        f64::MAX,
        f64::MIN,
    ]);
    doubles.extend([
        9007199254740992.0,
        -9007199254740992.0,
        295147905179352830000.0,
    ]);
    doubles.extend([9.999999999999997e22, 1e23, 1.0000000000000001e23]);
    doubles.extend([
        999999999999999700000.0,
        999999999999999900000.0,
        1e21,
        9.999999999999997e-7,
        0.000001,
    ]);
    doubles.extend([
        333333333.3333332,
        333333333.33333325,
        333333333.3333333,
        333333333.3333334,
    ]);
    doubles.extend([
        333333333.33333343,
        -0.0000033333333333333333,
        1424953923781206.2,
    ]);
    doubles
}

#[test]
fn numbers_strings_and_keys() {
    for (text, expected) in [
        ("-0", "0"),
        ("-0.0e5", "0"),
        ("9007199254740991", "9007199254740991"),
        ("-9007199254740991", "-9007199254740991"),
        ("[1.0,100.0,1e2,0.1e1]", "[1,100,100,1]"),
        (
            "[0.5,12.25,-0.125,0.10,123456789012.345]",
            "[0.5,12.25,-0.125,0.1,123456789012.345]",
        ),
        (
            "[0.00001,0.000001,0.0000001,0.0000012]",
            "[0.00001,0.000001,1e-7,0.0000012]",
        ),
        ("9007199254740992.0", "9007199254740992"),
        ("[0.01e25,100.0e21]", "[1e+23,1e+23]"),
        ("[1E30,1e20,1e-400]", "[1e+30,100000000000000000000,0]"),
        (r#"["\u0000","\u001f"]"#, r#"["\u0000","\u001f"]"#),
        (r#"["\u001F","\u0008"]"#, r#"["\u001f","\b"]"#),
        (r#"["\/","\u007f"]"#, "[\"/\",\"\u{7f}\"]"),
        (r#""\"\\\b\f\n\r\t""#, r#""\"\\\b\f\n\r\t""#),
        (r#""\u0022\u005C\u0009""#, r#""\"\\\t""#),
        (r#"{"a!":1,"a":2,"a ":3}"#, r#"{"a":2,"a ":3,"a!":1}"#),
        (
            "{\"\u{ffff}\":1,\"\u{1f602}\":2,\"\u{e000}\":3}",
            "{\"\u{1f602}\":2,\"\u{e000}\":3,\"\u{ffff}\":1}",
        ),
        (
            "{\"\\uffff\":1,\"\\ud83d\\ude02\":2,\"\u{e000}\":3}",
            "{\"\u{1f602}\":2,\"\u{e000}\":3,\"\u{ffff}\":1}",
        ),
        (
            r#"{"abcdefghij":1,"abcdefgh":2,"abcdefghi":3,"abcdefg":4}"#,
            r#"{"abcdefg":4,"abcdefgh":2,"abcdefghi":3,"abcdefghij":1}"#,
        ),
        (
            r#"{"a\u0000":1,"a":2,"":[{}]}"#,
            r#"{"":[{}],"a":2,"a\u0000":1}"#,
        ),
    ] {
        assert_eq!(canonical_text(text).as_deref(), Ok(expected), "{text}");
    }
    // Neither the walk nor the sort recurses; long pieces arrive whole and in order.
    let deep = format!(
        "{}\"{}\"{}",
        "[".repeat(200_000),
        "long ".repeat(9000),
        "]".repeat(200_000)
    );
    let tape = Tape::parse_str(
        &deep,
        &Limits {
            max_depth: usize::MAX,
            ..Limits::default()
        },
    )
    .unwrap();
    assert_eq!(
        canonical::view_to_vec(tape.root()).unwrap(),
        deep.as_bytes()
    );
    assert_eq!(
        canonical::view_to_vec(
            Tape::parse_str("[1,{\"b\":1,\"a\":2}]", &Limits::default())
                .unwrap()
                .resolve("/1")
                .unwrap()
        )
        .unwrap(),
        br#"{"a":2,"b":1}"#
    );
}

#[test]
fn refusals_name_their_place() {
    for (text, expected) in [
        // E8
        (
            r#"{"a":[0,9007199254740992]}"#,
            "integer 9007199254740992 at `/a/1` is outside ±(2^53−1)",
        ),
        (
            "-9007199254740992",
            "integer -9007199254740992 at `` is outside ±(2^53−1)",
        ),
        (
            "[9007199254740993.0]",
            "number 9007199254740993.0 at `/0` cannot be carried exactly",
        ),
        (
            "[9007199254740991.5]",
            "number 9007199254740991.5 at `/0` cannot be carried exactly",
        ),
        (
            "[12345678901234567890e1]",
            "number 12345678901234567890e1 at `/0` cannot be carried exactly",
        ),
        // B22
        ("[1e400]", "number 1e400 at `/0` is not finite"),
        // E10
        (
            r#"{"x":{"a":1,"b":2,"\u0061":1}}"#,
            "duplicate key at `/x/a`",
        ),
        // E12
        (r#"{"a/b":["\ud800"]}"#, "lone surrogate at `/a~1b/0`"),
        (r#"{"a":{"\udc00":1}}"#, r"lone surrogate at `/a/\udc00`"),
        ("[", "unexpected end of the document at byte 1"),
    ] {
        assert_eq!(canonical_text(text).unwrap_err(), expected, "{text}");
    }
}

#[test]
fn e12_nothing_is_normalised() {
    assert_ne!(canonical_text("\"\u{e9}\""), canonical_text("\"e\u{301}\""));
}

#[test]
fn one_root_member_is_written_as_null() {
    let text = |source: &str, member: &str| {
        let tape = Tape::parse_str(source, &Limits::default()).unwrap();
        let mut bytes = Vec::new();
        canonical::write_with_null(&tape, member, |piece| bytes.extend_from_slice(piece))
            .map(|()| String::from_utf8(bytes).unwrap())
            .map_err(|error| error.to_string())
    };
    let expected = r#"{"a":{"hash":1},"hash":null,"z":2}"#;
    for source in [
        r#"{"z":2,"hash":"abc","a":{"hash":1}}"#,
        r#"{"z":2,"a":{"hash":1}}"#,
        r#"{"z":2,"\u0068ash":[1e400,{"x":1,"x":2}],"a":{"hash":1}}"#,
    ] {
        assert_eq!(text(source, "hash").as_deref(), Ok(expected), "{source}");
    }
    assert_eq!(text("{}", "\"\n").as_deref(), Ok(r#"{"\"\n":null}"#));
    assert_eq!(
        text(r#"{"hash":1,"hash":2}"#, "hash").unwrap_err(),
        "duplicate key at `/hash`"
    );
    assert_eq!(
        text("[]", "hash").unwrap_err(),
        "the root of the document is not an object"
    );
}

#[derive(Serialize)]
struct Report {
    z: f32,
    a: Option<Vec<f64>>,
    kind: Variant,
    map: HashMap<u32, f64>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Variant {
    Struct { x: f64 },
    Tuple(u8, f64),
    New(f64),
}

#[test]
fn e9_floats_that_are_not_finite_are_refused() {
    let text = |z, item, kind, value| {
        let map = HashMap::from([(7, value)]);
        let a = Some(vec![1.0, item]);
        let bytes = canonical::value_to_vec(&Report { z, a, kind, map });
        bytes
            .map(|bytes| String::from_utf8(bytes).unwrap())
            .map_err(|error| error.to_string())
    };
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let new = Variant::New;
    let finite = r#"{"a":[1,2],"kind":{"new":3},"map":{"7":0},"z":0.5}"#;
    assert_eq!(text(0.5, 2.0, new(3.0), -0.0).as_deref(), Ok(finite));
    for (refused, expected) in [
        (text(f32::NAN, 0.0, new(0.0), 0.0), "NaN at `/z`"),
        (text(0.0, inf, new(0.0), 0.0), "inf at `/a/1`"),
        (text(0.0, 0.0, new(-inf), 0.0), "-inf at `/kind/new`"),
        (
            text(0.0, 0.0, Variant::Tuple(1, nan), 0.0),
            "NaN at `/kind/tuple/1`",
        ),
        (
            text(0.0, 0.0, Variant::Struct { x: nan }, 0.0),
            "NaN at `/kind/struct/x`",
        ),
        (text(0.0, 0.0, new(0.0), nan), "NaN at `/map/7`"),
    ] {
        assert_eq!(refused, Err(format!("number {expected} is not finite")));
    }
    assert!(matches!(
        canonical::value_to_vec(&u64::MAX),
        Err(CanonicalError::UnsafeInteger { .. })
    ));
}

fn hex(hasher: Sha256) -> String {
    hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

proptest! {
    #[test]
    fn agrees_with_the_published_crate(value in safe_value()) {
        let expected = serde_json_canonicalizer::to_vec(&value).unwrap();
        prop_assert_eq!(&canonical::value_to_vec(&value).unwrap(), &expected);
        let pretty = format!("{value:#}");
        prop_assert_eq!(&canonical::to_vec(pretty.as_bytes()).unwrap(), &expected);
    }

    /// Two integral numbers share a form only when they are the same number, however spelled.
    #[test]
    fn e8_neighbours_never_share_a_hash(
        (left, right) in (-3_i64..4, -3_i64..4),
        power in 50_u32..60,
        spelling in (0_usize..3, 0_usize..3),
    ) {
        let spell = |offset: i64, spelling: usize| {
            let number = (1_i64 << power) + offset;
            format!("{number}{}", ["", ".0", "e0"][spelling])
        };
        let forms = (canonical_text(&spell(left, spelling.0)), canonical_text(&spell(right, spelling.1)));
        if let (Ok(left_form), Ok(right_form)) = forms {
            prop_assert_eq!(left_form == right_form, left == right);
        }
    }

    /// A canonical document is its own canonical form, unless it holds a double that is spelled as
    /// an integer out of range.
    #[test]
    fn e10_canonical_text_stays_as_it_is(text in nasty_text()) {
        if let Ok(form) = canonical_text(&text) {
            match canonical_text(&form) {
                Ok(again) => prop_assert_eq!(again, form),
                Err(error) => prop_assert!(error.starts_with("integer "), "{}", error),
            }
        }
    }
}
