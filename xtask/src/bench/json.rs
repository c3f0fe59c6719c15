//! `abp-json` against `serde_json`: reading, canonical hashing, and both together.
//!
//! Both sides of a comparison run alternately within one process, and the medians of the rounds are
//! compared, so the ratios hold even where the machine is shared. Nothing is asserted.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use abp_json::{Limits, Tape, canonical};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const ROUNDS: usize = 41;
/// How long one side runs within a round.
const SLICE: Duration = Duration::from_millis(4);
const READ_BAR: f64 = 2.0;
const HASH_BAR: f64 = 0.4;

/// Measures and prints one table.
///
/// # Errors
///
/// Fails when a generated document cannot be read or hashed.
#[expect(clippy::print_stdout, reason = "a benchmark's result is its output")]
pub(crate) fn run() -> anyhow::Result<()> {
    println!(
        "{:<28}{:>9}{:>12}{:>12}{:>8}{:>8}",
        "", "bytes", "abp MB/s", "serde MB/s", "ratio", "bar"
    );
    for (name, document) in [
        ("delta", delta()),
        ("chat request", chat_request()),
        ("receipt", receipt()),
    ] {
        let text = print(&document);
        for comparison in compare(text.as_bytes())? {
            let megabytes = |time: Duration| text.len() as f64 / time.as_secs_f64() / 1e6;
            let (ours, theirs) = (megabytes(comparison.ours), megabytes(comparison.theirs));
            println!(
                "{:<28}{:>9}{ours:>12.0}{theirs:>12.0}{:>8.2}{:>8}",
                format!("{name}: {}", comparison.what),
                text.len(),
                ours / theirs,
                format!("≥ {:.1}", comparison.bar),
            );
        }
    }
    Ok(())
}

struct Comparison {
    what: &'static str,
    bar: f64,
    ours: Duration,
    theirs: Duration,
}

fn compare(text: &[u8]) -> anyhow::Result<Vec<Comparison>> {
    let limits = Limits::default();
    let tape = Tape::parse(text, &limits)?;
    let value: Value = serde_json::from_slice(text)?;
    hash_canonical(&tape)?;

    let read = medians(
        || {
            Tape::parse(text, &limits)
                .map(|tape| tape.node_count())
                .unwrap_or_default()
        },
        || serde_json::from_slice::<Value>(text).is_ok(),
    );
    let hash = medians(
        || hash_canonical(&tape).is_ok(),
        || hash_plain(&value).is_ok(),
    );
    let both = medians(
        || Tape::parse(text, &limits).is_ok_and(|tape| hash_canonical(&tape).is_ok()),
        || serde_json::from_slice(text).is_ok_and(|value| hash_plain(&value).is_ok()),
    );
    let rows = [
        ("read", READ_BAR, read),
        ("hash", HASH_BAR, hash),
        ("read and hash", HASH_BAR, both),
    ];
    Ok(rows
        .map(|(what, bar, (ours, theirs))| Comparison {
            what,
            bar,
            ours,
            theirs,
        })
        .into())
}

fn hash_canonical(tape: &Tape<'_>) -> anyhow::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    canonical::write(tape.root(), |piece| hasher.update(piece))?;
    Ok(hasher.finalize().into())
}

fn hash_plain(value: &Value) -> anyhow::Result<[u8; 32]> {
    Ok(Sha256::digest(serde_json::to_vec(value)?).into())
}

/// Returns the median time of one call of either side, run in turn.
fn medians<A, B>(
    mut ours: impl FnMut() -> A,
    mut theirs: impl FnMut() -> B,
) -> (Duration, Duration) {
    let mut times = (Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        times.0.push(time_one(&mut ours));
        times.1.push(time_one(&mut theirs));
    }
    (median(times.0), median(times.1))
}

fn time_one<T>(call: &mut impl FnMut() -> T) -> Duration {
    let start = Instant::now();
    let mut calls = 0;
    loop {
        black_box(call());
        calls += 1;
        let elapsed = start.elapsed();
        if elapsed >= SLICE {
            return elapsed / calls;
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Prints a document with the members of its objects in an order that is fixed but not sorted, as
/// other programs print them; `serde_json` would hand the canonical writer its work done.
fn print(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(print).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| {
                key.bytes()
                    .rev()
                    .fold(7_u32, |hash, byte| hash.wrapping_mul(31) ^ u32::from(byte))
            });
            let member = |(key, value): &(&String, &Value)| {
                format!("{}:{}", Value::from(key.as_str()), print(value))
            };
            format!(
                "{{{}}}",
                members.iter().map(member).collect::<Vec<_>>().join(",")
            )
        }
        scalar => scalar.to_string(),
    }
}

/// A streamed chunk of about 300 bytes.
fn delta() -> Value {
    json!({
        "id": "chatcmpl-9f3c2e7a51d84c0b", "object": "chat.completion.chunk", "created": 1763210000,
        "model": "gpt-4o-mini-2024-07-18", "service_tier": "default", "system_fingerprint": "fp_8bda4d3a2c",
        "choices": [{"index": 0, "delta": {"content": " backplane"}, "logprobs": null, "finish_reason": null}],
        "usage": null, "obfuscation": "pQ3xJ9"
    })
}

/// A conversation with tools, about 20 KB.
fn chat_request() -> Value {
    let mut words = Words::new(7);
    let messages: Vec<Value> = (0..24)
        .map(|turn| match turn % 4 {
            0 => json!({"role": "user", "content": words.prose(90)}),
            1 => json!({"role": "assistant", "content": null, "tool_calls": [{
                "id": format!("call_{turn:08}"), "type": "function",
                "function": {"name": "read_file", "arguments": format!("{{\"path\":\"src/{}.rs\",\"limit\":200}}", words.word())}
            }]}),
            2 => json!({"role": "tool", "tool_call_id": format!("call_{turn:08}"), "content": words.code(40)}),
            _ => json!({"role": "assistant", "content": [{"type": "text", "text": words.prose(60)}]}),
        })
        .collect();
    let tools: Vec<Value> = (0..8)
        .map(|tool| {
            json!({"type": "function", "function": {
                "name": format!("tool_{tool}"), "description": words.prose(20),
                "parameters": {"type": "object", "properties": {
                    "path": {"type": "string", "description": words.prose(8)},
                    "limit": {"type": "integer", "minimum": 0, "maximum": 2000},
                    "recursive": {"type": "boolean", "default": false}
                }, "required": ["path"], "additionalProperties": false}
            }})
        })
        .collect();
    json!({"model": "gpt-4o", "messages": messages, "tools": tools, "temperature": 0.7, "top_p": 0.95,
        "max_completion_tokens": 4096, "stream": true, "stream_options": {"include_usage": true}})
}

/// A receipt with its trace embedded, about 1 MB.
fn receipt() -> Value {
    let mut words = Words::new(11);
    let trace: Vec<Value> = (0..3600_u32)
        .map(|seq| {
            let ts = format!("2026-11-15T12:{:02}:{:02}.{:03}Z", seq / 60 % 60, seq % 60, seq * 7 % 1000);
            match seq % 6 {
                0 => json!({"seq": seq, "ts": ts, "type": "tool_call", "tool_name": "bash", "tool_use_id": format!("toolu_{seq:012}"),
                    "parent_tool_use_id": null, "input": {"command": words.prose(6), "timeout_ms": 120_000, "env": {"CI": "1"}}}),
                1 => json!({"seq": seq, "ts": ts, "type": "tool_result", "tool_use_id": format!("toolu_{seq:012}"),
                    "is_error": false, "output": words.code(12)}),
                2 => json!({"seq": seq, "ts": ts, "type": "usage_updated",
                    "usage": {"input_tokens": 1200 + seq, "output_tokens": seq / 2, "cache_read_tokens": 0, "cost_usd": 0.0125 * f64::from(seq % 9)}}),
                3 => json!({"seq": seq, "ts": ts, "type": "assistant_message", "text": words.prose(70)}),
                _ => json!({"seq": seq, "ts": ts, "type": "assistant_delta", "text": words.prose(4)}),
            }
        })
        .collect();
    json!({
        "meta": {"run_id": "0198a6f2-5b7e-7c10-9d5e-0c3a1b2f4d6e", "work_order_id": "0198a6f2-5b7e-7c10-9d5e-0c3a1b2f4d6f",
            "contract_version": "abp/v0.1", "started_at": "2026-11-15T12:00:00.000Z", "finished_at": "2026-11-15T13:00:00.000Z", "duration_ms": 3_600_000},
        "backend": {"id": "sidecar:node", "backend_version": "1.2.3", "adapter_version": null},
        "trace": trace, "artifacts": [], "outcome": "complete", "receipt_sha256": null
    })
}

/// A small generator of text that looks like prose and code.
struct Words(u64);

impl Words {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn word(&mut self) -> &'static str {
        const WORDS: [&str; 16] = [
            "the",
            "receipt",
            "backend",
            "of",
            "a",
            "capability",
            "manifest",
            "run",
            "emulates",
            "policy",
            "and",
            "workspace",
            "naïve",
            "stream",
            "tool",
            "negotiation",
        ];
        WORDS
            .get(self.next() as usize % WORDS.len())
            .copied()
            .unwrap_or_default()
    }

    fn prose(&mut self, words: usize) -> String {
        let mut text = String::new();
        for index in 1..=words {
            text.push_str(self.word());
            text.push_str(if index % 40 == 0 {
                ".\n\n"
            } else if index % 11 == 0 {
                ", "
            } else {
                " "
            });
        }
        text
    }

    fn code(&mut self, lines: usize) -> String {
        let mut text = String::new();
        for line in 1..=lines {
            let (name, value) = (self.word(), self.word());
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line:>4}\tlet {name} = \"{value}\";");
        }
        text
    }
}
