//! Every kind of edit in the database file is found, and named for what it is.

use std::path::Path;

use abp_core::{AgentEvent, EventDigest, Receipt, Timestamp};
use abp_receipt::{Hash, LogProblem};
use abp_store::{
    ApplicationEnd, Decider, RunPart, Store, StoreCoverage, StoreProblem, StoreReader,
    VerifyOptions,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::damage::{change, copy};
use crate::lab::{accepted, assert_sound, new_run, open};

/// A store with one run of each kind, and the entries of their log.
struct Scene {
    /// 0, 1: complete, its events embedded in the receipt, its changes partly applied (2).
    embedded: Uuid,
    /// 3, 4: complete, its events only in the store, its changes discarded (5).
    bare: Uuid,
    /// 6: under way.
    running: Uuid,
}

fn events() -> Vec<String> {
    let event = |number: u32| {
        let text = format!("piece {number}");
        json!({"ts": Timestamp::from_unix_millis(0), "type": "assistant_delta", "text": text})
    };
    (0..5).map(|number| event(number).to_string()).collect()
}

pub(crate) fn document(run_id: Uuid) -> Vec<u8> {
    format!(r#"{{"changes of":"{run_id}"}}"#).into_bytes()
}

pub(crate) fn alice() -> Decider {
    Decider {
        by: "alice".to_owned(),
        via: "cli".to_owned(),
    }
}

/// A receipt of a run with these events and this change set.
pub(crate) fn receipt_of(
    run_id: Uuid,
    events: &[String],
    is_embedded: bool,
    change_set: Option<Hash>,
) -> (Vec<u8>, String) {
    let mut digest = EventDigest::default();
    let mut trace = Vec::new();
    for event in events {
        let event: AgentEvent = serde_json::from_str(event).expect("an event");
        digest.push(&event).expect("an event");
        trace.push(event);
    }
    let workspace = change_set.map(|sha256| {
        json!({"mode": "staged", "files": 1, "bytes": 1, "baseline_sha256": "0".repeat(64),
            "change_set_sha256": sha256})
    });
    let (document, _) = crate::lab::receipt(run_id, "");
    let mut receipt: Value = serde_json::from_slice(&document).expect("JSON");
    receipt["trace"] = if is_embedded { json!(trace) } else { json!([]) };
    receipt["trace_digest"] = json!(digest.finish(is_embedded));
    receipt["workspace"] = json!(workspace);
    let receipt: Receipt = serde_json::from_value(receipt).expect("a receipt");
    let receipt = receipt.with_hash().expect("a hash");
    let hash = receipt.receipt_sha256.clone().expect("a hash");
    (receipt.to_document().expect("a document"), hash)
}

/// A whole run with a change set and an image.
pub(crate) async fn whole_run(store: &Store, is_embedded: bool) -> Uuid {
    let run_id = accepted(store).await;
    let ack = store.append_events(run_id, 0, events()).await;
    ack.expect("queued").await.expect("durable");
    let document = document(run_id);
    let sha256 = Hash::of(&document);
    let images = vec![(*Hash::of(b"before").as_bytes(), b"before".to_vec())];
    let kept = store
        .keep_change_set(run_id, document, *sha256.as_bytes(), images)
        .await;
    kept.expect("kept");
    let (receipt, hash) = receipt_of(run_id, &events(), is_embedded, Some(sha256));
    store.finish(run_id, receipt, &hash).await.expect("ended");
    run_id
}

async fn scene(dir: &Path) -> Scene {
    let store = open(dir).await;
    let embedded = whole_run(&store, true).await;
    let id = store
        .begin_application(embedded, alice(), vec!["a".to_owned()], Vec::new())
        .await
        .expect("begun");
    let end = ApplicationEnd::Applied {
        paths: vec!["a".to_owned()],
        remaining: 3,
    };
    store.end_application(id, end).await.expect("ended");
    let bare = whole_run(&store, false).await;
    let discarded = store.discard_change_set(bare, alice()).await;
    discarded.expect("discarded");
    let running = accepted(&store).await;
    let ack = store.append_events(running, 0, events()).await;
    ack.expect("queued").await.expect("durable");
    assert_sound(&store).await;
    store.close().await;
    Scene {
        embedded,
        bare,
        running,
    }
}

async fn problems(dir: &Path) -> (Vec<StoreProblem>, Vec<LogProblem>) {
    let reader = StoreReader::open(dir).await.expect("opens");
    let report = reader.verify(VerifyOptions::default()).await;
    let report = report.expect("can be verified");
    reader.close().await;
    assert_eq!(report.problem_count, report.problems.len() as u64);
    (report.problems, report.log.problems)
}

/// What a case expects: the problem, as it is told, with `*` for what is long.
type Case = (&'static str, &'static str);

/// Edits of what is stored of the first run, whose row has number 1.
const OF_A_RUN: &[Case] = &[
    (
        "UPDATE runs SET work_order = replace(work_order, 'hello', 'goodbye') WHERE id = 1",
        "stored order: its hash is *",
    ),
    (
        "UPDATE runs SET work_order = work_order || ' ' WHERE id = 1",
        "stored order: its hash is *",
    ),
    (
        "UPDATE runs SET work_order_sha256 = replace(work_order_sha256, '5e5e', '5e5f') WHERE id = 1",
        "hash of the order: it is *",
    ),
    (
        "UPDATE runs SET backend = 'claude' WHERE id = 1",
        "row: its hash is *",
    ),
    (
        "UPDATE runs SET backend_asked = NULL WHERE id = 1",
        "row: its hash is *",
    ),
    (
        "UPDATE runs SET principal = 'mallory' WHERE id = 1",
        "row: its hash is *",
    ),
    (
        "UPDATE runs SET project_path = '/srv/mallory' WHERE id = 1",
        "row: its hash is *",
    ),
    (
        "UPDATE runs SET project_inode = project_inode + 1 WHERE id = 1",
        "row: its hash is *",
    ),
    (
        "UPDATE runs SET project_born = project_born + 1 WHERE id = 1",
        "row: its hash is *",
    ),
    (
        "UPDATE runs SET idempotency_key = 'k' WHERE id = 1",
        "row: its hash is *",
    ),
    (
        "UPDATE runs SET request_sha256 = 'k' WHERE id = 1",
        "row: its hash is *",
    ),
    (
        "UPDATE runs SET accepted_at = accepted_at - 1 WHERE id = 1",
        "time of acceptance: it is *",
    ),
    (
        "UPDATE runs SET outcome = 'failed' WHERE id = 1",
        "outcome: it is Some(\"failed\"), the receipt has \"complete\"",
    ),
    (
        "UPDATE runs SET outcome = NULL WHERE id = 1",
        "outcome: it is None, the receipt has \"complete\"",
    ),
    (
        "UPDATE runs SET ended_at = ended_at + 1 WHERE id = 1",
        "time of the end: it is *",
    ),
    (
        "UPDATE runs SET ended_at = NULL WHERE id = 1",
        "time of the end: it is None, *",
    ),
    (
        "UPDATE events SET json = replace(json, 'piece 2', 'price 2') WHERE run = 1",
        "events: event 2 was changed",
    ),
    (
        "UPDATE events SET json = '{' WHERE run = 1 AND seq = 4",
        "events: event 4 is not JSON: *",
    ),
    (
        "DELETE FROM events WHERE run = 1 AND seq = 4",
        "events: event 4 is missing",
    ),
    (
        "DELETE FROM events WHERE run = 1 AND seq = 1",
        "events: event 1 is missing",
    ),
    (
        "DELETE FROM events WHERE run = 1",
        "events: event 0 is missing",
    ),
    (
        "INSERT INTO events VALUES (1, 5, '{}')",
        "events: event 5 is not in the receipt",
    ),
    (
        "UPDATE events SET json = (SELECT json FROM events AS e WHERE e.run = 1 AND e.seq = 3 - events.seq) WHERE run = 1 AND seq IN (1, 2)",
        "events: event 1 was changed",
    ),
    (
        "UPDATE change_sets SET sha256 = zeroblob(32) WHERE run = 1",
        "change set: decision *",
    ),
    (
        "UPDATE change_sets SET state = 'applied' WHERE run = 1",
        "change set: its state is applied, logged is no decision",
    ),
    (
        "DELETE FROM change_sets WHERE run = 1",
        "change set: it is missing",
    ),
    (
        "UPDATE run_blobs SET bytes = CAST(replace(bytes, 'changes', 'chances') AS BLOB) WHERE run = 1",
        "change set: a stored document or image has the hash *",
    ),
    (
        "UPDATE run_blobs SET bytes = x'00' WHERE run = 1 AND bytes = x'6265666f7265'",
        "change set: a stored document or image has the hash *",
    ),
    (
        "UPDATE run_blobs SET chunk = 1 WHERE run = 1 AND bytes = x'6265666f7265'",
        "change set: a stored document or image has the hash *",
    ),
    (
        "DELETE FROM run_blobs WHERE run = 1 AND bytes != x'6265666f7265'",
        "change set: its document is missing",
    ),
];

/// Edits of the second run, whose events are not in its receipt, and of the third, which is under
/// way.
const OF_OTHER_RUNS: &[Case] = &[
    (
        "UPDATE events SET json = replace(json, 'piece 2', 'price 2') WHERE run = 2",
        "bare events: at least one event was changed",
    ),
    (
        "DELETE FROM events WHERE run = 2 AND seq = 4",
        "bare events: event 4 is missing",
    ),
    (
        "UPDATE change_sets SET state = 'proposed' WHERE run = 2",
        "bare change set: its state is proposed, logged is discarded",
    ),
    (
        "DELETE FROM events WHERE run = 3 AND seq = 1",
        "running events: they are not numbered from 0 without gaps",
    ),
    (
        "UPDATE events SET seq = 9 WHERE run = 3 AND seq = 4",
        "running events: they are not numbered from 0 without gaps",
    ),
    (
        "UPDATE runs SET work_order = '{}' WHERE id = 3",
        "running stored order: its hash is *",
    ),
];

/// Matches a text against one in which `*` stands for anything.
fn matches(text: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => text == pattern,
        Some((start, end)) => text.starts_with(start) && text.ends_with(end),
    }
}

/// E1, E11: each edit of what is stored of a run is found, under the name of what was edited.
#[tokio::test]
async fn e1_e11_edits_of_runs_are_named() {
    let dir = crate::lab::directory();
    let original = dir.path().join("original");
    let scene = scene(&original).await;
    let all = OF_A_RUN.iter().chain(OF_OTHER_RUNS).enumerate();
    for (place, (statement, expected)) in all {
        let edited = dir.path().join(place.to_string());
        copy(&original, &edited);
        change(&edited.join("store.db"), statement).await;
        let (run_id, expected) = match expected.split_once(' ') {
            Some(("bare", expected)) => (scene.bare, expected),
            Some(("running", expected)) => (scene.running, expected),
            _ => (scene.embedded, *expected),
        };
        let (found, _) = problems(&edited).await;
        let named = found.iter().any(|problem| match problem {
            StoreProblem::RunChanged {
                run_id: of,
                what,
                detail,
            } => *of == run_id && matches(&format!("{what}: {detail}"), expected),
            _ => false,
        });
        assert!(named, "{statement}: {found:#?}");
        std::fs::remove_dir_all(&edited).expect("removed");
    }
}

/// Rows that are gone, added, or exchanged between runs.
#[tokio::test]
async fn e6_missing_added_and_exchanged_rows_are_named() {
    let dir = crate::lab::directory();
    let original = dir.path().join("original");
    let scene = scene(&original).await;
    let changed = |run_id, what| format!("RunChanged {{ run_id: {run_id}, what: {what:?}");
    let cases: Vec<(&str, Vec<String>)> = vec![
        (
            "DELETE FROM runs WHERE id = 3",
            vec![format!("MissingRun {{ run_id: {}, seq: 6 }}", scene.running)],
        ),
        (
            "INSERT INTO runs (run_id, accepted_at, work_order, work_order_sha256, backend, owner)
                VALUES ('0190a5c8-0000-7000-8000-000000000000', 0, '{}', 's', 'b', 'o')",
            vec!["UnloggedRun".to_owned()],
        ),
        (
            "INSERT INTO runs (run_id, accepted_at, work_order, work_order_sha256, backend, owner, log_seq)
                VALUES ('0190a5c8-0000-7000-8000-000000000000', 0, '{}', 's', 'b', 'o', 1)",
            vec!["UnloggedRun".to_owned()],
        ),
        (
            "UPDATE runs SET log_seq = -1 WHERE id = 1; UPDATE runs SET log_seq = 0 WHERE id = 2;
                UPDATE runs SET log_seq = 3 WHERE id = 1",
            vec![changed(scene.embedded, RunPart::Row), changed(scene.bare, RunPart::Row)],
        ),
        (
            "UPDATE events SET run = 9 WHERE run = 1; UPDATE events SET run = 1 WHERE run = 2;
                UPDATE events SET run = 2, seq = seq WHERE run = 9;
                UPDATE events SET json = replace(json, 'piece 0', 'peace 0') WHERE run = 1",
            vec![changed(scene.embedded, RunPart::Events)],
        ),
        ("INSERT INTO events VALUES (99, 0, '{}')", vec!["a row of events belongs".to_owned()]),
        (
            "UPDATE decisions SET document = CAST(replace(document, 'alice', 'bobby') AS BLOB) WHERE log_seq = 2",
            vec!["Decision { seq: 2, detail: \"its hash is".to_owned()],
        ),
        (
            "UPDATE decisions SET kind = 'applied' WHERE log_seq = 2",
            vec!["Decision { seq: 2, detail: \"it is filed as".to_owned()],
        ),
        (
            "UPDATE decisions SET run = 2 WHERE log_seq = 2",
            vec!["Decision { seq: 2, detail: \"it is filed under run".to_owned()],
        ),
        (
            "DELETE FROM decisions WHERE log_seq = 2",
            vec!["Decision { seq: 2, detail: \"it is missing\" }".to_owned()],
        ),
        (
            "UPDATE decisions SET log_seq = 6 WHERE log_seq = 5",
            vec![
                "Decision { seq: 5, detail: \"it is missing\" }".to_owned(),
                "Decision { seq: 6, detail: \"the log does not have it\" }".to_owned(),
            ],
        ),
        (
            "UPDATE receipts SET document = CAST(replace(document, 'complete', 'failed') AS BLOB) WHERE run = 1",
            vec![format!("Edit {{ index: 1, run_id: Some({}), what: Receipt", scene.embedded)],
        ),
        (
            "UPDATE log SET entry = replace(entry, 'decision_sha256\":\"', 'decision_sha256\":\"0') WHERE seq = 2",
            vec!["Edit { index: 2".to_owned()],
        ),
    ];
    for (place, (statement, expected)) in cases.into_iter().enumerate() {
        let edited = dir.path().join(place.to_string());
        copy(&original, &edited);
        change(&edited.join("store.db"), statement).await;
        let found = format!("{:?}", problems(&edited).await);
        for expected in expected {
            assert!(
                found.contains(&expected),
                "{statement}: {expected}: {found}"
            );
        }
    }
}

/// A store without edits says how much of it the log covers.
#[tokio::test]
async fn coverage_is_told() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    whole_run(&store, true).await;
    let run = Uuid::now_v7();
    store.accept(new_run(run)).await.expect("accepted");
    crate::lab::append(&store, run, 0).await.expect("durable");
    // A receipt without a digest of the events.
    crate::lab::finish(&store, run).await.expect("ended");
    let report = store.verify(VerifyOptions::default()).await;
    let report = report.expect("can be verified");
    assert!(report.is_ok(), "{report:#?}");
    let expected = StoreCoverage {
        runs: 2,
        unbound_runs: 0,
        undigested_traces: 1,
        erased_traces: 0,
    };
    assert_eq!(report.coverage, expected);
}

/// Very many problems are counted, and the first thousand listed.
#[tokio::test]
async fn problems_are_bounded() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let mut accepted = Vec::new();
    for _ in 0..1_100 {
        let store = store.clone();
        let run = new_run(Uuid::now_v7());
        accepted.push(tokio::spawn(async move { store.accept(run).await }));
    }
    for run in accepted {
        run.await.expect("a task").expect("accepted");
    }
    store.close().await;
    change(
        &dir.path().join("store.db"),
        "UPDATE runs SET backend = 'other'",
    )
    .await;
    let reader = StoreReader::open(dir.path()).await.expect("opens");
    let report = reader.verify(VerifyOptions::default()).await;
    let report = report.expect("can be verified");
    assert_eq!(
        (report.problems.len(), report.problem_count),
        (1_000, 1_100)
    );
    assert!(!report.is_ok());
}

/// A store whose head row was removed is not taken for a new one: nobody gets a new key for an old log.
#[tokio::test]
async fn a_log_without_its_head_is_no_new_log() {
    let dir = crate::lab::directory();
    scene(dir.path()).await;
    let keys = || {
        let keys = std::fs::read_dir(dir.path().join("keys")).expect("keys");
        keys.count()
    };
    let before = keys();
    change(&dir.path().join("store.db"), "DELETE FROM head").await;
    let written = Store::open(dir.path(), crate::lab::options()).await;
    let read = StoreReader::open(dir.path()).await;
    for error in [written.err(), read.err()] {
        let error = error.expect("refused");
        assert!(
            matches!(error, abp_store::StoreError::LogBroken { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("head"), "{error}");
    }
    assert_eq!(keys(), before);
}

/// Edits of the row that holds the end of the log and its keys are named by their column, also for a
/// verifier that brought its own key and after a rotation.
#[tokio::test]
async fn edits_of_the_head_are_named() {
    let dir = crate::lab::directory();
    let original = dir.path().join("original");
    scene(&original).await;
    let store = open(&original).await;
    let first = store.first_key().await.expect("a key");
    store.rotate_key().await.expect("rotated");
    accepted(&store).await;
    store.close().await;
    let cases = [
        ("UPDATE head SET key = first_key", "key"),
        ("UPDATE head SET key = 'none'", "key"),
        ("UPDATE head SET first_key = key", "first_key"),
        ("UPDATE head SET frontier = '[]'", "frontier"),
        ("UPDATE head SET frontier = frontier || ' '", "frontier"),
        ("UPDATE head SET frontier = ''", "frontier"),
    ];
    for (place, (statement, expected)) in cases.into_iter().enumerate() {
        let edited = dir.path().join(place.to_string());
        copy(&original, &edited);
        change(&edited.join("store.db"), statement).await;
        let reader = StoreReader::open(&edited).await.expect("opens");
        let options = VerifyOptions {
            keys: Some(abp_receipt::KeyRing::of(first.clone())),
            ..VerifyOptions::default()
        };
        let report = reader.verify(options).await.expect("can be verified");
        reader.close().await;
        let columns: Vec<_> = report
            .problems
            .iter()
            .filter_map(|problem| match problem {
                StoreProblem::Head { column, .. } => Some(*column),
                _ => None,
            })
            .collect();
        assert_eq!(columns, [expected], "{statement}: {report:#?}");
    }
}

/// A document that names its images has exactly those, until its changes are decided.
#[tokio::test]
async fn images_that_are_missing_or_unnamed_are_found() {
    let dir = crate::lab::directory();
    let original = dir.path().join("original");
    let store = open(&original).await;
    let run_id = accepted(&store).await;
    let images = [b"first".to_vec(), b"second".to_vec()];
    let named: Vec<_> = images.iter().map(|image| Hash::of(image)).collect();
    let document = json!({ "images": named }).to_string().into_bytes();
    let sha256 = Hash::of(&document);
    let images = images.map(|image| (*Hash::of(&image).as_bytes(), image));
    store
        .keep_change_set(run_id, document, *sha256.as_bytes(), images.to_vec())
        .await
        .expect("kept");
    let (receipt, hash) = receipt_of(run_id, &[], true, Some(sha256));
    store.finish(run_id, receipt, &hash).await.expect("ended");
    let idle = accepted(&store).await;
    let (receipt, hash) = receipt_of(idle, &[], true, None);
    store.finish(idle, receipt, &hash).await.expect("ended");
    assert_sound(&store).await;
    store.close().await;
    let extra = "INSERT INTO run_blobs VALUES";
    let bytes = "x'2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824', 0, CAST('hello' AS BLOB)";
    let cases = [
        (
            "DELETE FROM run_blobs WHERE bytes = CAST('second' AS BLOB)".to_owned(),
            "1 stored images are missing and 0 are not named by it",
        ),
        (
            format!("{extra} (1, {bytes})"),
            "0 stored images are missing and 1 are not named by it",
        ),
        (
            format!("{extra} (2, {bytes})"),
            "images are stored without it",
        ),
        (
            "UPDATE change_sets SET state = 'applying'".to_owned(),
            "it is being applied by nothing",
        ),
        (
            "INSERT INTO applications VALUES ('a', 1, 'o', 'by', 'via', 0, '[]', x'00')".to_owned(),
            "it is being applied and its state is proposed",
        ),
        (
            "UPDATE change_sets SET state_by = 'mallory'".to_owned(),
            "its state is by \"mallory\" *",
        ),
        (
            "UPDATE change_sets SET state_at = state_at - 1".to_owned(),
            "its state is by \"\" *",
        ),
    ];
    for (place, (statement, expected)) in cases.into_iter().enumerate() {
        let edited = dir.path().join(place.to_string());
        copy(&original, &edited);
        let leaked: &'static str = Box::leak(statement.into_boxed_str());
        change(&edited.join("store.db"), leaked).await;
        let (found, _) = problems(&edited).await;
        let is_named = found.iter().any(|problem| {
            matches!(problem, StoreProblem::RunChanged { what: RunPart::ChangeSet, detail, .. }
                if matches(detail, expected))
        });
        assert!(is_named, "{leaked}: {found:#?}");
    }
}
