//! What is wrong, and where.

use std::fmt;

use abp_error::{AbpError, ErrorCode};
use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::SettingOrigin;
use crate::check::Fault;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const FRAME: Style = AnsiColor::Blue.on_default().bold();
const PLAIN: Style = Style::new();

/// Whether the configuration can be used in spite of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// No.
    Error,
    /// Yes.
    Warning,
}

/// The kind of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Problem {
    /// The file cannot be read.
    Unreadable,
    /// The file is no TOML.
    Syntax,
    /// There is no such setting.
    UnknownKey,
    /// The setting exists no more.
    Deprecated,
    /// This file may not set it.
    Refused,
    /// A required key is not there.
    MissingKey,
    /// The value is of another type.
    WrongType,
    /// The value is of the right type, but cannot be used.
    InvalidValue,
    /// A pattern cannot be compiled.
    BadPattern,
    /// There is nothing of that name.
    UnknownName,
    /// No setting, variable or home directory says where a directory is.
    NoDirectory,
    /// There are more problems than are listed; the rest of the file was not looked at.
    More,
}

/// A problem with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Whether the configuration can be used in spite of it.
    pub severity: Severity,
    /// The kind of the problem.
    pub problem: Problem,
    /// What is wrong, in a sentence.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// The setting, as a dotted key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Where it was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<SettingOrigin>,
    /// The text there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excerpt: Option<Excerpt>,
}

/// A line of a file, shortened to what is safe and useful to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Excerpt {
    /// The text.
    pub text: String,
    /// The number of the line, from 1.
    pub line: usize,
    /// How many characters of the text come before the problem.
    pub offset: usize,
    /// How many characters are the problem.
    pub width: usize,
}

impl Diagnostic {
    pub(crate) fn error(problem: Problem, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            problem,
            message: message.into(),
            help: None,
            key: None,
            origin: None,
            excerpt: None,
        }
    }

    pub(crate) fn warning(problem: Problem, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(problem, message)
        }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn maybe_help(mut self, help: Option<String>) -> Self {
        self.help = help.or(self.help);
        self
    }

    pub(crate) fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    pub(crate) fn set_by(mut self, origin: SettingOrigin) -> Self {
        self.origin = Some(origin);
        self
    }

    /// The problem in the form compilers use, ending with a newline.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        let style = |style: Style| if colour { style } else { PLAIN };
        let frame = style(FRAME);
        let (severity, word) = match self.severity {
            Severity::Error => (style(ERROR), "error"),
            Severity::Warning => (style(WARNING), "warning"),
        };
        let message = printable(&self.message);
        let mut out = format!("{severity}{word}{severity:#}: {message}\n");
        let margin = self
            .excerpt
            .as_ref()
            .map_or(1, |excerpt| excerpt.line.to_string().len());
        let pad = " ".repeat(margin);
        match &self.origin {
            Some(SettingOrigin::File {
                path, line, column, ..
            }) => {
                let path = printable(&path.display().to_string());
                out += &format!("{pad}{frame}-->{frame:#} {path}:{line}:{column}\n");
            }
            Some(origin) => {
                let origin = printable(&origin.to_string());
                out += &format!("{pad}{frame}-->{frame:#} {origin}\n");
            }
            None => {}
        }
        if let Some(Excerpt {
            text,
            line,
            offset,
            width,
        }) = &self.excerpt
        {
            let (text, before) = (printable(text), " ".repeat(*offset));
            let mark = "^".repeat(*width);
            out += &format!(
                "{pad} {frame}|{frame:#}\n{frame}{line} |{frame:#} {text}\n\
                 {pad} {frame}|{frame:#} {before}{severity}{mark}{severity:#}\n"
            );
        }
        if let Some(help) = &self.help {
            let help = printable(help);
            out += &format!("{pad} {frame}={frame:#} help: {help}\n");
        }
        out
    }
}

impl From<Fault> for Diagnostic {
    fn from(fault: Fault) -> Self {
        Self::error(fault.problem, fault.message).maybe_help(fault.help)
    }
}

/// The most problems that are listed for one file.
const MAX_LISTED: usize = 100;

/// The longest message.
const MAX_MESSAGE_CHARS: usize = 300;

/// Collects the problems of one file.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    strict: bool,
    listed: Vec<Diagnostic>,
    overflowed: bool,
}

impl Problems {
    pub(crate) fn new(strict: bool) -> Self {
        Self {
            strict,
            ..Self::default()
        }
    }

    /// A problem that leaves a setting without effect.
    pub(crate) fn ignored(&self, problem: Problem, message: impl Into<String>) -> Diagnostic {
        if self.strict {
            Diagnostic::error(problem, message)
        } else {
            Diagnostic::warning(problem, message)
        }
    }

    /// Whether nothing more is listed, so that looking further has no use.
    pub(crate) fn is_full(&self) -> bool {
        self.overflowed
    }

    pub(crate) fn push(&mut self, diagnostic: impl Into<Diagnostic>) {
        self.push_with(diagnostic.into(), |diagnostic| diagnostic);
    }

    /// Adds a problem; its place, which costs as much as its line is long, is only looked up where
    /// the problem is listed.
    pub(crate) fn push_with(
        &mut self,
        mut diagnostic: Diagnostic,
        place: impl FnOnce(Diagnostic) -> Diagnostic,
    ) {
        if self.listed.len() < MAX_LISTED {
            shorten(&mut diagnostic.message);
            self.listed.push(place(diagnostic));
        } else {
            self.overflowed = true;
        }
    }

    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        // What was not looked at any more could be an error as well.
        if self.overflowed {
            let message = format!("there are more than these {MAX_LISTED} problems");
            self.listed.push(Diagnostic::error(Problem::More, message));
        }
        self.listed
    }
}

/// Names and values can be as long as the file.
fn shorten(message: &mut String) {
    if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
        message.truncate(end);
        message.push('…');
    }
}

/// Problems in the form compilers use, with an empty line between them.
#[must_use]
pub fn render(diagnostics: &[Diagnostic], colour: bool) -> String {
    let rendered: Vec<_> = diagnostics
        .iter()
        .map(|diagnostic| diagnostic.render(colour))
        .collect();
    rendered.join("\n")
}

/// One line of text without characters that move the cursor or reorder what a reader sees.
fn printable(text: &str) -> String {
    let safe = |c: char| match c {
        '\t' => ' ',
        '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => '\u{FFFD}',
        c if c.is_control() => '\u{FFFD}',
        c => c,
    };
    text.chars().map(safe).collect()
}

/// Why the configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    /// Every problem, warnings included, by file and line; at least one is an error.
    pub diagnostics: Vec<Diagnostic>,
}

impl ConfigErrors {
    /// The errors' stable code.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        ErrorCode::ConfigInvalid
    }

    fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.severity == Severity::Error)
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errors().count() {
            1 => f.write_str("the configuration has an error")?,
            count => write!(f, "the configuration has {count} errors")?,
        }
        let Some(first) = self.errors().next() else {
            return Ok(());
        };
        match &first.origin {
            Some(origin) => write!(f, ": {origin}: {}", first.message),
            None => write!(f, ": {}", first.message),
        }
    }
}

impl std::error::Error for ConfigErrors {}

impl From<ConfigErrors> for AbpError {
    fn from(errors: ConfigErrors) -> Self {
        let error = Self::new(errors.code(), errors.to_string());
        match serde_json::to_value(&errors.diagnostics) {
            Ok(diagnostics) => error.with_context("diagnostics", diagnostics),
            Err(_) => error,
        }
    }
}
