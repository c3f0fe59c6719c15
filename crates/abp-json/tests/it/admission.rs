//! Admission of foreign JSON.

use abp_json::AdmissionReason::{
    DuplicateKeys, ImpreciseNumber, LoneSurrogate, NonFinite, TooDeep, TooLarge, UnsafeInteger,
};
use abp_json::{AdmissionReason, Admitted, Limits, admit_text, admit_value, canonical};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::generate::nasty_text;

fn admit(text: &str) -> Admitted {
    admit_text(text.as_bytes(), &Limits::default()).unwrap()
}

fn labels(admitted: &Admitted) -> Vec<(&str, AdmissionReason)> {
    admitted
        .changes
        .iter()
        .map(|change| (change.pointer.as_str(), change.reason))
        .collect()
}

#[test]
fn what_cannot_be_hashed_becomes_labelled_text() {
    let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
    for (text, value, expected) in [
        (
            r#"{"a":[1,-0,1.5,1e20]}"#,
            json!({"a": [1, -0.0, 1.5, 1e20]}),
            vec![],
        ),
        (
            "[9007199254740993]",
            json!(["9007199254740993"]),
            vec![("/0", UnsafeInteger)],
        ),
        ("-1e400", json!("-1e400"), vec![("", NonFinite)]),
        (
            "[9007199254740993.0,1e-400,0.1000000000000000000,0.1000000000000000001]",
            json!(["9007199254740993.0", "1e-400", 0.1, "0.1000000000000000001"]),
            vec![
                ("/0", ImpreciseNumber),
                ("/1", ImpreciseNumber),
                ("/3", ImpreciseNumber),
            ],
        ),
        (
            r#"{"x":{"a":1, "\u0061":9007199254740993}}"#,
            json!({"x": r#"{"a":1, "\u0061":9007199254740993}"#}),
            vec![("/x", DuplicateKeys)],
        ),
        (
            r#"{"~":["\ud800\n"]}"#,
            json!({"~": [r"\ud800\n"]}),
            vec![("/~0/0", LoneSurrogate)],
        ),
        (
            r#"[{"\udc00":1}]"#,
            json!([r#"{"\udc00":1}"#]),
            vec![("/0", LoneSurrogate)],
        ),
    ] {
        let admitted = admit(text);
        assert_eq!(
            (&admitted.value, labels(&admitted)),
            (&value, expected),
            "{text}"
        );
    }
    assert_eq!(labels(&admit(&deep)), [("/0".repeat(64).as_str(), TooDeep)]);
    assert!(admit_text(b"{", &Limits::default()).is_err());
}

#[test]
fn parsed_values_are_admitted_too() {
    let nested = (0..100).fold(json!(1), |inner, _| json!([inner]));
    for (value, expected, reasons) in [
        (
            json!({"a": [u64::MAX, i64::MIN, 1.5]}),
            json!({"a": ["18446744073709551615", "-9223372036854775808", 1.5]}),
            vec![("/a/0", UnsafeInteger), ("/a/1", UnsafeInteger)],
        ),
        (
            json!(i64::MIN),
            json!("-9223372036854775808"),
            vec![("", UnsafeInteger)],
        ),
        (
            json!([1e300, 9007199254740991_i64]),
            json!([1e300, 9007199254740991_i64]),
            vec![],
        ),
    ] {
        let admitted = admit_value(value);
        assert_eq!((&admitted.value, labels(&admitted)), (&expected, reasons));
    }
    assert_eq!(
        labels(&admit_value(nested)),
        [("/0".repeat(64).as_str(), TooDeep)]
    );
}

#[test]
fn b22_labels_cannot_outgrow_the_document() {
    let text = format!(
        "{{\"{}\":[{}1e400]}}",
        "k".repeat(100_000),
        "1e400,".repeat(100_000)
    );
    let admitted = admit(&text);
    assert_eq!(
        (&admitted.value, labels(&admitted)),
        (&Value::String(text), vec![("", TooLarge)])
    );
}

proptest! {
    #[test]
    fn admitted_is_hashable_and_final(text in nasty_text()) {
        let admitted = admit(&text);
        let form = canonical::value_to_vec(&admitted.value);
        prop_assert!(form.is_ok(), "{:?}", form);
        let unchanged = Admitted { value: admitted.value.clone(), changes: vec![] };
        prop_assert_eq!(&admit_value(admitted.value.clone()), &unchanged);
        prop_assert_eq!(&admit(&admitted.value.to_string()), &unchanged);
        let same = canonical::to_vec(text.as_bytes()).is_ok_and(|bytes| bytes == form.unwrap());
        prop_assert_eq!(admitted.changes.is_empty(), same);
    }
}
