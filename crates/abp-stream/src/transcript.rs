//! The words of a run, and nothing else.

use abp_core::AgentEventKind;

/// Writes what the agent said and what went wrong, as lines of text.
#[derive(Debug, Default)]
pub struct Transcript {
    /// Whether the agent's text was streamed, so that the message need not be repeated.
    streamed: bool,
    /// Whether the last line is still open.
    in_line: bool,
}

impl Transcript {
    /// What an event adds; nothing where nobody says anything.
    pub fn say(&mut self, kind: &AgentEventKind) -> String {
        match kind {
            AgentEventKind::AssistantDelta { text } => {
                self.streamed = true;
                self.in_line = !text.ends_with('\n');
                text.clone()
            }
            AgentEventKind::AssistantMessage { .. } if std::mem::take(&mut self.streamed) => {
                self.end()
            }
            AgentEventKind::AssistantMessage { text } => self.line(text),
            AgentEventKind::Warning { message } => self.line(&format!("Warning: {message}")),
            AgentEventKind::Error { message, .. } => self.line(&format!("Error: {message}")),
            _ => String::new(),
        }
    }

    /// Ends a line that is open.
    pub fn end(&mut self) -> String {
        let is_open = std::mem::take(&mut self.in_line);
        if is_open { "\n" } else { "" }.to_owned()
    }

    fn line(&mut self, text: &str) -> String {
        format!("{}{text}\n", self.end())
    }
}
