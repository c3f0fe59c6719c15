//! Receipts: hashed as documents, and every change is noticed.

use abp_core::{
    AgentEvent, AgentEventKind, BackendIdentity, CONTRACT_VERSION, CapabilityManifest,
    ContractError, EventDigest, ExecutionMode, Outcome, Receipt, RunMetadata, Timestamp,
    UsageNormalized, ValidationError, VerificationReport, document_hash, receipt_hash,
    validate_receipt, verify_receipt_document,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

fn receipt() -> Receipt {
    let started_at = Timestamp::from_unix_millis(1_700_000_000_000);
    let event = AgentEvent::new(
        started_at,
        AgentEventKind::AssistantDelta {
            text: "Grüße 🚀".into(),
        },
    );
    let mut digest = EventDigest::default();
    digest.push(&event).unwrap();
    Receipt {
        meta: RunMetadata {
            run_id: Uuid::from_u128(1),
            work_order_id: Uuid::from_u128(2),
            work_order_sha256: None,
            contract_version: CONTRACT_VERSION.into(),
            started_at,
            finished_at: started_at.plus_millis(5),
            duration_ms: 5,
            lineage: None,
        },
        task: None,
        model: None,
        backend: BackendIdentity {
            id: "mock".into(),
            backend_version: None,
            adapter_version: None,
        },
        capabilities: CapabilityManifest::new(),
        mode: ExecutionMode::Mapped,
        usage_raw: json!({"b": 1, "a": 2, "nested": {"z": 0.1, "y": [], "large": 1e20}}),
        usage: UsageNormalized {
            estimated_cost_usd: Some(0.000_123),
            ..UsageNormalized::default()
        },
        usage_source: None,
        trace: vec![event],
        trace_digest: Some(digest.finish(true)),
        artifacts: vec![],
        verification: VerificationReport {
            git_diff: Some("--- a\n+++ b\n".into()),
            git_status: Some(String::new()),
            harness_ok: true,
            check: None,
        },
        workspace: None,
        outcome: Outcome::Complete,
        cancel_reason: None,
        error: None,
        plan: None,
        enforcement: Default::default(),
        adaptations: vec![],
        exchanges: Vec::new(),
        exchange: None,
        mcp: None,
        member_sha256: Default::default(),
        receipt_sha256: None,
    }
}

fn document() -> Value {
    serde_json::to_value(receipt().with_hash().unwrap()).unwrap()
}

fn problems(document: &str) -> Vec<ValidationError> {
    verify_receipt_document(document.as_bytes())
        .err()
        .unwrap_or_default()
}

#[test]
fn a_hashed_receipt_verifies_in_any_layout() {
    let hashed = receipt().with_hash().unwrap();
    validate_receipt(&hashed).unwrap();
    for text in [
        serde_json::to_string(&hashed).unwrap(),
        serde_json::to_string_pretty(&hashed).unwrap(),
    ] {
        assert_eq!(verify_receipt_document(text.as_bytes()).unwrap(), hashed);
    }
}

/// The hash of a fixed document never changes, whatever order a map happens to keep.
#[test]
fn the_hash_is_of_the_canonical_form() {
    let shuffled = r#"{"usage_raw":{"b":1,"a":2},"receipt_sha256":"ignored","a":1.0}"#;
    let sorted = r#"{"a":1,"receipt_sha256":null,"usage_raw":{"a":2,"b":1}}"#;
    let expected = {
        use sha2::{Digest as _, Sha256};
        let digest = Sha256::digest(sorted.as_bytes());
        digest
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    assert_eq!(document_hash(shuffled.as_bytes()).unwrap(), expected);
    assert_eq!(document_hash(sorted.as_bytes()).unwrap(), expected);
}

/// Set down once, so that no build, feature or refactoring moves a hash unnoticed.
#[test]
fn a_known_receipt_keeps_its_hash() {
    let hashed = receipt().with_hash().unwrap();
    assert_eq!(
        hashed.receipt_sha256.as_deref(),
        Some("3ffe1703d01fa016ad9601fff1d45d20d0b83ae39379228cdfefab8a6ef6226b")
    );
}

/// A field this version does not know is covered, wherever it is.
#[test]
fn unknown_fields_are_covered_by_the_hash() {
    for place in ["/future", "/meta/future", "/usage/future"] {
        let mut extended = document();
        let (parent, key) = place.rsplit_once('/').unwrap();
        extended.pointer_mut(parent).unwrap()[key] = json!({"x": 1});
        assert!(
            !problems(&extended.to_string()).is_empty(),
            "{place} was added after hashing"
        );
        extended["receipt_sha256"] = json!(document_hash(extended.to_string().as_bytes()).unwrap());
        assert!(
            problems(&extended.to_string()).is_empty(),
            "{place} was hashed with the rest"
        );
        extended.pointer_mut(place).unwrap()["x"] = json!(2);
        assert!(
            !problems(&extended.to_string()).is_empty(),
            "{place} was changed after hashing"
        );
    }
}

/// E1: the member that was changed is named.
#[test]
fn a_changed_member_is_named() {
    for (pointer, value) in [
        ("/usage/estimated_cost_usd", json!(1)),
        ("/outcome", json!("failed")),
        ("/verification/git_diff", json!("")),
        ("/backend/id", json!("another")),
    ] {
        let mut edited = document();
        *edited.pointer_mut(pointer).unwrap() = value;
        let member = pointer.split('/').nth(1).unwrap();
        let found = problems(&edited.to_string());
        let [ValidationError::HashMismatch { changed, .. }] = found.as_slice() else {
            panic!("{pointer}: {found:?}");
        };
        assert_eq!(changed, &[member]);
    }
    let mut shortened = document();
    shortened.as_object_mut().unwrap().remove("artifacts");
    let text = problems(&shortened.to_string())[0].to_string();
    assert!(text.ends_with("changed: artifacts"), "{text}");
}

#[test]
fn all_problems_of_a_receipt_are_reported_at_once() {
    let mut wrong = receipt();
    wrong.backend.id = " ".into();
    wrong.meta.contract_version = "abp/v9.0".into();
    wrong.meta.finished_at = Timestamp::from_unix_millis(0);
    wrong.trace.clear();
    let found = validate_receipt(&wrong).unwrap_err();
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "/backend/id: must not be empty",
            "contract_version is \"abp/v9.0\", expected \"abp/v0.1\"",
            "finished_at is before started_at",
            "receipt_sha256 is missing",
            "trace_digest does not match the trace: 1 events recorded, 0 found",
        ]
    );
}

/// E8, E9: what JSON numbers cannot carry never reaches the hash as a number.
#[test]
fn numbers_beyond_json_are_refused() {
    for count in [9_007_199_254_740_992_u64, u64::MAX] {
        let mut huge = receipt();
        huge.usage.input_tokens = Some(count);
        assert!(
            matches!(receipt_hash(&huge), Err(ContractError::Canonical(_))),
            "{count}"
        );
    }
    for cost in [f64::NAN, f64::INFINITY] {
        let mut endless = receipt();
        endless.usage.estimated_cost_usd = Some(cost);
        assert!(
            matches!(receipt_hash(&endless), Err(ContractError::NonFinite { .. })),
            "{cost}"
        );
    }
}

/// E10: a duplicate key is refused, so that no two verifiers read two receipts.
#[test]
fn duplicate_keys_are_refused() {
    let text = document()
        .to_string()
        .replacen('{', r#"{"outcome":"failed","#, 1);
    assert!(matches!(
        problems(&text).as_slice(),
        [ValidationError::Document(
            ContractError::DuplicateKey { .. }
        )]
    ));
}

proptest! {
    /// E1: no byte can be changed without notice.
    #[test]
    fn every_changed_byte_is_noticed(position in any::<prop::sample::Index>(), flip in 1_u8..=255) {
        let original = receipt().with_hash().unwrap().to_document().unwrap();
        let mut bytes = original;
        let position = position.index(bytes.len());
        bytes[position] ^= flip;
        prop_assert!(verify_receipt_document(&bytes).is_err(), "byte {position}");
    }

    /// Nothing a file may hold makes verification panic.
    #[test]
    fn arbitrary_input_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(verify_receipt_document(&bytes).is_err());
    }
}
