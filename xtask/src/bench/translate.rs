//! Translation against `serde_json` reading and printing the same bytes.
//!
//! Sources are the golden documents of the repository and, where it is beside the checkout, the
//! recorded traffic. Both sides run alternately on each document; the sums of the medians are
//! compared.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use abp_dialect::sse::{SseDecoder, SseEvent, SseLimits};
use abp_dialect::{Dialect, Exchange};
use abp_translate::{Options, StreamTranslator, translate_request, translate_response};
use anyhow::{Context, Result};
use serde_json::Value;

use crate::output::say;

const ROUNDS: usize = 9;
const BAR: f64 = 3.0;

/// Measures and prints one table.
pub(crate) fn run() -> Result<()> {
    let folder = abp_testkit::shared_dir().map(|shared| shared.join("corpus"));
    let Some(folder) = folder else {
        say("the recorded traffic is not beside this checkout: nothing to measure");
        return Ok(());
    };
    say(format_args!(
        "{:<10}{:<10}{:>7}{:>10}{:>12}{:>12}{:>8}{:>7}",
        "from", "kind", "files", "kB", "ours µs", "serde µs", "ratio", "bar"
    ));
    for (name, dialect) in [
        ("openai-chat", Dialect::OpenAi),
        ("openai-responses", Dialect::Codex),
        ("anthropic", Dialect::Claude),
        ("gemini", Dialect::Gemini),
    ] {
        for kind in ["request", "response", "stream"] {
            let files = files(&folder.join(name).join(kind))?;
            let sums = measure(&files, dialect, kind)?;
            let ratio = sums.ours.as_secs_f64() / sums.theirs.as_secs_f64();
            say(format_args!(
                "{:<10}{kind:<10}{:>7}{:>10}{:>12.0}{:>12.0}{ratio:>8.2}{:>7}",
                dialect.as_str(),
                sums.files,
                sums.bytes / 1000,
                sums.ours.as_secs_f64() * 1e6,
                sums.theirs.as_secs_f64() * 1e6,
                format!("≤ {BAR:.0}"),
            ));
        }
    }
    Ok(())
}

#[derive(Default)]
struct Sums {
    files: usize,
    bytes: usize,
    ours: Duration,
    theirs: Duration,
}

/// Every file to every other dialect; what cannot be translated is not measured.
fn measure(files: &[PathBuf], from: Dialect, kind: &str) -> Result<Sums> {
    let mut sums = Sums::default();
    for path in files {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let events = if kind == "stream" {
            events(&bytes)
        } else {
            Vec::new()
        };
        for to in Dialect::ALL.into_iter().filter(|to| *to != from) {
            if !ours(&bytes, &events, from, to, kind) {
                continue;
            }
            let (mut mine, mut serde) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                mine.push(timed(|| {
                    black_box(ours(&bytes, &events, from, to, kind));
                }));
                serde.push(timed(|| theirs(&bytes, &events, kind)));
            }
            sums.files += 1;
            sums.bytes += bytes.len();
            sums.ours += median(&mut mine);
            sums.theirs += median(&mut serde);
        }
    }
    Ok(sums)
}

fn ours(
    bytes: &[u8],
    events: &[(Option<String>, String)],
    from: Dialect,
    to: Dialect,
    kind: &str,
) -> bool {
    let options = Options::default();
    let exchange = Exchange::default();
    match kind {
        "request" => translate_request(bytes, from, to, &options).is_ok(),
        "response" => translate_response(bytes, from, to, &exchange, &options).is_ok(),
        _ => {
            let Ok(mut translator) = StreamTranslator::new(from, to, &exchange, &options) else {
                return false;
            };
            for (name, data) in events {
                black_box(translator.event(name.as_deref(), data));
            }
            black_box(translator.end());
            true
        }
    }
}

fn theirs(bytes: &[u8], events: &[(Option<String>, String)], kind: &str) {
    let copy = |json: &[u8]| {
        if let Ok(value) = serde_json::from_slice::<Value>(json) {
            black_box(value.to_string());
        }
    };
    if kind == "stream" {
        events.iter().for_each(|(_, data)| copy(data.as_bytes()));
    } else {
        copy(bytes);
    }
}

fn events(bytes: &[u8]) -> Vec<(Option<String>, String)> {
    let mut decoder = SseDecoder::new(SseLimits::default());
    let mut fed = decoder.feed(bytes);
    let mut events = Vec::new();
    while let Ok(Some(event)) = fed.next_event() {
        if let SseEvent::Message { name, data, .. } = event {
            events.push((name.map(str::to_owned), data.to_owned()));
        }
    }
    events
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}
