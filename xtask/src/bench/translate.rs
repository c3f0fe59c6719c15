//! Translation against `serde_json` reading and printing the same bytes.
//!
//! Sources are the golden documents of the repository and, where it is beside the checkout, the
//! recorded traffic. Both sides run alternately on each document; the sums of the medians are
//! compared. Where valgrind is installed, the instructions of both are counted besides: they are the
//! same in every run, whatever else the machine does.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use abp_dialect::sse::{SseDecoder, SseEvent, SseLimits};
use abp_dialect::{Dialect, Exchange};
use abp_translate::{Options, StreamTranslator, translate_request, translate_response};
use anyhow::{Context, Result};
use serde_json::Value;

use crate::output::say;

const ROUNDS: usize = 9;
const BAR: f64 = 3.0;
/// As first argument: do the work of one side once, so that its instructions can be counted.
const ROLE: &str = "__bench-translate";
const SOURCES: [(&str, Dialect); 4] = [
    ("openai-chat", Dialect::OpenAi),
    ("openai-responses", Dialect::Codex),
    ("anthropic", Dialect::Claude),
    ("gemini", Dialect::Gemini),
];
const KINDS: [&str; 3] = ["request", "response", "stream"];

/// Whose work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Ours,
    Serde,
    /// What both need: files read, and events taken apart.
    Neither,
}

impl Side {
    const ALL: [(&'static str, Self); 3] = [
        ("ours", Self::Ours),
        ("serde", Self::Serde),
        ("neither", Self::Neither),
    ];

    fn named(name: &str) -> Option<Self> {
        let mut sides = Self::ALL.into_iter();
        sides.find_map(|(known, side)| (known == name).then_some(side))
    }
}

/// Does one side's work where this process was started for it.
pub(crate) fn run_if_role() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    let (folder, kind) = (arguments.next()?, arguments.next()?);
    let dialect = arguments.next()?.parse().ok()?;
    let side = Side::named(&arguments.next()?)?;
    Some(match work(Path::new(&folder), dialect, &kind, side) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

/// Measures and prints one table.
pub(crate) fn run() -> Result<()> {
    let folder = abp_testkit::shared_dir().map(|shared| shared.join("corpus"));
    let Some(folder) = folder else {
        say("the recorded traffic is not beside this checkout: nothing to measure");
        return Ok(());
    };
    say(format_args!(
        "{:<10}{:<10}{:>7}{:>10}{:>12}{:>12}{:>8}{:>7}{:>14}{:>8}",
        "from",
        "kind",
        "files",
        "kB",
        "ours µs",
        "serde µs",
        "ratio",
        "bar",
        "instructions",
        "ratio"
    ));
    for (name, dialect) in SOURCES {
        for kind in KINDS {
            let folder = folder.join(name).join(kind);
            let sums = measure(&files(&folder)?, dialect, kind)?;
            let ratio = sums.ours.as_secs_f64() / sums.theirs.as_secs_f64();
            say(format_args!(
                "{:<10}{kind:<10}{:>7}{:>10}{:>12.0}{:>12.0}{ratio:>8.2}{:>7}{}",
                dialect.as_str(),
                sums.files,
                sums.bytes / 1000,
                sums.ours.as_secs_f64() * 1e6,
                sums.theirs.as_secs_f64() * 1e6,
                format!("≤ {BAR:.0}"),
                counted(&folder, dialect, kind)?,
            ));
        }
    }
    Ok(())
}

/// The instructions of both sides, as the table shows them; nothing where they cannot be counted.
fn counted(folder: &Path, dialect: Dialect, kind: &str) -> Result<String> {
    let mut counts = [0_u64; 3];
    for (count, (name, _)) in counts.iter_mut().zip(Side::ALL) {
        let told = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(std::env::current_exe()?)
            .args([ROLE, &folder.display().to_string(), kind])
            .args([dialect.as_str(), name])
            .output();
        let Ok(told) = told else {
            return Ok(format!("{:>14}{:>8}", "no valgrind", "-"));
        };
        let told = String::from_utf8_lossy(&told.stderr).into_owned();
        let collected = told
            .lines()
            .find_map(|line| line.split_once("Collected : "));
        let collected = collected.and_then(|(_, count)| count.trim().parse().ok());
        *count = collected.with_context(|| format!("valgrind says {told}"))?;
    }
    let [ours, serde, neither] = counts;
    let (ours, serde) = (ours.saturating_sub(neither), serde.saturating_sub(neither));
    #[expect(clippy::cast_precision_loss, reason = "a ratio of large numbers")]
    let ratio = ours as f64 / serde as f64;
    Ok(format!("{ours:>14}{ratio:>8.2}"))
}

/// Does one side's work once for every file and every other dialect.
fn work(folder: &Path, from: Dialect, kind: &str, side: Side) -> Result<()> {
    for path in files(folder)? {
        let bytes = fs::read(path)?;
        let events = if kind == "stream" {
            events(&bytes)
        } else {
            Vec::new()
        };
        for to in Dialect::ALL.into_iter().filter(|to| *to != from) {
            match side {
                Side::Ours => {
                    black_box(ours(&bytes, &events, from, to, kind));
                }
                Side::Serde => theirs(&bytes, &events, kind),
                Side::Neither => {}
            }
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
