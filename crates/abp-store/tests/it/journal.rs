//! The rules of the journal: what is refused, in what order things come, what is batched.

use abp_error::ErrorCode;
use abp_receipt::Hash;
use abp_store::{Acceptance, IdempotencyKey, NewRun, RunFilter, Store, StoreError};
use uuid::Uuid;

use crate::lab::receipt;
use crate::lab::{
    accepted, append, assert_sound, count_events, event, finish, new_run, open, open_reader,
};

/// What a refusal is called here.
fn name(result: Result<(), StoreError>) -> &'static str {
    match result {
        Ok(()) => "ok",
        Err(StoreError::DuplicateRun(_)) => "duplicate",
        Err(StoreError::UnknownRun(_)) => "unknown",
        Err(StoreError::RunOver(_)) => "over",
        Err(StoreError::NotOwner(_)) => "not owner",
        Err(StoreError::OutOfOrder { .. }) => "order",
        Err(StoreError::ReceiptMismatch { .. }) => "mismatch",
        Err(StoreError::NotAHash { .. }) => "hash",
        Err(other) => panic!("{other}"),
    }
}

/// Every step of a life of two runs, by its letter, and what comes of it.
#[tokio::test]
async fn every_run_has_one_start_events_in_order_and_one_end() {
    let dir = crate::lab::directory();
    let (store, other) = (open(dir.path()).await, open(dir.path()).await);
    let run = Uuid::now_v7();
    let foreign = accepted(&other).await;
    let broken = NewRun {
        order_sha256: "5E".repeat(32),
        ..new_run(Uuid::now_v7())
    };
    let (wrong, _) = receipt(run, "one");
    let (_, hash) = receipt(run, "another");
    let (theirs, their_hash) = receipt(foreign, "theirs");
    let check = |step: &str, found: Result<(), StoreError>, expected: &str| {
        assert_eq!(name(found), expected, "{step}");
    };
    check(
        "event before start",
        append(&store, run, 0).await,
        "unknown",
    );
    check(
        "end before start",
        finish(&store, run).await.map(drop),
        "unknown",
    );
    check("no hash", store.accept(broken).await.map(drop), "hash");
    check("start", store.accept(new_run(run)).await.map(drop), "ok");
    check(
        "start again",
        store.accept(new_run(run)).await.map(drop),
        "duplicate",
    );
    check(
        "start elsewhere",
        other.accept(new_run(run)).await.map(drop),
        "duplicate",
    );
    check("gap", append(&store, run, 1).await, "order");
    check("first event", append(&store, run, 0).await, "ok");
    check("first event again", append(&store, run, 0).await, "order");
    check("second event", append(&store, run, 1).await, "ok");
    check(
        "event from elsewhere",
        append(&other, run, 2).await,
        "not owner",
    );
    check(
        "end from elsewhere",
        finish(&other, run).await.map(drop),
        "not owner",
    );
    check(
        "another's hash",
        store.finish(run, wrong, &hash).await.map(drop),
        "mismatch",
    );
    check(
        "another's receipt",
        store.finish(run, theirs, &their_hash).await.map(drop),
        "mismatch",
    );
    check("E13 end", finish(&store, run).await.map(drop), "ok");
    check("E13 end again", finish(&store, run).await.map(drop), "over");
    check("event after end", append(&store, run, 2).await, "over");
    check(
        "end of the other",
        finish(&other, foreign).await.map(drop),
        "ok",
    );
    assert_eq!(count_events(&store, run).await, 2);
    assert_sound(&store).await;
    other.close().await;
    assert_sound(&store).await;
}

/// F3: the same request after a crash is the same run.
#[tokio::test]
async fn f3_an_idempotency_key_names_one_run() {
    let dir = crate::lab::directory();
    let first = Uuid::now_v7();
    let keyed = |run_id: Uuid, request: &[u8]| NewRun {
        idempotency_key: Some(IdempotencyKey {
            key: "request 7".to_owned(),
            request: Hash::of(request),
        }),
        // The order's hash covers its id, which is another one each time.
        order_sha256: Hash::of(run_id.as_bytes()).to_string(),
        ..new_run(run_id)
    };
    let store = open(dir.path()).await;
    assert_eq!(
        store.accept(keyed(first, b"a")).await.expect("new"),
        Acceptance::New
    );
    store.close().await;
    let store = open(dir.path()).await;
    let again = store
        .accept(keyed(Uuid::now_v7(), b"a"))
        .await
        .expect("known");
    assert_eq!(again, Acceptance::Existing(first));
    let refused = store.accept(keyed(Uuid::now_v7(), b"b")).await;
    assert!(matches!(refused, Err(StoreError::KeyReused { run_id, .. }) if run_id == first));
    assert_eq!(store.log_entries(0, 10).await.expect("entries").len(), 1);
}

/// Many who append at once wait for few commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_are_committed_together() {
    const RUNS: usize = 10;
    const EVENTS: u64 = 100;
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let mut tasks = Vec::new();
    for _ in 0..RUNS {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            let run = accepted(&store).await;
            let mut acks = Vec::new();
            for seq in 0..EVENTS {
                acks.push(
                    store
                        .append_event(run, seq, event(seq))
                        .await
                        .expect("queued"),
                );
            }
            for ack in acks {
                ack.await.expect("durable");
            }
            assert_eq!(count_events(&store, run).await, EVENTS);
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    let commits = store.health().commits;
    assert!(commits < RUNS as u64 * EVENTS / 5, "{commits} commits");
    assert_eq!(store.health().waiting_bytes, 0);
}

/// Pages are bounded by rows and by bytes, and lists can be walked to their end.
#[tokio::test]
async fn answers_come_in_pages() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(accepted(&store).await);
    }
    let large = format!("\"{}\"", "x".repeat(1024 * 1024));
    for seq in 0..10 {
        let ack = store.append_event(runs[0], seq, large.clone()).await;
        ack.expect("queued").await.expect("durable");
    }
    assert_eq!(
        store.events(runs[0], 0, 100).await.expect("a page").len(),
        4
    );
    assert_eq!(
        store.events(runs[0], 9, 100).await.expect("a page").len(),
        1
    );
    for run in &runs[..3] {
        finish(&store, *run).await.expect("ended");
    }
    let list = async |filter: RunFilter| -> Vec<Uuid> {
        let mut found = Vec::new();
        let mut before = None;
        loop {
            let filter = RunFilter {
                before,
                ..filter.clone()
            };
            let page = store.runs(&filter, 2).await.expect("a page");
            let Some(last) = page.last() else {
                return found;
            };
            before = Some(last.number);
            found.extend(page.iter().map(|run| run.run_id));
        }
    };
    let newest_first = |range: &[Uuid]| range.iter().rev().copied().collect::<Vec<_>>();
    let ended = |ended| RunFilter {
        ended: Some(ended),
        ..RunFilter::default()
    };
    let outcome = |name: &str| RunFilter {
        outcome: Some(name.to_owned()),
        ..RunFilter::default()
    };
    assert_eq!(list(RunFilter::default()).await, newest_first(&runs));
    assert_eq!(list(ended(true)).await, newest_first(&runs[..3]));
    assert_eq!(list(ended(false)).await, newest_first(&runs[3..]));
    assert_eq!(list(outcome("complete")).await, newest_first(&runs[..3]));
    assert!(list(outcome("failed")).await.is_empty());
    let receipts = store.receipts(None, 10).await.expect("receipts");
    assert_eq!(receipts.len(), 3);
    let rest = store
        .receipts(Some(receipts[0].log_seq), 10)
        .await
        .expect("receipts");
    assert_eq!(rest, receipts[1..]);
    let size = store
        .latest_checkpoint()
        .await
        .expect("one")
        .checkpoint()
        .size();
    assert_eq!(store.leaf_hashes(size).await.expect("leaves").len(), 8);
}

/// A reader needs neither key nor lock, and a closed store says that it is closed.
#[tokio::test]
async fn readers_stand_beside_writers_and_closed_is_closed() {
    let dir = crate::lab::directory();
    let none = open_reader(dir.path()).await.expect_err("no store");
    assert!(matches!(none, StoreError::NoStore { .. }), "{none}");
    let store = open(dir.path()).await;
    let run = accepted(&store).await;
    std::fs::remove_dir_all(dir.path().join("keys")).expect("no keys");
    let reader = open_reader(dir.path()).await.expect("a reader");
    assert_eq!(reader.origin(), "example.org/log");
    assert!(reader.run(run).await.expect("readable").is_some());
    let clone: Store = store.clone();
    store.close().await;
    let late = append(&clone, run, 0).await.expect_err("closed");
    assert!(matches!(late, StoreError::Closed), "{late}");
    let refused = Store::open(dir.path(), crate::lab::options()).await;
    assert_eq!(
        refused.expect_err("no key").code(),
        ErrorCode::ConfigInvalid
    );
    assert!(reader.run(run).await.expect("still readable").is_some());
}

/// Runs are listed by the project that a directory is in, and come back as they were given.
#[tokio::test]
async fn runs_are_found_by_project() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let places = ["/srv/a", "/srv/a/b", "/srv/ab", "/", "/srv/a", "/srv/a%"];
    let mut runs = Vec::new();
    for place in places {
        let new = NewRun {
            project: Some(crate::lab::project(place)),
            ..new_run(Uuid::now_v7())
        };
        store.accept(new.clone()).await.expect("accepted");
        let found = store
            .run(new.run_id)
            .await
            .expect("readable")
            .expect("a run");
        assert_eq!(
            (&found.project, &found.principal, &found.backend_asked),
            (&new.project, &new.principal, &new.backend_asked)
        );
        runs.push(new.run_id);
    }
    let nowhere = NewRun {
        project: None,
        ..new_run(Uuid::now_v7())
    };
    runs.push(nowhere.run_id);
    store.accept(nowhere).await.expect("accepted");
    let cases: [(Option<&str>, &[usize]); 8] = [
        (None, &[6, 5, 4, 3, 2, 1, 0]),
        (Some("/srv/a"), &[4, 3, 0]),
        (Some("/srv/a/b"), &[4, 3, 1, 0]),
        (Some("/srv/a/b/c/d"), &[4, 3, 1, 0]),
        (Some("/srv/ab"), &[3, 2]),
        (Some("/srv/a%/x"), &[5, 3]),
        (Some("/srv"), &[3]),
        (Some("/"), &[3]),
    ];
    for (directory, expected) in cases {
        let filter = RunFilter {
            directory: directory.map(str::to_owned),
            ..RunFilter::default()
        };
        let found = store.runs(&filter, 10).await.expect("a page");
        let found: Vec<Uuid> = found.iter().map(|run| run.run_id).collect();
        let expected: Vec<Uuid> = expected.iter().map(|place| runs[*place]).collect();
        assert_eq!(found, expected, "{directory:?}");
    }
    // A real directory, from inside of it.
    let project = abp_store::Project::locate(dir.path()).expect("is there");
    let new = NewRun {
        project: Some(project),
        ..new_run(Uuid::now_v7())
    };
    store.accept(new.clone()).await.expect("accepted");
    let inside = dir.path().join("keys").canonicalize().expect("is there");
    let filter = RunFilter {
        directory: Some(abp_store::path_text(&inside)),
        ..RunFilter::default()
    };
    let found = store.runs(&filter, 1).await.expect("a page");
    assert_eq!(found[0].run_id, new.run_id);
}
