//! Stored events against the digest in their receipt.

use abp_receipt::{TraceCoverage, TraceProblem, TraceVerifier};
use serde_json::{Value, json};

use crate::world::at;

/// Events as a store has them: number and text.
type Rows = Vec<(u64, String)>;

fn rows() -> Rows {
    let event =
        |number: u64| json!({"ts": at(1), "type": "assistant_message", "text": number.to_string()});
    (0..4)
        .map(|number| (number, event(number).to_string()))
        .collect()
}

/// A receipt of the events, with some members replaced.
fn receipt(embedded: bool, members: &Value) -> Vec<u8> {
    let mut digest = abp_core::EventDigest::default();
    let mut trace = Vec::new();
    for (_, event) in rows() {
        let event: abp_core::AgentEvent = serde_json::from_str(&event).expect("an event");
        digest.push(&event).expect("an event");
        trace.push(event);
    }
    let mut receipt = serde_json::to_value(crate::world::receipt(2)).expect("plain data");
    receipt["trace"] = if embedded { json!(trace) } else { json!([]) };
    receipt["trace_digest"] = json!(digest.finish(embedded));
    for (name, value) in members.as_object().expect("members") {
        receipt[name] = value.clone();
    }
    receipt.to_string().into_bytes()
}

/// What is found when the rows were changed: with the events embedded in the receipt, and without.
fn check(name: &str, members: &Value, change: fn(&mut Rows), expected: [&str; 2]) {
    for (embedded, expected) in [true, false].into_iter().zip(expected) {
        let mut stored = rows();
        change(&mut stored);
        let mut verifier =
            TraceVerifier::for_receipt(&receipt(embedded, members)).expect("a receipt");
        for (seq, json) in &stored {
            verifier.push(*seq, json);
        }
        let found = match verifier.finish() {
            TraceCoverage::Covered => "covered".to_owned(),
            TraceCoverage::NotCovered => "not covered".to_owned(),
            TraceCoverage::Wrong(TraceProblem::Unreadable { seq, .. }) => {
                format!("event {seq} is not JSON")
            }
            TraceCoverage::Wrong(problem) => problem.to_string(),
        };
        assert_eq!(found, expected, "{name}, embedded: {embedded}");
    }
}

fn swap(rows: &mut Rows) {
    let one = rows[1].1.clone();
    rows[1].1 = std::mem::replace(&mut rows[2].1, one);
}

fn cut_and_edit(rows: &mut Rows) {
    rows.truncate(2);
    rows[0].1 = rows[1].1.clone();
}

/// E11: what a store has of a trace is what the receipt digests, event by event.
#[test]
fn e11_stored_events_are_those_of_the_receipt() {
    let any = "at least one event was changed";
    let none = json!({});
    let edit: fn(&mut Rows) = |rows| rows[2].1 = rows[2].1.replace(r#""2""#, r#""7""#);
    let space: fn(&mut Rows) = |rows| rows[0].1 = rows[0].1.replace(r#"":"#, r#"": "#);
    let add: fn(&mut Rows) = |rows| rows[3].1 = rows[3].1.replacen('{', r#"{"x":1,"#, 1);
    let repeat: fn(&mut Rows) = |rows| rows[3].1 = rows[3].1.replacen('{', r#"{"text":"","#, 1);
    check("as it was", &none, |_| {}, ["covered"; 2]);
    check("spaces mean nothing", &none, space, ["covered"; 2]);
    check("edited", &none, edit, ["event 2 was changed", any]);
    check("a new member", &none, add, ["event 3 was changed", any]);
    check("swapped", &none, swap, ["event 1 was changed", any]);
    check("a member twice", &none, repeat, ["event 3 is not JSON"; 2]);
    check(
        "cut off",
        &none,
        |rows| rows[3].1.truncate(9),
        ["event 3 is not JSON"; 2],
    );
    check(
        "one deleted",
        &none,
        |rows| rows.retain(|row| row.0 != 1),
        ["event 1 is missing"; 2],
    );
    check(
        "the last deleted",
        &none,
        |rows| rows.truncate(3),
        ["event 3 is missing"; 2],
    );
    let more: fn(&mut Rows) = |rows| rows.push((4, "{}".to_owned()));
    check(
        "one more",
        &none,
        more,
        ["event 4 is not in the receipt"; 2],
    );
}

/// Events that the receipt itself says are missing are not covered; those that are there still are
/// compared as far as that is possible.
#[test]
fn events_that_did_not_reach_the_store() {
    let full = json!({"error": {"code": "RECEIPT_STORE_FAILED", "message": "no space"}});
    let stopped = json!({"cancel_reason": "storage"});
    for members in [&full, &stopped] {
        check("cut", members, |rows| rows.truncate(2), ["not covered"; 2]);
        check("whole", members, |_| {}, ["covered"; 2]);
        check(
            "cut and edited",
            members,
            cut_and_edit,
            ["event 0 was changed", "not covered"],
        );
    }
    let failed = json!({"error": {"code": "BACKEND_CRASHED", "message": "gone"}});
    check(
        "another error",
        &failed,
        |rows| rows.truncate(2),
        ["event 2 is missing"; 2],
    );
    let undigested = json!({"trace_digest": null, "trace": []});
    check("no digest", &undigested, |_| {}, ["not covered"; 2]);
    let gap: fn(&mut Rows) = |rows| rows.retain(|row| row.0 > 0);
    check(
        "no digest, a gap",
        &undigested,
        gap,
        ["event 0 is missing"; 2],
    );
    assert!(TraceVerifier::for_receipt(b"[]").is_err());
}
