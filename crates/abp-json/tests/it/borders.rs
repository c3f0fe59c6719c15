//! The borders of admission: the last value that stays as it is, and the first that does not. A value
//! that is parsed already takes another way than a text, and must fare the same.

use abp_json::AdmissionReason::{self, TooDeep, TooLarge, UnsafeInteger};
use abp_json::{Admitted, Limits, MAX_ADMITTED_DEPTH, admit_text, admit_value};
use proptest::prelude::*;
use serde_json::{Value, json};

fn limits() -> Limits {
    Limits {
        max_depth: 1_000,
        ..Limits::default()
    }
}

/// Admits a value both ways.
fn admit(value: &Value) -> Admitted {
    let by_value = admit_value(value.clone());
    let by_text = admit_text(value.to_string().as_bytes(), &limits()).expect("a text");
    assert_eq!(by_value, by_text, "{value}");
    by_value
}

fn reasons(admitted: &Admitted) -> Vec<AdmissionReason> {
    admitted
        .changes
        .iter()
        .map(|change| change.reason)
        .collect()
}

#[test]
fn integers_are_kept_up_to_what_a_double_keeps_apart() {
    let last = (1_i64 << 53) - 1;
    for (value, kept) in [
        (json!(0), true),
        (json!(-1), true),
        (json!(last - 1), true),
        (json!(last), true),
        (json!(last + 1), false),
        (json!(last + 2), false),
        (json!(-last), true),
        (json!(-last - 1), false),
        (json!(-last - 2), false),
        (json!(i64::MAX), false),
        (json!(i64::MIN), false),
        (json!(u64::MAX), false),
        (json!(1.5), true),
    ] {
        for placed in [value.clone(), json!([value]), json!({ "a": [1, value] })] {
            let admitted = admit(&placed);
            if kept {
                assert_eq!(admitted.value, placed);
            }
            let expected = if kept { vec![] } else { vec![UnsafeInteger] };
            assert_eq!(reasons(&admitted), expected, "{placed}");
        }
    }
}

/// So many arrays or objects around a value.
fn nested(levels: usize, kind: char, inner: Value) -> Value {
    (0..levels).fold(inner, |value, level| match kind {
        'a' => json!([value]),
        'o' => json!({ "k": value }),
        _ if level % 2 == 0 => json!([value]),
        _ => json!({ "k": value }),
    })
}

#[test]
fn values_are_kept_down_to_the_deepest_level() {
    for kind in ['a', 'o', 'm'] {
        for inner in [
            json!(1),
            json!([]),
            json!({}),
            json!([1]),
            json!({ "x": "y" }),
        ] {
            for levels in MAX_ADMITTED_DEPTH - 2..=MAX_ADMITTED_DEPTH + 2 {
                let value = nested(levels, kind, inner.clone());
                let admitted = admit(&value);
                let depth = levels + usize::from(!inner.is_number());
                if depth <= MAX_ADMITTED_DEPTH {
                    assert_eq!(admitted.value, value, "{kind} {levels} {inner}");
                    assert_eq!(reasons(&admitted), []);
                } else {
                    assert_eq!(reasons(&admitted), [TooDeep], "{kind} {levels} {inner}");
                    let pointer = &admitted.changes[0].pointer;
                    assert_eq!(pointer.matches('/').count(), MAX_ADMITTED_DEPTH);
                }
            }
        }
    }
}

/// Labels for a value may take a mebibyte: the length of each pointer, and 32.
#[test]
fn labels_are_kept_up_to_their_limit() {
    const MOST: usize = 1 << 20;
    let bad = "9007199254740993";
    let numbers = 2_000;
    let taken: usize = (0..numbers)
        .map(|index| format!("/a/{index}").len() + 32)
        .sum();
    let list = vec![bad; numbers].join(",");
    for (excess, fits) in [(-1_isize, true), (0, true), (1, false)] {
        let key_length = (MOST - taken - 32 - 1).strict_add_signed(excess);
        let key = "k".repeat(key_length);
        let text = format!("{{\"a\":[{list}],\"{key}\":{bad},\"z\":[1]}}");
        let admitted = admit_text(text.as_bytes(), &limits()).expect("a text");
        if fits {
            assert_eq!(admitted.changes.len(), numbers + 1, "{excess}");
            assert!(reasons(&admitted).iter().all(|one| *one == UnsafeInteger));
            assert_eq!(admitted.value["z"], json!([1]), "what follows is kept");
        } else {
            assert_eq!(reasons(&admitted), [TooLarge], "{excess}");
            assert_eq!(admitted.value, json!(text));
        }
    }
}

#[test]
fn every_reason_has_its_own_words() {
    let all = [
        UnsafeInteger,
        AdmissionReason::NonFinite,
        AdmissionReason::ImpreciseNumber,
        AdmissionReason::DuplicateKeys,
        AdmissionReason::LoneSurrogate,
        TooDeep,
        TooLarge,
    ];
    let mut words: Vec<_> = all.iter().map(ToString::to_string).collect();
    assert!(words.iter().all(|word| word.len() > 5), "{words:?}");
    words.sort();
    words.dedup();
    assert_eq!(words.len(), all.len());
}

fn any_value() -> impl Strategy<Value = Value> {
    let edge = (1_i64 << 53) - 2..(1_i64 << 53) + 2;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        edge.clone().prop_map(Value::from),
        edge.prop_map(|number| Value::from(-number)),
        any::<u64>().prop_map(Value::from),
        "[a~/\"é]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a~/]{0,3}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn both_ways_agree(value in any_value()) {
        admit(&value);
    }
}
