//! Opening a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use abp_core::Timestamp;
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;
use uuid::Uuid;

use crate::engine::connection::{Access, Connection};
use crate::engine::owners::Owners;
use crate::engine::postgres::{self, MigrationState, PostgresEngine, PostgresOptions};
use crate::engine::sqlite::owner::OwnerLock;
use crate::engine::sqlite::reserve::Reserve;
use crate::engine::sqlite::{SqliteEngine, empty_write_ahead, schema};
use crate::engine::{Blocked, Engine, sql};
use crate::error::Failure;
use crate::exchange::{Drain, Ring};
use crate::keys::KeyDir;
use crate::layout::{Layout, create_directory};
use crate::log::LogMemory;
use crate::record::StoreState;
use crate::seal::Sealer;
use crate::state_dir::require_safe;
use crate::store::{Inner, QUEUE_BYTES};
use crate::writer::{Status, Writer};
use crate::{Store, StoreError, StoreReader};

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The name of the log. A new store without one gets a name of its own.
    pub origin: Option<String>,
    /// What time it is.
    pub clock: fn() -> Timestamp,
    /// How long to wait for another process that writes.
    pub patience: Duration,
    /// The space that is set aside for receipts on a full disk. A receipt that is larger than it,
    /// with everything else that is written then, does not fit.
    pub reserve_bytes: u64,
    /// How much the records of exchanges may take that are not durable yet, or still under way. Four
    /// kilobytes are needed for every exchange under way.
    pub exchange_ring_bytes: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            origin: None,
            clock: system_clock,
            patience: Duration::from_secs(30),
            reserve_bytes: 8 * 1024 * 1024,
            exchange_ring_bytes: 32 * 1024 * 1024,
        }
    }
}

impl Store {
    /// Opens the store of a state directory where there is one; otherwise creates nothing at all.
    ///
    /// # Errors
    /// As [`Store::open`]; also where the database is gone and the keys of its log are there.
    pub async fn open_existing(
        state_dir: &Path,
        options: StoreOptions,
    ) -> Result<Option<Self>, StoreError> {
        match Layout::find(state_dir)? {
            None => Ok(None),
            Some(_) => Self::open(state_dir, options).await.map(Some),
        }
    }

    /// Opens the store of a state directory, or makes it, with mode 0700. Budget that processes had
    /// reserved and that are gone counts as spent then.
    ///
    /// # Errors
    /// Refuses a state directory that belongs to another user, is another user's link, or can be
    /// reached by group or others. Fails where the directory cannot be used, where the store is of a newer version (it is then
    /// left as it was), damaged, or not a store, and where the key of its log is missing or may be
    /// read by others.
    pub async fn open(state_dir: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        let layout = Layout::prepare(state_dir)?;
        let path = layout.database();
        let setup = layout.lock_setup(options.patience).await?;
        layout.create_database()?;
        schema::inspect(&path, options.patience).await?;
        let owner = OwnerLock::take(&layout.owners())?;
        let keys = KeyDir::new(layout.keys());
        let mut log = LogMemory::new(path.clone(), keys);
        let connecting = schema::options(&path, options.patience);
        let failed = |error: sqlx::Error| Failure::of(&error).into_error(&path);
        let mut connection = connecting.connect().await.map_err(failed)?;
        schema::migrate(&mut connection, &path).await?;
        let mut connection = Connection::from(connection);
        let origin = match set_up_log(&mut connection, &mut log, &options).await {
            Ok(origin) => origin,
            Err(Blocked::Refused(error)) => return Err(error),
            Err(Blocked::Database(error)) => return Err(failed(error)),
        };
        let keeper = open_keeper(&path, options.patience).await.map_err(failed)?;
        drop(setup);
        let reserve = Reserve::new(layout.reserve(), options.reserve_bytes);
        let state = match reserve.fill() {
            Ok(()) => (StoreState::Ready, None),
            Err(error) => (StoreState::DiskFull, Some(error.to_string())),
        };
        let status = Arc::new(Status {
            state: watch::Sender::new(state),
            commits: AtomicU64::new(0),
            reserve,
        });
        let token = Some(owner.token().to_owned());
        let reader = StoreReader::new(&layout, origin, token, options.patience);
        let engine = Engine::Sqlite(SqliteEngine {
            path,
            options: connecting,
            owners: Owners::Files(layout.owners()),
            owner,
            keeper,
            status: Arc::clone(&status),
            written: 0,
        });
        let keys = OpenKeys {
            sealer: Sealer::new(&layout.keys()),
            keys: KeyDir::new(layout.keys()),
        };
        Self::assemble(engine, connection, log, reader, status, keys, &options).await
    }

    /// Brings the tables of a store on Postgres to the version of this release, and makes its log and
    /// its keys where there are none. The version that was found is returned.
    ///
    /// # Errors
    /// Fails where the database cannot be reached or the tables cannot be made, where they are of a newer
    /// release, and where the keys may be read by others.
    pub async fn migrate_postgres(
        postgres: &PostgresOptions,
        options: &StoreOptions,
    ) -> Result<MigrationState, StoreError> {
        let state = postgres::schema::migrate(postgres).await?;
        create_directory(&postgres.keys)?;
        require_safe(&postgres.keys)?;
        Sealer::of_operator(&postgres.keys).ensure_key()?;
        let engine = PostgresEngine::start(postgres).await?;
        let failed = |error: sqlx::Error| Failure::of(&error).into_error(&state.database);
        let mut connection = engine.connect().await.map_err(failed)?;
        let keys = KeyDir::of_operator(postgres.keys.clone());
        let mut log = LogMemory::new(state.database.clone(), keys);
        let made = set_up_log(&mut connection, &mut log, options).await;
        drop(connection.close().await);
        Engine::Postgres(engine).close().await;
        match made {
            Ok(_) => Ok(state),
            Err(Blocked::Refused(error)) => Err(error),
            Err(Blocked::Database(error)) => Err(failed(error)),
        }
    }

    /// Looks at the version of the tables of a store on Postgres, and changes nothing.
    ///
    /// # Errors
    /// Fails where the database cannot be reached.
    pub async fn inspect_postgres(
        postgres: &PostgresOptions,
    ) -> Result<MigrationState, StoreError> {
        postgres::schema::inspect(postgres).await
    }

    /// Opens a store on Postgres.
    ///
    /// # Errors
    /// Fails where the database cannot be reached, where [`Store::migrate_postgres`] was not done or is of
    /// another release, and where the keys are missing or may be read by others.
    pub async fn open_postgres(
        postgres: &PostgresOptions,
        options: StoreOptions,
    ) -> Result<Self, StoreError> {
        let state = postgres::schema::inspect(postgres).await?;
        state.require_current()?;
        let path = state.database;
        let failed = |error: sqlx::Error| Failure::of(&error).into_error(&path);
        let keys = OpenKeys {
            sealer: Sealer::of_operator(&postgres.keys),
            keys: KeyDir::of_operator(postgres.keys.clone()),
        };
        keys.sealer.require_key()?;
        let engine = PostgresEngine::start(postgres).await?;
        let mut connection = engine.connect().await.map_err(failed)?;
        let mut log = LogMemory::new(path.clone(), keys.keys.clone());
        let origin: Option<String> = sql::query_scalar("SELECT origin FROM head WHERE id = 1")
            .fetch_optional(&mut connection)
            .await
            .map_err(failed)?;
        let Some(origin) = origin else {
            let supported = state.supported;
            return Err(StoreError::NotMigrated {
                path,
                found: 0,
                supported,
            });
        };
        check_origin(&options, &origin)?;
        match log.load(&mut connection).await {
            Ok(_) => {}
            Err(Blocked::Refused(error)) => return Err(error),
            Err(Blocked::Database(error)) => return Err(failed(error)),
        }
        let engine = Engine::Postgres(engine);
        let token = Some(engine.token().to_owned());
        let reader = StoreReader::on_postgres(postgres, origin, token)?;
        let status = Arc::new(Status {
            state: watch::Sender::new((StoreState::Ready, None)),
            commits: AtomicU64::new(0),
            // The disk is the database's to watch.
            reserve: Reserve::new(PathBuf::new(), 0),
        });
        Self::assemble(engine, connection, log, reader, status, keys, &options).await
    }

    /// Starts the task that writes.
    async fn assemble(
        engine: Engine,
        connection: Connection,
        log: LogMemory,
        reader: StoreReader,
        status: Arc<Status>,
        keys: OpenKeys,
        options: &StoreOptions,
    ) -> Result<Self, StoreError> {
        let exchanges = Arc::new(Ring::new(options.exchange_ring_bytes));
        let writer = Writer {
            path: reader.path().to_owned(),
            engine,
            connection: Some(connection),
            log,
            exchanges: Drain::new(Arc::clone(&exchanges)),
            clock: options.clock,
            patience: options.patience,
            status: Arc::clone(&status),
            sealed_bytes: 0,
            next_try: Instant::now(),
        };
        let (commands, receiver) = mpsc::unbounded_channel();
        let store = Self {
            inner: Arc::new(Inner {
                reader,
                commands,
                room: Arc::new(Semaphore::new(QUEUE_BYTES)),
                status,
                exchanges,
                sealer: keys.sealer,
                keys: keys.keys,
                writer: std::sync::Mutex::new(Some(tokio::spawn(writer.run(receiver)))),
            }),
            fence: None,
        };
        if let Err(error) = store.sweep_reservations().await {
            // What is reserved counts as well as what is spent; it can be swept later.
            tracing::warn!(target: "abp.store", %error, "reservations could not be swept");
        }
        Ok(store)
    }
}

/// A connection that only stays open. It has read once, so it holds the index of the write-ahead
/// file, and what an earlier process left in that file is emptied into the database.
async fn open_keeper(path: &Path, patience: Duration) -> Result<SqliteConnection, sqlx::Error> {
    let mut keeper = schema::options(path, patience).connect().await?;
    if let Err(error) = empty_write_ahead(&mut keeper).await {
        tracing::warn!(target: "abp.store", %error, "the write-ahead file could not be emptied");
    }
    sqlx::query("SELECT count(*) FROM head")
        .fetch_one(&mut keeper)
        .await?;
    Ok(keeper)
}

/// Makes the log of a new store, and checks that the log of an old one can be continued.
async fn set_up_log(
    connection: &mut Connection,
    log: &mut LogMemory,
    options: &StoreOptions,
) -> Result<String, Blocked> {
    let stored = match stored_origin(connection).await? {
        Some(origin) => Some(origin),
        None => create_log(connection, log, options).await?,
    };
    let Some(origin) = stored else {
        return Err(log.broken(&NO_HEAD).into());
    };
    check_origin(options, &origin)?;
    log.load(connection).await?;
    Ok(origin)
}

async fn stored_origin(connection: &mut Connection) -> Result<Option<String>, Blocked> {
    let origin = sql::query_scalar("SELECT origin FROM head WHERE id = 1");
    Ok(origin.fetch_optional(connection).await?)
}

/// Makes a log where no other process did so first, and returns its name; `None` where the end of one was
/// removed.
async fn create_log(
    connection: &mut Connection,
    log: &mut LogMemory,
    options: &StoreOptions,
) -> Result<Option<String>, Blocked> {
    let mut transaction = connection.begin(Access::Alone).await?;
    if let Some(origin) = stored_origin(&mut transaction).await? {
        transaction.rollback().await?;
        return Ok(Some(origin));
    }
    // A store that has a log is not a new one, and gets no new key.
    let entries: i64 = sql::query_scalar(LOG_ROWS)
        .fetch_one(&mut *transaction)
        .await?;
    if entries > 0 {
        transaction.rollback().await?;
        return Ok(None);
    }
    let origin = match &options.origin {
        Some(origin) => origin.clone(),
        None => format!("abp.local/{}", Uuid::new_v4().simple()),
    };
    log.create(&mut transaction, &origin).await?;
    transaction.commit().await?;
    Ok(Some(origin))
}

/// Refuses a log that has another name than it should have.
fn check_origin(options: &StoreOptions, origin: &str) -> Result<(), StoreError> {
    match options.origin.as_ref().filter(|wanted| *wanted != origin) {
        None => Ok(()),
        Some(wanted) => Err(StoreError::Origin {
            origin: wanted.clone(),
            problem: format!("it is named {origin:?}"),
        }),
    }
}

/// The keys of an open store.
struct OpenKeys {
    sealer: Sealer,
    keys: KeyDir,
}

/// Whether there is anything of a log, whatever its head says.
pub(crate) const LOG_ROWS: &str =
    "SELECT (SELECT count(*) FROM log) + (SELECT count(*) FROM checkpoints)";
/// What is wrong with a log without a head.
pub(crate) const NO_HEAD: &str = "the row of table head, with its name and its key, was removed; restore the store from a backup";

fn system_clock() -> Timestamp {
    let since_epoch = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_unix_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}
