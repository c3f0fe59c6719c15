//! Disks that are full and disks that fail.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use abp_error::ErrorCode;
use abp_store::{StoreError, StoreOptions, StoreState};
use uuid::Uuid;

use crate::lab::{accepted, append, assert_sound, count_events, finish, new_run, open, options};
use crate::peer::{Peer, has};

/// A file system of a few megabytes, as long as the test runs.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]);
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
    for run in runs {
        finish(&store, run).await.expect("a receipt on a full disk");
    }
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

/// E15: after a sync that failed nothing is acknowledged before a new write has succeeded, and what
/// was acknowledged before is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e15_a_failed_sync_is_never_acknowledged() {
    if !has("strace") {
        abp_testkit::skip("a disk that fails", "strace is not installed");
        return;
    }
    for when in ["12", "20..24", "30+7"] {
        let dir = tempfile::tempdir().expect("a directory");
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
