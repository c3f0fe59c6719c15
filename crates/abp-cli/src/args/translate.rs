//! `abp translate` and `abp matrix`.

use std::path::PathBuf;

use abp_dialect::Dialect;
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  abp translate --from openai --to claude request.json\n  \
abp translate --to gemini --report table request.json\n  \
abp translate --from claude --to codex --kind stream answer.sse\n\n\
Dialects: openai (Chat Completions), codex (OpenAI Responses), claude, gemini, kimi, copilot."
)]
pub(crate) struct TranslateArgs {
    /// The document; `-` reads standard input.
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// The dialect it is in, or `auto`.
    #[arg(long, value_name = "DIALECT", default_value = "auto", value_parser = source)]
    pub(crate) from: Source,
    /// The dialect it should be in.
    #[arg(long, value_name = "DIALECT")]
    pub(crate) to: Dialect,
    /// What it is; recognised by its content when omitted.
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<TranslateKind>,
    /// Tell what became of every field, instead of printing the document alone.
    #[arg(long, value_name = "FORM")]
    pub(crate) report: Option<ReportForm>,
    /// Translate there and back, and show what did not come back.
    #[arg(long)]
    pub(crate) round_trip: bool,
    /// What to do where something would be lost.
    #[arg(long, value_name = "WHAT", default_value = "label")]
    pub(crate) on_loss: OnLoss,
    /// The model to ask for, instead of the one the document names.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// The version of the target's wire, e.g. 2026-10-21 for Claude.
    #[arg(long, value_name = "VERSION")]
    pub(crate) wire_version: Option<String>,
    /// The HTTP status an error came with.
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Option<u16>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  abp matrix\n  abp matrix --from openai --to gemini")]
pub(crate) struct MatrixArgs {
    /// Only what comes from this dialect.
    #[arg(long, value_name = "DIALECT")]
    pub(crate) from: Option<Dialect>,
    /// Only what goes to this dialect.
    #[arg(long, value_name = "DIALECT")]
    pub(crate) to: Option<Dialect>,
}

/// Where the source's dialect comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Auto,
    Named(Dialect),
}

fn source(name: &str) -> Result<Source, String> {
    match name {
        "auto" => Ok(Source::Auto),
        name => name
            .parse()
            .map(Source::Named)
            .map_err(|error: abp_dialect::UnknownDialect| error.to_string()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TranslateKind {
    /// A request to a model.
    Request,
    /// A model's answer.
    Response,
    /// An answer in server-sent events.
    Stream,
    /// The body of an error.
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportForm {
    /// One JSON object: output, fidelity and the whole ledger.
    Json,
    /// A table for people, without what was merely kept.
    Table,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLoss {
    /// Go on, and label it.
    Label,
    /// Fail, and name it.
    Reject,
}
