//! Presentation against one pass of pulldown-cmark over the whole document.
//!
//! The document comes in pieces of 20 bytes, as agents stream it; pulldown-cmark gets it in one.
//! All run in turn within one process, and the medians of the rounds are compared.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use abp_core::{AgentEvent, AgentEventKind, ClientCapabilities, Timestamp};
use abp_stream::{Presented, Presenter, TextForm};
use anyhow::{Result, ensure};
use pulldown_cmark::{Options, Parser};

use crate::output::say;

const BYTES: usize = 10_000_000;
const PIECE: usize = 20;
const ROUNDS: usize = 7;

/// Measures and prints one table.
pub(crate) fn run() -> Result<()> {
    let document = document();
    let events = pieces(&document);
    let plain = ClientCapabilities {
        prefers_markdown: false,
        ..ClientCapabilities::default()
    };
    let clients = [
        ("takes everything", None, 1.0),
        ("takes markdown", Some(ClientCapabilities::default()), 1.0),
        ("takes plain text", Some(plain), 0.2),
    ];
    let mut whole = Vec::new();
    let mut times = clients.each_ref().map(|_| Vec::new());
    for _ in 0..ROUNDS {
        whole.push(timed(|| parse(&document)).0);
        for ((_, client, _), times) in clients.iter().zip(&mut times) {
            let (time, shown) = timed(|| present(client.clone(), &events));
            ensure!(shown > document.len() / 2, "only {shown} bytes were shown");
            times.push(time);
        }
    }
    let speed = |time: Duration| document.len() as f64 / time.as_secs_f64() / 1e6;
    let parser = speed(median(&mut whole));
    say(format_args!(
        "{:<20}{:>10}{:>16}{:>8}{:>8}",
        "client", "MB/s", "pulldown MB/s", "ratio", "bar"
    ));
    for ((name, _, bar), times) in clients.iter().zip(&mut times) {
        let ours = speed(median(times));
        say(format_args!(
            "{name:<20}{ours:>10.0}{parser:>16.0}{:>8.2}{:>8}",
            ours / parser,
            format!("≥ {bar:.1}")
        ));
    }
    Ok(())
}

fn parse(document: &str) -> usize {
    let extensions =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    Parser::new_ext(document, extensions).map(black_box).count()
}

/// Presents the events; returns how much text the client got.
fn present(client: Option<ClientCapabilities>, events: &[AgentEvent]) -> usize {
    let mut presenter = Presenter::new(client, TextForm::Speech);
    let length = |event: &AgentEvent| match &event.kind {
        AgentEventKind::AssistantDelta { text } => text.len(),
        _ => 0,
    };
    let mut shown = 0;
    for event in events {
        shown += match black_box(presenter.push(event)) {
            Presented::Unchanged(event) => length(event),
            Presented::Changed(events) => events.iter().map(length).sum(),
        };
    }
    shown + presenter.finish().iter().map(length).sum::<usize>()
}

fn pieces(document: &str) -> Vec<AgentEvent> {
    let mut events = Vec::new();
    let mut rest = document;
    while !rest.is_empty() {
        let (text, later) = rest.split_at(rest.floor_char_boundary(PIECE));
        let text = text.to_owned();
        let kind = AgentEventKind::AssistantDelta { text };
        events.push(AgentEvent::new(Timestamp::from_unix_millis(0), kind));
        rest = later;
    }
    events
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Markdown as agents write it: prose with emphasis, code and links, lists, tables, code blocks.
fn document() -> String {
    let mut words = Words(7);
    let mut text = String::with_capacity(BYTES + 4096);
    while text.len() < BYTES {
        // Writing to a string cannot fail.
        let _ = match words.next() % 8 {
            0 => writeln!(text, "## {}\n", words.prose(5)),
            1 | 2 => (0..5)
                .try_for_each(|_| writeln!(text, "- {}", words.prose(12)))
                .and_then(|()| writeln!(text)),
            3 => writeln!(
                text,
                "```rust\n{}```\n",
                "    let x = compute(&y, 42)?;\n".repeat(10)
            ),
            4 => writeln!(text, "| name | value |\n|---|---|")
                .and_then(|()| {
                    (0..4).try_for_each(|_| {
                        writeln!(text, "| {} | {} |", words.prose(3), words.prose(3))
                    })
                })
                .and_then(|()| writeln!(text)),
            _ => writeln!(text, "{}\n", words.prose(60)),
        };
    }
    text
}

/// A small generator of text that looks like prose.
struct Words(u64);

impl Words {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn prose(&mut self, words: usize) -> String {
        const WORDS: [&str; 8] = [
            "the",
            "receipt",
            "of",
            "capability",
            "runs",
            "naïve",
            "stream",
            "negotiation",
        ];
        let word = |number: u64| {
            let index = number as usize % WORDS.len();
            WORDS.get(index).copied().unwrap_or_default()
        };
        let mut text = String::new();
        for index in 0..words {
            let (style, word) = (self.next() % 14, word(self.next()));
            let _ = match style {
                0 => write!(text, "**{word}**"),
                1 => write!(text, "`{word}`"),
                2 => write!(text, "[{word}](https://example.org/{word})"),
                _ => write!(text, "{word}"),
            };
            text.push_str(match index {
                _ if index + 1 == words => "",
                _ if index % 13 == 12 => ". ",
                _ => " ",
            });
        }
        text
    }
}
