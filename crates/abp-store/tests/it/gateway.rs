//! What a gateway keeps besides its exchanges: keys, accounts, answers and reasoning.

use abp_core::{MicroUsd, Timestamp};
use abp_error::ErrorCode;
use abp_store::{
    ApiKeyRecord, KeptAnswer, NewApiKey, ReasoningEntry, Reserved, Store, StoreError, StoreReader,
};
use uuid::Uuid;

use crate::damage::change;
use crate::lab::{assert_sound, finish, new_key, open, open_reader, recorded, reservation};
use crate::peer::Peer;

fn micros(micros: u64) -> MicroUsd {
    MicroUsd::from_micros(micros)
}

/// What a key that was added looks like.
fn as_record(key: NewApiKey, found: &ApiKeyRecord) -> ApiKeyRecord {
    ApiKeyRecord {
        id: key.id,
        name: key.name,
        sha256: key.sha256,
        models: key.models,
        requests_per_minute: key.requests_per_minute,
        tokens_per_minute: key.tokens_per_minute,
        budget: key.budget,
        token_budget: key.token_budget,
        max_output_tokens: key.max_output_tokens,
        max_concurrent: key.max_concurrent,
        max_sessions: key.max_sessions,
        scopes: key.scopes.clone(),
        created_at: found.created_at,
        expires_at: key.expires_at,
        revoked_at: found.revoked_at,
    }
}

/// Keys are kept as they were given, and every change is seen by other processes.
#[tokio::test]
async fn keys_are_kept_and_revoked() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let other = open_reader(dir.path()).await.expect("a reader");
    let full = NewApiKey {
        tokens_per_minute: Some(1_000),
        token_budget: Some(2_000),
        max_output_tokens: Some(3_000),
        max_concurrent: Some(7),
        max_sessions: Some(6),
        scopes: vec![abp_store::KeyScope::RunsRead, abp_store::KeyScope::Admin],
        expires_at: Some(Timestamp::from_unix_millis(4_000)),
        ..new_key("k_full", Some(5_000))
    };
    let plain = NewApiKey {
        models: Vec::new(),
        requests_per_minute: None,
        ..new_key("k_plain", None)
    };
    let too_rich = new_key("k_rich", Some(u64::MAX));
    let same_id = NewApiKey {
        sha256: [9; 32],
        ..plain.clone()
    };
    let same_secret = NewApiKey {
        id: "k_other".to_owned(),
        ..plain.clone()
    };
    // What is done, whether it does anything, and the version after it.
    for (key, error, version) in [
        (&full, None, 1),
        (&plain, None, 2),
        (&same_id, Some("exists already"), 2),
        (&same_secret, Some("exists already"), 2),
        (&too_rich, Some("too large"), 2),
    ] {
        let added = store.add_key(key.clone()).await;
        let problem = added.as_ref().err().map(ToString::to_string);
        let as_expected = match (&problem, error) {
            (None, None) => true,
            (Some(text), Some(part)) => text.contains(part),
            _ => false,
        };
        assert!(as_expected, "{}: {problem:?}", key.id);
        let found = other.keys_version().await.expect("readable");
        assert_eq!(found, version, "{}", key.id);
    }
    for (id, revoked, version) in [
        ("k_full", true, 3),
        ("k_full", false, 3),
        ("k_nobody", false, 3),
    ] {
        assert_eq!(store.revoke_key(id).await.expect("durable"), revoked);
        assert_eq!(other.keys_version().await.expect("readable"), version);
    }
    let found = other.api_keys().await.expect("readable");
    let [first, second] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(*first, as_record(full, first));
    assert_eq!(*second, as_record(plain, second));
    assert!(first.revoked_at >= Some(first.created_at) && second.revoked_at.is_none());
}

/// What an account holds: spent, reserved, and how many exchanges began.
async fn account(store: &Store, key: &str) -> ((u64, u64), (u64, u64), u64) {
    let state = store.budget(key).await.expect("readable").expect("a key");
    (
        (state.spent.micros(), state.spent_tokens),
        (state.reserved.micros(), state.reserved_tokens),
        state.requests,
    )
}

/// Every step of an account with limits, and what it holds after it.
#[tokio::test]
async fn accounts_stay_within_their_limits() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let limited = NewApiKey {
        token_budget: Some(100),
        ..new_key("k", Some(1_000))
    };
    store.add_key(limited).await.expect("added");
    let first = reservation("k", 600, 10);
    let id = first.exchange;
    let (reserved, more) = (((0, 0), (600, 10)), ((0, 0), (1_000, 100)));
    // What is asked for, whether it is granted, and the account after it.
    for (asked, granted, (spent, held), requests) in [
        (first.clone(), Some(true), reserved, 1),
        (first, None, reserved, 1),
        (reservation("k", 401, 10), Some(false), reserved, 1),
        (reservation("k", 10, 91), Some(false), reserved, 1),
        (
            reservation("k", u64::MAX, u64::MAX),
            Some(false),
            reserved,
            1,
        ),
        (reservation("k", 400, 90), Some(true), more, 2),
        (reservation("k", 0, 0), Some(true), more, 3),
        (reservation("k", 1, 0), Some(false), more, 3),
        (reservation("k", 0, 1), Some(false), more, 3),
    ] {
        let answer = store.reserve(asked.clone()).await;
        let found = answer
            .as_ref()
            .ok()
            .map(|answer| *answer == Reserved::Granted);
        assert_eq!(found, granted, "{asked:?}: {answer:?}");
        if let Ok(Reserved::Refused(state)) = answer {
            assert_eq!((state.reserved.micros(), state.reserved_tokens), held);
            let limits = (state.limit.map(MicroUsd::micros), state.token_limit);
            assert_eq!(limits, (Some(1_000), Some(100)));
        }
        assert_eq!(
            account(&store, "k").await,
            (spent, held, requests),
            "{asked:?}"
        );
    }
    // An exchange may cost more than was reserved for it; it is settled once.
    for (exchange, settled) in [(id, true), (id, false), (Uuid::now_v7(), false)] {
        let found = store.settle(exchange, micros(700), 20).await;
        assert_eq!(found.expect("durable"), settled);
        assert_eq!(account(&store, "k").await, ((700, 20), (400, 90), 3));
    }
}

/// Accounts without limits count whatever they are given, and no key means no account.
#[tokio::test]
async fn accounts_without_limits_only_count() {
    const MOST: u64 = 1 << 43;
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    store.add_key(new_key("free", None)).await.expect("added");
    store.add_key(new_key("gone", None)).await.expect("added");
    assert!(store.revoke_key("gone").await.expect("durable"));
    let asked = reservation("free", u64::MAX, u64::MAX);
    let exchange = asked.exchange;
    assert_eq!(
        store.reserve(asked).await.expect("durable"),
        Reserved::Granted
    );
    assert_eq!(account(&store, "free").await, ((0, 0), (MOST, MOST), 1));
    let settled = store.settle(exchange, micros(u64::MAX), u64::MAX).await;
    assert!(settled.expect("durable"));
    let spent = store.spend("free", micros(5), 6).await.expect("queued");
    spent.await.expect("durable");
    assert_eq!(
        account(&store, "free").await,
        ((MOST + 5, MOST + 6), (0, 0), 2)
    );
    for key in ["gone", "nobody"] {
        let refused = store.reserve(reservation(key, 0, 0)).await;
        let refused = refused.expect_err("no key in force");
        assert!(matches!(refused, StoreError::UnknownApiKey(_)), "{refused}");
        assert_eq!(refused.code(), ErrorCode::Unauthenticated);
    }
    // What a key used before it was revoked is still counted.
    for (key, counted) in [("gone", true), ("nobody", false)] {
        let spent = store.spend(key, micros(5), 6).await.expect("queued");
        assert_eq!(spent.await.is_ok(), counted, "{key}");
        let state = store.budget(key).await.expect("readable");
        assert_eq!(state.is_some(), counted, "{key}");
    }
}

/// B24: however many ask at once, in however many processes, a budget for one is granted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b24_a_budget_for_one_is_granted_once() {
    let dir = crate::lab::directory();
    let stores = [open(dir.path()).await, open(dir.path()).await];
    let cheap = new_key("k_here", Some(300));
    stores[0].add_key(cheap).await.expect("added");
    stores[0]
        .add_key(new_key("k_shared", Some(300)))
        .await
        .expect("added");
    let peers = ["a hundred reservations"; 2].map(|part| Peer::start(&[], part, dir.path()));
    let mut tasks = Vec::new();
    for number in 0..200 {
        let store = stores[number % 2].clone();
        tasks.push(tokio::spawn(async move {
            store
                .reserve(reservation("k_here", 300, 30))
                .await
                .expect("durable")
        }));
    }
    let mut granted = 0;
    for task in tasks {
        granted += usize::from(task.await.expect("no panic") == Reserved::Granted);
    }
    assert_eq!(granted, 1);
    let said: Vec<String> = peers.into_iter().flat_map(Peer::rest).collect();
    assert_eq!(said.len(), 200);
    assert_eq!(said.iter().filter(|line| *line == "granted").count(), 1);
}

/// What a process had reserved when it ended is spent, and only then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_owner_has_spent_what_it_reserved() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    store
        .add_key(new_key("k_shared", Some(1_000)))
        .await
        .expect("added");
    let mut peers = [(); 2].map(|()| Peer::start(&[], "reserve and wait", dir.path()));
    for peer in &mut peers {
        assert_eq!(peer.say().as_deref(), Some("Granted"));
    }
    let own = reservation("k_shared", 400, 40);
    let exchange = own.exchange;
    assert_eq!(
        store.reserve(own).await.expect("durable"),
        Reserved::Granted
    );
    let [first, second] = peers;
    let account = async || {
        let state = store.budget("k_shared").await.expect("readable");
        let state = state.expect("a key");
        let spent = (state.spent.micros(), state.spent_tokens);
        (spent, state.reserved.micros(), state.abandoned)
    };
    assert_eq!(store.sweep_reservations().await.expect("durable"), 0);
    assert_eq!(account().await, ((0, 0), 1_000, 0));
    first.kill();
    assert_eq!(store.sweep_reservations().await.expect("durable"), 1);
    assert_eq!(store.sweep_reservations().await.expect("durable"), 0);
    assert_eq!(account().await, ((300, 30), 700, 1));
    second.kill();
    open(dir.path()).await.close().await;
    assert_eq!(account().await, ((600, 60), 400, 2));
    assert!(store.settle(exchange, micros(1), 1).await.expect("durable"));
    assert_eq!(account().await, ((601, 61), 0, 2));
}

fn answer(principal: &str, id: &str, millis: i64) -> KeptAnswer {
    KeptAnswer {
        id: id.to_owned(),
        principal: principal.to_owned(),
        upstream: "openai".to_owned(),
        native: true,
        model: "gpt".to_owned(),
        created_at: Timestamp::from_unix_millis(millis),
        input_items: r#"[{"role":"user"}]"#.to_owned(),
        answer: format!(r#"{{"id":"{id}","of":"{principal}"}}"#),
        previous: (id != "first").then(|| "first".to_owned()),
    }
}

/// An answer is its principal's, and nobody else's.
#[tokio::test]
async fn answers_are_their_principals() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    for (principal, id) in [("ann", "first"), ("ann", "second"), ("bob", "first")] {
        let kept = store.keep_answer(answer(principal, id, 1_000)).await;
        kept.expect("durable");
    }
    let find = async |principal: &str, id: &str| {
        let found = store.answer(principal, id).await.expect("readable");
        found.inspect(|found| assert_eq!(*found, answer(principal, id, 1_000)))
    };
    for (principal, id, there) in [
        ("ann", "first", true),
        ("ann", "second", true),
        ("bob", "first", true),
        ("bob", "second", false),
        ("ann' OR 1=1 --", "first", false),
        ("", "first", false),
    ] {
        assert_eq!(
            find(principal, id).await.is_some(),
            there,
            "{principal} {id}"
        );
    }
    let forget = async |principal: &str, id: &str| {
        let forgotten = store.forget_answer(principal, id).await;
        forgotten.expect("durable")
    };
    assert!(!forget("bob", "second").await, "not his");
    assert!(forget("bob", "first").await && !forget("bob", "first").await);
    assert!(find("ann", "first").await.is_some() && find("bob", "first").await.is_none());
    let newer = KeptAnswer {
        native: false,
        ..answer("ann", "second", 2_000)
    };
    store.keep_answer(newer.clone()).await.expect("durable");
    assert_eq!(
        store.answer("ann", "second").await.expect("readable"),
        Some(newer)
    );
}

/// What is too old is forgotten, also where it is too much for one transaction.
#[tokio::test]
async fn what_is_old_is_forgotten() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let mut tasks = Vec::new();
    for millis in 0..1_100 {
        let store = store.clone();
        let kept = answer("ann", &millis.to_string(), millis);
        tasks.push(tokio::spawn(async move { store.keep_answer(kept).await }));
    }
    for task in tasks {
        task.await.expect("no panic").expect("durable");
    }
    let written = store.health().commits;
    let at = Timestamp::from_unix_millis(1_050);
    assert_eq!(
        store.forget_answers_before(at).await.expect("durable"),
        1_050
    );
    assert_eq!(store.health().commits - written, 3);
    assert_eq!(store.forget_answers_before(at).await.expect("durable"), 0);
    for (id, there) in [("1049", false), ("1050", true)] {
        assert_eq!(
            store.answer("ann", id).await.expect("readable").is_some(),
            there
        );
    }
    let entry = thought("ann", "claude", "one", "call");
    store.keep_reasoning(vec![entry]).await.expect("durable");
    let ages = [
        (at, 0),
        (Timestamp::from_unix_millis(200_000_000_000_000), 1),
    ];
    for (age, forgotten) in ages {
        let found = store.forget_reasoning_before(age).await;
        assert_eq!(found.expect("durable"), forgotten);
        let left = store.reasoning("ann", "claude", &["call"]).await;
        assert_eq!(left.expect("readable").len() as u64, 1 - forgotten);
    }
}

fn thought(principal: &str, vendor: &str, model: &str, call_id: &str) -> ReasoningEntry {
    ReasoningEntry {
        principal: principal.to_owned(),
        vendor: vendor.to_owned(),
        model: model.to_owned(),
        call_id: call_id.to_owned(),
        json: format!(r#""{principal} {vendor} {model} {call_id}""#),
    }
}

/// Reasoning comes back to the principal it was kept for, for the calls that are asked for.
#[tokio::test]
async fn reasoning_is_its_principals() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let ann = [
        thought("ann", "claude", "one", "a"),
        thought("ann", "claude", "two", "a"),
        thought("ann", "claude", "one", "b"),
        thought("ann", "gemini", "one", "a"),
    ];
    let bob = thought("bob", "claude", "one", "a");
    let outdated = ReasoningEntry {
        json: "null".to_owned(),
        ..bob.clone()
    };
    for entries in [ann.to_vec(), vec![outdated], vec![bob.clone()], Vec::new()] {
        store.keep_reasoning(entries).await.expect("durable");
    }
    for (principal, vendor, calls, expected) in [
        ("ann", "claude", &["b", "a", "a", "c\"]"][..], &ann[..3]),
        ("ann", "claude", &["b"], &ann[2..3]),
        ("ann", "gemini", &["a"], &ann[3..]),
        ("ann", "openai", &["a"], &[]),
        ("ann", "claude", &[], &[]),
        ("bob", "claude", &["a", "b"], std::slice::from_ref(&bob)),
        ("eve", "claude", &["a", "b"], &[]),
    ] {
        let found = store.reasoning(principal, vendor, calls).await;
        assert_eq!(
            found.expect("readable"),
            expected,
            "{principal} {vendor} {calls:?}"
        );
    }
}

/// F9: a store of the second version, with its log, becomes one of this version.
#[tokio::test]
async fn f9_a_store_of_the_second_version_is_taken_over() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    // What that version did not record is not there to be lost.
    let run = uuid::Uuid::now_v7();
    let old = abp_store::NewRun {
        backend_asked: None,
        project: None,
        principal: None,
        ..crate::lab::new_run(run)
    };
    store.accept(old).await.expect("accepted");
    finish(&store, run).await.expect("ended");
    store.close().await;
    let back = "DROP TABLE reservations; DROP TABLE budgets; DROP TABLE api_keys;
        DROP TABLE answers; DROP TABLE reasoning; DROP TABLE ledgers;
        DROP TABLE erasures;
        DROP TABLE exchange_segments; DROP TABLE exchange_writers;
        DROP TABLE decisions; DROP TABLE applications; DROP TABLE change_sets; DROP TABLE run_blobs;
        DROP TABLE submissions; DROP TABLE approvals; DROP TABLE outbox;
        DROP INDEX runs_by_start; DROP INDEX runs_by_project; DROP INDEX runs_by_principal;
        DROP INDEX queued_runs; DROP INDEX active_runs; DROP INDEX queued_by_principal;
        ALTER TABLE runs DROP COLUMN state; ALTER TABLE runs DROP COLUMN epoch;
        ALTER TABLE runs DROP COLUMN lease_until; ALTER TABLE runs DROP COLUMN pinned_to;
        ALTER TABLE runs DROP COLUMN attempt; ALTER TABLE runs DROP COLUMN max_attempts;
        ALTER TABLE runs DROP COLUMN notify; ALTER TABLE runs DROP COLUMN cancel_at;
        ALTER TABLE runs DROP COLUMN cancel_by; ALTER TABLE runs DROP COLUMN cancel_via;
        ALTER TABLE runs DROP COLUMN cancel_reason;
        ALTER TABLE runs DROP COLUMN log_seq; ALTER TABLE runs DROP COLUMN project_path;
        ALTER TABLE runs DROP COLUMN project_inode; ALTER TABLE runs DROP COLUMN project_born;
        ALTER TABLE runs DROP COLUMN principal; ALTER TABLE runs DROP COLUMN backend_asked;
        ALTER TABLE runs DROP COLUMN alive_at;
        ALTER TABLE head DROP COLUMN keys_version; ALTER TABLE head DROP COLUMN exchange_crashes;
        PRAGMA user_version = 2;";
    change(&dir.path().join("store.db"), back).await;
    let older = StoreReader::open(dir.path()).await.expect_err("older");
    assert!(
        matches!(older, StoreError::OlderVersion { found: 2, .. }),
        "{older}"
    );
    let store = open(dir.path()).await;
    assert!(store.receipt(run).await.expect("readable").is_some());
    store.add_key(new_key("k", None)).await.expect("added");
    let log = store.exchange_log();
    let exchange = recorded(&log);
    log.flush().await.expect("durable");
    assert!(store.exchange(exchange).await.expect("readable").is_some());
    assert_sound(&store).await;
}
