//! Receipts by themselves: building, hashing, comparing, chaining.

use abp_core::{Receipt, validate_receipt, verify_receipt_document};
use abp_receipt::{
    ChainError, ChainLink, Hash, ReceiptChain, canonicalize, compute_hash, diff_documents,
    diff_receipts, verify_hash,
};
use serde_json::json;

use crate::world::{at, builder, document, hash_of, receipt, run};

#[test]
fn a_built_receipt_is_valid() {
    let built = builder(1).build_hashed().expect("a plain receipt");
    validate_receipt(&built).expect("every hash is right");
    assert_eq!(
        built.trace_digest.as_ref().map(|digest| digest.count),
        Some(1)
    );
    let without_hashes = builder(1).build();
    assert_eq!(without_hashes.receipt_sha256, None);
    assert!(!verify_hash(&without_hashes).expect("plain"));
    assert!(verify_hash(&built).expect("plain"));
    let bytes = canonicalize(&built).expect("plain");
    assert_eq!(Some(Hash::of(&bytes).to_string()), built.receipt_sha256);
    assert_eq!(compute_hash(&built).ok(), built.receipt_sha256);
}

/// E9: what JSON cannot carry is refused, not turned into null.
#[test]
fn e9_not_a_number() {
    let mut odd = receipt(1);
    odd.usage.estimated_cost_usd = Some(f64::NAN);
    assert!(canonicalize(&odd).is_err());
    assert!(verify_hash(&odd).is_err());
    assert!(diff_receipts(&odd, &odd).is_err());
}

#[test]
fn differences() {
    let old = receipt(1);
    let mut new = old.clone();
    new.backend.id = "other".to_owned();
    new.meta.duration_ms = 9;
    new.usage_raw = json!({"a.b": 1});
    new.trace.push(new.trace[0].clone());
    let diff = diff_receipts(&old, &new).expect("plain");
    let event = json!({"ts": at(1), "type": "assistant_message", "text": "run 1"});
    let expected = json!({"changes": [
        {"field": "backend.id", "old": "mock", "new": "other"},
        {"field": "meta.duration_ms", "old": 5, "new": 9},
        {"field": "trace.1", "new": event},
        {"field": "usage_raw", "old": null, "new": {"a.b": 1}},
    ]});
    assert_eq!(serde_json::to_value(&diff).expect("plain data"), expected);
    assert!(!diff.is_empty());
    let rehashed = new.clone().with_hash().expect("plain");
    let with_hashes = diff_receipts(&old, &rehashed).expect("plain");
    assert!(with_hashes.changes.len() > diff.changes.len());
    assert_eq!(with_hashes.without_hashes(), diff);
    let mut third = new.clone();
    third.usage_raw = json!({"a.b": [1], "": 2});
    let fields = diff_receipts(&new, &third).expect("plain").changes;
    let fields: Vec<_> = fields.iter().map(|change| change.field.as_str()).collect();
    assert_eq!(fields, [r#"usage_raw."""#, r#"usage_raw."a.b""#]);
    assert!(diff_receipts(&old, &old).expect("plain").is_empty());
    assert!(diff_documents(b"[]", b"{}").is_err());
    assert!(diff_documents(br#"{"a":1,"a":2}"#, b"{}").is_err());
}

#[test]
fn e6_a_chain_takes_each_run_once() {
    let mut chain = ReceiptChain::default();
    for number in 1..=3 {
        chain.push(&receipt(number)).expect("a good receipt");
    }
    let again = chain.push(&receipt(2)).expect_err("there already");
    assert!(matches!(
        again,
        ChainError::DuplicateRun {
            seq: 3,
            first: 1,
            ..
        }
    ));
    let mut changed = receipt(4);
    changed.meta.duration_ms += 1;
    let changed = chain.push(&changed).expect_err("not rehashed");
    assert!(matches!(changed, ChainError::HashMismatch { seq: 3, .. }));
    let unhashed = chain.push(&builder(4).build()).expect_err("no hash");
    assert!(matches!(unhashed, ChainError::HashMissing { seq: 3, .. }));
    assert!(chain.push_document(b"{}").is_err());
    assert_eq!(chain.links().len(), 3);
    chain.verify().expect("all good");
    let second = chain.get(run(2)).expect("it is there");
    assert_eq!(second.parent_sha256, Some(hash_of(&document(1))));
    assert_eq!(second.receipt().expect("a receipt"), receipt(2));
}

/// A receipt of a newer version keeps what this one does not know.
#[test]
fn unknown_members_are_covered() {
    let mut newer = serde_json::to_value(builder(1).build()).expect("plain data");
    newer["added_later"] = json!(true);
    let hash = hash_of(&serde_json::to_vec(&newer).expect("JSON"));
    newer["receipt_sha256"] = json!(hash);
    let document = serde_json::to_vec(&newer).expect("JSON");
    verify_receipt_document(&document).expect("a good receipt");
    let mut chain = ReceiptChain::default();
    let link = chain.push_document(&document).expect("its hash is right");
    assert!(link.document.contains("added_later"));
    chain.verify().expect("still right");
}

/// E17: a run that says it began before the one ahead of it is taken, and that is noted.
#[test]
fn e17_clock_inversion() {
    let mut chain = ReceiptChain::default();
    chain.push(&receipt(1)).expect("a good receipt");
    let mut earlier: Receipt = receipt(2);
    earlier.meta.started_at = at(-60);
    let earlier = earlier.with_hash().expect("plain");
    assert!(chain.push(&earlier).expect("taken").clock_inverted);
    assert!(!chain.push(&receipt(3)).expect("taken").clock_inverted);
    chain.verify().expect("no problem");
}

#[test]
fn e1_e6_a_stored_chain_is_checked() {
    let mut chain = ReceiptChain::default();
    for number in 1..=3 {
        chain.push(&receipt(number)).expect("a good receipt");
    }
    let check = |name: &str, expected: &[&str], change: &dyn Fn(&mut Vec<ChainLink>)| {
        let json = serde_json::to_string(chain.links()).expect("plain data");
        let mut links: Vec<ChainLink> = serde_json::from_str(&json).expect("itself");
        change(&mut links);
        let found = ReceiptChain::from_links(links)
            .verify()
            .err()
            .unwrap_or_default();
        let found: Vec<&str> = found
            .iter()
            .map(|error| match error {
                ChainError::Unreadable { .. } => "unreadable",
                ChainError::HashMismatch { .. } => "hash",
                ChainError::DuplicateRun { .. } => "duplicate",
                ChainError::SequenceGap { .. } => "gap",
                ChainError::BrokenLink { .. } => "link",
                ChainError::WrongLink { .. } => "wrong",
                _ => "other",
            })
            .collect();
        assert_eq!(found, expected, "{name}");
    };
    check("as it was", &[], &|_| ());
    check("first removed", &["gap", "link", "gap"], &|links| {
        drop(links.remove(0));
    });
    check("middle removed", &["gap", "link"], &|links| {
        drop(links.remove(1));
    });
    check("swapped", &["gap", "link", "gap", "link"], &|links| {
        links.swap(1, 2);
    });
    check("repeated", &["gap", "link", "duplicate"], &|links| {
        links.push(links[1].clone());
    });
    check("edited", &["hash"], &|links| {
        links[1].document = links[1].document.replace("mock", "mocc");
    });
    check("cut", &["unreadable"], &|links| {
        links[2].document.truncate(50);
    });
    check("relabelled", &["wrong"], &|links| {
        links[2].clock_inverted = true;
    });
}
