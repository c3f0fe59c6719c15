//! The durable store: the journal of runs, their events and receipts, and the signed log over them.
//!
//! One database, SQLite in a state directory or Postgres, written by one task per process and shared by any
//! number of processes. What a call reports as done is on the disk: committed, and synced.
//!
//! - [`Store::accept`] journals a run, and the log's entry for its start, before anything happens.
//! - [`Store::append_event`] journals its events. Whatever waits is committed together.
//! - [`Store::finish`] stores its one receipt, with its entry in the log and a signed checkpoint.
//! - A process that ends without that leaves an [unfinished](StoreReader::unfinished) run; exactly one other
//!   process can [take over](Store::take_over) it and give it its receipt.
//! - [`Store::keep_change_set`] stores the changes of a run until they are decided; every decision is an entry of the
//!   log, and [`Store::begin_application`] and [`Store::end_application`] bracket writing them to the source.
//! - [`Store::submit`] queues a run for any process, which [claims](Store::claim) it and holds its [`Lease`].
//! - [`Store::exchange_log`] records a gateway's exchanges, sealed many at a time; [`ExchangeLog`] promises less.
//! - Beside them are a gateway's [keys](Store::add_key), [accounts](Store::reserve), [answers](Store::keep_answer)
//!   and [reasoning](Store::keep_reasoning).
//! - [`Store::verify`](StoreReader::verify) checks all of it; [`write_backup`] copies it, and verifies the copy.
//! - [`ReceiptJudge`] says whether a file is proven to be a run's receipt; [`Store::open_existing`] creates nothing.
//!
//! # What is promised
//!
//! - What was reported as done survives the end of the process, however it ends, and the loss of power
//!   as far as the disk keeps what it was told to sync.
//! - A store whose write-ahead file was torn opens with every commit that is whole before the tear. A
//!   database file that was cut is refused; it is not repaired.
//! - A run has at most one receipt, whatever processes do at the same time, and events without gaps.
//! - Every commit that adds to the log signs it. What was edited, cut or reordered since is found; that the whole
//!   directory was replaced by an older copy of itself only with a checkpoint that was kept elsewhere.
//! - The log covers every row of a run from its start, the stored order, the outcome, every event of a run that ended or
//!   their removal, its change set and every decision. [`StoreReport::coverage`] says how far older releases are covered.
//! - Damage by the disk is found as well; the rest, but for rows on the same page, stays readable.
//! - The directory of keys and files is the owner's alone: any other is refused.
//! - Whatever processes reserve at once never adds up to more than a key may spend; what one had when it ended is spent.
//! - An answer and its reasoning are found by principal: for anybody else they are not there.
//!
//! # When writing fails
//!
//! A write that fails is not tried again behind anybody's back. It fails for everybody who was part of it, and the store
//! takes nothing more until a new connection has written something new. When the disk is full, reserved space is given up
//! for the receipts of running runs, and taken back later. See [`Store::health`].
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), abp_store::StoreError> {
//! # let temporary = tempfile::tempdir().expect("a directory");
//! # let dir = temporary.path().join("state");
//! use abp_store::{NewRun, Store, StoreOptions};
//!
//! let store = Store::open(&dir, StoreOptions::default()).await?;
//! let run_id = uuid::Uuid::now_v7();
//! store
//!     .accept(NewRun {
//!         run_id,
//!         order_json: r#"{"task":"say hello"}"#.to_owned(),
//!         order_sha256: "0".repeat(64),
//!         backend: "mock".to_owned(),
//!         backend_asked: Some("auto".to_owned()),
//!         project: None,
//!         principal: None,
//!         at: abp_core::Timestamp::from_unix_millis(0),
//!         idempotency_key: None,
//!     })
//!     .await?;
//! store.append_event(run_id, 0, r#"{"type":"run_started"}"#.to_owned()).await?.await?;
//! assert_eq!(store.events(run_id, 0, 10).await?.len(), 1);
//! store.close().await;
//! # Ok(())
//! # }
//! ```

mod answer;
mod api_key;
mod approval;
mod backup;
mod batch;
mod bound_row;
mod budget;
mod change_set;
mod changes;
mod command;
mod depth;
mod engine;
mod erase;
mod error;
mod exchange;
mod export;
mod keys;
mod layout;
pub mod lifecycle;
mod location;
mod log;
mod open;
mod outbox;
mod project;
mod queue;
mod read;
mod read_change_set;
mod read_log;
mod reasoning;
mod receipt;
mod record;
mod run_state;
mod scope;
mod seal;
mod segment;
mod state_dir;
mod store;
mod sweep;
mod trusted_log;
mod verify;
mod writer;

pub use answer::KeptAnswer;
pub use api_key::{ApiKeyRecord, NewApiKey};
pub use approval::{
    AnswerOutcome, ApprovalAnswer, ApprovalFilter, ApprovalRecord, ApprovalVerdict, NewApproval,
};
pub use backup::{BackupFile, BackupManifest, check_backup, restore_backup, write_backup};
pub use budget::{BudgetState, Reservation, Reserved};
pub use change_set::{
    ApplicationEnd, ApplicationJournal, ChangeSetRecord, ChangeSetState, Decider, DecisionRecord,
    OpenApplication,
};
pub use changes::StoreChanges;
pub use engine::postgres::{MigrationState, NodeRecord, PostgresOptions};
pub use erase::{ErasableRun, ErasureRecord, UndecidedRun};
pub use error::StoreError;
pub use exchange::{
    ExchangeHealth, ExchangeLog, ExchangePermit, ExchangeRecord, ExchangeUsage, FoundExchange,
};
pub use location::StoreLocation;
pub use open::StoreOptions;
pub use outbox::OutboxMessage;
pub use project::{Project, path_text};
pub use queue::{
    CancelDecision, ClaimRequest, ClaimedRun, Lease, QueueLimits, Queueing, TakenOver,
};
pub use read::StoreReader;
pub use reasoning::ReasoningEntry;
pub use record::{
    Acceptance, Ack, CancelRecord, Committed, EventRecord, Health, IdempotencyKey, LogRecord,
    NewRun, ReceiptRecord, ReceiptSummary, RunFilter, RunRecord, StoreState, UnfinishedRun,
};
pub use run_state::RunState;
pub use scope::KeyScope;
pub use state_dir::StateDirProblem;
pub use store::Store;
pub use trusted_log::{ReceiptJudge, TrustedLog};
pub use verify::{RunPart, StoreCoverage, StoreProblem, StoreReport, VerifyOptions};
