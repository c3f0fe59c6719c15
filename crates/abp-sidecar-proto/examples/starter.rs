//! A sidecar to start from. It needs nothing but `serde_json`.
//!
//! Say hello, wait for a run, send events, end it with `final`. Standard output is for messages
//! only: print to standard error.

use std::io::{self, BufRead, Write};
use std::sync::mpsc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

fn main() -> io::Result<()> {
    say(&json!({
        "t": "hello",
        "contract_version": "abp/v0.1",
        "backend": { "id": "my-agent", "backend_version": "0.1.0" },
        "capabilities": { "streaming": "native" },
    }))?;
    // Pings are answered by a thread of their own, also while the agent works.
    let (sender, messages) = mpsc::channel();
    std::thread::spawn(move || read(&sender));
    while let Ok(message) = messages.recv() {
        if text(&message, "/t") == "run" {
            run(&message, &messages)?;
        }
    }
    Ok(())
}

/// Does the work. This is the place for your agent.
fn run(message: &Value, messages: &mpsc::Receiver<Value>) -> io::Result<()> {
    let id = text(message, "/id");
    let task = text(message, "/work_order/task");
    let mut outcome = "complete";
    for word in ["You ", "asked: ", task] {
        // A cancelled run ends early, with what there is.
        if messages
            .try_iter()
            .any(|message| text(&message, "/t") == "cancel")
        {
            outcome = "partial";
            break;
        }
        let event = json!({ "ts": now(), "type": "assistant_delta", "text": word });
        say(&json!({ "t": "event", "ref_id": id, "event": event }))?;
    }
    let receipt = json!({
        "meta": {
            "run_id": id,
            "work_order_id": text(message, "/work_order/id"),
            "contract_version": "abp/v0.1",
            "started_at": now(),
            "finished_at": now(),
            "duration_ms": 0,
        },
        "backend": { "id": "my-agent" },
        "usage": { "input_tokens": task.split_whitespace().count() },
        "verification": { "harness_ok": false },
        "outcome": outcome,
    });
    say(&json!({ "t": "final", "ref_id": id, "receipt": receipt }))
}

/// Reads messages until the host closes the input; the channel closes with it, and `main` ends.
fn read(sender: &mpsc::Sender<Value>) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let handled = if text(&message, "/t") == "ping" {
            say(&json!({ "t": "pong", "seq": message.get("seq") })).is_ok()
        } else {
            // Messages that are not known are passed on and passed over.
            sender.send(message).is_ok()
        };
        if !handled {
            return;
        }
    }
}

fn text<'a>(message: &'a Value, pointer: &str) -> &'a str {
    let value = message.pointer(pointer);
    value.and_then(Value::as_str).unwrap_or_default()
}

fn say(message: &Value) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{message}")?;
    stdout.flush()
}

/// Milliseconds since 1970 as RFC 3339; days are counted in eras of 400 years.
fn now() -> String {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let (days, secs) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (secs / 3_600, secs / 60 % 60, secs % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}
