//! Disks that are full and disks that fail.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use abp_error::ErrorCode;
use abp_store::{StoreError, StoreOptions, StoreState};
use uuid::Uuid;

use crate::lab::{
    accepted, all_exchanges, append, assert_sound, count_events, exchange, finish, new_key,
    new_run, open, options, recorded,
};
use crate::peer::{Peer, has};

/// A file system of a few megabytes, as long as the test runs.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let dir = crate::lab::directory();
        let mut mount = Command::new("mount");
        mount.args([
            "-t",
            "tmpfs",
            "-o",
            &format!("size={size},mode=700"),
            "tmpfs",
        ]);
        let mounted = mount.arg(dir.path()).output();
        mounted
            .is_ok_and(|output| output.status.success())
            .then(|| Self(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut umount = Command::new("umount");
        drop(umount.arg("-l").arg(self.0.path()).output());
    }
}

/// F6: on a full disk new work is refused, running runs get their receipts, and nothing that was
/// acknowledged is lost; when space returns, so does the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f6_a_full_disk_still_takes_receipts() {
    let Some(disk) = SmallDisk::mount("4m") else {
        abp_testkit::skip("a full disk", "a small file system cannot be mounted");
        return;
    };
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![0; 1024 * 1024]).expect("ballast");
    let with_reserve = StoreOptions {
        reserve_bytes: 256 * 1024,
        ..options()
    };
    let store = abp_store::Store::open(disk.path(), with_reserve).await;
    let store = store.expect("the store opens");
    assert!(store.health().reserve);
    let runs = [accepted(&store).await, accepted(&store).await];
    let decided = crate::tampering::whole_run(&store, true).await;
    let alice = crate::tampering::alice;
    let application = store
        .begin_application(decided, alice(), Vec::new(), Vec::new())
        .await
        .expect("begun");
    let large = format!("\"{}\"", "x".repeat(16 * 1024));
    let mut events = 0;
    let error = loop {
        let ack = store.append_event(runs[0], events, large.clone()).await;
        match ack.expect("queued").await {
            Ok(()) => events += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    let refused = store.accept(new_run(Uuid::now_v7())).await;
    let refused = refused.expect_err("no new work");
    assert!(matches!(refused, StoreError::DiskFull { .. }), "{refused}");
    let health = store.health();
    assert_eq!(
        (health.state, health.reserve),
        (StoreState::DiskFull, false)
    );
    let image = vec![7; 16 * 1024];
    let sha256 = *abp_receipt::Hash::of(&image).as_bytes();
    let refused = store.keep_image(runs[0], sha256, image).await;
    let refused = refused.expect_err("no room for changes");
    assert!(matches!(refused, StoreError::DiskFull { .. }), "{refused}");
    for run in runs {
        finish(&store, run).await.expect("a receipt on a full disk");
    }
    let end = abp_store::ApplicationEnd::Applied {
        paths: vec!["a".to_owned()],
        remaining: 0,
    };
    let end = store.end_application(application, end).await;
    assert!(end.expect("a decision on a full disk").is_some());
    assert_eq!(store.health().state, StoreState::DiskFull);
    std::fs::remove_file(&ballast).expect("space");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let later = accepted(&store).await;
    append(&store, later, 0).await.expect("durable again");
    let health = store.health();
    assert_eq!((health.state, health.reserve), (StoreState::Ready, true));
    let mut found = 0;
    while let page = store.events(runs[0], found, 100).await.expect("a page")
        && !page.is_empty()
    {
        found += page.len() as u64;
    }
    assert_eq!(found, events);
    assert_sound(&store).await;
    store.close().await;
}

/// F6: on a full disk records of exchanges wait until the ring is full; then nothing is admitted. When
/// space returns each of them is written, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f6_a_full_disk_stops_exchanges_before_they_begin() {
    let Some(disk) = SmallDisk::mount("4m") else {
        abp_testkit::skip("a full disk", "a small file system cannot be mounted");
        return;
    };
    let ballast = disk.path().join("ballast");
    let with_ring = StoreOptions {
        exchange_ring_bytes: 128 * 1024,
        ..options()
    };
    let store = abp_store::Store::open(disk.path(), with_ring).await;
    let store = store.expect("the store opens");
    let log = store.exchange_log();
    let mut ids = vec![recorded(&log)];
    log.flush().await.expect("durable");
    // There is less left than a segment takes.
    let mut full = vec![0; 4 * 1024 * 1024];
    while std::fs::write(&ballast, &full).is_err() {
        full.truncate(full.len() - 4096);
    }
    let error = loop {
        ids.push(recorded(&log));
        if let Err(error) = log.flush().await {
            break error;
        }
    };
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    let durable = store.health().exchanges.sealed;
    while let Some(permit) = log.admit() {
        let run_id = Uuid::now_v7();
        permit.record(&exchange(run_id));
        ids.push(run_id);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(log.admit().is_none(), "still full");
    let refused = store.add_key(new_key("k_one", None)).await;
    assert!(matches!(refused, Err(StoreError::DiskFull { .. })));
    let health = store.health();
    assert_eq!(health.state, StoreState::DiskFull);
    assert_eq!(health.exchanges.sealed, durable);
    assert_eq!(health.exchanges.waiting, ids.len() as u64 - durable);
    assert!(health.exchanges.waiting > 100, "{health:?}");
    std::fs::remove_file(&ballast).expect("space");
    // Nobody has to ask for it.
    for _ in 0..200 {
        if store.health().exchanges.waiting == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let health = store.health();
    assert_eq!(
        (health.exchanges.waiting, health.exchanges.taken_bytes),
        (0, 0)
    );
    assert_eq!(
        (health.state, health.exchanges.lost),
        (StoreState::Ready, 0)
    );
    ids.reverse();
    assert_eq!(all_exchanges(&store).await, ids);
    assert_sound(&store).await;
    store.close().await;
}

/// E15: whatever writes and syncs fail, every record that was taken is written once in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e15_exchanges_outlast_a_failing_disk() {
    if !has("strace") {
        abp_testkit::skip("a disk that fails", "strace is not installed");
        return;
    }
    for fault in [
        "fsync,fdatasync:error=EIO:when=7",
        "fsync,fdatasync:error=EIO:when=9..14",
        "fsync,fdatasync:error=EIO:when=8+5",
        "pwrite64:error=EROFS:when=60..65",
    ] {
        let dir = crate::lab::directory();
        open(dir.path()).await.close().await;
        let inject = format!("inject={fault}");
        let through = ["strace", "-f", "-qq", "-e", &inject];
        let said = Peer::start(&through, "some exchanges", dir.path()).rest();
        let state = format!("fail {} NotDurable", ErrorCode::ReceiptStoreFailed);
        let failed = said.iter().filter(|line| line.starts_with("fail"));
        let failed: Vec<_> = failed.collect();
        assert!(!failed.is_empty(), "{fault}: nothing failed");
        assert!(failed.iter().all(|line| **line == state), "{failed:?}");
        assert_eq!(said.last().map(String::as_str), Some("sealed"), "{fault}");
        let recorded = said
            .iter()
            .filter_map(|line| line.strip_prefix("recorded "));
        let mut recorded: Vec<Uuid> = recorded.map(|id| id.parse().expect("an id")).collect();
        recorded.reverse();
        let store = open(dir.path()).await;
        assert_eq!(all_exchanges(&store).await, recorded, "{fault}");
        assert_sound(&store).await;
        store.close().await;
    }
}

/// E15: after a sync that failed nothing is acknowledged before a new write has succeeded, and what
/// was acknowledged before is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e15_a_failed_sync_is_never_acknowledged() {
    if !has("strace") {
        abp_testkit::skip("a disk that fails", "strace is not installed");
        return;
    }
    for when in ["12", "20..24", "30+7"] {
        let dir = crate::lab::directory();
        open(dir.path()).await.close().await;
        let inject = format!("inject=fsync,fdatasync:error=EIO:when={when}");
        let through = ["strace", "-f", "-qq", "-e", &inject];
        let mut peer = Peer::start(&through, "a hundred events", dir.path());
        let run = peer.run_id();
        let said = peer.rest();
        let failed: Vec<_> = said
            .iter()
            .filter(|line| line.starts_with("fail"))
            .collect();
        assert!(!failed.is_empty(), "{when}: nothing failed");
        let state = format!("{} NotDurable", ErrorCode::ReceiptStoreFailed);
        assert!(
            failed.iter().all(|line| line.ends_with(&state)),
            "{failed:?}"
        );
        // A failed event was tried again under its number: the journal has each of them once.
        let acked: Vec<_> = said.iter().filter(|line| line.starts_with("ack")).collect();
        assert_eq!(acked.len(), 100, "{when}");
        let store = open(dir.path()).await;
        assert_eq!(count_events(&store, run).await, 100, "{when}");
        assert_sound(&store).await;
        store.close().await;
    }
}
