//! The key of the log, its rotation, and clocks that go back.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use abp_core::Timestamp;
use abp_error::ErrorCode;
use abp_receipt::KeyRing;
use abp_store::{Store, StoreError, StoreOptions, VerifyOptions};

use crate::lab::{
    accepted, append, assert_sound, finish, open, open_by_clock, open_with, options, recorded,
};

fn key_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join("keys")).expect("keys");
    entries.map(|entry| entry.expect("a key").path()).collect()
}

/// E18: a key that is missing, readable by others, or another one, keeps the store closed and says so.
#[tokio::test]
async fn e18_an_unusable_key_is_refused() {
    type Spoil = fn(&Path);
    let cases: [(&str, Spoil, &str); 4] = [
        ("0644", |key| permit(key, 0o644), "chmod 600"),
        ("0640", |key| permit(key, 0o640), "chmod 600"),
        (
            "missing",
            |key| fs::remove_file(key).expect("removed"),
            "missing",
        ),
        (
            "another",
            |key| fs::write(key, "PRIVATE+KEY+x").expect("written"),
            "does not hold",
        ),
    ];
    for (name, spoil, remedy) in cases {
        let dir = crate::lab::directory();
        let store = open(dir.path()).await;
        let run = accepted(&store).await;
        store.close().await;
        let keys = key_files(dir.path());
        let original = fs::read(&keys[0]).expect("a key");
        spoil(&keys[0]);
        let refused = Store::open(dir.path(), options()).await.expect_err(name);
        assert_eq!(refused.code(), ErrorCode::ConfigInvalid, "{name}");
        let text = refused.to_string();
        assert!(
            text.contains(remedy) && text.contains(".key"),
            "{name}: {text}"
        );
        fs::write(&keys[0], original).expect("restored");
        permit(&keys[0], 0o600);
        let store = open(dir.path()).await;
        assert!(
            store.take_over(run).await.expect("a run").is_some(),
            "{name}"
        );
        finish(&store, run).await.expect("goes on");
        store.close().await;
    }
}

fn permit(path: &Path, mode: u32) {
    let permissions = fs::Permissions::from_mode(mode);
    fs::set_permissions(path, permissions).expect("changed");
}

/// E18: a rotation is signed by the old key, what that key signed stays good, and every process
/// signs with the new key from then on.
#[tokio::test]
async fn e18_rotation_keeps_what_was_signed() {
    let dir = crate::lab::directory();
    let (store, other) = (open(dir.path()).await, open(dir.path()).await);
    let first = store.public_key().await.expect("a key");
    let run = accepted(&other).await;
    let second = store.rotate_key().await.expect("rotated");
    assert_ne!(first, second);
    assert_eq!(other.public_key().await.expect("a key"), second);
    assert_eq!(store.first_key().await.expect("a key"), first);
    append(&other, run, 0).await.expect("durable");
    let (document, sha256) = crate::lab::receipt(run, "after the rotation");
    let committed = other.finish(run, document, &sha256).await.expect("ended");
    let signers: Vec<_> = committed.checkpoint.signers().map(|(_, id)| id).collect();
    assert_eq!(signers, [second.id()]);
    let third = other.rotate_key().await.expect("rotated again");
    assert_eq!(key_files(dir.path()).len(), 1, "replaced keys are removed");
    let log = store.exchange_log();
    recorded(&log);
    log.flush().await.expect("sealed with the new key");
    let exported = other.export(run).await.expect("exported").expect("ended");
    let proven = exported.verify(&KeyRing::of(first.clone()));
    assert!(proven.is_ok(), "{proven:?}");
    assert_sound(&store).await;
    let trust = |key| VerifyOptions {
        keys: Some(KeyRing::of(key)),
        ..VerifyOptions::default()
    };
    let stranger = abp_receipt::SigningKey::from_seed(store.origin(), &[7; 32]).expect("a key");
    for (key, fine) in [(first, true), (stranger.verifying_key().clone(), false)] {
        let report = store.verify(trust(key)).await.expect("can be verified");
        assert_eq!(report.is_ok(), fine, "{report:#?}");
    }
    store.close().await;
    other.close().await;
    let store = open(dir.path()).await;
    assert_eq!(store.public_key().await.expect("a key"), third);
}

/// A store has one log, and its name does not change.
#[tokio::test]
async fn a_log_keeps_its_name() {
    let dir = crate::lab::directory();
    let named = |origin: &str| StoreOptions {
        origin: Some(origin.to_owned()),
        ..options()
    };
    let bad = open_with(dir.path(), named("two words")).await;
    assert!(matches!(bad, Err(StoreError::Origin { .. })));
    open(dir.path()).await.close().await;
    let other = open_with(dir.path(), named("example.org/other")).await;
    assert!(matches!(other, Err(StoreError::Origin { .. })));
    let any = StoreOptions {
        origin: None,
        ..options()
    };
    let store = open_with(dir.path(), any).await.expect("opens");
    assert_eq!(store.origin(), "example.org/log");
}

/// E17: a clock that goes back is counted, and breaks nothing.
#[tokio::test]
async fn e17_a_clock_may_go_back() {
    fn backwards() -> Timestamp {
        static NOW: AtomicI64 = AtomicI64::new(1_600_000_000_000);
        Timestamp::from_unix_millis(NOW.fetch_sub(60_000, Ordering::Relaxed))
    }
    let dir = crate::lab::directory();
    let options = StoreOptions {
        clock: backwards,
        ..options()
    };
    let store = open_by_clock(dir.path(), options).await.expect("opens");
    for _ in 0..3 {
        let run = accepted(&store).await;
        finish(&store, run).await.expect("ended");
    }
    let report = store.verify(VerifyOptions::default()).await;
    let report = report.expect("can be verified");
    assert!(report.is_ok(), "{report:#?}");
    assert_eq!(report.log.clock_inversions, 3);
}
