//! Duplicate keys in objects of every size. The parser looks for them in three ways, by the number of
//! keys and by what their fingerprints share, and each must find the same.

use abp_json::{AdmissionReason, Limits, Tape, admit_text, canonical};

/// The most members of an object here; far beyond the sixteen that are compared pairwise.
const MOST: usize = 200;

/// A way to spell the key with a number.
type Spelling = fn(usize) -> String;

const SPELLINGS: &[(&str, Spelling)] = &[
    ("short", |number| format!("k{number}")),
    // Only bytes that the fingerprint does not look at differ.
    ("alike", |number| format!("aaaaaaaa{number:04}bbbbbbbb")),
    ("escaped", |number| format!(r"\u006b{number}")),
    // Only the length differs.
    ("long", |number| "x".repeat(number + 1)),
];

fn object(keys: &[String]) -> String {
    let members: Vec<_> = keys.iter().map(|key| format!("\"{key}\":0")).collect();
    format!("{{{}}}", members.join(","))
}

/// Which members of an object, by their place, repeat an earlier one.
fn found(text: &str, pointer: &str) -> Vec<usize> {
    let tape = Tape::parse_str(text, &Limits::default()).unwrap();
    let object = tape.resolve(pointer).unwrap();
    let keys: Vec<_> = object.entries().map(|(key, _)| key.id()).collect();
    let place = |key| keys.iter().position(|known| *known == key).unwrap();
    tape.duplicates()
        .iter()
        .map(|one| {
            assert_eq!(one.object, object.id(), "the object is named");
            place(one.key)
        })
        .collect()
}

/// Each size, and in it each place for the duplicate; which key it repeats varies with the place.
#[test]
fn b23_a_duplicate_is_found_at_every_place_of_every_size() {
    for (name, spell) in SPELLINGS {
        for size in 1..=MOST {
            let keys: Vec<String> = (0..size).map(spell).collect();
            assert_eq!(found(&object(&keys), ""), [] as [usize; 0], "{name} {size}");
            // Every place near the sixteenth, and a sample of the others.
            let places = (1..size).filter(|place| *place <= 20 || (place + size) % 13 == 0);
            for place in places.chain(size.checked_sub(1).filter(|last| *last > 0)) {
                let mut keys = keys.clone();
                let repeated = (place * 31 + size) % place;
                keys[place] = keys[repeated].clone();
                assert_eq!(
                    found(&object(&keys), ""),
                    [place],
                    "{name}: {size} members, {place} repeats {repeated}"
                );
            }
        }
    }
}

/// The duplicate is spelled otherwise, and the object is inside others that have many keys of their own.
#[test]
fn b23_spelling_and_nesting_hide_nothing() {
    for size in [1, 2, 15, 16, 17, 18, 63, 64, 65, 150] {
        for repeated in 0..size {
            let mut keys: Vec<String> = (0..size).map(|number| format!("key{number}")).collect();
            keys.push(format!(r"\u006b\u0065y{repeated}"));
            let inner = object(&keys);
            let around: Vec<_> = (0..17).map(|n| format!("\"{n}\":{{}}")).collect();
            let nested = format!("{{{},\"in\":[0,{inner}]}}", around.join(","));
            assert_eq!(found(&inner, ""), [size], "{size} {repeated}");
            assert_eq!(found(&nested, "/in/1"), [size], "{size} {repeated}");
        }
    }
}

/// Whoever hashes or admits a document refuses what the tape found.
#[test]
fn b23_many_keys_do_not_pass_where_few_are_refused() {
    for size in [2, 15, 16, 17, 40, MOST] {
        let mut keys: Vec<String> = (0..size).map(|number| format!("k{number}")).collect();
        keys.push("k1".to_owned());
        let text = format!("{{\"in\":{}}}", object(&keys));
        let refused = canonical::to_vec(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(refused, "duplicate key at `/in/k1`", "{size}");
        let admitted = admit_text(text.as_bytes(), &Limits::default()).unwrap();
        let changes: Vec<_> = admitted
            .changes
            .iter()
            .map(|change| (change.pointer.as_str(), change.reason))
            .collect();
        assert_eq!(changes, [("/in", AdmissionReason::DuplicateKeys)], "{size}");
    }
}

/// Every key twice, in both orders.
#[test]
fn b23_all_duplicates_are_listed_in_document_order() {
    for size in [1, 8, 9, 16, 17, 100] {
        let keys: Vec<String> = (0..size).map(|number| format!("k{number}")).collect();
        let expected: Vec<usize> = (size..2 * size).collect();
        let again = [keys.clone(), keys.clone()].concat();
        assert_eq!(found(&object(&again), ""), expected, "{size}");
        let mut reversed = keys.clone();
        reversed.reverse();
        let mirrored = [keys, reversed].concat();
        assert_eq!(found(&object(&mirrored), ""), expected, "{size}");
    }
}

/// Blanks around a key are no part of it.
#[test]
fn b23_blanks_around_keys_hide_nothing() {
    for size in [1, 2, 15, 16, 17, 40] {
        for (before, after) in [("", " "), (" ", ""), ("\n", "\t\r\n "), ("  ", "  ")] {
            let members: Vec<_> = (0..size).map(|number| format!("\"k{number}\":0")).collect();
            let text = format!("{{{},{before}\"k0\"{after}:0}}", members.join(","));
            assert_eq!(found(&text, ""), [size], "{text:?}");
        }
    }
}
