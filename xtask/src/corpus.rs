//! Translates a whole folder of recorded traffic and checks that nothing is lost silently.
//!
//! The checks here do not ask the dialects: they compare JSON trees. For a source in A and a target
//! B, whatever of the source is missing or changed after A→B→A has to be named in the ledger, and
//! every value of the target has to have a line in it. Streams have to add up to what the whole
//! answer would have been.

mod check;
mod essence;
mod report;
mod stream;
mod tree;

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use abp_dialect::{Dialect, DialectDetector, Signals};
use abp_json::{Limits, Tape};
use abp_testkit::skip;
use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::output::say;
use report::Report;

/// What a document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Request,
    Response,
    Error,
    Stream,
}

/// How a translation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing was lost, and the way back gives the source.
    Exact,
    /// Something was lost, and the ledger names it.
    Labelled,
    /// Something was lost that only a caller who allows it may lose, and the ledger names it.
    Refused,
    /// Something was lost and the ledger does not name it, or a value is wrong.
    Silent(String),
    /// It could not be translated.
    Failed(String),
}

/// One file of the folder.
#[derive(Debug, Clone)]
struct Document {
    path: PathBuf,
    dialect: Dialect,
    kind: Kind,
    status: Option<u16>,
}

/// What the manifest says of an exchange.
#[derive(Debug, Deserialize)]
struct Row {
    #[serde(default)]
    op: Option<String>,
    #[serde(default)]
    status: Option<u16>,
    #[serde(default)]
    vendor: Option<String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
}

/// Runs the whole folder.
pub(crate) fn run(folder: Option<PathBuf>, show: usize) -> Result<ExitCode> {
    let beside = || abp_testkit::shared_dir().map(|shared| shared.join("corpus"));
    let Some(folder) = folder.or_else(beside) else {
        skip(
            "translating recorded traffic",
            "there is none beside the checkout",
        );
        say("0 passed, 0 failed, 1 skipped");
        return Ok(ExitCode::SUCCESS);
    };
    let folder = folder.as_path();
    let (documents, other) = documents(folder)?;
    if documents.is_empty() {
        bail!("{} holds no recorded traffic", folder.display());
    }
    let mut report = Report::new(other);
    for document in &documents {
        let bytes = fs::read(&document.path)
            .with_context(|| format!("cannot read {}", document.path.display()))?;
        let name = document
            .path
            .strip_prefix(folder)
            .unwrap_or(&document.path)
            .display()
            .to_string();
        let dialect = spoken(document, &bytes);
        for target in Dialect::ALL {
            let judged = || judge(document, dialect, target, &bytes);
            let verdict = catch_unwind(AssertUnwindSafe(judged))
                .unwrap_or_else(|_| Verdict::Failed("panic".to_owned()));
            report.enter(dialect, document.kind, target, &name, verdict);
        }
    }
    Ok(report.finish(show))
}

fn judge(document: &Document, dialect: Dialect, target: Dialect, bytes: &[u8]) -> Verdict {
    match document.kind {
        Kind::Stream => stream::judge(bytes, dialect, target),
        kind => check::judge(bytes, dialect, target, kind, document.status),
    }
}

/// The dialect of a document: that of its folder, unless what it says is clearly of another family.
/// Recordings are filed by the route they were asked on, and compatible servers answer as they like.
fn spoken(document: &Document, bytes: &[u8]) -> Dialect {
    let events;
    let body = if document.kind == Kind::Stream {
        events = stream::events(bytes, bytes.len()).unwrap_or_default();
        events.first().map_or(&[][..], |(_, data)| data.as_bytes())
    } else {
        bytes
    };
    let Ok(tape) = Tape::parse(body, &Limits::default()) else {
        return document.dialect;
    };
    let signals = Signals {
        body: Some(tape.root()),
        ..Signals::default()
    };
    match DialectDetector::detect(&signals) {
        Some(found)
            if found.confidence > 0.8
                && found.dialect.family() != document.dialect.family()
                && document.kind != Kind::Error =>
        {
            found.dialect
        }
        _ => document.dialect,
    }
}

/// The files of the folder; and how many are of operations other than asking a model.
fn documents(folder: &Path) -> Result<(Vec<Document>, usize)> {
    let rows = manifest(folder)?;
    let mut documents = Vec::new();
    let mut other = 0;
    for name in [
        "openai-chat",
        "openai-responses",
        "anthropic",
        "gemini",
        "kimi",
        "copilot",
    ] {
        let dialect: Dialect = name.parse()?;
        for (folder_name, kind) in [
            ("request", Kind::Request),
            ("response", Kind::Response),
            ("stream", Kind::Stream),
        ] {
            let place = folder.join(name).join(folder_name);
            for path in files(&place)? {
                let relative = path.strip_prefix(folder).unwrap_or(&path).to_path_buf();
                let row = rows.get(&relative);
                if row
                    .and_then(|row| row.op.as_deref())
                    .is_some_and(|op| op != "create")
                {
                    other += 1;
                    continue;
                }
                let status = row.and_then(|row| row.status);
                let failed = kind == Kind::Response && status.is_some_and(|status| status >= 400);
                documents.push(Document {
                    dialect: speaker(dialect, row.and_then(|row| row.vendor.as_deref())),
                    kind: if failed { Kind::Error } else { kind },
                    status,
                    path,
                });
            }
        }
    }
    Ok((documents, other))
}

/// Chat completions of two vendors are dialects of their own.
fn speaker(dialect: Dialect, vendor: Option<&str>) -> Dialect {
    match (dialect, vendor) {
        (Dialect::OpenAi, Some("moonshot")) => Dialect::Kimi,
        (Dialect::OpenAi, Some("github-copilot")) => Dialect::Copilot,
        _ => dialect,
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut files = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

/// The manifest's rows by the files they speak of; empty where there is no manifest.
fn manifest(folder: &Path) -> Result<BTreeMap<PathBuf, Row>> {
    let path = folder.join("manifest.jsonl");
    if !path.exists() {
        return Ok(BTreeMap::new());
    }
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut rows = BTreeMap::new();
    for (index, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
    {
        let parse = || serde_json::from_str::<Row>(line);
        let row = parse().with_context(|| format!("{} line {}", path.display(), index + 1))?;
        for file in row.files.values() {
            rows.insert(PathBuf::from(file), parse()?);
        }
    }
    Ok(rows)
}
