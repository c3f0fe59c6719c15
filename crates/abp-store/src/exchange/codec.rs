//! The bytes of a record: one spelling for every record, read back exactly or not at all.
//!
//! Fixed fields first, so that a record can be recognised without reading all of it; then numbers in
//! as few bytes as they need, hashes, and texts that begin with their length.

use abp_core::{ExecutionMode, MicroUsd, Outcome, Timestamp};
use uuid::Uuid;

use super::{ExchangeRecord, ExchangeUsage};

/// The first byte of a record.
const VERSION: u8 = 1;
/// The longest text, in bytes; its length is one byte.
const MAX_TEXT: usize = 200;
/// What the emulated features take at most, each with its length.
const MAX_EMULATED_BYTES: usize = 2048;
/// Longer than "+N more" with its length can be.
const MORE_BYTES: usize = 32;
/// A number takes at most this many bytes.
const MAX_NUMBER: usize = 10;

/// Version, id, time, flags, status, outcome, attempts, and the four hashes.
const FIXED: usize = 1 + 16 + 8 + 2 + 2 + 1 + 1 + 4 * 32;
const NUMBERS: usize = 10;
const TEXTS: usize = 8;
/// The largest record.
pub(crate) const MAX_RECORD_BYTES: usize =
    FIXED + NUMBERS * MAX_NUMBER + 32 + TEXTS * (1 + MAX_TEXT) + 1 + MAX_EMULATED_BYTES;

/// The flags of the optional numbers are the lowest bits, in their order.
const OPTIONAL_NUMBERS: u16 = 7;
const HAS_LEDGER: u16 = 1 << 7;
const HAS_ERROR: u16 = 1 << 8;
const STREAMED: u16 = 1 << 9;
const PASSTHROUGH: u16 = 1 << 10;
const ESTIMATE: u16 = 1 << 11;
const CLIENT_CLOSED: u16 = 1 << 12;
const ALL_FLAGS: u16 = (1 << 13) - 1;

/// Why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordProblem {
    #[error("it ends too early")]
    Short,
    #[error("bytes are left over")]
    Long,
    #[error("it has version {0}, which this release cannot read")]
    Version(u8),
    #[error("{0} is not as it is written")]
    Value(&'static str),
}

pub(crate) fn encode(record: &ExchangeRecord) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    bytes.push(VERSION);
    bytes.extend_from_slice(record.run_id.as_bytes());
    bytes.extend_from_slice(&record.started_at.as_unix_millis().to_le_bytes());
    bytes.extend_from_slice(&flags(record).to_le_bytes());
    bytes.extend_from_slice(&record.status.to_le_bytes());
    bytes.push(outcome_code(record.outcome));
    bytes.push(record.attempts);
    for hash in [
        &record.request_sha256,
        &record.sent_sha256,
        &record.received_sha256,
        &record.delivered_sha256,
    ] {
        bytes.extend_from_slice(hash);
    }
    let always = [
        record.duration_us,
        record.request_bytes,
        record.response_bytes,
    ];
    let present = optional_numbers(record).into_iter().flatten();
    for number in always.into_iter().chain(present) {
        put_number(&mut bytes, number);
    }
    if let Some(ledger) = &record.ledger {
        bytes.extend_from_slice(ledger);
    }
    for text in [
        &record.principal,
        &record.caller_dialect,
        &record.upstream,
        &record.upstream_dialect,
        &record.model_asked,
        &record.model_sent,
        &record.operation,
    ] {
        put_text(&mut bytes, text);
    }
    if let Some(code) = &record.error_code {
        put_text(&mut bytes, code);
    }
    put_emulated(&mut bytes, &record.emulated);
    bytes
}

pub(crate) fn decode(bytes: &[u8]) -> Result<ExchangeRecord, RecordProblem> {
    let mut left = Left(bytes);
    let [version] = left.array()?;
    if version != VERSION {
        return Err(RecordProblem::Version(version));
    }
    let run_id = Uuid::from_bytes(left.array()?);
    let started_at = left.time()?;
    let flags = u16::from_le_bytes(left.array()?);
    if flags & !ALL_FLAGS != 0 {
        return Err(RecordProblem::Value("a flag"));
    }
    let is = |flag: u16| flags & flag != 0;
    let status = u16::from_le_bytes(left.array()?);
    let [outcome, attempts] = left.array()?;
    let [
        request_sha256,
        sent_sha256,
        received_sha256,
        delivered_sha256,
    ] = [left.array()?, left.array()?, left.array()?, left.array()?];
    let [duration_us, request_bytes, response_bytes] =
        [left.number()?, left.number()?, left.number()?];
    let mut optional = [None; OPTIONAL_NUMBERS as usize];
    for (place, number) in optional.iter_mut().enumerate() {
        if is(1 << place) {
            *number = Some(left.number()?);
        }
    }
    let [
        first_byte_us,
        input,
        output,
        cache_read,
        cache_write,
        units,
        cost,
    ] = optional;
    let ledger = is(HAS_LEDGER).then(|| left.array()).transpose()?;
    let record = ExchangeRecord {
        run_id,
        principal: left.text()?,
        started_at,
        duration_us,
        first_byte_us,
        caller_dialect: left.text()?,
        upstream: left.text()?,
        upstream_dialect: left.text()?,
        model_asked: left.text()?,
        model_sent: left.text()?,
        operation: left.text()?,
        streamed: is(STREAMED),
        mode: if is(PASSTHROUGH) {
            ExecutionMode::Passthrough
        } else {
            ExecutionMode::Mapped
        },
        status,
        outcome: outcome_of(outcome)?,
        error_code: is(HAS_ERROR).then(|| left.text()).transpose()?,
        attempts,
        request_sha256,
        sent_sha256,
        received_sha256,
        delivered_sha256,
        request_bytes,
        response_bytes,
        usage: ExchangeUsage {
            input_tokens: input,
            output_tokens: output,
            cache_read_tokens: cache_read,
            cache_write_tokens: cache_write,
            request_units: units,
        },
        cost: cost.map(MicroUsd::from_micros),
        cost_is_estimate: is(ESTIMATE),
        ledger,
        emulated: left.emulated()?,
        client_closed: is(CLIENT_CLOSED),
    };
    if left.0.is_empty() {
        Ok(record)
    } else {
        Err(RecordProblem::Long)
    }
}

/// The id of a record, without reading the rest of it.
pub(crate) fn run_id_of(record: &[u8]) -> Option<Uuid> {
    let (_, rest) = record.split_first()?;
    rest.first_chunk().copied().map(Uuid::from_bytes)
}

fn flags(record: &ExchangeRecord) -> u16 {
    let mut flags = 0;
    for (place, number) in optional_numbers(record).iter().enumerate() {
        flags |= u16::from(number.is_some()) << place;
    }
    let passthrough = match record.mode {
        ExecutionMode::Passthrough => true,
        ExecutionMode::Mapped => false,
    };
    for (flag, holds) in [
        (HAS_LEDGER, record.ledger.is_some()),
        (HAS_ERROR, record.error_code.is_some()),
        (STREAMED, record.streamed),
        (PASSTHROUGH, passthrough),
        (ESTIMATE, record.cost_is_estimate),
        (CLIENT_CLOSED, record.client_closed),
    ] {
        flags |= if holds { flag } else { 0 };
    }
    flags
}

fn optional_numbers(record: &ExchangeRecord) -> [Option<u64>; OPTIONAL_NUMBERS as usize] {
    let usage = &record.usage;
    [
        record.first_byte_us,
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.request_units,
        record.cost.map(MicroUsd::micros),
    ]
}

fn outcome_code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Complete => 0,
        Outcome::Partial => 1,
        Outcome::Failed => 2,
        Outcome::Cancelled => 3,
    }
}

fn outcome_of(code: u8) -> Result<Outcome, RecordProblem> {
    match code {
        0 => Ok(Outcome::Complete),
        1 => Ok(Outcome::Partial),
        2 => Ok(Outcome::Failed),
        3 => Ok(Outcome::Cancelled),
        _ => Err(RecordProblem::Value("the outcome")),
    }
}

/// Seven bits a byte, the lowest first; the last byte has its highest bit clear.
fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let cut = cut(text);
    bytes.push(cut.len() as u8);
    bytes.extend_from_slice(cut.as_bytes());
}

fn cut(text: &str) -> &str {
    let (cut, _) = text.split_at(text.floor_char_boundary(MAX_TEXT));
    cut
}

fn put_emulated(bytes: &mut Vec<u8>, names: &[String]) {
    let mut left = MAX_EMULATED_BYTES;
    let fits = |name: &&String, left: &mut usize| {
        let rest = left.checked_sub(1 + cut(name).len());
        *left = rest.unwrap_or(*left);
        rest.is_some()
    };
    let is_short = names.len() <= usize::from(u8::MAX);
    if is_short && names.iter().all(|name| fits(&name, &mut left)) {
        bytes.push(names.len() as u8);
        for name in names {
            put_text(bytes, name);
        }
        return;
    }
    left = MAX_EMULATED_BYTES - MORE_BYTES;
    let most = names.iter().take(usize::from(u8::MAX) - 1);
    let kept = most.take_while(|name| fits(name, &mut left)).count();
    bytes.push(kept as u8 + 1);
    for name in names.iter().take(kept) {
        put_text(bytes, name);
    }
    put_text(bytes, &format!("+{} more", names.len() - kept));
}

/// What is left to read.
struct Left<'a>(&'a [u8]);

impl Left<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordProblem> {
        let (array, rest) = self.0.split_first_chunk().ok_or(RecordProblem::Short)?;
        self.0 = rest;
        Ok(*array)
    }

    fn time(&mut self) -> Result<Timestamp, RecordProblem> {
        let millis = i64::from_le_bytes(self.array()?);
        let time = Timestamp::from_unix_millis(millis);
        if time.as_unix_millis() != millis {
            return Err(RecordProblem::Value("the time"));
        }
        Ok(time)
    }

    fn number(&mut self) -> Result<u64, RecordProblem> {
        let mut number = 0;
        for place in 0..MAX_NUMBER {
            let [byte] = self.array()?;
            let low = u64::from(byte & 0x7f);
            let shifted = low << (7 * place);
            if shifted >> (7 * place) != low {
                break;
            }
            number |= shifted;
            if byte & 0x80 == 0 {
                // A last byte that adds nothing would be a second spelling.
                if byte == 0 && place > 0 {
                    break;
                }
                return Ok(number);
            }
        }
        Err(RecordProblem::Value("a number"))
    }

    fn text(&mut self) -> Result<String, RecordProblem> {
        let [length] = self.array()?;
        if usize::from(length) > MAX_TEXT {
            return Err(RecordProblem::Value("a text"));
        }
        let (text, rest) = self
            .0
            .split_at_checked(length.into())
            .ok_or(RecordProblem::Short)?;
        self.0 = rest;
        let text = str::from_utf8(text).map_err(|_| RecordProblem::Value("a text"))?;
        Ok(text.to_owned())
    }

    fn emulated(&mut self) -> Result<Vec<String>, RecordProblem> {
        let [count] = self.array()?;
        let before = self.0.len();
        let names = (0..count)
            .map(|_| self.text())
            .collect::<Result<_, RecordProblem>>()?;
        if before - self.0.len() > MAX_EMULATED_BYTES {
            return Err(RecordProblem::Value("the emulated features"));
        }
        Ok(names)
    }
}

#[cfg(test)]
pub(crate) mod tests;
