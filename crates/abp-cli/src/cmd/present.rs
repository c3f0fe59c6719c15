//! `abp present`.

use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;

use abp_core::{
    Adaptation, AgentEvent, AgentEventKind, CapabilitySource, ClientCapabilities, ClientProfile,
    EventDigest, PartialCapabilities, PresentationType, read_document,
};
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_stream::{Packets, Presenter, TextForm, Transcript};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::args::{ClientKind, PresentArgs};
use crate::input;
use crate::output::{DIM, Output};
use crate::render::EventPrinter;
use crate::text::{one_line, printable};

/// The longest line read.
const MAX_LINE: u64 = 64 * 1024 * 1024;

pub(crate) fn run(args: &PresentArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let profile = profile(args)?;
    let form = match args.client {
        ClientKind::Web | ClientKind::Cli => TextForm::Screen,
        ClientKind::Voice => TextForm::Speech,
    };
    let mut presenter = Presenter::new(profile.capabilities.clone(), form);
    let mut view = View::new(args.client, output);
    let mut lines = Lines::open(&args.file)?;
    while let Some(event) = lines.next_event()? {
        for event in presenter.push(&event).events() {
            view.show(&event, output)?;
        }
    }
    for event in presenter.finish() {
        view.show(&event, output)?;
    }
    view.end(output)?;
    let adaptations = presenter.adaptations();
    if output.is_json() {
        let (name, shown) = view.collected();
        output.json(&json!({ "client": profile, name: shown, "adaptations": adaptations }))?;
    } else {
        output.diagnostics(&records(adaptations));
    }
    Ok(ExitStatus::Success)
}

/// What such a client takes, and what was said about this one.
fn profile(args: &PresentArgs) -> Result<ClientProfile, AbpError> {
    let mut sources = vec![(CapabilitySource::Protocol, usual(args.client).into())];
    if let Some(said) = &args.capabilities {
        let said = PartialCapabilities::from_json(said.as_bytes()).map_err(|error| {
            AbpError::new(ErrorCode::ConfigInvalid, format!("--capabilities: {error}"))
        })?;
        sources.push((CapabilitySource::Body, said));
    }
    Ok(ClientProfile::merge(&sources))
}

fn usual(client: ClientKind) -> ClientCapabilities {
    use PresentationType::{CitationBlock, MediaCarousel, ProgressIndicator};
    let (events, prefers_markdown, resolution) = match client {
        ClientKind::Web => (
            vec![CitationBlock, MediaCarousel, ProgressIndicator],
            true,
            Some("high"),
        ),
        ClientKind::Cli => (vec![ProgressIndicator], true, Some("low")),
        ClientKind::Voice => (Vec::new(), false, None),
    };
    ClientCapabilities {
        supported_events: events.iter().map(ToString::to_string).collect(),
        prefers_markdown,
        image_resolution: resolution.map(str::to_owned),
    }
}

/// The changes, a line for each.
fn records(adaptations: &[Adaptation]) -> String {
    let line = |one: &Adaptation| {
        let Adaptation {
            event,
            from,
            to,
            reason,
            count,
            ..
        } = one;
        let change = one_line(&format!("{event}: {from} → {to} × {count}"));
        format!(
            "{DIM}adapted{DIM:#} {change} {DIM}({}){DIM:#}",
            one_line(reason)
        )
    };
    adaptations.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// What the client sees; collected where it goes into one object.
struct View {
    kind: ViewKind,
    collected: Option<Collected>,
}

enum ViewKind {
    /// The packets, once there was an event, and when the last one was.
    Web(Option<(Packets, abp_core::Timestamp)>),
    Cli(Box<EventPrinter>),
    Voice(Transcript),
}

#[derive(Default)]
struct Collected {
    values: Vec<Value>,
    text: String,
}

impl View {
    fn new(client: ClientKind, output: &Output) -> Self {
        let kind = match client {
            ClientKind::Web => ViewKind::Web(None),
            ClientKind::Cli => ViewKind::Cli(Box::new(EventPrinter::new(output))),
            ClientKind::Voice => ViewKind::Voice(Transcript::default()),
        };
        Self {
            kind,
            collected: output.is_json().then(Collected::default),
        }
    }

    fn show(&mut self, event: &AgentEvent, output: &mut Output) -> Result<(), AbpError> {
        match &mut self.kind {
            ViewKind::Web(stream) => {
                let (packets, last) =
                    stream.get_or_insert_with(|| (Packets::new(stream_id(event)), event.ts));
                *last = event.ts;
                let packet = json!(packets.packet(event));
                self.put(packet, output)
            }
            ViewKind::Cli(printer) => {
                match &mut self.collected {
                    Some(collected) => collected.values.push(json!(event)),
                    None => print(event, printer, output),
                }
                Ok(())
            }
            ViewKind::Voice(spoken) => {
                let text = spoken.say(&event.kind);
                self.put_text(&printable(&text), output);
                Ok(())
            }
        }
    }

    fn end(&mut self, output: &mut Output) -> Result<(), AbpError> {
        match &mut self.kind {
            ViewKind::Web(None) => Ok(()),
            ViewKind::Web(Some((packets, last))) => {
                let packet = json!(packets.close(*last));
                self.put(packet, output)
            }
            ViewKind::Cli(printer) => {
                printer.end_line(output);
                Ok(())
            }
            ViewKind::Voice(spoken) => {
                let text = spoken.end();
                self.put_text(&text, output);
                Ok(())
            }
        }
    }

    fn put(&mut self, value: Value, output: &mut Output) -> Result<(), AbpError> {
        match &mut self.collected {
            Some(collected) => {
                collected.values.push(value);
                Ok(())
            }
            None => output.json_line(&value),
        }
    }

    fn put_text(&mut self, text: &str, output: &mut Output) {
        match &mut self.collected {
            Some(collected) => collected.text.push_str(text),
            None => output.write(text),
        }
    }

    /// What was collected, and what it is called.
    fn collected(self) -> (&'static str, Value) {
        let collected = self.collected.unwrap_or_default();
        match self.kind {
            ViewKind::Web(_) => ("packets", Value::from(collected.values)),
            ViewKind::Cli(_) => ("events", Value::from(collected.values)),
            ViewKind::Voice(_) => ("text", Value::from(collected.text)),
        }
    }
}

/// Prints an event for a terminal; what was changed is told at the end.
fn print(event: &AgentEvent, printer: &mut EventPrinter, output: &mut Output) {
    if !matches!(event.kind, AgentEventKind::Adapted { .. }) {
        printer.print(&event.kind, output);
    }
}

/// The id of a stream that begins with that event: the same run is the same stream again.
fn stream_id(first: &AgentEvent) -> Uuid {
    let mut digest = EventDigest::default();
    // An event that cannot be hashed adds nothing, and the id is that of nothing.
    drop(digest.push(first));
    let sha256 = digest.finish(false).sha256;
    let number = sha256.get(..32).map(|hex| u128::from_str_radix(hex, 16));
    let number = number.and_then(Result::ok).unwrap_or_default();
    uuid::Builder::from_custom_bytes(number.to_be_bytes()).into_uuid()
}

/// The events of a recorded run.
struct Lines<'a> {
    path: &'a Path,
    reader: BufReader<Box<dyn Read>>,
    number: usize,
}

/// What tells the lines of a run apart.
#[derive(Deserialize)]
struct LineKind {
    #[serde(rename = "type")]
    kind: String,
}

impl<'a> Lines<'a> {
    fn open(path: &'a Path) -> Result<Self, AbpError> {
        Ok(Self {
            path,
            reader: BufReader::new(input::open(path)?),
            number: 0,
        })
    }

    /// The next event; the summary at the end is none.
    fn next_event(&mut self) -> Result<Option<AgentEvent>, AbpError> {
        let mut line = Vec::new();
        loop {
            line.clear();
            self.number += 1;
            let mut limited = self.reader.by_ref().take(MAX_LINE);
            let read = limited.read_until(b'\n', &mut line).map_err(|error| {
                self.problem(ErrorCode::ConfigInvalid, "cannot be read")
                    .with_source(error)
            })?;
            if read == 0 {
                return Ok(None);
            }
            let is_summary = serde_json::from_slice::<LineKind>(&line)
                .is_ok_and(|line| line.kind == "run_summary");
            if is_summary || line.trim_ascii().is_empty() {
                continue;
            }
            let event = read_document(line.trim_ascii_end());
            return event
                .map(Some)
                .map_err(|error| self.problem(error.code(), &error.to_string()));
        }
    }

    fn problem(&self, code: ErrorCode, problem: &str) -> AbpError {
        let (path, number) = (self.path.display(), self.number);
        AbpError::new(code, format!("{path}, line {number}: {problem}"))
    }
}
