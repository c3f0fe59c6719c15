//! Change sets, applications and decisions: the states, the log, and processes that die.

use abp_error::ErrorCode;
use abp_receipt::{ChangeDecision, DecisionKind, EntryKind, Hash, LogEntry};
use abp_store::{
    ApplicationEnd, ChangeSetState, Decider, DecisionRecord, Store, StoreError, StoreReader,
};
use uuid::Uuid;

use crate::lab::{accepted, assert_sound, finish, open, open_reader};
use crate::peer::Peer;
use crate::tampering::{alice, document, receipt_of, whole_run};

fn bytes_of(hash: Hash) -> [u8; 32] {
    *hash.as_bytes()
}

async fn keep(store: &Store, run: Uuid) -> Result<(), StoreError> {
    let document = document(run);
    let sha256 = bytes_of(Hash::of(&document));
    store
        .keep_change_set(run, document, sha256, Vec::new())
        .await
}

async fn state(store: &StoreReader, run: Uuid) -> ChangeSetState {
    let record = store.change_set(run).await.expect("readable");
    record.expect("a change set").state
}

fn applied(paths: &[&str], remaining: u64) -> ApplicationEnd {
    ApplicationEnd::Applied {
        paths: paths.iter().map(|&path| path.to_owned()).collect(),
        remaining,
    }
}

/// The decisions that the log has, in its order.
async fn logged(store: &StoreReader) -> Vec<(u64, Uuid, Hash)> {
    let entries = store.log_entries(0, 1_000).await.expect("a page");
    let decision = |record: &abp_store::LogRecord| {
        let entry = LogEntry::from_leaf_bytes(record.entry.as_bytes()).expect("an entry");
        match entry.kind {
            EntryKind::Decision {
                run_id,
                decision_sha256,
            } => Some((record.seq, run_id, decision_sha256)),
            _ => None,
        }
    };
    entries.iter().filter_map(decision).collect()
}

/// Documents and images of every size come back byte for byte, until they are decided.
#[tokio::test]
async fn a_change_set_is_kept_until_it_is_decided() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let run = accepted(&store).await;
    let large: Vec<u8> = (0..3_500_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    let images = [Vec::new(), b"x".to_vec(), vec![7; 1024 * 1024], large];
    let hashed = |bytes: &Vec<u8>| (bytes_of(Hash::of(bytes)), bytes.clone());
    let document = document(run);
    let sha256 = bytes_of(Hash::of(&document));
    let wrong = store.keep_image(run, sha256, b"other".to_vec()).await;
    assert!(
        matches!(wrong, Err(StoreError::WrongHash { .. })),
        "{wrong:?}"
    );
    let (first, rest) = images.split_first().expect("images");
    let (name, bytes) = hashed(first);
    store.keep_image(run, name, bytes).await.expect("kept");
    let rest = rest.iter().map(hashed).collect();
    let kept = store
        .keep_change_set(run, document.clone(), sha256, rest)
        .await;
    kept.expect("kept");
    // Again, as after an answer that was lost.
    keep(&store, run).await.expect("the same");
    let other = store
        .keep_change_set(run, b"{}".to_vec(), bytes_of(Hash::of(b"{}")), Vec::new())
        .await;
    assert!(
        matches!(other, Err(StoreError::ChangeSetExists(_))),
        "{other:?}"
    );
    let (receipt, hash) = receipt_of(run, &[], true, Some(Hash::from_bytes(sha256)));
    store.finish(run, receipt, &hash).await.expect("ended");
    let late = store.keep_image(run, name, Vec::new()).await;
    assert!(matches!(late, Err(StoreError::RunOver(_))), "{late:?}");

    let reader = open_reader(dir.path()).await.expect("a reader");
    let record = reader
        .change_set(run)
        .await
        .expect("readable")
        .expect("kept");
    assert_eq!((record.document, record.sha256), (Some(document), sha256));
    assert_eq!(record.state, ChangeSetState::Proposed);
    for image in &images {
        let found = reader.before_image(run, bytes_of(Hash::of(image))).await;
        assert_eq!(found.expect("readable").as_ref(), Some(image));
    }
    assert_eq!(
        reader.before_image(run, [9; 32]).await.expect("readable"),
        None
    );
    assert_eq!(reader.undecided().await.expect("readable"), [run].into());
    assert_sound(&store).await;

    let decided = store
        .discard_change_set(run, alice())
        .await
        .expect("discarded");
    let record = reader
        .change_set(run)
        .await
        .expect("readable")
        .expect("a row");
    assert_eq!(
        (record.document, record.state),
        (None, ChangeSetState::Discarded)
    );
    assert_eq!(
        (record.state_by.as_str(), record.state_at),
        ("alice", decided.decision.at)
    );
    for image in &images {
        let found = reader.before_image(run, bytes_of(Hash::of(image))).await;
        assert_eq!(found.expect("readable"), None);
    }
    assert!(reader.undecided().await.expect("readable").is_empty());
    assert_sound(&store).await;
}

/// Changes that the receipt does not vouch for go with it; those that are being applied do not.
#[tokio::test]
async fn changes_without_a_receipt_are_removed() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let image = bytes_of(Hash::of(b"image"));
    let orphan = accepted(&store).await;
    store
        .keep_image(orphan, image, b"image".to_vec())
        .await
        .expect("kept");
    let dropped = accepted(&store).await;
    keep(&store, dropped).await.expect("kept");
    for run in [orphan, dropped] {
        finish(&store, run).await.expect("ended");
        assert_eq!(store.change_set(run).await.expect("readable"), None);
        assert_eq!(
            store.before_image(run, image).await.expect("readable"),
            None
        );
    }
    let applying = accepted(&store).await;
    keep(&store, applying).await.expect("kept");
    let id = store
        .begin_application(applying, alice(), Vec::new(), Vec::new())
        .await
        .expect("begun");
    finish(&store, applying).await.expect("ended");
    assert_sound(&store).await;
    let saves = vec!["mine.txt".to_owned()];
    let end = ApplicationEnd::RolledBack { saves };
    store.end_application(id, end).await.expect("ended");
    assert_eq!(state(&store, applying).await, ChangeSetState::Proposed);
    assert_sound(&store).await;
}

/// Single files first, the rest later: each is one decision in the log, bound by its hash.
#[tokio::test]
async fn every_decision_is_one_entry_of_the_log() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let run = whole_run(&store, true).await;
    let begin = async |paths: &[&str]| {
        let paths = paths.iter().map(|&path| path.to_owned()).collect();
        let begun = store.begin_application(run, alice(), paths, b"one".to_vec());
        begun.await.expect("begun")
    };
    let mut decided: Vec<DecisionRecord> = Vec::new();
    let id = begin(&["a"]).await;
    assert_eq!(state(&store, run).await, ChangeSetState::Applying);
    store
        .update_application(id, b"two".to_vec())
        .await
        .expect("updated");
    let application = store
        .application(id)
        .await
        .expect("readable")
        .expect("open");
    assert_eq!(application.journal, b"two");
    assert_eq!(
        (application.run_id, application.paths),
        (run, vec!["a".to_owned()])
    );
    let end = store
        .end_application(id, applied(&["a"], 2))
        .await
        .expect("ended");
    decided.extend(end);
    assert_eq!(state(&store, run).await, ChangeSetState::Proposed);
    for end in [ApplicationEnd::Withdrawn, ApplicationEnd::Conflict] {
        let id = begin(&[]).await;
        assert_eq!(store.end_application(id, end).await.expect("ended"), None);
    }
    assert_eq!(state(&store, run).await, ChangeSetState::Conflict);
    let id = begin(&["b", "c"]).await;
    let saves = vec!["b".to_owned()];
    let end = store
        .end_application(id, ApplicationEnd::RolledBack { saves })
        .await;
    decided.extend(end.expect("ended"));
    let id = begin(&[]).await;
    decided.extend(
        store
            .end_application(id, applied(&["b", "c"], 0))
            .await
            .expect("ended"),
    );
    assert_eq!(state(&store, run).await, ChangeSetState::Applied);

    let kinds: Vec<_> = decided
        .iter()
        .map(|record| {
            let ChangeDecision {
                kind,
                paths,
                saves,
                run: of,
                by,
                via,
                ..
            } = &record.decision;
            assert_eq!((*of, by.as_str(), via.as_str()), (run, "alice", "cli"));
            assert_eq!(record.decision.change_set_sha256, Hash::of(&document(run)));
            (*kind, paths.join(" "), saves.join(" "))
        })
        .collect();
    let line = |kind, paths: &str, saves: &str| (kind, paths.to_owned(), saves.to_owned());
    let expected = [
        line(DecisionKind::PartiallyApplied, "a", ""),
        line(DecisionKind::RolledBack, "b c", "b"),
        line(DecisionKind::Applied, "b c", ""),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(store.decisions(run, 0, 10).await.expect("a page"), decided);
    let after_first = store.decisions(run, decided[0].seq + 1, 1).await;
    assert_eq!(after_first.expect("a page"), decided[1..2]);
    let in_log: Vec<_> = decided
        .iter()
        .map(|record| (record.seq, run, record.sha256))
        .collect();
    assert_eq!(logged(&store).await, in_log);
    assert!(
        store
            .open_applications()
            .await
            .expect("readable")
            .is_empty()
    );
    assert_sound(&store).await;
}

/// Every state and everything that can be tried in it: what is refused says what the state is, and
/// leaves no trace.
#[tokio::test]
async fn a_wrong_step_says_what_the_state_is() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let cases = [
        (
            ChangeSetState::Applying,
            "are being applied by alice since ",
        ),
        (ChangeSetState::Applied, "are already applied, by alice at "),
        (
            ChangeSetState::Discarded,
            "are already discarded, by alice at ",
        ),
        (
            ChangeSetState::Expired,
            "have expired and were removed by alice at ",
        ),
    ];
    let mallory = || Decider {
        by: "mallory".to_owned(),
        via: "http".to_owned(),
    };
    for (wanted, words) in cases {
        let run = whole_run(&store, true).await;
        let begin = || store.begin_application(run, alice(), Vec::new(), Vec::new());
        match wanted {
            ChangeSetState::Discarded => drop(store.discard_change_set(run, alice()).await),
            ChangeSetState::Expired => drop(store.expire_change_set(run, alice()).await),
            ChangeSetState::Applying => drop(begin().await.expect("begun")),
            _ => {
                let id = begin().await.expect("begun");
                store
                    .end_application(id, applied(&[], 0))
                    .await
                    .expect("ended");
                let again = store.end_application(id, applied(&[], 0)).await;
                let again = again.expect_err("it is over");
                assert_eq!(again.code(), ErrorCode::NotFound, "{again}");
            }
        }
        let before = logged(&store).await;
        let refusals = [
            store
                .begin_application(run, mallory(), Vec::new(), Vec::new())
                .await
                .map(drop),
            store.discard_change_set(run, mallory()).await.map(drop),
            store.expire_change_set(run, mallory()).await.map(drop),
        ];
        for refused in refusals {
            let refused = refused.expect_err("decided");
            assert_eq!(refused.code(), ErrorCode::ChangeSetDecided);
            assert!(refused.to_string().contains(words), "{refused}");
        }
        assert_eq!(state(&store, run).await, wanted);
        assert_eq!(logged(&store).await, before);
    }
    let plain = accepted(&store).await;
    finish(&store, plain).await.expect("ended");
    for (run, expected) in [
        (plain, ErrorCode::NotFound),
        (Uuid::now_v7(), ErrorCode::ValidationFailed),
    ] {
        let refused = store
            .discard_change_set(run, alice())
            .await
            .expect_err("nothing");
        assert_eq!(refused.code(), expected, "{refused}");
    }
    assert_sound(&store).await;
}

/// Of many who apply or discard at the same time, one gets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_decides() {
    let dir = crate::lab::directory();
    let stores = [open(dir.path()).await, open(dir.path()).await];
    for round in 0..10 {
        let run = whole_run(&stores[0], true).await;
        let mut tasks = Vec::new();
        for number in 0..8 {
            let store = stores[number % 2].clone();
            tasks.push(tokio::spawn(async move {
                if (number + round) % 3 == 0 {
                    store.discard_change_set(run, alice()).await.is_ok()
                } else {
                    match store
                        .begin_application(run, alice(), Vec::new(), Vec::new())
                        .await
                    {
                        Ok(id) => store.end_application(id, applied(&[], 0)).await.is_ok(),
                        Err(_) => false,
                    }
                }
            }));
        }
        let mut winners = 0;
        for task in tasks {
            winners += usize::from(task.await.expect("a task"));
        }
        assert_eq!(winners, 1);
        assert_eq!(
            stores[0].decisions(run, 0, 10).await.expect("a page").len(),
            1
        );
    }
    assert_sound(&stores[0]).await;
}

/// F1: an application whose process was killed is finished by one other process, and not before.
#[tokio::test]
async fn f1_an_application_outlives_its_process() {
    let dir = crate::lab::directory();
    let mut peer = Peer::start(&[], "apply and wait", dir.path());
    let run = peer.run_id();
    let id: Uuid = peer.say().expect("its application").parse().expect("an id");
    let store = open(dir.path()).await;
    let other = open(dir.path()).await;
    let open_now = store.open_applications().await.expect("readable");
    assert_eq!(open_now.len(), 1);
    assert_eq!((open_now[0].id, open_now[0].run_id), (id, run));
    assert!(open_now[0].owner_alive && !open_now[0].own);
    assert_eq!(open_now[0].decider, alice());
    assert!(!store.adopt_application(id).await.expect("it is there"));
    let early = store.end_application(id, applied(&[], 0)).await;
    assert!(
        matches!(early, Err(StoreError::ForeignApplication(_))),
        "{early:?}"
    );
    peer.kill();
    let open_now = store.open_applications().await.expect("readable");
    assert!(!open_now[0].owner_alive);
    let (one, two) = tokio::join!(store.adopt_application(id), other.adopt_application(id));
    let (one, two) = (one.expect("there"), two.expect("there"));
    assert!(one != two, "exactly one takes it");
    let (owner, loser) = if one {
        (&store, &other)
    } else {
        (&other, &store)
    };
    assert!(loser.update_application(id, Vec::new()).await.is_err());
    let journal = owner
        .application(id)
        .await
        .expect("readable")
        .expect("open")
        .journal;
    assert_eq!(journal, b"step 2");
    let end = owner
        .end_application(id, applied(&["a"], 0))
        .await
        .expect("ended");
    assert_eq!(
        end.expect("a decision").decision.kind,
        DecisionKind::Applied
    );
    let gone = owner.adopt_application(id).await.expect_err("over");
    assert_eq!(gone.code(), ErrorCode::NotFound);
    assert_sound(owner).await;
}

/// Changes of a run that is under way are its own process's to apply.
#[tokio::test]
async fn a_running_run_is_decided_by_its_process_only() {
    let dir = crate::lab::directory();
    let (own, other) = (open(dir.path()).await, open(dir.path()).await);
    let run = accepted(&own).await;
    keep(&own, run).await.expect("kept");
    let foreign = keep(&other, run).await.expect_err("not its own");
    assert!(matches!(foreign, StoreError::NotOwner(_)), "{foreign}");
    let foreign = other
        .discard_change_set(run, alice())
        .await
        .expect_err("not its own");
    assert!(matches!(foreign, StoreError::NotOwner(_)), "{foreign}");
    let begun = own
        .begin_application(run, alice(), Vec::new(), Vec::new())
        .await;
    let id = begun.expect("begun");
    own.end_application(id, applied(&["a"], 0))
        .await
        .expect("ended");
    let sha256 = Hash::of(&document(run));
    let (receipt, hash) = receipt_of(run, &[], true, Some(sha256));
    own.finish(run, receipt, &hash).await.expect("ended");
    assert_eq!(state(&other, run).await, ChangeSetState::Applied);
    assert_sound(&other).await;
}
