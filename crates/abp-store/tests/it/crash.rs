//! Processes that die, and processes that write at the same time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abp_core::Timestamp;
use abp_store::{Store, StoreError, StoreOptions, StoreState};
use uuid::Uuid;

use crate::lab::{
    accepted, all_exchanges, append, assert_sound, count_events, exchange, finish, open,
    open_by_clock, options, recorded,
};
use crate::peer::{Peer, has};

/// How many events were acknowledged, by what a process said.
fn acked(said: &[String]) -> u64 {
    said.iter().filter(|line| line.starts_with("ack ")).count() as u64
}

/// F2: what was acknowledged is there, however the process ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f2_what_was_acknowledged_survives_a_kill() {
    let dir = crate::lab::directory();
    for round in 0..25_u64 {
        let mut peer = Peer::start(&[], "append for ever", dir.path());
        let run = peer.run_id();
        let mut said = Vec::new();
        for _ in 0..round * 3 {
            said.extend(peer.say());
        }
        tokio::time::sleep(Duration::from_micros(round * 137)).await;
        said.extend(peer.kill());
        let store = open(dir.path()).await;
        let (acked, found) = (acked(&said), count_events(&store, run).await);
        assert!(
            found >= acked,
            "round {round}: {acked} acknowledged, {found} found"
        );
        assert!(
            store.take_over(run).await.expect("a run").is_some(),
            "round {round}"
        );
        append(&store, run, found).await.expect("continues");
        finish(&store, run).await.expect("ends");
        store.close().await;
    }
    let store = open(dir.path()).await;
    assert_sound(&store).await;
    assert_eq!(store.receipts(None, 100).await.expect("receipts").len(), 25);
}

/// F2: keys, accounts and sealed exchanges of a gateway that was killed are there; what it had
/// reserved is spent, and that it may have lost exchanges is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f2_a_killed_gateway_keeps_its_accounts() {
    let dir = crate::lab::directory();
    let mut active = 0;
    for round in 0..12_u64 {
        let mut peer = Peer::start(&[], "a gateway for ever", dir.path());
        let key = peer.say().expect("its key");
        let key = key.strip_prefix("key ").expect("a key");
        let mut said = Vec::new();
        for _ in 0..round * 5 {
            said.extend(peer.say());
        }
        tokio::time::sleep(Duration::from_micros(round * 137)).await;
        said.extend(peer.kill());
        let store = open(dir.path()).await;
        let keys = store.api_keys().await.expect("readable");
        assert_eq!(keys.last().map(|found| found.id.as_str()), Some(key));
        let settled = said
            .iter()
            .filter(|line| line.starts_with("settled "))
            .count() as u64;
        let account = store.budget(key).await.expect("readable").expect("a key");
        assert_eq!((account.reserved.micros(), account.reserved_tokens), (0, 0));
        // One more may have been settled, or reserved and not settled.
        let (spent, abandoned) = (account.spent.micros(), account.abandoned);
        let finished = account.requests - abandoned;
        assert!(
            (settled..=settled + 1).contains(&finished) && abandoned <= 1,
            "{account:?}"
        );
        assert_eq!(spent, finished * 70 + abandoned * 100, "round {round}");
        assert_eq!(account.spent_tokens * 10, spent, "round {round}");
        let found = all_exchanges(&store).await;
        for sealed in said.iter().filter_map(|line| line.strip_prefix("sealed ")) {
            let sealed: Uuid = sealed.parse().expect("an id");
            assert_eq!(found.iter().filter(|id| **id == sealed).count(), 1);
        }
        // One that was killed before it recorded anything may not count.
        active += u64::from(settled > 0);
        let crashes = store.exchange_crashes().await.expect("readable");
        assert!(
            (active..=round + 1).contains(&crashes),
            "{crashes} of {active}"
        );
        assert_sound(&store).await;
        store.close().await;
    }
}

/// E13: killed at every sync of a run's life, a run is unknown, unfinished or over; never two ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e13_a_kill_at_any_sync_leaves_at_most_one_receipt() {
    if !has("strace") {
        abp_testkit::skip("a kill at every sync of a run", "strace is not installed");
        return;
    }
    let dir = crate::lab::directory();
    open(dir.path()).await.close().await;
    for sync in 1.. {
        let inject = format!("inject=fsync,fdatasync:signal=KILL:when={sync}");
        let peer = Peer::start(
            &["strace", "-f", "-qq", "-e", &inject],
            "one life",
            dir.path(),
        );
        let said = peer.rest();
        let over = said.iter().any(|line| line == "end");
        let run: Option<Uuid> = said
            .first()
            .and_then(|line| line.strip_prefix("run ")?.parse().ok());
        let store = open(dir.path()).await;
        if let Some(run) = run {
            let found = store.run(run).await.expect("readable").expect("accepted");
            assert!(
                count_events(&store, run).await >= acked(&said),
                "sync {sync}"
            );
            assert!(!over || found.ended_at.is_some(), "sync {sync}");
        }
        for left in store.unfinished().await.expect("readable") {
            assert!(!left.owner_alive, "sync {sync}");
            assert!(
                store
                    .take_over(left.run.run_id)
                    .await
                    .expect("a run")
                    .is_some()
            );
            finish(&store, left.run.run_id).await.expect("ends");
        }
        assert_sound(&store).await;
        store.close().await;
        if over {
            assert!(
                sync > 7,
                "a start, five events and an end are synced each: {sync}"
            );
            return;
        }
    }
}

static WRITER_PANICS: AtomicBool = AtomicBool::new(false);

/// The writer reads it in every transaction.
fn clock() -> Timestamp {
    assert!(!WRITER_PANICS.load(Ordering::Relaxed), "the writer panics");
    Timestamp::from_unix_millis(1_700_000_000_000)
}

/// F10: when the writer panics, everybody who waits hears so, and whoever opens the store next
/// recovers, with everything that was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f10_a_panic_of_the_writer_is_an_error_and_no_hang() {
    let dir = crate::lab::directory();
    let options = StoreOptions { clock, ..options() };
    let store = open_by_clock(dir.path(), options).await.expect("opens");
    let run = accepted(&store).await;
    append(&store, run, 0).await.expect("acknowledged");
    let log = store.exchange_log();
    recorded(&log);
    log.flush().await.expect("durable");
    let permit = log.admit().expect("room");
    WRITER_PANICS.store(true, Ordering::Relaxed);
    let mut waiting = Vec::new();
    for seq in 1..100 {
        let store = store.clone();
        waiting.push(tokio::spawn(async move { append(&store, run, seq).await }));
    }
    let answers = async {
        for task in waiting {
            let error = task.await.expect("no panic here").expect_err("not written");
            assert!(matches!(error, StoreError::WriterGone), "{error}");
        }
        let late = finish(&store, run).await.expect_err("nobody writes");
        assert!(matches!(late, StoreError::WriterGone), "{late}");
        assert!(log.admit().is_none(), "nobody writes");
        permit.record(&exchange(Uuid::now_v7()));
        let health = store.health();
        assert_eq!(
            (health.state, health.exchanges.lost),
            (StoreState::Closed, 1)
        );
        store.close().await;
    };
    let answered = tokio::time::timeout(Duration::from_secs(20), answers).await;
    answered.expect("nobody waits for ever");

    let next = open(dir.path()).await;
    assert!(
        next.take_over(run).await.expect("a run").is_some(),
        "its owner is gone"
    );
    assert_eq!(count_events(&next, run).await, 1);
    finish(&next, run).await.expect("ends");
    assert_eq!(next.exchange_crashes().await.expect("readable"), 1);
    assert_sound(&next).await;
}

/// Two processes and this one append to one log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_share_one_log() {
    let dir = crate::lab::directory();
    let peers = ["thirty runs"; 2].map(|part| Peer::start(&[], part, dir.path()));
    let store = open(dir.path()).await;
    let mut runs = Vec::new();
    for _ in 0..10 {
        let run = accepted(&store).await;
        append(&store, run, 0).await.expect("durable");
        finish(&store, run).await.expect("ends");
        runs.push((run, 1));
    }
    for peer in peers {
        let said = peer.rest();
        assert_eq!(said.iter().filter(|line| *line == "end").count(), 30);
        let theirs = said.iter().filter_map(|line| line.strip_prefix("run "));
        runs.extend(theirs.map(|id| (id.parse().expect("an id"), 5)));
    }
    for (run, events) in runs {
        assert_eq!(count_events(&store, run).await, events);
        assert!(store.receipt(run).await.expect("readable").is_some());
    }
    assert_eq!(store.leaf_hashes(140).await.expect("leaves").len(), 140);
    assert_sound(&store).await;
}

/// A run is its process's as long as that lives; then it is exactly one other's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_recovers_what_a_dead_one_left() {
    let dir = crate::lab::directory();
    let mut peer = Peer::start(&[], "append for ever", dir.path());
    let run = peer.run_id();
    let mut stores: Vec<Store> = Vec::new();
    for _ in 0..4 {
        stores.push(open(dir.path()).await);
    }
    let own = accepted(&stores[0]).await;
    let list = stores[0].unfinished().await.expect("readable");
    let seen: Vec<_> = list
        .iter()
        .map(|left| (left.run.run_id, left.own, left.owner_alive))
        .collect();
    assert_eq!(seen, [(run, false, true), (own, true, true)]);
    for store in &stores {
        assert!(store.take_over(run).await.expect("a run").is_none());
        assert!(store.take_over(own).await.expect("a run").is_none());
    }
    let acked = acked(&peer.kill());
    let left = stores[1].unfinished().await.expect("readable");
    assert!(!left[0].owner_alive && left[0].events >= acked);
    let mut racing = Vec::new();
    for store in &stores {
        let store = store.clone();
        racing.push(tokio::spawn(async move {
            store.take_over(run).await.expect("a run").is_some()
        }));
    }
    let mut winners = Vec::new();
    for (place, task) in racing.into_iter().enumerate() {
        if task.await.expect("no panic") {
            winners.push(place);
        }
    }
    let [winner] = winners[..] else {
        panic!("taken by {winners:?}")
    };
    for (place, store) in stores
        .iter()
        .enumerate()
        .filter(|(place, _)| *place != winner)
    {
        let refused = finish(store, run).await.expect_err("not theirs");
        assert!(
            matches!(refused, StoreError::NotOwner(_)),
            "{place}: {refused}"
        );
    }
    finish(&stores[winner], run).await.expect("recovered");
    assert_sound(&stores[0]).await;
}
