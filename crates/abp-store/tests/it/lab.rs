//! What the tests make stores and receipts with.

use std::path::Path;

use abp_core::{Receipt, Timestamp};
use abp_store::{NewRun, Store, StoreError, StoreOptions, VerifyOptions};
use uuid::Uuid;

pub(crate) async fn open(dir: &Path) -> Store {
    Store::open(dir, options()).await.expect("the store opens")
}

pub(crate) fn options() -> StoreOptions {
    StoreOptions {
        origin: Some("example.org/log".to_owned()),
        reserve_bytes: 64 * 1024,
        ..StoreOptions::default()
    }
}

pub(crate) fn new_run(run_id: Uuid) -> NewRun {
    NewRun {
        run_id,
        order_json: r#"{"task":"say hello"}"#.to_owned(),
        order_sha256: "5e".repeat(32),
        backend: "mock".to_owned(),
        at: Timestamp::from_unix_millis(1_700_000_000_000),
        idempotency_key: None,
    }
}

/// A run that was accepted just now.
pub(crate) async fn accepted(store: &Store) -> Uuid {
    let run_id = Uuid::now_v7();
    store.accept(new_run(run_id)).await.expect("accepted");
    run_id
}

pub(crate) async fn append(store: &Store, run_id: Uuid, seq: u64) -> Result<(), StoreError> {
    store.append_event(run_id, seq, event(seq)).await?.await
}

pub(crate) fn event(seq: u64) -> String {
    format!(r#"{{"type":"assistant_delta","text":"piece {seq}"}}"#)
}

/// A receipt document with a note of some size in it, and its hash.
pub(crate) fn receipt(run_id: Uuid, note: &str) -> (Vec<u8>, String) {
    let at = Timestamp::from_unix_millis(1_700_000_001_000);
    let receipt: Receipt = serde_json::from_value(serde_json::json!({
        "meta": {
            "run_id": run_id, "work_order_id": Uuid::nil(), "contract_version": "abp/v0.1",
            "started_at": at, "finished_at": at, "duration_ms": 0,
        },
        "backend": { "id": "mock" },
        "usage_raw": { "note": note },
        "verification": { "harness_ok": true },
        "outcome": "complete",
    }))
    .expect("a receipt");
    let receipt = receipt.with_hash().expect("a hash");
    let document = receipt.to_document().expect("a document");
    (document, receipt.receipt_sha256.expect("a hash"))
}

pub(crate) async fn finish(store: &Store, run_id: Uuid) -> Result<u64, StoreError> {
    let (document, sha256) = receipt(run_id, "done");
    store
        .finish(run_id, document, &sha256)
        .await
        .map(|committed| committed.seq)
}

pub(crate) async fn assert_sound(store: &Store) {
    let report = store.verify(VerifyOptions::default()).await;
    let report = report.expect("the store can be read");
    assert!(report.is_ok(), "{report:#?}");
    assert_eq!(report.log.size, report.log.signed_size);
}

/// How many events of a run there are, and that they are the ones that were appended.
pub(crate) async fn count_events(store: &Store, run_id: Uuid) -> u64 {
    let mut next = 0;
    loop {
        let page = store.events(run_id, next, 1000).await.expect("a page");
        if page.is_empty() {
            return next;
        }
        for found in page {
            assert_eq!((found.seq, found.json), (next, event(next)));
            next += 1;
        }
    }
}
