//! Whose turn it is on the terminal: events, or a question to the person at it.
//!
//! Events reach the terminal once they are stored, a question as soon as it is put. So a question waits
//! for the event that announces it and, while it is open, events wait for its end:
//!
//! ```text
//! question, permission_requested, delta, permission_resolved   arrive in this order
//! permission_requested, question, ……………, delta, permission_resolved   are shown in this one
//! ```

use abp_core::{AgentEvent, AgentEventKind};

/// The most events that wait for the end of a question. More are shown, and the question again.
const MAX_HELD: usize = 4096;

/// Decides when an event or a question is shown.
#[derive(Debug)]
pub(crate) struct TerminalTurns<Q> {
    /// Whether events go where the question is.
    holds_events: bool,
    /// The tool of the permission that was requested last and is not resolved. A question may overtake
    /// the end of the one before it, and one for another tool is not announced by it.
    requested: Option<String>,
    /// A question that is not shown yet, and its tool.
    waiting: Option<(String, Q)>,
    is_open: bool,
    held: Vec<AgentEvent>,
    is_hidden: bool,
}

impl<Q> TerminalTurns<Q> {
    pub(crate) fn new(holds_events: bool) -> Self {
        Self {
            holds_events,
            requested: None,
            waiting: None,
            is_open: false,
            held: Vec::new(),
            is_hidden: false,
        }
    }

    /// Takes a question; [`Self::due_question`] says when it is to be shown.
    pub(crate) fn add_question(&mut self, tool_name: &str, question: Q) {
        self.waiting = Some((tool_name.to_owned(), question));
    }

    /// The question to be shown now.
    pub(crate) fn due_question(&mut self) -> Option<Q> {
        if self.is_open {
            return None;
        }
        let requested = self.requested.as_ref();
        let due = self.waiting.take_if(|(tool, _)| requested == Some(tool))?;
        self.is_open = true;
        Some(due.1)
    }

    /// Takes an event; returns the events to be shown now, in their order.
    pub(crate) fn add_event(&mut self, event: AgentEvent) -> Vec<AgentEvent> {
        match &event.kind {
            AgentEventKind::PermissionRequested { tool_name, .. } => {
                self.requested = Some(tool_name.clone());
            }
            AgentEventKind::PermissionResolved { .. } => {
                self.requested = None;
                self.is_open = false;
            }
            _ => {}
        }
        self.held.push(event);
        let is_held = self.is_open && self.holds_events;
        if is_held && self.held.len() < MAX_HELD {
            return Vec::new();
        }
        self.is_hidden = is_held;
        std::mem::take(&mut self.held)
    }

    /// Whether a question is on the terminal.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether events were shown over the open question, so that it is to be shown again.
    pub(crate) fn take_hidden(&mut self) -> bool {
        std::mem::take(&mut self.is_hidden)
    }

    /// Ends the question, whatever became of it; returns the events that waited.
    pub(crate) fn finish(&mut self) -> Vec<AgentEvent> {
        self.is_open = false;
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str) -> AgentEvent {
        let (kind, tool) = kind.split_once(' ').unwrap_or((kind, "Write"));
        let event = json!({
            "ts": "2026-01-01T00:00:00Z", "type": kind, "tool_name": tool, "reason": "r",
            "outcome": "denied", "decided_by": "default", "text": "t",
        });
        serde_json::from_value(event).unwrap()
    }

    /// Plays what arrives (`?` is a question) and returns what is shown, in order.
    fn shown(holds_events: bool, arriving: &[&str]) -> Vec<String> {
        let mut turns = TerminalTurns::new(holds_events);
        let mut shown = Vec::new();
        for &one in arriving {
            match one {
                "?" => turns.add_question("Write", "?"),
                kind => {
                    let events = turns.add_event(event(kind));
                    shown.extend(events.iter().map(|event| event.kind.name().to_owned()));
                }
            }
            shown.extend(turns.due_question().map(str::to_owned));
        }
        shown.extend(
            turns
                .finish()
                .iter()
                .map(|event| event.kind.name().to_owned()),
        );
        shown
    }

    #[test]
    fn an_open_question_is_not_written_over() {
        let (asks, delta, resolved) = (
            "permission_requested",
            "assistant_delta",
            "permission_resolved",
        );
        let cases = [
            // The question overtakes the event that announces it.
            (
                true,
                vec!["?", delta, asks, delta, delta, resolved, delta],
                vec![delta, asks, "?", delta, delta, resolved, delta],
            ),
            (
                true,
                vec![asks, "?", delta, resolved, asks, "?", resolved],
                vec![asks, "?", delta, resolved, asks, "?", resolved],
            ),
            // It overtakes the end of the one before it.
            (
                true,
                vec![
                    asks, "?", delta, "?", resolved, delta, asks, delta, resolved,
                ],
                vec![
                    asks, "?", delta, resolved, delta, asks, "?", delta, resolved,
                ],
            ),
            // It overtakes the end of a request that was approved in advance.
            (
                true,
                vec![
                    "permission_requested Read",
                    "?",
                    resolved,
                    asks,
                    delta,
                    resolved,
                ],
                vec![asks, resolved, asks, "?", delta, resolved],
            ),
            // Approved in advance: there is no question.
            (
                true,
                vec![asks, resolved, delta],
                vec![asks, resolved, delta],
            ),
            // The run ends before the question does.
            (true, vec![asks, "?", delta], vec![asks, "?", delta]),
            (false, vec!["?", asks, delta], vec![asks, "?", delta]),
        ];
        for (holds, arriving, expected) in cases {
            assert_eq!(shown(holds, &arriving), expected, "{arriving:?}");
        }
        let mut turns = TerminalTurns::new(true);
        turns.add_event(event(asks));
        turns.add_question("Write", ());
        assert_eq!(turns.due_question(), Some(()));
        assert_eq!(turns.add_event(event(delta)), []);
        assert!(turns.is_open());
        assert_eq!(turns.add_event(event(resolved)).len(), 2);
        assert!(!turns.is_open());
    }

    #[test]
    fn a_flood_of_events_is_shown_and_the_question_after_it() {
        let mut turns = TerminalTurns::new(true);
        turns.add_event(event("permission_requested"));
        turns.add_question("Write", ());
        assert_eq!(turns.due_question(), Some(()));
        for _ in 1..MAX_HELD {
            assert_eq!(turns.add_event(event("assistant_delta")), []);
        }
        assert!(!turns.take_hidden());
        let shown = turns.add_event(event("assistant_delta"));
        assert_eq!(shown.len(), MAX_HELD);
        assert!(turns.take_hidden() && turns.is_open());
        assert!(!turns.take_hidden());
    }
}
