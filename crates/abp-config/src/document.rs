//! The text of a file: read with a limit, and shown in parts that are safe to show.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::diagnostic::{Diagnostic, Excerpt, Problem};
use crate::{Layer, SettingOrigin};

/// The largest file read.
const MAX_BYTES: u64 = 1024 * 1024;
/// The longest line of which a part is shown.
const MAX_LINE_BYTES: usize = 4096;
/// The longest part of a line that is shown, and how much of it comes before the place.
const SHOWN_CHARS: usize = 120;
const SHOWN_BEFORE: usize = 60;

/// A file of one layer.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) layer: Layer,
    pub(crate) path: PathBuf,
    text: String,
    line_starts: Vec<usize>,
}

impl Document {
    /// Reads a file; `None` where a file that nobody named is not there.
    pub(crate) fn read(layer: Layer, path: &Path) -> Result<Option<Self>, Box<Diagnostic>> {
        let shown = path.display();
        let unreadable =
            |message: String| Box::new(Diagnostic::error(Problem::Unreadable, message));
        let bytes = match read_limited(layer, path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && layer != Layer::Operator => {
                return Ok(None);
            }
            Err(error) => return Err(unreadable(format!("cannot read {shown}: {error}"))),
            Ok(bytes) => bytes,
        };
        if bytes.len() as u64 > MAX_BYTES {
            return Err(unreadable(format!(
                "{shown} is larger than {MAX_BYTES} bytes"
            )));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(Self::new(layer, path, text))),
            Err(error) => {
                // What comes before the first bad byte is unchanged, and so is its place.
                let at = error.utf8_error().valid_up_to();
                let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
                let document = Self::new(layer, path, text);
                let problem = Diagnostic::error(Problem::Syntax, "not valid UTF-8");
                Err(Box::new(document.place(problem, at..at + 1)))
            }
        }
    }

    pub(crate) fn new(layer: Layer, path: &Path, text: String) -> Self {
        let text = match text.strip_prefix('\u{FEFF}') {
            Some(rest) => rest.to_owned(),
            None => text,
        };
        let line_starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        Self {
            layer,
            path: path.to_owned(),
            text,
            line_starts,
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Points a diagnostic at a part of the text.
    pub(crate) fn place(&self, diagnostic: Diagnostic, span: Range<usize>) -> Diagnostic {
        Diagnostic {
            origin: Some(self.origin(span.start)),
            excerpt: self.excerpt(span),
            ..diagnostic
        }
    }

    /// The place of a byte.
    pub(crate) fn origin(&self, at: usize) -> SettingOrigin {
        let (line, start) = self.line_at(at);
        let before = self.text.get(start..at).unwrap_or_default();
        SettingOrigin::File {
            layer: self.layer,
            path: self.path.clone(),
            line,
            column: before.chars().count() + 1,
        }
    }

    /// The number, from 1, and the start of the line with a byte.
    pub(crate) fn line_at(&self, at: usize) -> (usize, usize) {
        let line = self.line_starts.partition_point(|&start| start <= at);
        let start = self.line_starts.get(line.saturating_sub(1)).copied();
        (line, start.unwrap_or(0))
    }

    /// The line of a span, without its value where it seems to be a secret; `None` where the line
    /// is so long that nobody wrote it.
    fn excerpt(&self, span: Range<usize>) -> Option<Excerpt> {
        let (line, start) = self.line_at(span.start);
        let end = self.line_starts.get(line).copied();
        let full = self.text.get(start..end.unwrap_or(self.text.len()))?;
        let full = full.trim_end_matches(['\n', '\r']);
        if full.len() > MAX_LINE_BYTES {
            return None;
        }
        let shown = match secret_from(full) {
            Some(at) => format!("{} …", full.get(..at).unwrap_or_default()),
            None => full.to_owned(),
        };
        let chars = |end: usize| {
            full.get(..end)
                .map_or(full.chars().count(), |t| t.chars().count())
        };
        let length = shown.chars().count();
        let from = chars(span.start - start).min(length);
        let to = chars(span.end.max(span.start) - start).clamp(from, length.max(from));
        let skipped = if length > SHOWN_CHARS {
            from.saturating_sub(SHOWN_BEFORE)
        } else {
            0
        };
        let text: String = shown.chars().skip(skipped).take(SHOWN_CHARS).collect();
        let width = (to - from).min(text.chars().count().saturating_sub(from - skipped));
        Some(Excerpt {
            text,
            line,
            offset: from - skipped,
            width: width.max(1),
        })
    }
}

/// Reads a little more than is accepted.
///
/// A link or a pipe in a repository could make us show, or wait for, what is not part of it.
fn read_limited(layer: Layer, path: &Path) -> io::Result<Vec<u8>> {
    if layer == Layer::Project && !fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::other(
            "a project file must be a regular file, not a link",
        ));
    }
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Words in the names of things that should not be repeated.
const SECRET_WORDS: &[&str] = &["key", "token", "secret", "passw", "credential", "auth"];

/// Whether a name seems to be that of a secret.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let name = name.to_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// Where a line starts to hold something that seems to be a secret: behind the equals sign of a
/// name that says so, or in an address with a password.
fn secret_from(line: &str) -> Option<usize> {
    let address = line.find("://").map(|at| at + "://".len());
    if let Some(from) = address.filter(|at| line.get(*at..).is_some_and(|rest| rest.contains('@')))
    {
        return Some(from);
    }
    let mut from = 0;
    for part in line.split_inclusive('=') {
        from += part.len();
        if part.ends_with('=') && is_secret_name(part) {
            return Some(from);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_ends_of_long_lines_are_not_shown() {
        let cases = [
            ("port = 1", 7..8, "port = 1", 7, 1),
            ("API_KEY = \"sk-1\"", 0..7, "API_KEY = …", 0, 7),
            (
                "e = { A = \"b\", TOKEN = \"t\" }",
                24..27,
                "e = { A = \"b\", TOKEN = …",
                24,
                1,
            ),
            (
                "url = \"https://u:p@h\"",
                6..21,
                "url = \"https:// …",
                6,
                11,
            ),
            ("é = 3", 5..6, "é = 3", 4, 1),
            ("x", 1..1, "x", 1, 1),
            ("", 0..0, "", 0, 1),
            ("x", 7..9, "x", 1, 1),
        ];
        for (line, span, text, offset, width) in cases {
            let document = Document::new(Layer::User, Path::new("f"), line.to_owned());
            let found = document.excerpt(span).unwrap();
            assert_eq!(
                (found.text.as_str(), found.offset),
                (text, offset),
                "{line}"
            );
            assert_eq!(found.width, width, "{line}");
        }
        let long = format!("{} = 1", "é".repeat(1_000));
        let document = Document::new(Layer::User, Path::new("f"), long);
        let found = document.excerpt(2_003..2_004).unwrap();
        assert_eq!(found.text.chars().count(), SHOWN_BEFORE + 1);
        assert!(found.text.ends_with("= 1"), "{}", found.text);
        let longer = "x".repeat(MAX_LINE_BYTES + 1);
        let document = Document::new(Layer::User, Path::new("f"), longer);
        assert_eq!(document.excerpt(0..1), None);
    }
}
