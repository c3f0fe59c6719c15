//! What a file that claims to be a receipt is: proven, consistent with itself only, or wrong.

use abp_error::ErrorCode;
use abp_receipt::{
    ChangeDecision, DecisionKind, EntryKind, Hash, LogEntry, LoggedReceipt, ReceiptFile,
    ReceiptVerdict, RunBinding,
};
use serde_json::{Value, json};

use crate::world::{ORIGIN, World, at, document, hash_of, key, ring, run};

/// A receipt with other content whose hashes were all made right again.
fn forged() -> Vec<u8> {
    let mut receipt = crate::world::receipt(2);
    receipt.backend.id = "another".to_owned();
    let receipt = receipt.with_hash().expect("a plain receipt");
    receipt.to_document().expect("a plain receipt")
}

fn exported(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let bundle = World::four_runs().export(2, &key(1)).to_json();
    let mut bundle = serde_json::from_slice(&bundle.expect("plain data")).expect("JSON");
    change(&mut bundle);
    bundle.to_string().into_bytes()
}

fn logged(document: &[u8]) -> LoggedReceipt {
    LoggedReceipt::Logged {
        origin: ORIGIN.to_owned(),
        seq: 3,
        receipt_sha256: hash_of(document),
    }
}

/// Judges a file, and compares the verdict.
fn check(file: &[u8], trusted: Option<u8>, log: LoggedReceipt, expected: &str) {
    let keys = trusted.map(|seed| ring(&key(seed)));
    let verdict = match ReceiptFile::read(file) {
        Ok(file) => file.judge(keys.as_ref(), log),
        Err(verdict) => verdict,
    };
    let (found, status) = match &verdict {
        ReceiptVerdict::Proven { by, .. } => {
            let by = serde_json::to_value(by).expect("plain data");
            assert_eq!((&by["origin"], &by["seq"]), (&json!(ORIGIN), &json!(3)));
            (
                format!("proven by {}", by["type"].as_str().unwrap_or_default()),
                0,
            )
        }
        ReceiptVerdict::SelfConsistent { because, .. } => {
            assert!(!because.to_string().contains("valid"), "{because}");
            (format!("alone: {because}"), 9)
        }
        ReceiptVerdict::Wrong { problems, .. } => (format!("wrong: {}", problems[0].code), 7),
    };
    assert_eq!(found, expected, "{verdict:?}");
    assert_eq!(verdict.exit_status().code(), status);
    if status != 7 {
        assert_eq!(verdict.run_id(), Some(run(2)));
    }
}

const NO_LOG: &str = "alone: there is no log to compare it with";

/// E2: recomputed hashes prove nothing, and a log that has the run outweighs them.
#[test]
fn e2_a_bare_receipt_is_proven_by_the_log_only() {
    let origin = || ORIGIN.to_owned();
    let unknown = LoggedReceipt::UnknownRun { origin: origin() };
    let unfinished = LoggedReceipt::Unfinished { origin: origin() };
    let unusable = LoggedReceipt::Unusable {
        problem: "it is not signed".to_owned(),
    };
    check(&document(2), None, logged(&document(2)), "proven by log");
    check(&document(2), None, LoggedReceipt::NoLog, NO_LOG);
    check(
        &document(2),
        None,
        unknown,
        "alone: the log does not have its run",
    );
    let untrusted = "alone: the log cannot vouch for it: it is not signed";
    check(&document(2), None, unusable, untrusted);
    check(
        &document(2),
        None,
        unfinished,
        "wrong: RECEIPT_CHAIN_BROKEN",
    );
    check(
        &forged(),
        None,
        logged(&document(2)),
        "wrong: RECEIPT_HASH_MISMATCH",
    );
    check(&forged(), None, LoggedReceipt::NoLog, NO_LOG);
    check(&forged(), Some(1), LoggedReceipt::NoLog, NO_LOG);
    let edited = String::from_utf8(document(2))
        .expect("JSON")
        .replace("mock", "muck");
    check(
        edited.as_bytes(),
        None,
        LoggedReceipt::NoLog,
        "wrong: RECEIPT_HASH_MISMATCH",
    );
    check(
        b"{",
        None,
        LoggedReceipt::NoLog,
        "wrong: CONTRACT_SCHEMA_VIOLATION",
    );
}

/// E19: an exported receipt is proven by its key; what it says without a key can be made by anybody.
#[test]
fn e19_an_exported_receipt_is_proven_by_key_or_log() {
    let plain = exported(|_| {});
    let none = || LoggedReceipt::NoLog;
    let unfinished = LoggedReceipt::Unfinished {
        origin: ORIGIN.to_owned(),
    };
    check(&plain, Some(1), none(), "proven by proof");
    check(&plain, Some(1), logged(&document(2)), "proven by proof");
    check(&plain, Some(1), unfinished, "proven by proof");
    check(
        &plain,
        Some(1),
        logged(&forged()),
        "wrong: RECEIPT_HASH_MISMATCH",
    );
    check(&plain, Some(2), none(), "wrong: RECEIPT_CHAIN_BROKEN");
    check(&plain, None, logged(&document(2)), "proven by log");
    check(&plain, None, none(), NO_LOG);
    let moved = exported(|bundle| bundle["proof"]["entry"]["seq"] = json!(1));
    check(&moved, None, none(), "wrong: RECEIPT_CHAIN_BROKEN");
    let mistyped = exported(|bundle| bundle["envelope"]["payloadType"] = json!("text/plain"));
    check(&mistyped, None, none(), "wrong: CONTRACT_INVALID_RECEIPT");
}

fn decision() -> ChangeDecision {
    ChangeDecision {
        at: at(5),
        by: "alice".to_owned(),
        change_set_sha256: Hash::of(b"changes"),
        kind: DecisionKind::PartiallyApplied,
        paths: vec!["a.txt".to_owned()],
        run: run(2),
        saves: Vec::new(),
        via: "cli".to_owned(),
    }
}

/// Documents and entries that are hashed must not change their form.
#[test]
fn forms_of_decisions_and_bound_starts_are_stable() {
    let document = decision().to_document().expect("plain data");
    let text = String::from_utf8(document.clone()).expect("JSON");
    let hash = Hash::of(b"changes");
    assert_eq!(
        text,
        format!(
            r#"{{"at":"2023-11-14T22:13:25.000Z","by":"alice","change_set_sha256":"{hash}","kind":"partially_applied","paths":["a.txt"],"run":"{}","saves":[],"via":"cli"}}"#,
            run(2)
        )
    );
    assert_eq!(
        ChangeDecision::from_document(&document).expect("its own form"),
        decision()
    );
    for other in [
        text.replace(':', ": "),
        text.replacen('{', r#"{"a":1,"#, 1),
        text.replace("\"saves\":[],", ""),
        text.replace("partially_applied", "perhaps"),
    ] {
        assert!(
            ChangeDecision::from_document(other.as_bytes()).is_err(),
            "{other}"
        );
    }
    let mut world = World::new();
    world.append(EntryKind::RunStarted {
        run_id: run(2),
        work_order_sha256: hash,
        record: Some(RunBinding {
            order_sha256: hash,
            row_sha256: hash,
        }),
    });
    world.append(EntryKind::Decision {
        run_id: run(2),
        decision_sha256: hash,
    });
    let kinds = [
        format!(
            r#""kind":{{"record":{{"order_sha256":"{hash}","row_sha256":"{hash}"}},"run_id":"{}","type":"run_started","work_order_sha256":"{hash}"}}"#,
            run(2)
        ),
        format!(
            r#""kind":{{"decision_sha256":"{hash}","run_id":"{}","type":"decision"}}"#,
            run(2)
        ),
    ];
    for (leaf, kind) in world.stored.iter().zip(kinds) {
        let text = String::from_utf8(leaf.bytes.clone()).expect("JSON");
        assert!(text.contains(&kind), "{text}");
        let read = LogEntry::from_leaf_bytes(&leaf.bytes).expect("its own form");
        assert_eq!(read, leaf.entry);
        assert_eq!(read.run_id(), Some(run(2)));
    }
    for kind in [
        DecisionKind::Applied,
        DecisionKind::PartiallyApplied,
        DecisionKind::Discarded,
        DecisionKind::RolledBack,
        DecisionKind::Expired,
    ] {
        assert_eq!(json!(kind), kind.as_str());
    }
}

/// A decision is about a run that the log has.
#[test]
fn a_decision_needs_a_run() {
    let decide = |number| EntryKind::Decision {
        run_id: run(number),
        decision_sha256: Hash::of(b"decision"),
    };
    let mut world = World::four_runs();
    world.append(decide(2));
    world.append(decide(4));
    assert!(world.problems().is_empty());
    world.append(decide(9));
    assert_eq!(world.problems(), ["stray_decision 9"]);
    let problem = &world.verify().problems[0];
    assert_eq!(problem.code(), ErrorCode::ReceiptChainBroken);
}
