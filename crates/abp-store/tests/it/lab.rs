//! What the tests make stores and receipts with.

use std::path::Path;
use std::time::Duration;

use abp_core::{ExecutionMode, MicroUsd, Outcome, Receipt, Timestamp};
use abp_store::{
    ExchangeLog, ExchangeRecord, ExchangeUsage, NewApiKey, NewRun, PostgresOptions, Project,
    Reservation, Store, StoreError, StoreOptions, StoreReader, VerifyOptions,
};
use uuid::Uuid;

/// A directory that a store takes: the owner's alone.
pub(crate) fn directory() -> tempfile::TempDir {
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    let made = tempfile::Builder::new().permissions(private).tempdir();
    made.expect("a directory")
}

/// Names the server that the tests use instead of files in their directories.
pub(crate) const POSTGRES: &str = "ABP_STORE_TEST_POSTGRES";

/// How long a process that was killed counts as alive, where no lock of the system tells.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_secs(2);

/// The store of a test's directory, on the engine that is tested.
pub(crate) async fn open(dir: &Path) -> Store {
    open_with(dir, options()).await.expect("the store opens")
}

pub(crate) async fn open_with(dir: &Path, options: StoreOptions) -> Result<Store, StoreError> {
    match on_postgres(dir) {
        None => Store::open(dir, options).await,
        Some(postgres) => {
            Store::migrate_postgres(&postgres, &options).await?;
            Store::open_postgres(&postgres, options).await
        }
    }
}

/// As [`open_with`], by the clock of the options and not by that of the database.
pub(crate) async fn open_by_clock(dir: &Path, options: StoreOptions) -> Result<Store, StoreError> {
    match on_postgres(dir) {
        None => Store::open(dir, options).await,
        Some(mut postgres) => {
            Store::migrate_postgres(&postgres, &options).await?;
            postgres.clock = Some(options.clock);
            Store::open_postgres(&postgres, options).await
        }
    }
}

pub(crate) async fn open_reader(dir: &Path) -> Result<StoreReader, StoreError> {
    match on_postgres(dir) {
        None => StoreReader::open(dir).await,
        Some(postgres) => StoreReader::open_postgres(&postgres).await,
    }
}

/// The schema of a test's directory, where the tests use Postgres.
pub(crate) fn on_postgres(dir: &Path) -> Option<PostgresOptions> {
    let url = std::env::var(POSTGRES).ok()?;
    Some(on_postgres_at(&url, dir))
}

/// The schema of a test's directory on that server.
pub(crate) fn on_postgres_at(url: &str, dir: &Path) -> PostgresOptions {
    let name = abp_receipt::Hash::of(dir.as_os_str().as_encoded_bytes()).to_string();
    let mut postgres = PostgresOptions::new(url, &dir.join("keys"));
    postgres.schema = format!("t_{}", &name[..16]);
    postgres.node_timeout = NODE_TIMEOUT;
    postgres.max_connections = 4;
    postgres
}

/// Waits until a process that was killed just now counts as gone.
pub(crate) fn wait_for_its_death() {
    if std::env::var_os(POSTGRES).is_some() {
        std::thread::sleep(NODE_TIMEOUT + Duration::from_millis(200));
    }
}

pub(crate) fn options() -> StoreOptions {
    StoreOptions {
        origin: Some("example.org/log".to_owned()),
        reserve_bytes: 64 * 1024,
        ..StoreOptions::default()
    }
}

pub(crate) fn new_run(run_id: Uuid) -> NewRun {
    NewRun {
        run_id,
        order_json: r#"{"task":"say hello"}"#.to_owned(),
        order_sha256: "5e".repeat(32),
        backend: "mock".to_owned(),
        backend_asked: Some("auto".to_owned()),
        project: Some(project("/srv/alice/shop")),
        principal: Some("alice".to_owned()),
        at: Timestamp::from_unix_millis(1_700_000_000_000),
        idempotency_key: None,
    }
}

pub(crate) fn project(path: &str) -> Project {
    Project {
        path: path.to_owned(),
        inode: u64::MAX - 1,
        born: Some(1_700_000_000_123_456_789),
    }
}

/// A run that was accepted just now.
pub(crate) async fn accepted(store: &Store) -> Uuid {
    let run_id = Uuid::now_v7();
    store.accept(new_run(run_id)).await.expect("accepted");
    run_id
}

pub(crate) async fn append(store: &Store, run_id: Uuid, seq: u64) -> Result<(), StoreError> {
    store.append_event(run_id, seq, event(seq)).await?.await
}

pub(crate) fn event(seq: u64) -> String {
    format!(r#"{{"type":"assistant_delta","text":"piece {seq}"}}"#)
}

/// A receipt document with a note of some size in it, and its hash.
pub(crate) fn receipt(run_id: Uuid, note: &str) -> (Vec<u8>, String) {
    let at = Timestamp::from_unix_millis(1_700_000_001_000);
    let receipt: Receipt = serde_json::from_value(serde_json::json!({
        "meta": {
            "run_id": run_id, "work_order_id": Uuid::nil(), "contract_version": "abp/v0.1",
            "started_at": at, "finished_at": at, "duration_ms": 0,
        },
        "backend": { "id": "mock" },
        "usage_raw": { "note": note },
        "verification": { "harness_ok": true },
        "outcome": "complete",
    }))
    .expect("a receipt");
    let receipt = receipt.with_hash().expect("a hash");
    let document = receipt.to_document().expect("a document");
    (document, receipt.receipt_sha256.expect("a hash"))
}

pub(crate) async fn finish(store: &Store, run_id: Uuid) -> Result<u64, StoreError> {
    let (document, sha256) = receipt(run_id, "done");
    store
        .finish(run_id, document, &sha256)
        .await
        .map(|committed| committed.seq)
}

pub(crate) async fn assert_sound(store: &Store) {
    let report = store.verify(VerifyOptions::default()).await;
    let report = report.expect("the store can be read");
    assert!(report.is_ok(), "{report:#?}");
    assert_eq!(report.log.size, report.log.signed_size);
}

/// A key that may spend as much, in micro-dollars.
pub(crate) fn new_key(id: &str, budget: Option<u64>) -> NewApiKey {
    NewApiKey {
        id: id.to_owned(),
        name: format!("the key {id}"),
        sha256: *abp_receipt::Hash::of(id.as_bytes()).as_bytes(),
        models: vec!["gpt-*".to_owned(), "claude".to_owned()],
        requests_per_minute: Some(60),
        tokens_per_minute: None,
        budget: budget.map(MicroUsd::from_micros),
        token_budget: None,
        max_output_tokens: None,
        max_concurrent: None,
        max_sessions: None,
        scopes: abp_store::KeyScope::USUAL.to_vec(),
        expires_at: None,
    }
}

pub(crate) fn reservation(key: &str, cost: u64, tokens: u64) -> Reservation {
    Reservation {
        exchange: Uuid::now_v7(),
        key: key.to_owned(),
        cost: MicroUsd::from_micros(cost),
        tokens,
    }
}

pub(crate) fn exchange(run_id: Uuid) -> ExchangeRecord {
    ExchangeRecord {
        run_id,
        principal: "k_one".to_owned(),
        started_at: Timestamp::from_unix_millis(1_700_000_000_000),
        duration_us: 1_000_000,
        first_byte_us: None,
        caller_dialect: "openai".to_owned(),
        upstream: "anthropic".to_owned(),
        upstream_dialect: "claude".to_owned(),
        model_asked: "gpt".to_owned(),
        model_sent: "claude".to_owned(),
        operation: "generate".to_owned(),
        streamed: false,
        mode: ExecutionMode::Mapped,
        status: 200,
        outcome: Outcome::Complete,
        error_code: None,
        attempts: 1,
        request_sha256: [1; 32],
        sent_sha256: [2; 32],
        received_sha256: [3; 32],
        delivered_sha256: [4; 32],
        request_bytes: 10,
        response_bytes: 20,
        usage: ExchangeUsage::default(),
        cost: None,
        cost_is_estimate: false,
        ledger: None,
        emulated: Vec::new(),
        client_closed: false,
    }
}

/// Records an exchange that happened just now.
pub(crate) fn recorded(log: &ExchangeLog) -> Uuid {
    let run_id = Uuid::now_v7();
    log.admit().expect("room").record(&exchange(run_id));
    run_id
}

/// All exchanges there are, the newest first, page by page.
pub(crate) async fn all_exchanges(reader: &StoreReader) -> Vec<Uuid> {
    let mut found: Vec<Uuid> = Vec::new();
    loop {
        let page = reader.exchanges(found.last().copied(), 100).await;
        let page = page.expect("a page");
        if page.is_empty() {
            return found;
        }
        for record in page {
            assert_eq!(record, exchange(record.run_id));
            found.push(record.run_id);
        }
    }
}

/// How many events of a run there are, and that they are the ones that were appended.
pub(crate) async fn count_events(store: &Store, run_id: Uuid) -> u64 {
    let mut next = 0;
    loop {
        let page = store.events(run_id, next, 1000).await.expect("a page");
        if page.is_empty() {
            return next;
        }
        for found in page {
            assert_eq!((found.seq, found.json), (next, event(next)));
            next += 1;
        }
    }
}
