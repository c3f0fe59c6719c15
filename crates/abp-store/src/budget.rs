//! What keys may spend, and what they have spent.
//!
//! What an exchange may cost is reserved before it begins, and settled when it is over. The statement
//! that reserves also compares with the limits: however many exchanges begin at once, in whatever
//! processes, what they may cost and what was spent before never add up to more than a key may spend.
//! Only an exchange that costs more than was reserved for it goes beyond that.

use abp_core::MicroUsd;
use uuid::Uuid;

use crate::batch::Writing;
use crate::command::{Command, Done};
use crate::engine::Blocked;
use crate::engine::connection::Connection;
use crate::engine::sql::{self, Row};
use crate::record::Ack;
use crate::{Store, StoreError, StoreReader};

/// The most that is counted for one exchange. More than any costs, and a million of them still add up.
const MAX_AMOUNT: u64 = 1 << 43;

/// What an exchange may cost, to be reserved before it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The exchange.
    pub exchange: Uuid,
    /// The id of the key that pays.
    pub key: String,
    /// The most it may cost.
    pub cost: MicroUsd,
    /// The most tokens it may use.
    pub tokens: u64,
}

/// What became of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// It is durable: the exchange may begin.
    Granted,
    /// It would go beyond a limit. Nothing was reserved.
    Refused(BudgetState),
}

/// The account of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetState {
    /// What was spent.
    pub spent: MicroUsd,
    /// The tokens that were used.
    pub spent_tokens: u64,
    /// What exchanges under way may cost.
    pub reserved: MicroUsd,
    /// The tokens that exchanges under way may use.
    pub reserved_tokens: u64,
    /// How much it may spend.
    pub limit: Option<MicroUsd>,
    /// How many tokens it may use.
    pub token_limit: Option<u64>,
    /// How many exchanges began.
    pub requests: u64,
    /// How many of them were never settled because their process ended. What they had reserved
    /// counts as spent.
    pub abandoned: u64,
}

/// A change to the accounts.
#[derive(Debug)]
pub(crate) enum BudgetChange {
    Reserve(Reservation),
    Settle { exchange: Uuid, used: Amounts },
    Spend { key: String, used: Amounts },
}

/// Money and tokens as the database counts them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amounts {
    cost: i64,
    tokens: i64,
}

impl Amounts {
    fn new(cost: MicroUsd, tokens: u64) -> Self {
        let counted = |amount: u64| amount.min(MAX_AMOUNT).cast_signed();
        Self {
            cost: counted(cost.micros()),
            tokens: counted(tokens),
        }
    }
}

impl Store {
    /// Reserves what an exchange may cost, where both limits of its key leave room for it.
    ///
    /// # Errors
    /// Fails where there is no such key or it was revoked, and where the exchange has a reservation
    /// already.
    pub async fn reserve(&self, reservation: Reservation) -> Result<Reserved, StoreError> {
        let change = BudgetChange::Reserve(reservation);
        match self.ask(Command::Budget(change)).await? {
            Done::Reserved(reserved) => Ok(reserved),
            _ => Err(StoreError::Closed),
        }
    }

    /// Replaces a reservation by what was really used; `false` where the exchange has none, and then
    /// nothing changes. Settling twice is therefore harmless.
    ///
    /// # Errors
    /// Fails where it cannot be written. The reservation then stays, and can be settled later.
    pub async fn settle(
        &self,
        exchange: Uuid,
        cost: MicroUsd,
        tokens: u64,
    ) -> Result<bool, StoreError> {
        let used = Amounts::new(cost, tokens);
        self.ask_whether(Command::Budget(BudgetChange::Settle { exchange, used }))
            .await
    }

    /// Counts what an exchange without a reservation has used, which is for keys without limits. It is
    /// durable when the returned [`Ack`] says so; whoever need not know may drop that.
    ///
    /// # Errors
    /// Fails at once where the store is closed. That there is no such key is told by the [`Ack`].
    pub async fn spend(&self, key: &str, cost: MicroUsd, tokens: u64) -> Result<Ack, StoreError> {
        let change = BudgetChange::Spend {
            key: key.to_owned(),
            used: Amounts::new(cost, tokens),
        };
        self.send(Command::Budget(change)).await.map(Ack)
    }

    /// Turns reservations of processes that are gone into spent, as opening a store does, and returns
    /// how many there were. What they really used is not known, so all of it counts.
    ///
    /// # Errors
    /// Fails where it cannot be written.
    pub async fn sweep_reservations(&self) -> Result<u64, StoreError> {
        self.ask_count(Command::Sweep).await
    }
}

impl StoreReader {
    /// The account of a key; `None` where there is no such key.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn budget(&self, key: &str) -> Result<Option<BudgetState>, StoreError> {
        let row = sql::query(ACCOUNT)
            .bind(key)
            .fetch_optional(&self.pool)
            .await
            .map_err(|error| self.failed(&error))?;
        row.map(|row| account(&row))
            .transpose()
            .map_err(|error| self.failed(&error))
    }
}

impl BudgetChange {
    pub(crate) async fn apply(
        &self,
        connection: &mut Connection,
        by: Writing<'_>,
    ) -> Result<Done, Blocked> {
        match self {
            Self::Reserve(reservation) => reserve(connection, reservation, by.token)
                .await
                .map(Done::Reserved),
            Self::Settle { exchange, used } => settle(connection, *exchange, *used)
                .await
                .map(Done::Changed),
            Self::Spend { key, used } => spend(connection, key, *used).await,
        }
    }
}

async fn reserve(
    connection: &mut Connection,
    reservation: &Reservation,
    owner: &str,
) -> Result<Reserved, Blocked> {
    let key = reservation.key.as_str();
    let asked = Amounts::new(reservation.cost, reservation.tokens);
    let exchange = reservation.exchange.as_bytes().as_slice();
    let granted = sql::query(
        "UPDATE budgets SET reserved = reserved + ?2, reserved_tokens = reserved_tokens + ?3,
            requests = requests + 1
        FROM api_keys
        WHERE key = ?1 AND id = ?1 AND revoked_at IS NULL
            AND (budget IS NULL OR spent + reserved + ?2 <= budget)
            AND (token_budget IS NULL OR spent_tokens + reserved_tokens + ?3 <= token_budget)
            AND NOT EXISTS (SELECT 1 FROM reservations WHERE exchange = ?4)",
    )
    .bind(key)
    .bind(asked.cost)
    .bind(asked.tokens)
    .bind(exchange)
    .execute(&mut *connection)
    .await?;
    if granted.rows_affected() == 0 {
        return refusal(connection, reservation).await;
    }
    sql::query(
        "INSERT INTO reservations (exchange, key, cost, tokens, owner) VALUES (?, ?, ?, ?, ?)",
    )
    .bind(exchange)
    .bind(key)
    .bind(asked.cost)
    .bind(asked.tokens)
    .bind(owner)
    .execute(connection)
    .await?;
    Ok(Reserved::Granted)
}

/// Why nothing was reserved.
async fn refusal(
    connection: &mut Connection,
    reservation: &Reservation,
) -> Result<Reserved, Blocked> {
    let repeated: Option<bool> = sql::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM reservations WHERE exchange = ?)
        FROM api_keys WHERE id = ? AND revoked_at IS NULL",
    )
    .bind(reservation.exchange.as_bytes().as_slice())
    .bind(reservation.key.as_str())
    .fetch_optional(&mut *connection)
    .await?;
    match repeated {
        None => Err(StoreError::UnknownApiKey(reservation.key.clone()).into()),
        Some(true) => Err(StoreError::DuplicateReservation(reservation.exchange).into()),
        Some(false) => {
            let row = sql::query(ACCOUNT)
                .bind(reservation.key.as_str())
                .fetch_one(connection)
                .await?;
            Ok(Reserved::Refused(account(&row)?))
        }
    }
}

async fn settle(
    connection: &mut Connection,
    exchange: Uuid,
    used: Amounts,
) -> Result<bool, Blocked> {
    let held: Option<(String, i64, i64)> =
        sql::query_as("DELETE FROM reservations WHERE exchange = ? RETURNING key, cost, tokens")
            .bind(exchange.as_bytes().as_slice())
            .fetch_optional(&mut *connection)
            .await?;
    let Some((key, cost, tokens)) = held else {
        return Ok(false);
    };
    sql::query(
        "UPDATE budgets SET reserved = reserved - ?2, reserved_tokens = reserved_tokens - ?3,
            spent = CASE WHEN spent > 4611686018427387904 - ?4 THEN 4611686018427387904 ELSE spent + ?4 END,
            spent_tokens = CASE WHEN spent_tokens > 4611686018427387904 - ?5 THEN 4611686018427387904 ELSE spent_tokens + ?5 END
        WHERE key = ?1",
    )
    .bind(key)
    .bind(cost)
    .bind(tokens)
    .bind(used.cost)
    .bind(used.tokens)
    .execute(connection)
    .await?;
    Ok(true)
}

async fn spend(connection: &mut Connection, key: &str, used: Amounts) -> Result<Done, Blocked> {
    let counted = sql::query(
        "UPDATE budgets SET spent = CASE WHEN spent > 4611686018427387904 - ?2 THEN 4611686018427387904 ELSE spent + ?2 END,
            spent_tokens = CASE WHEN spent_tokens > 4611686018427387904 - ?3 THEN 4611686018427387904 ELSE spent_tokens + ?3 END,
            requests = requests + 1
        WHERE key = ?1",
    )
    .bind(key)
    .bind(used.cost)
    .bind(used.tokens)
    .execute(connection)
    .await?;
    if counted.rows_affected() == 0 {
        return Err(StoreError::UnknownApiKey(key.to_owned()).into());
    }
    Ok(Done::Written)
}

const ACCOUNT: &str = "SELECT spent, spent_tokens, reserved, reserved_tokens, requests, abandoned,
        budget, token_budget
    FROM api_keys JOIN budgets ON key = id WHERE id = ?";

fn account(row: &Row) -> Result<BudgetState, sqlx::Error> {
    let count = |column: usize| row.try_get::<i64>(column).map(i64::unsigned_abs);
    let limit = |column: usize| {
        let value: Option<i64> = row.try_get(column)?;
        Ok::<_, sqlx::Error>(value.map(i64::unsigned_abs))
    };
    Ok(BudgetState {
        spent: MicroUsd::from_micros(count(0)?),
        spent_tokens: count(1)?,
        reserved: MicroUsd::from_micros(count(2)?),
        reserved_tokens: count(3)?,
        limit: limit(6)?.map(MicroUsd::from_micros),
        token_limit: limit(7)?,
        requests: count(4)?,
        abandoned: count(5)?,
    })
}
