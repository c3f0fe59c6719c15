//! The exchange log: what is recorded is sealed, found, proven, and missed when it is gone.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use abp_receipt::{EntryKind, Hash, LogEntry, verify_inclusion};
use abp_store::{
    ExchangeLog, Store, StoreError, StoreOptions, StoreProblem, StoreReader, VerifyOptions,
};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use uuid::Uuid;

use crate::damage::change;
use crate::lab::{
    all_exchanges, assert_sound, exchange, open, open_reader, open_with, options, recorded,
};

/// A store whose ring has room for so many exchanges under way.
async fn with_room_for(dir: &Path, exchanges: usize) -> (Store, ExchangeLog) {
    let options = StoreOptions {
        exchange_ring_bytes: exchanges * 4 * 1024,
        ..options()
    };
    let store = open_with(dir, options).await.expect("opens");
    let log = store.exchange_log();
    (store, log)
}

/// Every record is found, and proven by the entry of the signed log that seals it.
#[tokio::test]
async fn what_is_recorded_is_found_and_proven() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let log = store.exchange_log();
    let mut ids = Vec::new();
    for count in [1, 2, 30] {
        ids.extend((0..count).map(|_| recorded(&log)));
        // All of them wait for the same segment.
        let flushed = tokio::join!(log.flush(), log.flush(), log.flush());
        assert!(matches!(flushed, (Ok(()), Ok(()), Ok(()))), "{flushed:?}");
    }
    let reader = open_reader(dir.path()).await.expect("a reader");
    let entries = reader.log_entries(0, 100).await.expect("readable");
    assert_eq!(entries.len(), 3, "one for each flush");
    for (place, id) in ids.iter().enumerate() {
        let found = reader.exchange(*id).await.expect("readable");
        let found = found.expect("recorded");
        assert_eq!(found.record, exchange(*id));
        let (segment, index) = match place {
            0 => (0, 0),
            1 | 2 => (1, place - 1),
            _ => (2, place - 3),
        };
        assert_eq!((found.segment, found.index), (segment, index as u64));
        let entry = &entries[found.segment as usize].entry;
        let entry = LogEntry::from_leaf_bytes(entry.as_bytes()).expect("an entry");
        let EntryKind::ExchangesSealed { count, root } = entry.kind else {
            panic!("{entry:?}")
        };
        let proven = verify_inclusion(&found.leaf, found.index, count, &found.path, &root);
        proven.expect("in the signed log");
    }
    ids.reverse();
    assert_eq!(all_exchanges(&reader).await, ids);
    for other in [Uuid::nil(), Uuid::max(), Uuid::now_v7(), Uuid::new_v4()] {
        assert_eq!(reader.exchange(other).await.expect("readable"), None);
        let page = reader.exchanges(Some(other), 10).await;
        assert!(matches!(page, Err(StoreError::UnknownRun(id)) if id == other));
    }
    assert_sound(&store).await;
}

/// Records are sealed soon and many at a time, although nobody waits for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_sealed_by_themselves() {
    const RECORDS: u64 = 20_000;
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let log = store.exchange_log();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let log = log.clone();
        tasks.push(tokio::spawn(async move {
            for number in 0..RECORDS / 4 {
                recorded(&log);
                if number % 500 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    for _ in 0..200 {
        if store.health().exchanges.sealed == RECORDS {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let health = store.health().exchanges;
    assert_eq!(
        (health.sealed, health.waiting, health.taken_bytes),
        (RECORDS, 0, 0)
    );
    let segments = store.log_entries(0, 10_000).await.expect("readable").len();
    assert!((2..200).contains(&segments), "{segments} segments");
    let found = all_exchanges(&store).await;
    let distinct: BTreeSet<Uuid> = found.iter().copied().collect();
    assert_eq!(
        (found.len(), distinct.len() as u64),
        (distinct.len(), RECORDS)
    );
    assert_sound(&store).await;
    assert_eq!(store.exchange_crashes().await.expect("readable"), 0);
}

/// A full ring admits nothing, at once; what is not used and what is written gives room back.
#[tokio::test]
async fn a_full_ring_admits_nothing() {
    let dir = crate::lab::directory();
    let (store, log) = with_room_for(dir.path(), 3).await;
    let taken = || store.health().exchanges.taken_bytes;
    let mut permits: Vec<_> = std::iter::from_fn(|| log.admit()).collect();
    assert_eq!(permits.len(), 3);
    let ledger = "x".repeat(1_000);
    let hash = *Hash::of(ledger.as_bytes()).as_bytes();
    assert!(!log.keep_ledger(hash, &ledger), "no room");
    drop(permits.pop());
    permits.extend(log.admit());
    assert!(permits.len() == 3 && log.admit().is_none());
    let full = taken();
    for permit in permits {
        permit.record(&exchange(Uuid::now_v7()));
    }
    assert!(taken() < full / 4, "{} of {full}", taken());
    log.flush().await.expect("durable");
    assert_eq!(taken(), 0);
    assert_eq!(all_exchanges(&store).await.len(), 3);
}

/// Ledgers are kept once, with their own hash.
#[tokio::test]
async fn ledgers_are_kept_once() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let other = open(dir.path()).await;
    let text = r#"{"dropped":["/logprobs"]}"#;
    let hash = *Hash::of(text.as_bytes()).as_bytes();
    let large = "x".repeat(256 * 1024 + 1);
    let (log, theirs) = (store.exchange_log(), other.exchange_log());
    assert!(!log.keep_ledger([7; 32], text), "another's hash");
    assert!(!log.keep_ledger(*Hash::of(large.as_bytes()).as_bytes(), &large));
    assert!(log.keep_ledger(hash, text) && log.keep_ledger(hash, text));
    assert_eq!(store.health().exchanges.waiting, 1);
    assert!(theirs.keep_ledger(hash, text));
    log.flush().await.expect("durable");
    theirs.flush().await.expect("durable");
    let found = store.ledger(hash).await.expect("readable");
    assert_eq!(found.as_deref(), Some(text));
    assert_eq!(store.ledger([7; 32]).await.expect("readable"), None);
    assert!(store.log_entries(0, 10).await.expect("readable").is_empty());
    let path = dir.path().join("store.db");
    change(&path, "UPDATE ledgers SET json = '{}'").await;
    let changed = store.ledger(hash).await.expect_err("changed");
    assert!(matches!(changed, StoreError::Damaged { .. }), "{changed}");
}

/// Closing writes what waits; what comes later is counted, and nothing is a crash.
#[tokio::test]
async fn closing_seals_what_waits() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let log = store.exchange_log();
    let mut ids: Vec<Uuid> = (0..10).map(|_| recorded(&log)).collect();
    let late = log.admit().expect("room");
    let handle = store.clone();
    store.close().await;
    assert!(log.admit().is_none());
    late.record(&exchange(Uuid::now_v7()));
    let health = handle.health().exchanges;
    assert_eq!((health.sealed, health.lost), (10, 1));
    let store = open(dir.path()).await;
    ids.reverse();
    assert_eq!(all_exchanges(&store).await, ids);
    assert_eq!(store.exchange_crashes().await.expect("readable"), 0);
}

/// What a report says of segments.
async fn wrong_segments(reader: &StoreReader) -> Vec<u64> {
    let report = reader.verify(VerifyOptions::default()).await;
    let problems = report.expect("can be verified").problems.into_iter();
    let segments = problems.map(|problem| match problem {
        StoreProblem::Segment { seq, .. } => seq,
        other => panic!("{other}"),
    });
    segments.collect()
}

/// E1, E16: a segment that was changed anywhere is named, and the others stay readable.
#[tokio::test]
async fn e1_e16_changed_segments_are_named() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let log = store.exchange_log();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(recorded(&log));
        log.flush().await.expect("durable");
    }
    store.close().await;
    let reader = open_reader(dir.path()).await.expect("a reader");
    let path = dir.path().join("store.db");
    // What is done to segment 1, and which segments are reported.
    let cases: [(&'static str, &[u64]); 10] = [
        ("UPDATE s SET count = 2 WHERE seq = 1", &[1]),
        ("UPDATE s SET first_started_at = 0 WHERE seq = 1", &[1]),
        ("UPDATE s SET min_id = zeroblob(16) WHERE seq = 1", &[1]),
        ("UPDATE s SET max_id = zeroblob(16) WHERE seq = 1", &[1]),
        ("UPDATE s SET root = zeroblob(32) WHERE seq = 1", &[1]),
        ("UPDATE s SET root = x'00' WHERE seq = 1", &[1]),
        // Whatever is looked for could be in it, and it can be read no more.
        (
            "UPDATE s SET min_id = zeroblob(16), body = x'ff',
                max_id = (SELECT max_id FROM s WHERE seq = 2) WHERE seq = 1",
            &[1],
        ),
        ("DELETE FROM s WHERE seq = 1", &[1]),
        ("UPDATE s SET seq = 7 WHERE seq = 1", &[1, 7]),
        (
            "UPDATE s SET (body, min_id, max_id, root) =
                (SELECT body, min_id, max_id, root FROM s WHERE seq = 2) WHERE seq = 1",
            &[1],
        ),
    ];
    change(
        &path,
        "CREATE TABLE kept AS SELECT * FROM exchange_segments",
    )
    .await;
    for (statement, expected) in cases {
        let mut connection = connect(&path).await;
        let statement = statement.replace(" s ", " exchange_segments ");
        execute(&mut connection, &statement).await;
        assert_eq!(wrong_segments(&reader).await, expected, "{statement}");
        for place in [0, 2] {
            let found = reader.exchange(ids[place]).await.expect("readable");
            assert!(found.is_some(), "{statement}");
        }
        execute(
            &mut connection,
            "DELETE FROM exchange_segments; INSERT INTO exchange_segments SELECT * FROM kept",
        )
        .await;
    }
    assert!(wrong_segments(&reader).await.is_empty());
}

/// E1, E16: whatever byte of a segment is changed, that segment is named: here each at another byte.
#[tokio::test]
async fn e1_e16_every_byte_of_a_segment_counts() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let log = store.exchange_log();
    let mut ids = vec![recorded(&log)];
    log.flush().await.expect("durable");
    let mut connection = connect(&dir.path().join("store.db")).await;
    let query = sqlx::query_scalar("SELECT length(body) FROM exchange_segments");
    let bytes: u64 = query.fetch_one(&mut connection).await.expect("a body");
    for _ in 1..bytes {
        ids.push(recorded(&log));
        log.flush().await.expect("durable");
    }
    assert_sound(&store).await;
    let bodies: Vec<(i64, Vec<u8>)> = sqlx::query_as("SELECT seq, body FROM exchange_segments")
        .fetch_all(&mut connection)
        .await
        .expect("bodies");
    for (seq, mut body) in bodies {
        body[seq as usize] ^= 0x10;
        let update = sqlx::query("UPDATE exchange_segments SET body = ? WHERE seq = ?");
        let updated = update.bind(body).bind(seq).execute(&mut connection).await;
        updated.expect("changed");
    }
    assert_eq!(wrong_segments(&store).await, Vec::from_iter(0..bytes));
    for id in ids {
        let found = store.exchange(id).await;
        assert!(!matches!(found, Ok(Some(_))), "{id}");
    }
}

async fn connect(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .foreign_keys(false);
    options.connect().await.expect("a connection")
}

async fn execute(connection: &mut SqliteConnection, statement: &str) {
    let statement = sqlx::AssertSqlSafe(statement.to_owned());
    let executed = sqlx::raw_sql(statement).execute(connection).await;
    executed.expect("changed");
}
