//! The meaning of error codes of Postgres for the store.

use sqlx::postgres::PgDatabaseError;

use crate::error::Failure;

/// Judges by the code's class, which is its first two characters, or by the whole code.
pub(crate) fn judge(error: &PgDatabaseError) -> Failure {
    let text = error.to_string();
    let code = error.code();
    match (code.get(..2).unwrap_or_default(), code) {
        // Two transactions met; the other one went on.
        ("40", _) | (_, "55P03" | "57014") => Failure::Busy,
        // Another process wrote the same key between our look and our insert.
        (_, "23505") => Failure::Busy,
        (_, "53100") => Failure::Full,
        // No connection is free, or the server starts, stops or only reads.
        ("08" | "53" | "57" | "58", _) | (_, "25006" | "25P03") => Failure::Disk(text),
        (_, "XX001" | "XX002") => Failure::Damaged(text),
        _ => Failure::Other(text),
    }
}
