//! Events of ended runs are removed in steps, with an entry of the log before the first: the store is sound
//! after each step, whoever takes it.

use std::path::Path;

use abp_core::Timestamp;
use abp_store::{Store, StoreError, VerifyOptions};
use uuid::Uuid;

use crate::damage::{change, copy};
use crate::lab::{accepted, append, assert_sound, event, finish, open};
use crate::tampering::{alice, whole_run};

const EVENTS: u64 = 2_500;

async fn ended_run(store: &Store) -> Uuid {
    let run_id = accepted(store).await;
    let events = (0..EVENTS).map(event).collect();
    let ack = store.append_events(run_id, 0, events).await;
    ack.expect("queued").await.expect("durable");
    finish(store, run_id).await.expect("ended");
    run_id
}

async fn erase(store: &Store, run_id: Uuid) -> u64 {
    let mut erased = 0;
    loop {
        match store.erase_events(run_id).await.expect("erased") {
            0 => return erased,
            some => erased += some,
        }
    }
}

async fn coverage(dir: &Path) -> (bool, u64) {
    let store = open(dir).await;
    let report = store.verify(VerifyOptions::default()).await;
    let report = report.expect("readable");
    store.close().await;
    (report.is_ok(), report.coverage.erased_traces)
}

/// A time far ahead: every run ended before it.
fn ever() -> Timestamp {
    Timestamp::from_unix_millis(4_000_000_000_000)
}

/// A process that dies after any step leaves a sound store, and another goes on where it was.
#[tokio::test]
async fn a_removal_goes_on_after_any_step() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let run_id = ended_run(&store).await;
    let found = store.erasable_runs(ever(), 0, 10).await.expect("a page");
    assert_eq!((found[0].run_id, found[0].events), (run_id, EVENTS));
    assert_eq!(found[0].bytes, store.event_bytes().await.expect("a size"));
    assert!(store.begin_erasure(run_id).await.expect("begun"));
    assert!(!store.begin_erasure(run_id).await.expect("begun before"));
    let mut left = EVENTS;
    while left > 0 {
        // As a process would find it that opens the store after this one died.
        let other = open(dir.path()).await;
        assert_eq!(other.open_erasures().await.expect("a list"), [run_id]);
        assert_sound(&other).await;
        let erased = other.erase_events(run_id).await.expect("erased");
        assert!((1..=1_000).contains(&erased), "{erased}");
        left -= erased;
        let events = other.events(run_id, 0, 10_000).await.expect("a page");
        assert_eq!(events.len() as u64, left);
        other.close().await;
    }
    assert!(store.open_erasures().await.expect("a list").is_empty());
    assert_eq!(store.erase_events(run_id).await.expect("nothing"), 0);
    assert_eq!(store.event_bytes().await.expect("a size"), 0);
    let record = store.erasure(run_id).await.expect("readable");
    assert_eq!(record.expect("a record").events, EVENTS);
    assert!(store.receipt(run_id).await.expect("readable").is_some());
    assert_eq!(coverage(dir.path()).await, (true, 1));
}

/// A run that goes on, one that waits for a decision and one whose removal is not logged lose nothing.
#[tokio::test]
async fn runs_that_are_needed_keep_their_events() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let running = accepted(&store).await;
    append(&store, running, 0).await.expect("durable");
    let undecided = whole_run(&store, false).await;
    let ended = ended_run(&store).await;
    for run_id in [running, undecided] {
        let refused = store.begin_erasure(run_id).await;
        assert!(
            matches!(refused, Err(StoreError::NotErasable(found)) if found == run_id),
            "{refused:?}"
        );
        assert_eq!(erase(&store, run_id).await, 0);
    }
    assert_eq!(erase(&store, ended).await, 0);
    let erasable = store.erasable_runs(ever(), 0, 10).await.expect("a page");
    let erasable: Vec<Uuid> = erasable.iter().map(|run| run.run_id).collect();
    assert_eq!(erasable, [ended]);
    let waiting = store.undecided_before(ever(), 10).await.expect("a page");
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].run_id, undecided);
    let since = waiting[0].since;
    assert!(
        store
            .undecided_before(since, 10)
            .await
            .expect("a page")
            .is_empty()
    );
    // Decided, it is as any other.
    let expired = store.expire_change_set(undecided, alice()).await;
    expired.expect("expired");
    assert!(store.begin_erasure(undecided).await.expect("begun"));
    assert_eq!(erase(&store, undecided).await, 5);
    assert_sound(&store).await;
}

/// Events that are missing without the entry, or are back in spite of it, are a change of the run.
#[tokio::test]
async fn a_removal_that_the_log_does_not_have_is_found() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let (erased, other) = (
        whole_run(&store, false).await,
        whole_run(&store, true).await,
    );
    for run_id in [erased, other] {
        let discarded = store.discard_change_set(run_id, alice()).await;
        discarded.expect("discarded");
    }
    assert!(store.begin_erasure(erased).await.expect("begun"));
    assert_eq!(erase(&store, erased).await, 5);
    store.close().await;
    assert_eq!(coverage(dir.path()).await, (true, 1));
    let edits = [
        "DELETE FROM erasures",
        "UPDATE erasures SET log_seq = log_seq - 1",
        "UPDATE erasures SET run = 2",
        "INSERT INTO events (run, seq, json) SELECT 1, seq, json FROM events WHERE run = 2",
        "INSERT INTO erasures (run, log_seq, is_done) VALUES (2, 0, 1)",
    ];
    for edit in edits {
        let copies = crate::lab::directory();
        let copied = copies.path().join("state");
        copy(dir.path(), &copied);
        change(&copied.join("store.db"), edit).await;
        assert!(!coverage(&copied).await.0, "{edit}");
    }
}

/// An order goes after the events, and the store stays sound; an order that is empty without an entry of
/// the log is a damage.
#[tokio::test]
async fn an_order_goes_with_its_events_only() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let run_id = ended_run(&store).await;
    let refused = store.erase_order(run_id).await;
    assert!(
        matches!(refused, Err(StoreError::NotErasable(_))),
        "{refused:?}"
    );
    let copies = crate::lab::directory();
    let damaged = copies.path().join("state");
    copy(dir.path(), &damaged);
    change(&damaged.join("store.db"), "UPDATE runs SET work_order = ''").await;
    assert!(!coverage(&damaged).await.0);
    store.begin_erasure(run_id).await.expect("begun");
    erase(&store, run_id).await;
    assert!(store.erase_order(run_id).await.expect("erased"));
    assert!(!store.erase_order(run_id).await.expect("erased before"));
    let run = store.run(run_id).await.expect("readable").expect("a run");
    assert_eq!(run.order_json, "");
    assert!(store.receipt(run_id).await.expect("readable").is_some());
    store.close().await;
    assert_eq!(coverage(dir.path()).await, (true, 1));
}
