//! Older databases become newer ones, as a whole or not at all.

use abp_core::{Receipt, Timestamp};
use abp_receipt::{EntryKind, Hash};
use serde_json::json;
use sqlx::Connection as _;
use uuid::Uuid;

use super::*;
use crate::keys::KeyDir;
use crate::layout::Layout;
use crate::log::LogMemory;
use crate::{
    KeyScope, RunFilter, RunRecord, RunState, Store, StoreCoverage, StoreOptions, StoreReader,
    VerifyOptions,
};

const FIRST: &str = "CREATE TABLE a (x INTEGER) STRICT; INSERT INTO a VALUES (1);";
const SECOND: &str = "ALTER TABLE a ADD COLUMN y TEXT NOT NULL DEFAULT 'old';";
const FAILS: &str = "ALTER TABLE a ADD COLUMN z TEXT; INSERT INTO nowhere VALUES (1);";

/// F9: an older database becomes a newer one as a whole or not at all; a newer one is refused.
#[tokio::test]
async fn f9_migration_is_whole_or_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    let options = options(&path, Duration::from_secs(1)).create_if_missing(true);
    let mut connection = options.connect().await.expect("a connection");
    let cases: [(&[&str], bool, i64, i64); 7] = [
        (&[FIRST], true, 1, 1),
        (&[FIRST], true, 1, 1),
        (&[FIRST, FAILS], false, 1, 1),
        (&[FIRST, SECOND, FAILS], false, 1, 1),
        (&[FIRST, SECOND], true, 2, 2),
        (&[FIRST, SECOND], true, 2, 2),
        (&[FIRST], false, 2, 2),
    ];
    for (place, (steps, fine, version, columns)) in cases.into_iter().enumerate() {
        let migrated = migrate_by(&mut connection, &path, steps).await;
        assert_eq!(migrated.is_ok(), fine, "{place}: {migrated:?}");
        let found = standing(&mut connection).await.expect("readable");
        assert_eq!(
            (found.application, found.version),
            (APPLICATION_ID, version),
            "{place}"
        );
        let count: (i64, i64) = sqlx::query_as(
            "SELECT (SELECT count(*) FROM pragma_table_info('a')), (SELECT count(*) FROM a)",
        )
        .fetch_one(&mut connection)
        .await
        .expect("readable");
        assert_eq!(count, (columns, 1), "{place}");
    }
}

/// F9: the steps that were released bring a store of the first version up to date.
#[tokio::test]
async fn f9_a_store_of_the_first_version_is_taken_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    let options = options(&path, Duration::from_secs(1)).create_if_missing(true);
    let mut connection = options.connect().await.expect("a connection");
    let first = STEPS.get(..1).expect("the first step");
    let made = migrate_by(&mut connection, &path, first).await;
    made.expect("the first version");
    let insert = "INSERT INTO runs (run_id, idempotency_key, accepted_at, work_order,
        work_order_sha256, backend, owner, stage) VALUES ('r', 'k', 1, '{}', 's', 'b', 'o', 'x')";
    let inserted = sqlx::raw_sql(insert).execute(&mut connection).await;
    inserted.expect("a run");
    let migrated = migrate(&mut connection, &path).await;
    migrated.expect("the newest version");
    let kept: (String, String, Option<String>) =
        sqlx::query_as("SELECT run_id, idempotency_key, request_sha256 FROM runs")
            .fetch_one(&mut connection)
            .await
            .expect("the run");
    assert_eq!(kept, ("r".to_owned(), "k".to_owned(), None));
}

/// The third released version, as its release made it.
struct ThirdVersion {
    dir: tempfile::TempDir,
    runs: [Uuid; 3],
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000 + second * 1_000)
}

const ORDER: &str = r#"{"task":"say hello","id":"00000000-0000-0000-0000-000000000007"}"#;

fn event(run: usize, seq: i64) -> String {
    json!({"ts": at(1), "type": "assistant_message", "text": format!("{run} {seq}")}).to_string()
}

/// A receipt as the release made it, with the digest of three events, not embedded.
fn receipt(run: usize, run_id: Uuid) -> Receipt {
    let mut digest = abp_core::EventDigest::default();
    for seq in 0..3 {
        let event = serde_json::from_str(&event(run, seq)).expect("an event");
        digest.push(&event).expect("an event");
    }
    let receipt: Receipt = serde_json::from_value(json!({
        "meta": {
            "run_id": run_id, "work_order_id": Uuid::nil(), "contract_version": "abp/v0.1",
            "started_at": at(0), "finished_at": at(9), "duration_ms": 9_000,
        },
        "backend": { "id": "mock" }, "trace_digest": digest.finish(false),
        "verification": { "harness_ok": true }, "outcome": "complete",
    }))
    .expect("a receipt");
    receipt.with_hash().expect("a hash")
}

impl ThirdVersion {
    /// Two runs that ended, with a rotation of the key in between, and one that a crash left.
    async fn make() -> Self {
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let dir = tempfile::Builder::new().permissions(private).tempdir();
        let dir = dir.expect("a directory");
        let layout = Layout::prepare(dir.path()).expect("private");
        let path = layout.database();
        let options = options(&path, Duration::from_secs(1)).create_if_missing(true);
        let mut connection = options.connect().await.expect("a connection");
        let released = STEPS.get(..3).expect("released steps");
        let made = migrate_by(&mut connection, &path, released).await;
        made.expect("the third version");
        let mut log = LogMemory::new(path.clone(), KeyDir::new(layout.keys()));
        let created = log.create(&mut connection, "example.org/log").await;
        created.expect("a log");
        let runs = [1, 2, 3].map(Uuid::from_u128);
        for (run, run_id) in runs.into_iter().enumerate() {
            start(&mut connection, &mut log, &path, run_id).await;
            for seq in 0..3 {
                sqlx::query("INSERT INTO events VALUES ((SELECT max(id) FROM runs), ?, ?)")
                    .bind(seq)
                    .bind(event(run, seq))
                    .execute(&mut connection)
                    .await
                    .expect("an event");
            }
            if run < 2 {
                let receipt = receipt(run, run_id);
                end(&mut connection, &mut log, &path, run_id, &receipt).await;
            }
        }
        connection.close().await.expect("closed");
        Self { dir, runs }
    }
}

async fn append(
    connection: &mut SqliteConnection,
    log: &mut LogMemory,
    path: &Path,
    kind: Option<EntryKind>,
) -> u64 {
    let mut tail = log.load(connection).await.expect("the log");
    let seq = match kind {
        Some(kind) => tail
            .append(connection, path, kind, at(0))
            .await
            .expect("appended"),
        None => {
            let keys = log.keys().clone();
            let rotated = tail.rotate(connection, path, &keys, at(0)).await;
            rotated.expect("rotated");
            0
        }
    };
    let signed = tail.store(connection, path).await.expect("signed");
    log.keep(signed.expect("grown"));
    seq
}

async fn start(connection: &mut SqliteConnection, log: &mut LogMemory, path: &Path, run_id: Uuid) {
    let hash = Hash::of(ORDER.as_bytes());
    let kind = EntryKind::RunStarted {
        run_id,
        work_order_sha256: hash,
        record: None,
    };
    append(connection, log, path, Some(kind)).await;
    sqlx::query(
        "INSERT INTO runs (run_id, idempotency_key, request_sha256, accepted_at, work_order,
            work_order_sha256, backend, owner) VALUES (?, ?, ?, ?, ?, ?, 'mock', 'gone')",
    )
    .bind(run_id.to_string())
    .bind(format!("key {run_id}"))
    .bind(hash.to_string())
    .bind(at(0).as_unix_millis())
    .bind(ORDER)
    .bind(hash.to_string())
    .execute(connection)
    .await
    .expect("a run");
}

async fn end(
    connection: &mut SqliteConnection,
    log: &mut LogMemory,
    path: &Path,
    run_id: Uuid,
    receipt: &Receipt,
) {
    let hash = receipt.receipt_sha256.clone().expect("a hash");
    let kind = EntryKind::RunEnded {
        run_id,
        receipt_sha256: hash.parse().expect("a hash"),
    };
    let seq = append(connection, log, path, Some(kind)).await;
    sqlx::query("INSERT INTO receipts SELECT max(id), ?, ?, ? FROM runs")
        .bind(seq.cast_signed())
        .bind(hash)
        .bind(receipt.to_document().expect("a document"))
        .execute(&mut *connection)
        .await
        .expect("a receipt");
    sqlx::query("UPDATE runs SET ended_at = ?, outcome = 'complete' WHERE run_id = ?")
        .bind(at(9).as_unix_millis())
        .bind(run_id.to_string())
        .execute(&mut *connection)
        .await
        .expect("ended");
    append(connection, log, path, None).await;
}

/// F9: a store of the third version, with its log, becomes one of this version: nothing is lost, and
/// what its log does not cover is not called wrong.
#[tokio::test]
async fn f9_a_store_of_the_third_version_is_taken_over() {
    let third = ThirdVersion::make().await;
    let state = third.dir.path();
    let older = StoreReader::open(state).await.expect_err("older");
    assert!(
        matches!(older, StoreError::OlderVersion { found: 3, .. }),
        "{older}"
    );
    let store = Store::open(state, StoreOptions::default()).await;
    let store = store.expect("the newest version");
    let report = store
        .verify(VerifyOptions::default())
        .await
        .expect("readable");
    assert!(report.is_ok(), "{report:#?}");
    let coverage = StoreCoverage {
        runs: 3,
        unbound_runs: 3,
        undigested_traces: 0,
        erased_traces: 0,
    };
    assert_eq!((report.coverage, report.log.size), (coverage, 7));
    let runs = store.runs(&RunFilter::default(), 10).await.expect("a page");
    let ids: Vec<Uuid> = runs.iter().rev().map(|run| run.run_id).collect();
    assert_eq!(ids, third.runs);
    for (run, record) in runs.iter().rev().enumerate() {
        let RunRecord {
            order_json,
            backend,
            backend_asked,
            project,
            principal,
            ..
        } = record;
        assert_eq!((order_json.as_str(), backend.as_str()), (ORDER, "mock"));
        assert_eq!((backend_asked, project, principal), (&None, &None, &None));
        let events = store.events(record.run_id, 0, 10).await.expect("a page");
        let texts: Vec<String> = events.into_iter().map(|event| event.json).collect();
        assert_eq!(texts, [0, 1, 2].map(|seq| event(run, seq)));
        let found = store.receipt(record.run_id).await.expect("readable");
        let expected = (run < 2).then(|| receipt(run, record.run_id));
        let expected = expected.map(|receipt| receipt.to_document().expect("a document"));
        assert_eq!(found.map(|found| found.document), expected);
        assert_eq!(
            store.change_set(record.run_id).await.expect("readable"),
            None
        );
        assert!(
            store
                .decisions(record.run_id, 0, 10)
                .await
                .expect("a page")
                .is_empty()
        );
    }
    let [_, _, interrupted] = third.runs;
    let taken = store.take_over(interrupted).await.expect("it is there");
    assert!(taken.is_some());
    let last = receipt(2, interrupted);
    let document = last.to_document().expect("a document");
    let hash = last.receipt_sha256.expect("a hash");
    store
        .finish(interrupted, document, &hash)
        .await
        .expect("ended");
    store.close().await;
    let reader = StoreReader::open(state).await.expect("up to date");
    let report = reader
        .verify(VerifyOptions::default())
        .await
        .expect("readable");
    assert!(report.is_ok(), "{report:#?}");
}

/// What the log of the third version does cover is still compared: times, the hash of the order,
/// outcomes and events.
#[tokio::test]
async fn f9_edits_of_a_store_of_the_third_version_are_found_after_the_migration() {
    let edits = [
        ("UPDATE runs SET accepted_at = 1 WHERE id = 1", "AcceptedAt"),
        ("UPDATE runs SET outcome = 'failed' WHERE id = 1", "Outcome"),
        (
            "UPDATE events SET json = replace(json, '0 1', '0 9') WHERE run = 1",
            "Events",
        ),
        ("DELETE FROM runs WHERE id = 3", "MissingRun"),
        // An entry that is damaged costs its run the link to it, and the migration nothing.
        (
            "UPDATE log SET entry = substr(entry, 2) WHERE seq = 0",
            "UnloggedRun",
        ),
    ];
    for (statement, expected) in edits {
        let third = ThirdVersion::make().await;
        let path = Layout::existing(third.dir.path()).database();
        let editing = bare(&path).foreign_keys(false);
        let mut connection = editing.connect().await.expect("a connection");
        let edited = sqlx::raw_sql(statement).execute(&mut connection).await;
        edited.expect("edited");
        connection.close().await.expect("closed");
        let store = Store::open(third.dir.path(), StoreOptions::default()).await;
        let store = store.expect("the newest version");
        let report = store
            .verify(VerifyOptions::default())
            .await
            .expect("readable");
        let found = format!("{:?}", report.problems);
        assert!(found.contains(expected), "{statement}: {found}");
    }
}

/// F9: a store of the fifth version, as its release left it: a run that ended, one that a crash left, and a
/// key. The ended run keeps its end, the other is taken over and ended, and the key may do what it could.
#[tokio::test]
async fn f9_a_store_of_the_fifth_version_is_taken_over() {
    let fifth = ThirdVersion::make().await;
    let state = fifth.dir.path();
    let path = Layout::existing(state).database();
    let mut connection = bare(&path).connect().await.expect("a connection");
    let released = STEPS.get(..5).expect("released steps");
    let migrated = migrate_by(&mut connection, &path, released).await;
    migrated.expect("the fifth version");
    let key = "INSERT INTO api_keys (id, name, sha256, models, created_at)
        VALUES ('k', 'n', zeroblob(32), '[]', 1); INSERT INTO budgets (key) VALUES ('k');";
    let added = sqlx::raw_sql(key).execute(&mut connection).await;
    added.expect("a key");
    let outcome = "UPDATE runs SET outcome = 'cancelled' WHERE id = 2";
    let edited = sqlx::raw_sql(outcome).execute(&mut connection).await;
    edited.expect("an outcome");
    connection.close().await.expect("closed");
    let older = StoreReader::open(state).await.expect_err("older");
    assert!(matches!(older, StoreError::OlderVersion { found: 5, .. }));
    let store = Store::open(state, StoreOptions::default()).await;
    let store = store.expect("the newest version");
    let mut states = Vec::new();
    for run in fifth.runs {
        let record = store.run(run).await.expect("readable").expect("a run");
        assert_eq!((record.attempt, record.cancel), (1, None));
        states.push(record.state);
    }
    use RunState::{Cancelled, Complete, Running};
    assert_eq!(states, [Complete, Cancelled, Running]);
    let keys = store.api_keys().await.expect("readable");
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0].scopes, KeyScope::USUAL);
    let left = store.unfinished().await.expect("readable");
    assert_eq!(left.len(), 1);
    assert!(left[0].is_interrupted(at(0)) && left[0].lease_until.is_none());
    let taken = store.take_over(fifth.runs[2]).await.expect("there");
    let taken = taken.expect("its process is gone");
    assert_eq!((taken.lease.epoch, taken.has_submission), (2, false));
    let given_back = store.requeue(taken.lease).await;
    assert!(matches!(given_back, Err(StoreError::NotQueueable(_))));
    let last = receipt(2, fifth.runs[2]);
    let document = last.to_document().expect("a document");
    let hash = last.receipt_sha256.expect("a hash");
    let leased = store.with_lease(taken.lease);
    leased
        .finish(fifth.runs[2], document, &hash)
        .await
        .expect("ended");
    let ended = store.run_state(fifth.runs[2]).await.expect("readable");
    assert_eq!(ended, Some(Complete));
}
