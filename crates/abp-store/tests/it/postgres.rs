//! The same tests on Postgres: this test binary, started again with the address of a private server.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use abp_store::{PostgresOptions, Store, StoreError, StoreOptions, StoreReader, StoreState};
use abp_testkit::{PrivatePostgres, skip};
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;

use crate::lab::{
    NODE_TIMEOUT, POSTGRES, accepted, append, assert_sound, count_events, directory, finish,
    new_key, on_postgres_at, options,
};
use crate::peer::Peer;

/// The tests that are of SQLite alone, and why.
const SQLITE_ONLY: [(&str, &str); 19] = [
    ("damage::", "bytes of the database file are changed"),
    ("disk::", "the disk of the database file is full or fails"),
    ("state_dir::", "the state directory has the database file"),
    ("tampering::", "the database file is edited"),
    ("judging::", "a receipt is judged by a state directory"),
    (
        "trust::e18_an_unusable_key_is_refused",
        "the key is of the state directory",
    ),
    (
        "trust::e18_rotation_keeps_what_was_signed",
        "the key is the operator's",
    ),
    (
        "exchanges::e1_e16_changed_segments_are_named",
        "the database file is edited",
    ),
    (
        "exchanges::e1_e16_every_byte_of_a_segment_counts",
        "the database file is edited",
    ),
    (
        "exchanges::ledgers_are_kept_once",
        "the rows of the database file are counted",
    ),
    (
        "gateway::f9_a_store_of_the_second_version_is_taken_over",
        "an older file is made",
    ),
    (
        "journal::readers_stand_beside_writers_and_closed_is_closed",
        "a file is looked for",
    ),
    (
        "crash::e13_a_kill_at_any_sync_leaves_at_most_one_receipt",
        "syncs of files are traced",
    ),
    (
        "law::any_order_of_acts_leaves_a_sound_store",
        "it opens a hundred stores",
    ),
    (
        "erasing::a_removal_that_the_log_does_not_have_is_found",
        "the database file is edited",
    ),
    (
        "erasing::an_order_goes_with_its_events_only",
        "the database file is edited",
    ),
    ("peer::", "it is played by other tests"),
    ("postgres::", "they are of Postgres already"),
    ("lab::", "there is none"),
];

/// Everything that is not of SQLite's files holds on Postgres as well.
#[test]
fn the_suite_holds_on_postgres() {
    let postgres = match PrivatePostgres::start() {
        Ok(postgres) => postgres,
        Err(why) => return skip("abp-store: the suite on Postgres", &why),
    };
    let own = std::env::current_exe().expect("a path");
    let mut suite = Command::new(own);
    suite.env(POSTGRES, postgres.url()).arg("--test-threads=4");
    for (test, _) in SQLITE_ONLY {
        suite.args(["--skip", test]);
    }
    let ended = suite.output().expect("the suite runs");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}");
    let passed = said
        .split(" passed")
        .next()
        .and_then(|text| text.rsplit(' ').next());
    let passed: u32 = passed.expect("a summary").parse().expect("a count");
    assert!(passed >= 30, "{said}");
}

/// A server, and the options of a store on it with its keys in a directory.
fn server(keys: &Path) -> Option<(PrivatePostgres, PostgresOptions)> {
    match PrivatePostgres::start() {
        Ok(postgres) => {
            let mut options = PostgresOptions::new(&postgres.url(), &keys.join("keys"));
            options.node_timeout = NODE_TIMEOUT;
            Some((postgres, options))
        }
        Err(why) => {
            skip("abp-store: Postgres", &why);
            None
        }
    }
}

async fn execute(postgres: &PostgresOptions, statement: &'static str) {
    let options: PgConnectOptions = postgres.url.parse().expect("an address");
    let mut connection = options.connect().await.expect("a connection");
    let done = sqlx::raw_sql(statement).execute(&mut connection).await;
    done.expect("done");
}

/// F9: tables are made by one of all who try, brought forward only, and never met half made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f9_migrations_are_whole_and_forward_only() {
    let dir = directory();
    let Some((_server, postgres)) = server(dir.path()) else {
        return;
    };
    let state = Store::inspect_postgres(&postgres).await.expect("reachable");
    assert_eq!((state.found, state.is_current()), (0, false));
    let refused = Store::open_postgres(&postgres, options()).await;
    let refused = refused.expect_err("no tables").to_string();
    assert!(refused.contains("run `abp migrate`"), "{refused}");
    let tries = (0..4).map(|_| {
        let postgres = postgres.clone();
        tokio::spawn(async move { Store::migrate_postgres(&postgres, &options()).await })
    });
    let mut first = 0;
    for tried in tries.collect::<Vec<_>>() {
        let state = tried.await.expect("no panic").expect("migrated");
        first += u32::from(state.found == 0);
    }
    assert_eq!(first, 1);
    let store = Store::open_postgres(&postgres, options())
        .await
        .expect("opens");
    let run = accepted(&store).await;
    append(&store, run, 0).await.expect("durable");
    execute(&postgres, "UPDATE abp.schema_version SET version = 99").await;
    for refused in [
        append(&store, run, 1).await.expect_err("newer"),
        Store::open_postgres(&postgres, options())
            .await
            .expect_err("newer"),
        Store::migrate_postgres(&postgres, &options())
            .await
            .expect_err("newer"),
        StoreReader::open_postgres(&postgres)
            .await
            .expect_err("newer"),
    ] {
        let is_newer = matches!(refused, StoreError::NewerVersion { found: 99, .. });
        assert!(is_newer, "{refused}");
    }
    execute(&postgres, "UPDATE abp.schema_version SET version = 1").await;
    append(&store, run, 1).await.expect("durable");
    store.close().await;
    for key in std::fs::read_dir(&postgres.keys).expect("keys").flatten() {
        let away = dir.path().join("away");
        std::fs::rename(key.path(), &away).expect("moved");
        let refused = Store::open_postgres(&postgres, options()).await;
        let refused = refused.expect_err("a key is missing");
        assert!(
            matches!(refused, StoreError::KeyMissing { .. }),
            "{refused}"
        );
        std::fs::rename(&away, key.path()).expect("moved back");
    }
}

/// Every table and column of SQLite is on Postgres, under the same name, and no other.
#[tokio::test]
async fn both_engines_have_the_same_tables() {
    let dir = directory();
    let Some((_server, postgres)) = server(dir.path()) else {
        return;
    };
    let migrated = Store::migrate_postgres(&postgres, &options()).await;
    migrated.expect("migrated");
    let own = dir.path().join("own");
    std::fs::create_dir(&own).expect("made");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&own, private).expect("private");
    let store = Store::open(&own, options()).await.expect("opens");
    store.close().await;
    let sqlite = sqlx::sqlite::SqliteConnectOptions::new().filename(own.join("store.db"));
    let mut sqlite = sqlite.connect().await.expect("a connection");
    let columns: Vec<(String, String)> = sqlx::query_as(
        "SELECT tables.name, columns.name FROM sqlite_schema AS tables
            JOIN pragma_table_info(tables.name) AS columns
        WHERE tables.type = 'table' ORDER BY 1, 2",
    )
    .fetch_all(&mut sqlite)
    .await
    .expect("columns");
    let server: PgConnectOptions = postgres.url.parse().expect("an address");
    let mut server = server.connect().await.expect("a connection");
    let found: Vec<(String, String)> = sqlx::query_as(
        "SELECT CAST(table_name AS TEXT), CAST(column_name AS TEXT)
        FROM information_schema.columns
        WHERE table_schema = 'abp' AND table_name NOT IN ('nodes', 'schema_version')
            AND column_name != 'rowid'
        ORDER BY 1, 2",
    )
    .fetch_all(&mut server)
    .await
    .expect("columns");
    assert_eq!(columns, found);
}

/// What was acknowledged outlives a server that is killed and started again, and what was being written
/// is written once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_has_everything_once() {
    let dir = directory();
    let Some((mut server, postgres)) = server(dir.path()) else {
        return;
    };
    let migrated = Store::migrate_postgres(&postgres, &options()).await;
    migrated.expect("migrated");
    let store = Store::open_postgres(&postgres, options())
        .await
        .expect("opens");
    let run = accepted(&store).await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let writing = {
        let store = store.clone();
        tokio::spawn(async move {
            let mut seq = 0;
            while !*stopped.borrow() {
                // It is waited for, not refused: the server is back before patience ends.
                append(&store, run, seq).await.expect("durable");
                seq += 1;
            }
            seq
        })
    };
    for round in 0..4 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.restart(round % 2 == 0).expect("it starts again");
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.send(true).expect("it listens");
    let appended = writing.await.expect("no panic");
    assert_eq!(count_events(&store, run).await, appended);
    finish(&store, run).await.expect("ended");
    assert_sound(&store).await;
    server.stop(true);
    let impatient = StoreOptions {
        patience: Duration::from_millis(300),
        ..options()
    };
    let refused = Store::open_postgres(&postgres, impatient.clone()).await;
    assert!(refused.is_err(), "the server is away");
    server.run().expect("it starts again");
    let store = Store::open_postgres(&postgres, impatient)
        .await
        .expect("opens");
    server.stop(false);
    let away = store
        .accept(crate::lab::new_run(uuid::Uuid::now_v7()))
        .await;
    let away = away.expect_err("the server is away");
    assert!(matches!(away, StoreError::NotDurable { .. }), "{away}");
    assert_eq!(store.health().state, StoreState::NotDurable);
    server.run().expect("it starts again");
    store.probe().await.expect("it is back");
    accepted(&store).await;
    assert_eq!(store.health().state, StoreState::Ready);
}

/// F1: a process that was stopped for longer than it counts as alive has lost its run, also where it was
/// stopped inside a transaction, and holds up nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f1_a_stopped_process_holds_up_nobody_and_writes_nothing_later() {
    let dir = directory();
    let server = match PrivatePostgres::start() {
        Ok(server) => server,
        Err(why) => return skip("abp-store: a stopped process on Postgres", &why),
    };
    let on_server = [(POSTGRES, server.url())];
    let mut peer = Peer::start_with(&on_server, &[], "append for ever", dir.path());
    let run = peer.run_id();
    let postgres = on_postgres_at(&server.url(), dir.path());
    let store = Store::open_postgres(&postgres, options())
        .await
        .expect("opens");
    assert_eq!(store.nodes().await.expect("readable").len(), 2);
    assert!(
        store.take_over(run).await.expect("known").is_none(),
        "it lives"
    );
    peer.signal("STOP");
    tokio::time::sleep(NODE_TIMEOUT + Duration::from_millis(300)).await;
    let taken = store.take_over(run).await.expect("known").expect("ours");
    let store = store.with_lease(taken.lease);
    let events = count_events(&store, run).await;
    peer.signal("CONT");
    // Its next event is refused, and it says nothing more.
    let said = peer.rest();
    let later = said.iter().filter_map(|said| said.strip_prefix("ack "));
    let later = later.filter_map(|seq| seq.parse::<u64>().ok());
    assert!(later.max().is_none_or(|seq| seq < events), "{said:?}");
    assert_eq!(count_events(&store, run).await, events);
    append(&store, run, events).await.expect("durable");
    finish(&store, run).await.expect("ended");
    assert_sound(&store).await;
}

/// A value that the database cannot store fails alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_bad_value_fails_alone() {
    let dir = directory();
    let Some((_server, postgres)) = server(dir.path()) else {
        return;
    };
    let migrated = Store::migrate_postgres(&postgres, &options()).await;
    migrated.expect("migrated");
    let store = Store::open_postgres(&postgres, options())
        .await
        .expect("opens");
    let tasks: Vec<_> = (0..40)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut key = new_key(&format!("k_{number}"), None);
                if number % 10 == 3 {
                    key.name.push('\0');
                }
                (number, store.add_key(key).await)
            })
        })
        .collect();
    for task in tasks {
        let (number, added) = task.await.expect("no panic");
        assert_eq!(added.is_ok(), number % 10 != 3, "{number}: {added:?}");
    }
    assert_eq!(store.api_keys().await.expect("readable").len(), 36);
}
