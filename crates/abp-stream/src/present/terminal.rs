//! Markdown as a terminal shows it, while it comes.

use super::TextForm;
use super::plain::PlainText;

/// Renders one text that comes in pieces: emphasis, code and links get their looks, lists their bullets,
/// tables their bars. What is written has no control characters but our own.
///
/// ```
/// use abp_stream::TerminalText;
///
/// let mut text = TerminalText::new();
/// let shown = [text.push("Sales **gr"), text.push("ew**.\u{1b}[2J"), text.end()];
/// assert_eq!(shown.concat(), "Sales \u{1b}[1mgrew\u{1b}[0m.[2J");
/// ```
#[derive(Debug)]
pub struct TerminalText {
    text: PlainText,
}

impl TerminalText {
    /// A new text.
    #[must_use]
    pub fn new() -> Self {
        Self {
            text: PlainText::with_styles(TextForm::Screen),
        }
    }

    /// Takes the next piece, and gives what can be shown.
    pub fn push(&mut self, markdown: &str) -> String {
        self.text.push(markdown);
        self.text.take()
    }

    /// Ends the text, and gives what was held back of it. What follows is another text.
    pub fn end(&mut self) -> String {
        self.text.end_passage();
        let rest = self.text.take();
        *self = Self::new();
        rest
    }
}

impl Default for TerminalText {
    fn default() -> Self {
        Self::new()
    }
}
