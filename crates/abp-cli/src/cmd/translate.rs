//! `abp translate`.

use std::io::Read as _;
use std::path::Path;

use abp_dialect::{
    Dialect, DialectDetector, DialectValidator, DocumentKind, Exchange, IssueSeverity, Signals,
    TargetProfile,
};
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_json::{Limits, Tape};
use abp_translate::{
    Action, ByteTranslator, FidelityLevel, Ledger, LedgerEntry, Options, StreamEvent, Translation,
    translate_error, translate_request, translate_response, translate_stream,
};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::args::{OnLoss, ReportForm, Source, TranslateArgs, TranslateKind};
use crate::input;
use crate::output::Output;

/// How much of a stream is read at once.
const PIECE: usize = 16 * 1024;

pub(crate) fn run(args: &TranslateArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let streams_through = args.kind == Some(TranslateKind::Stream)
        && args.report.is_none()
        && args.on_loss == OnLoss::Label
        && !output.is_json();
    if let (true, Source::Named(from)) = (streams_through, args.from) {
        return stream_through(args, from, output);
    }
    let bytes = input::read(&args.file)?;
    let (from, kind) = recognise(args, &bytes)?;
    warn_of_defects(&bytes, from, kind, output);
    let done = translate(args, &bytes, from, args.to, kind)?;
    if args.on_loss == OnLoss::Reject {
        done.ledger.require_lossless()?;
    }
    let back = if args.round_trip {
        let source = done.output.bytes();
        let done = translate(args, &source, args.to, from, kind)?;
        let missing = differences(&bytes, &done.output, kind);
        Some(Back { done, missing })
    } else {
        None
    };
    match (args.report, output.is_json()) {
        (Some(ReportForm::Json), _) | (_, true) => output.json(&done.report(back.as_ref())?)?,
        (Some(ReportForm::Table), false) => table(&done, back.as_ref(), output),
        (None, false) => {
            let written = back.as_ref().map_or(&done, |back| &back.done);
            output.write(&written.output.text());
            summarise(&done.ledger, kind, output);
            if let Some(back) = &back {
                output.note(&not_restored(&back.missing));
            }
        }
    }
    Ok(ExitStatus::Success)
}

/// The way back of a translation, and what differs from the source at its end.
struct Back {
    done: Done,
    missing: Vec<Difference>,
}

/// Tells in one line what was lost, on standard error, so that the document stays alone.
fn summarise(ledger: &Ledger, kind: TranslateKind, output: &mut Output) {
    let kind = document_kind(kind);
    let count = ledger.count_losses(kind);
    if count.total() == 0 {
        return output.note("lossless");
    }
    let of_meaning = |entry: &&LedgerEntry| !entry.is_bookkeeping(kind);
    let mut names: Vec<&str> = ledger
        .losses()
        .filter(of_meaning)
        .map(|entry| entry.label.as_deref().unwrap_or(entry.action.as_str()))
        .collect();
    names.sort_unstable();
    names.dedup();
    let names = match names.is_empty() {
        true => String::new(),
        false => format!(" ({})", names.join(", ")),
    };
    output.note(&format!(
        "{}: {} of meaning{names}, {} of bookkeeping; --report table shows them",
        ledger.fidelity(),
        count.meaning,
        count.bookkeeping
    ));
}

fn document_kind(kind: TranslateKind) -> DocumentKind {
    match kind {
        TranslateKind::Request => DocumentKind::Request,
        TranslateKind::Response => DocumentKind::Response,
        TranslateKind::Error => DocumentKind::Error,
        TranslateKind::Stream => DocumentKind::StreamEvent,
    }
}

/// What was written: a document, or the events of a stream.
enum Written {
    Document(String),
    Events(Vec<StreamEvent>),
}

struct Done {
    output: Written,
    ledger: Ledger,
}

#[derive(Serialize)]
struct Report {
    output: Box<RawValue>,
    fidelity: FidelityLevel,
    ledger: Vec<LedgerEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round_trip: Option<RoundTrip>,
}

#[derive(Serialize)]
struct RoundTrip {
    output: Box<RawValue>,
    ledger: Vec<LedgerEntry>,
    not_restored: Vec<Difference>,
}

impl Written {
    /// The bytes as the target's client would get them.
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Document(text) => text.clone().into_bytes(),
            Self::Events(events) => {
                let mut bytes = Vec::new();
                let mut encoder =
                    abp_dialect::sse::SseEncoder::new(abp_dialect::sse::SseForm::Events);
                for event in events {
                    encoder.event(event.name.as_deref(), &event.data, &mut bytes);
                }
                bytes
            }
        }
    }

    fn text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.bytes()).into_owned();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }

    /// The document, or the list of events, as JSON.
    fn json(&self) -> Result<Box<RawValue>, AbpError> {
        let text = match self {
            Self::Document(text) => text.clone(),
            Self::Events(events) => events_json(events),
        };
        RawValue::from_string(text).map_err(|error| {
            AbpError::new(ErrorCode::Internal, "the translation is no JSON").with_source(error)
        })
    }
}

fn events_json(events: &[StreamEvent]) -> String {
    let mut writer = abp_json::Writer::default();
    writer.begin_array();
    for event in events {
        writer.begin_object();
        writer.key("event");
        match &event.name {
            Some(name) => writer.string(name),
            None => writer.raw("null"),
        }
        writer.key("data");
        if event.data.starts_with('{') {
            writer.raw(&event.data);
        } else {
            writer.string(&event.data);
        }
        writer.end_object();
    }
    writer.end_array();
    writer.into_text()
}

impl Done {
    fn report(&self, back: Option<&Back>) -> Result<Report, AbpError> {
        Ok(Report {
            output: self.output.json()?,
            fidelity: self.ledger.fidelity(),
            ledger: self.ledger.entries().to_vec(),
            round_trip: back
                .map(|back| {
                    Ok::<_, AbpError>(RoundTrip {
                        output: back.done.output.json()?,
                        ledger: back.done.ledger.entries().to_vec(),
                        not_restored: back.missing.clone(),
                    })
                })
                .transpose()?,
        })
    }
}

fn translate(
    args: &TranslateArgs,
    bytes: &[u8],
    from: Dialect,
    to: Dialect,
    kind: TranslateKind,
) -> Result<Done, AbpError> {
    let options = options(args);
    let exchange = Exchange::default();
    let document = |translation: Translation| Done {
        output: Written::Document(translation.output),
        ledger: translation.ledger,
    };
    Ok(match kind {
        TranslateKind::Request => document(translate_request(bytes, from, to, &options)?),
        TranslateKind::Response => {
            document(translate_response(bytes, from, to, &exchange, &options)?)
        }
        TranslateKind::Error => document(translate_error(bytes, from, to, args.status, &options)?),
        TranslateKind::Stream => {
            let (events, ledger) = translate_stream(bytes, from, to, &exchange, &options)?;
            Done {
                output: Written::Events(events),
                ledger,
            }
        }
    })
}

fn options(args: &TranslateArgs) -> Options {
    Options {
        profile: TargetProfile {
            model: args.model.clone(),
            wire_version: args.wire_version.clone(),
            ..TargetProfile::default()
        },
        limits: Limits::default(),
        // A report is for people who want to know; they get all there is to know.
        check_way_back: args.report.is_some(),
        // Nobody here will see the answer.
        cut_stops: false,
        known: None,
    }
}

/// Tells dialect and kind, as far as they were not given.
fn recognise(args: &TranslateArgs, bytes: &[u8]) -> Result<(Dialect, TranslateKind), AbpError> {
    let stream = args.kind == Some(TranslateKind::Stream)
        || (args.kind.is_none() && looks_like_events(&args.file, bytes));
    let unknown = || {
        let message = "the document is of no dialect that ABP knows; name it with --from";
        AbpError::new(ErrorCode::DialectUnknown, message)
    };
    if stream {
        let from = match args.from {
            Source::Named(dialect) => dialect,
            Source::Auto => stream_dialect(bytes).ok_or_else(unknown)?,
        };
        return Ok((from, TranslateKind::Stream));
    }
    let tape = Tape::parse(bytes, &Limits::default())
        .map_err(|error| AbpError::from(abp_dialect::DialectError::Json(error)))?;
    let from = match args.from {
        Source::Named(dialect) => dialect,
        Source::Auto => {
            let signals = Signals {
                body: Some(tape.root()),
                ..Signals::default()
            };
            DialectDetector::detect(&signals)
                .ok_or_else(unknown)?
                .dialect
        }
    };
    let kind = args
        .kind
        .unwrap_or_else(|| match DialectDetector::detect_kind(tape.root(), from) {
            DocumentKind::Request => TranslateKind::Request,
            DocumentKind::Response | DocumentKind::StreamEvent => TranslateKind::Response,
            DocumentKind::Error => TranslateKind::Error,
        });
    Ok((from, kind))
}

/// Tells what the source's own vendor would refuse it for; it is translated all the same.
fn warn_of_defects(bytes: &[u8], from: Dialect, kind: TranslateKind, output: &mut Output) {
    if kind == TranslateKind::Stream {
        return;
    }
    let kind = document_kind(kind);
    // What cannot be read is an error of the translation itself.
    let (Ok(tape), Some(codec)) = (
        Tape::parse(bytes, &Limits::default()),
        abp_translate::codec(from),
    ) else {
        return;
    };
    let names = codec.rules(&TargetProfile::default()).tool_name;
    for issue in DialectValidator::new(from, names).validate(kind, tape.root()) {
        if issue.severity == IssueSeverity::Error {
            let place = if issue.pointer.is_empty() {
                "the document"
            } else {
                &issue.pointer
            };
            output.warn(&format!("{place}: {}", issue.problem));
        }
    }
}

/// Events start with a field or a comment, JSON does not.
fn looks_like_events(file: &Path, bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii_start();
    file.extension().is_some_and(|extension| extension == "sse")
        || ["data:", "event:", ":", "id:", "retry:"]
            .iter()
            .any(|start| text.starts_with(start.as_bytes()))
}

/// The dialect of the first event that tells.
fn stream_dialect(bytes: &[u8]) -> Option<Dialect> {
    use abp_dialect::sse::{SseDecoder, SseEvent, SseLimits};
    let mut decoder = SseDecoder::new(SseLimits::default());
    let mut events = decoder.feed(bytes);
    while let Ok(Some(event)) = events.next_event() {
        if let SseEvent::Message { data, .. } = event
            && let Ok(tape) = Tape::parse_str(data, &Limits::default())
        {
            let signals = Signals {
                body: Some(tape.root()),
                ..Signals::default()
            };
            if let Some(found) = DialectDetector::detect(&signals) {
                return Some(found.dialect);
            }
        }
    }
    None
}

/// Writes each event as soon as it is known.
fn stream_through(
    args: &TranslateArgs,
    from: Dialect,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let mut source = input::open(&args.file)?;
    let mut translator = ByteTranslator::new(
        from,
        args.to,
        &Exchange::default(),
        abp_dialect::sse::SseForm::Events,
        &options(args),
    )?;
    let mut piece = vec![0; PIECE];
    let mut out = Vec::new();
    loop {
        let size = source.read(&mut piece).map_err(|error| {
            let message = format!("cannot read {}", args.file.display());
            AbpError::new(ErrorCode::ConfigInvalid, message).with_source(error)
        })?;
        match piece.get(..size) {
            Some(bytes) if size > 0 => translator.push(bytes, &mut out),
            _ => translator.finish(&mut out),
        }
        output.write(&String::from_utf8_lossy(&out));
        out.clear();
        if size == 0 {
            let ledger = translator.ledger();
            summarise(&ledger, TranslateKind::Stream, output);
            return Ok(ExitStatus::Success);
        }
    }
}

/// What a person wants to see: everything but what arrived as it was.
fn table(done: &Done, back: Option<&Back>, output: &mut Output) {
    output.line(&format!("fidelity: {}", done.ledger.fidelity()));
    let shown = |entry: &&LedgerEntry| entry.action != Action::Kept && !entry.is_structure();
    for entry in done.ledger.entries().iter().filter(shown) {
        let source = entry.source.as_deref().unwrap_or("–");
        let target = entry.target.as_deref().unwrap_or("–");
        let label = entry.label.as_deref().unwrap_or_default();
        let count = entry
            .count
            .map_or_else(String::new, |count| format!(" ×{count}"));
        let reason = entry.reason.as_deref().unwrap_or_default();
        let action = entry.action.as_str();
        output.line(&format!(
            "{action:<11} {source} → {target}  {label}{count}  {reason}"
        ));
    }
    let kept = done.ledger.entries().len() - done.ledger.entries().iter().filter(shown).count();
    output.line(&format!(
        "{kept} parts kept as they were, or of the form alone"
    ));
    if let Some(back) = back {
        output.line("");
        output.line("and back:");
        table(&back.done, None, output);
        output.line("");
        output.line(&not_restored(&back.missing));
    }
}

/// A place where a document that was translated there and back differs from its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Difference {
    /// The place, as a JSON pointer.
    pointer: String,
    /// Whether it is gone, changed or new.
    change: &'static str,
}

/// The places where the way back differs. Streams are cut into events anew on each way, so that their
/// documents are not compared; their ledgers say what was lost.
fn differences(source: &[u8], back: &Written, kind: TranslateKind) -> Vec<Difference> {
    let Written::Document(back) = back else {
        return Vec::new();
    };
    let (Ok(before), Ok(after)) = (
        serde_json::from_slice::<Value>(source),
        serde_json::from_str::<Value>(back),
    ) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if kind != TranslateKind::Stream {
        compare(&before, &after, &mut String::new(), &mut found);
    }
    found
}

fn compare(before: &Value, after: &Value, pointer: &mut String, found: &mut Vec<Difference>) {
    let mut below = |key: &str, before: Option<&Value>, after: Option<&Value>| {
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
        let change = match (before, after) {
            (Some(before), Some(after)) => {
                compare(before, after, pointer, found);
                None
            }
            // Nothing was said there.
            (Some(Value::Null), None) | (None, Some(Value::Null)) => None,
            (Some(_), None) => Some("gone"),
            (None, Some(_)) => Some("new"),
            (None, None) => None,
        };
        if let Some(change) = change {
            let pointer = pointer.clone();
            found.push(Difference { pointer, change });
        }
        pointer.truncate(length);
    };
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before {
                below(key, Some(value), after.get(key));
            }
            for (key, value) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
                below(key, None, Some(value));
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            for index in 0..before.len().max(after.len()) {
                below(&index.to_string(), before.get(index), after.get(index));
            }
        }
        (before, after) if before == after => {}
        _ => found.push(Difference {
            pointer: pointer.clone(),
            change: "changed",
        }),
    }
}

/// The differences in words.
fn not_restored(missing: &[Difference]) -> String {
    if missing.is_empty() {
        return "everything came back".to_owned();
    }
    let places: Vec<String> = missing
        .iter()
        .map(|one| format!("{} {}", one.change, one.pointer))
        .collect();
    format!("not as it was: {}", places.join(", "))
}
