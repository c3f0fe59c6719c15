//! State directories that are not the user's alone, and reading that leaves nothing behind.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use abp_error::ErrorCode;
use abp_store::{StateDirProblem, Store, StoreError, StoreReader, VerifyOptions};

use crate::lab::{accepted, finish, open, options};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("changed");
}

/// Why a directory is refused by every way of opening it; `None` where it is taken.
async fn refusal(state_dir: &Path) -> Option<StateDirProblem> {
    let problem = |refused: StoreError| {
        assert_eq!(refused.code(), ErrorCode::StateDirUnsafe, "{refused}");
        match refused {
            StoreError::UnsafeStateDir { problem, .. } => problem,
            other => panic!("{other}"),
        }
    };
    let read = StoreReader::open_existing(state_dir).await;
    let read = read.map(|reader| assert!(reader.is_some())).err();
    let existing = Store::open_existing(state_dir, options()).await;
    let existing = existing.map(|store| assert!(store.is_some())).err();
    let opened = Store::open(state_dir, options()).await.map(drop).err();
    let all = [read, existing, opened].map(|refused| refused.map(problem));
    assert_eq!([all[0], all[0]], [all[1], all[2]]);
    all[0]
}

/// A12: a directory is taken where nobody but its owner reaches it, by its name or by a link.
#[tokio::test]
async fn a12_a_directory_that_others_reach_is_refused() {
    let dir = crate::lab::directory();
    let state = dir.path().join("a/b/state");
    open(&state).await.close().await;
    let mode = fs::metadata(&state).expect("made").permissions().mode() & 0o7777;
    assert_eq!(mode, 0o700);
    let link = dir.path().join("link");
    symlink(&state, &link).expect("linked");
    for mode in [
        0o700, 0o1700, 0o710, 0o701, 0o740, 0o704, 0o720, 0o702, 0o777, 0o1777,
    ] {
        set_mode(&state, mode);
        let expected = (mode & 0o77 != 0).then_some(StateDirProblem::Accessible { mode });
        assert_eq!(refusal(&state).await, expected, "{mode:o}");
        assert_eq!(refusal(&link).await, expected, "a link to {mode:o}");
    }
}

/// A directory or a link of another user is refused. Needs the right to give files away.
#[tokio::test]
async fn a12_a_directory_of_another_user_is_refused() {
    const STRANGER: u32 = 12_345;
    let dir = crate::lab::directory();
    let state = dir.path().join("state");
    open(&state).await.close().await;
    let link = dir.path().join("link");
    symlink(&state, &link).expect("linked");
    if lchown(&link, Some(STRANGER), None).is_err() {
        abp_testkit::skip("a stranger's directory", "files cannot be given away");
        return;
    }
    let uid = STRANGER;
    assert_eq!(refusal(&state).await, None);
    assert_eq!(
        refusal(&link).await,
        Some(StateDirProblem::ForeignLink { uid })
    );
    chown(&state, Some(STRANGER), None).expect("given away");
    assert_eq!(
        refusal(&state).await,
        Some(StateDirProblem::ForeignOwner { uid })
    );
    lchown(&link, Some(0), None).expect("taken back");
    assert_eq!(
        refusal(&link).await,
        Some(StateDirProblem::ForeignOwner { uid })
    );
}

/// A file in the place of the directory, and a link that leads nowhere.
#[tokio::test]
async fn what_is_no_directory_is_refused() {
    let dir = crate::lab::directory();
    let file = dir.path().join("file");
    fs::write(&file, "").expect("written");
    let dangling = dir.path().join("dangling");
    symlink(dir.path().join("nowhere"), &dangling).expect("linked");
    for path in [&file, &dangling] {
        let refused = Store::open(path, options())
            .await
            .expect_err("no directory");
        assert!(matches!(refused, StoreError::Io { .. }), "{refused}");
    }
    assert!(!dir.path().join("nowhere").exists());
}

/// Every name below a directory, with the size and the time of its last change.
fn everything_in(directory: &Path) -> BTreeMap<PathBuf, (u64, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    let mut queue = vec![directory.to_owned()];
    while let Some(path) = queue.pop() {
        let metadata = fs::symlink_metadata(&path).expect("is there");
        if metadata.is_dir() {
            let entries = fs::read_dir(&path).expect("readable");
            queue.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
        // Files that come and go change the time of their directory.
        let changed = metadata.modified().expect("a time");
        let at = if metadata.is_dir() {
            std::time::SystemTime::UNIX_EPOCH
        } else {
            changed
        };
        found.insert(path, (metadata.len(), at));
    }
    found
}

/// Reading where there is no store creates nothing, and reading a store leaves it as it was.
#[tokio::test]
async fn reading_leaves_nothing_behind() {
    let dir = crate::lab::directory();
    let before = everything_in(dir.path());
    for missing in [dir.path().to_owned(), dir.path().join("no/such/place")] {
        assert!(
            StoreReader::open_existing(&missing)
                .await
                .expect("none")
                .is_none()
        );
        let writer = Store::open_existing(&missing, options()).await;
        assert!(writer.expect("none").is_none());
        let none = StoreReader::open(&missing).await.expect_err("no store");
        assert!(matches!(none, StoreError::NoStore { .. }), "{none}");
    }
    assert_eq!(everything_in(dir.path()), before);

    let state = dir.path().join("state");
    let store = open(&state).await;
    let run = accepted(&store).await;
    finish(&store, run).await.expect("ended");
    store.close().await;
    let before = everything_in(&state);
    let reader = StoreReader::open_existing(&state).await.expect("opens");
    let reader = reader.expect("a store");
    assert!(reader.receipt(run).await.expect("readable").is_some());
    assert!(
        reader
            .verify(VerifyOptions::default())
            .await
            .expect("readable")
            .is_ok()
    );
    reader.close().await;
    assert_eq!(everything_in(&state), before);

    let store = Store::open_existing(&state, options())
        .await
        .expect("opens");
    let store = store.expect("a store");
    assert!(store.run(run).await.expect("readable").is_some());
    store.close().await;
    fs::remove_file(state.join("store.db")).expect("removed");
    let lost = StoreReader::open_existing(&state)
        .await
        .expect_err("a loss");
    assert!(matches!(lost, StoreError::Damaged { .. }), "{lost}");
}

/// Reading beside a process that writes, and after one that died, uses the files that are there.
#[tokio::test]
async fn reading_beside_a_writer_changes_nothing_of_its_files() {
    let dir = crate::lab::directory();
    let (state, copied) = (dir.path().join("state"), dir.path().join("copy"));
    let store = open(&state).await;
    let run = accepted(&store).await;
    crate::damage::copy(&state, &copied);
    for place in [&state, &copied] {
        let before = everything_in(place);
        let reader = StoreReader::open_existing(place).await.expect("opens");
        let reader = reader.expect("a store");
        assert!(reader.run(run).await.expect("readable").is_some());
        reader.close().await;
        let after = everything_in(place);
        let names = |found: &BTreeMap<PathBuf, _>| found.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&after), names(&before));
        let database = place.join("store.db");
        let wal = place.join("store.db-wal");
        assert_eq!(
            [&after[&database], &after[&wal]],
            [&before[&database], &before[&wal]]
        );
    }
    crate::lab::append(&store, run, 0)
        .await
        .expect("still durable");
}
