//! Files that were cut, changed, or written by somebody else.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use abp_error::ErrorCode;
use abp_receipt::LogProblem;
use abp_store::{Store, StoreError, StoreReader, StoreReport, VerifyOptions};
use uuid::Uuid;

use crate::lab::receipt;
use crate::lab::{accepted, append, assert_sound, count_events, event, finish, open, options};

pub(crate) fn copy(from: &Path, to: &Path) {
    // By another process: closing a database file here would drop the locks we hold on it.
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(status.expect("cp").success());
}

/// A page in the write-ahead file, with its header.
const FRAME: u64 = 4096 + 24;

/// Where the last frame of the write-ahead file ends; what follows is left from an earlier round, and
/// has another salt.
fn end_of(wal: &Path) -> u64 {
    let bytes = fs::read(wal).expect("a file");
    let salt = &bytes[16..24];
    let frames = bytes[32..].chunks_exact(FRAME as usize);
    let fresh = frames.take_while(|frame| &frame[8..16] == salt).count();
    32 + fresh as u64 * FRAME
}

/// E14: a store whose write-ahead file was cut anywhere opens, and has every commit that was whole
/// before the cut.
#[tokio::test]
async fn e14_a_cut_write_ahead_file_loses_only_what_was_cut() {
    let dir = crate::lab::directory();
    let original = dir.path().join("original");
    let store = open(&original).await;
    let run = accepted(&store).await;
    let wal = original.join("store.db-wal");
    let mut ends = vec![end_of(&wal)];
    for seq in 0..12 {
        append(&store, run, seq).await.expect("durable");
        ends.push(end_of(&wal));
    }
    let image = dir.path().join("image");
    copy(&original, &image);
    store.close().await;
    let kept: BTreeSet<u64> = ends
        .iter()
        .flat_map(|end| [end - FRAME, end - FRAME / 2, end - 1, *end])
        .chain([0, 1, 31, 32, 33, 500])
        .collect();
    for length in kept {
        let torn = dir.path().join(format!("torn-{length}"));
        copy(&image, &torn);
        drop(fs::remove_file(torn.join("store.db-shm")));
        let file = fs::OpenOptions::new()
            .write(true)
            .open(torn.join("store.db-wal"));
        file.expect("a file").set_len(length).expect("cut");
        // The first end is that of the accepted run, the others are those of its events.
        let whole = ends.iter().filter(|end| **end <= length).count() as u64;
        let store = open(&torn).await;
        let found = count_events(&store, run).await;
        assert_eq!(found, whole.saturating_sub(1), "cut at {length}");
        assert_sound(&store).await;
        store.close().await;
    }
}

/// A database that was cut opens as it is or is refused with what to do; it never panics.
#[tokio::test]
async fn a_cut_database_is_refused_in_words() {
    let dir = crate::lab::directory();
    let original = dir.path().join("original");
    let store = open(&original).await;
    let run = accepted(&store).await;
    store.close().await;
    let whole = fs::metadata(original.join("store.db"))
        .expect("a file")
        .len();
    for length in [
        1,
        15,
        16,
        99,
        100,
        101,
        4095,
        4096,
        4097,
        whole / 2,
        whole - 4096,
        whole - 1,
    ] {
        let torn = dir.path().join(format!("torn-{length}"));
        copy(&original, &torn);
        let file = fs::OpenOptions::new()
            .write(true)
            .open(torn.join("store.db"));
        file.expect("a file").set_len(length).expect("cut");
        match Store::open(&torn, options()).await {
            Ok(store) => {
                // Where nothing is missing, nothing was lost.
                let found = store.run(run).await;
                let report = store.verify(VerifyOptions::default()).await;
                let sound = report.is_ok_and(|report| report.is_ok() && report.log.size == 1);
                assert!(
                    !sound || found.is_ok_and(|run| run.is_some()),
                    "cut at {length}"
                );
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("store.db"), "cut at {length}: {text}");
            }
        }
    }
}

/// Three runs whose receipts are too large for one page, and the file they are in.
async fn three_receipts(dir: &Path) -> [Uuid; 3] {
    let store = open(dir).await;
    let mut runs = [Uuid::nil(); 3];
    for (place, run) in runs.iter_mut().enumerate() {
        *run = accepted(&store).await;
        let note = format!("{place}{}", format!("<{place}>").repeat(5000));
        let (document, sha256) = receipt(*run, &note);
        store.finish(*run, document, &sha256).await.expect("ended");
    }
    assert_sound(&store).await;
    store.close().await;
    runs
}

/// Where a text is, at least so many bytes into the file.
fn place_of(file: &fs::File, marker: &[u8], from: u64) -> u64 {
    let mut bytes = vec![0; file.metadata().expect("a file").len() as usize];
    file.read_exact_at(&mut bytes, 0).expect("its bytes");
    let mut found = bytes[from as usize..].windows(marker.len());
    let place = found.position(|window| window == marker);
    from + place.expect("the marker") as u64
}

/// The entries that a report names as changed.
fn edits(report: &StoreReport) -> Vec<u64> {
    let problems = report.log.problems.iter();
    let edits = problems.filter_map(|problem| match problem {
        LogProblem::Edit { index, .. } => Some(*index),
        _ => None,
    });
    edits.collect()
}

/// E16: bit rot is reported by its place, and everything else stays readable.
#[tokio::test]
async fn e16_bit_rot_is_found_and_the_rest_is_readable() {
    struct Rot {
        name: &'static str,
        marker: &'static str,
        /// How far behind its first place the marker is looked for.
        deep: u64,
        /// What to write where, by the place of the marker.
        change: fn(at: u64) -> (u64, Vec<u8>),
        /// The entries reported.
        edits: &'static [u64],
        /// The receipts that can still be read as they were.
        readable: &'static [usize],
    }
    let cases = [
        Rot {
            name: "a byte of a receipt",
            marker: "<1><1><1>",
            deep: 0,
            change: |at| (at, b"(".to_vec()),
            edits: &[3],
            readable: &[0, 2],
        },
        Rot {
            name: "the link to the rest of a receipt",
            marker: "<1><1><1>",
            deep: 8192,
            change: |at| (at / 4096 * 4096, vec![0xff; 4]),
            edits: &[3],
            readable: &[0, 2],
        },
        Rot {
            name: "a byte of a log entry",
            marker: "\"seq\":4",
            deep: 0,
            change: |at| (at + 6, b"9".to_vec()),
            edits: &[4],
            readable: &[0, 1, 2],
        },
        Rot {
            name: "the time of a log entry",
            marker: "{\"at\":\"20",
            deep: 0,
            change: |at| (at + 9, b"9".to_vec()),
            edits: &[5],
            readable: &[0, 1, 2],
        },
    ];
    let dir = crate::lab::directory();
    let original = dir.path().join("original");
    let runs = three_receipts(&original).await;
    for case in cases {
        let rotten = dir.path().join(case.name);
        copy(&original, &rotten);
        let path = rotten.join("store.db");
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .expect("a file");
        let first = place_of(&file, case.marker.as_bytes(), 0);
        let deep = place_of(&file, case.marker.as_bytes(), first + case.deep);
        let (at, bytes) = (case.change)(deep);
        file.write_all_at(&bytes, at).expect("rot");
        drop(file);
        let reader = StoreReader::open(&rotten).await.expect("opens");
        let report = reader.verify(VerifyOptions::default()).await;
        let report = report.expect("can be verified");
        assert!(!report.is_ok(), "{}", case.name);
        assert_eq!(edits(&report), case.edits, "{}: {report:#?}", case.name);
        for place in case.readable {
            let found = reader.receipt(runs[*place]).await.expect("readable");
            let document = found.expect("a receipt").document;
            assert!(
                abp_core::verify_receipt_document(&document).is_ok(),
                "{}",
                case.name
            );
        }
    }
}

/// A log that was cut or replaced by an older copy shows against a checkpoint kept elsewhere.
#[tokio::test]
async fn an_older_copy_shows_against_a_kept_checkpoint() {
    let dir = crate::lab::directory();
    let (now, older) = (dir.path().join("now"), dir.path().join("older"));
    let store = open(&now).await;
    let run = accepted(&store).await;
    copy(&now, &older);
    finish(&store, run).await.expect("ended");
    let kept = vec![store.latest_checkpoint().await.expect("a checkpoint")];
    let check = async |dir: &Path| {
        let reader = StoreReader::open(dir).await.expect("opens");
        let options = VerifyOptions {
            kept: kept.clone(),
            ..VerifyOptions::default()
        };
        reader.verify(options).await.expect("can be verified")
    };
    assert!(check(&now).await.is_ok());
    let report = check(&older).await;
    let truncation = LogProblem::Truncation {
        size: 1,
        checkpoint_size: 2,
    };
    assert_eq!(report.log.problems, [truncation]);
    store.close().await;
}

/// E3, E4, E6: whoever writes the database but has no key is noticed.
#[tokio::test]
async fn e3_e4_e6_changes_by_hand_are_noticed() {
    let dir = crate::lab::directory();
    let original = dir.path().join("original");
    three_receipts(&original).await;
    // What is done, what the report names, and whether the store can still be written.
    let cases: [(&'static str, &str, bool); 10] = [
        ("DELETE FROM log WHERE seq = 5", "Truncation", true),
        ("DELETE FROM log WHERE seq = 2", "Reorder", true),
        (
            "UPDATE log SET entry = (SELECT entry FROM log WHERE seq = 1) WHERE seq = 3",
            "Edit",
            true,
        ),
        (
            "UPDATE log SET (entry, leaf) = (SELECT entry, leaf FROM log WHERE seq = 1) WHERE seq = 3",
            "Rewrite",
            true,
        ),
        (
            "DELETE FROM receipts WHERE log_seq = 3",
            "MissingReceipt",
            true,
        ),
        (
            "UPDATE receipts SET document = (SELECT document FROM receipts WHERE log_seq = 1)
                WHERE log_seq = 3",
            "Edit",
            true,
        ),
        (
            "UPDATE receipts SET log_seq = 4 WHERE log_seq = 3",
            "UnloggedReceipt",
            true,
        ),
        ("DELETE FROM checkpoints WHERE size = 6", "Unsigned", false),
        // The end of the log can be made again of its leaves, where they are the signed ones.
        ("UPDATE head SET frontier = '{}'", "problems: []", true),
        (
            "UPDATE head SET frontier = ''; UPDATE log SET leaf = zeroblob(32) WHERE seq = 2",
            "Edit",
            false,
        ),
    ];
    for (place, (statement, expected, writable)) in cases.into_iter().enumerate() {
        let changed = dir.path().join(place.to_string());
        copy(&original, &changed);
        change(&changed.join("store.db"), statement).await;
        let reader = StoreReader::open(&changed).await.expect("opens");
        let report = reader.verify(VerifyOptions::default()).await;
        let report = format!("{:?}", report.expect("can be verified"));
        assert!(report.contains(expected), "{statement}: {report}");
        match Store::open(&changed, options()).await {
            Ok(store) => {
                assert!(writable, "{statement}");
                store.close().await;
            }
            Err(error) => {
                assert!(!writable, "{statement}: {error}");
                assert_eq!(error.code(), ErrorCode::ReceiptChainBroken, "{statement}");
            }
        }
    }
}

/// F9: what is not ours, or too new, is refused and left as it was.
#[tokio::test]
async fn f9_a_newer_or_foreign_database_is_left_alone() {
    let newer: &[&str] = &["PRAGMA user_version = 9;"];
    let foreign: &[&str] = &["PRAGMA application_id = 7;", "PRAGMA application_id = 0;"];
    for (statements, is_newer) in [(newer, true), (foreign, false)] {
        for statement in statements {
            let dir = crate::lab::directory();
            let store = open(dir.path()).await;
            accepted(&store).await;
            store.close().await;
            let path = dir.path().join("store.db");
            change(&path, statement).await;
            let before = fs::read(&path).expect("its bytes");
            let refused = Store::open(dir.path(), options()).await;
            let refused = refused.expect_err("refused");
            assert_eq!(refused.code(), ErrorCode::ConfigInvalid);
            let as_expected = match &refused {
                StoreError::NewerVersion {
                    found, supported, ..
                } => is_newer && (*found, *supported) == (9, 8),
                StoreError::Foreign { .. } => !is_newer,
                _ => false,
            };
            assert!(as_expected, "{statement}: {refused}");
            assert_eq!(fs::read(&path).expect("its bytes"), before, "{statement}");
            let wal = fs::metadata(dir.path().join("store.db-wal"));
            assert!(
                wal.is_ok_and(|wal| wal.len() == 0) || !dir.path().join("store.db-wal").exists()
            );
        }
    }
}

/// A process that had the store open when another made it newer stops writing.
#[tokio::test]
async fn f9_a_store_that_became_newer_is_not_written_any_more() {
    let dir = crate::lab::directory();
    let store = open(dir.path()).await;
    let run = accepted(&store).await;
    change(&dir.path().join("store.db"), "PRAGMA user_version = 9;").await;
    let refused = append(&store, run, 0).await.expect_err("newer");
    assert!(
        matches!(refused, StoreError::NewerVersion { .. }),
        "{refused}"
    );
    let ack = store.append_event(run, 0, event(0)).await.expect("queued");
    assert!(ack.await.is_err());
}

pub(crate) async fn change(path: &Path, statement: &'static str) {
    use sqlx::ConnectOptions as _;
    use sqlx::Connection as _;
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(path)
        .foreign_keys(false);
    let mut connection = options.connect().await.expect("a connection");
    let changed = sqlx::raw_sql(statement).execute(&mut connection).await;
    changed.expect("changed");
    connection.close().await.expect("closed");
}

/// Everything is the owner's alone.
#[tokio::test]
async fn files_are_private() {
    let dir = crate::lab::directory();
    let root = dir.path().join("state");
    let store = open(&root).await;
    accepted(&store).await;
    let mut queue = vec![root.clone()];
    while let Some(path) = queue.pop() {
        let metadata = fs::metadata(&path).expect("is there");
        let mode = metadata.permissions().mode() & 0o777;
        assert_eq!(
            mode,
            if metadata.is_dir() { 0o700 } else { 0o600 },
            "{}",
            path.display()
        );
        if metadata.is_dir() {
            let entries = fs::read_dir(&path).expect("readable");
            queue.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
    }
    store.close().await;
    fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).expect("changed");
    let refused = Store::open(&root, options()).await.expect_err("anybody's");
    assert_eq!(refused.code(), ErrorCode::StateDirUnsafe, "{refused}");
}
