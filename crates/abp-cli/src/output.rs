//! Standard output, for people or for programs.

use std::io::{self, IsTerminal as _, Write as _};

use abp_error::AbpError;
use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::text::printable;

pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const NOTE: Style = AnsiColor::Yellow.on_default();
pub(crate) const PLACE: Style = AnsiColor::Cyan.on_default();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const STRONG: Style = Style::new().bold();

/// Where a command writes to. Colours appear on a terminal only.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether one JSON object is wanted instead of text.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether colours are wanted on standard output.
    pub(crate) fn is_coloured(&self) -> bool {
        let choice = anstream::AutoStream::choice(&io::stdout());
        !matches!(choice, anstream::ColorChoice::Never)
    }

    /// Writes rendered diagnostics to standard error.
    pub(crate) fn diagnostics(&mut self, text: &str) {
        to_stderr(text.trim_end());
    }

    /// Whether a person watches standard error.
    pub(crate) fn is_watched(&self) -> bool {
        io::stderr().is_terminal()
    }

    /// Whether standard output is a terminal, as a question is.
    pub(crate) fn is_on_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Whether a person can be asked.
    pub(crate) fn can_ask(&self) -> bool {
        io::stdin().is_terminal() && self.is_watched()
    }

    /// How many characters fit on a line of the terminal.
    pub(crate) fn width(&self) -> usize {
        let size = terminal_size::terminal_size_of(io::stderr());
        size.map_or(80, |(width, _)| usize::from(width.0))
    }

    /// Writes text as it is.
    pub(crate) fn write(&mut self, text: &str) {
        // A reader that closed the pipe has seen enough; there is nobody to tell.
        drop(write!(anstream::stdout(), "{text}").and_then(|()| anstream::stdout().flush()));
    }

    /// Writes a line of text.
    pub(crate) fn line(&mut self, text: &str) {
        self.write(&format!("{text}\n"));
    }

    /// Writes a label and a value, aligned with others.
    pub(crate) fn field(&mut self, label: &str, value: &str) {
        self.line(&format!("{DIM}{label:<11}{DIM:#}{value}"));
    }

    /// Writes a value as one line of JSON.
    pub(crate) fn json_line(&mut self, value: &impl Serialize) -> Result<(), AbpError> {
        let line = serde_json::to_string(value).map_err(unprintable)?;
        self.line(&line);
        Ok(())
    }

    /// Writes a value as readable JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), AbpError> {
        let text = serde_json::to_string_pretty(value).map_err(unprintable)?;
        self.line(&text);
        Ok(())
    }

    /// Writes a passing line to the terminal; [`Self::clear_status`] takes it away.
    pub(crate) fn status(&mut self, text: &str) {
        drop(write!(anstream::stderr(), "{text}"));
    }

    /// Takes the passing line away.
    pub(crate) fn clear_status(&mut self) {
        drop(write!(io::stderr(), "\r\u{1b}[2K"));
    }

    /// Tells of something the reader should know, on standard error.
    pub(crate) fn warn(&mut self, message: &str) {
        to_stderr(&format!("{NOTE}warning{NOTE:#}: {}", printable(message)));
    }

    /// Tells something beside the result.
    pub(crate) fn note(&mut self, message: &str) {
        to_stderr(&format!("{NOTE}note{NOTE:#}: {}", printable(message)));
    }

    /// Tells of an error: as JSON on standard output where that is wanted, else on standard error.
    pub(crate) fn error(&mut self, error: &AbpError) {
        if self.json {
            let dto = serde_json::json!({ "error": error.to_dto(), "exit_code": error.code().exit_status().code() });
            self.line(&format!("{dto:#}"));
            return;
        }
        let cause = error
            .cause_chain()
            .map(|cause| format!(": {cause}"))
            .unwrap_or_default();
        let message = format!("{error}{cause}");
        to_stderr(&format!(
            "{BAD}error{BAD:#}[{}]: {}\n{DIM}help{DIM:#}: {}",
            error.code(),
            printable(&message),
            error.code().remedy()
        ));
    }
}

fn to_stderr(line: &str) {
    // Nobody is left to tell when standard error is closed.
    drop(writeln!(anstream::stderr(), "{line}"));
}

fn unprintable(error: serde_json::Error) -> AbpError {
    AbpError::new(
        abp_error::ErrorCode::Internal,
        "the result cannot be written as JSON",
    )
    .with_source(error)
}
