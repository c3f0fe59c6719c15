//! Calls of an agent's own tools that were decided before the agent announced them.
//!
//! An agent that asks first says `tool_call` afterwards, for the same call. It was judged then, and a person
//! may have been asked: judging it again would ask the same question twice. An announcement counts as the
//! allowed call where id, tool and input are the same; anything else is judged by itself. A call that was
//! denied and has a result all the same was carried out against the answer.

use std::collections::BTreeMap;

use abp_backend_core::PermissionQuestion;
use abp_core::AgentEventKind;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::observe::Observed;

/// The most calls that are remembered. A call beyond them is judged again, which is safe.
const MAX_REMEMBERED: usize = 1_024;

/// The calls that were decided, by id.
#[derive(Debug, Default)]
pub(crate) struct AnsweredCalls {
    calls: BTreeMap<String, Answer>,
}

#[derive(Debug)]
enum Answer {
    /// This call may be made.
    Allowed(AskedCall),
    /// The host carried it out itself.
    CarriedOut,
    Denied,
}

#[derive(Debug, PartialEq, Eq)]
struct AskedCall {
    tool_name: String,
    input_digest: [u8; 32],
}

impl AnsweredCalls {
    /// Remembers a call that the agent asked about.
    pub(crate) fn add_question(&mut self, question: PermissionQuestion, is_allowed: bool) {
        let answer = if is_allowed {
            Answer::Allowed(AskedCall::new(question.tool_name, &question.input))
        } else {
            Answer::Denied
        };
        self.add(question.tool_use_id, answer);
    }

    /// Remembers a call for which the host was asked to use a tool of its own.
    pub(crate) fn add_use(&mut self, id: String, is_allowed: bool) {
        let answer = if is_allowed {
            Answer::CarriedOut
        } else {
            Answer::Denied
        };
        self.add(id, answer);
    }

    fn add(&mut self, id: String, answer: Answer) {
        if self.calls.len() < MAX_REMEMBERED {
            self.calls.insert(id, answer);
        }
    }

    /// The action that an event tells of, where it was not judged yet.
    ///
    /// # Errors
    /// Says what the agent did against the answer.
    pub(crate) fn unjudged(&mut self, kind: &AgentEventKind) -> Result<Option<Observed>, String> {
        let is_known = match kind {
            AgentEventKind::ToolCall {
                tool_name,
                tool_use_id: Some(id),
                input,
                ..
            } => self.announce(id, tool_name, input),
            AgentEventKind::ToolResult {
                tool_name,
                tool_use_id: Some(id),
                is_error: false,
                ..
            } if matches!(self.calls.get(id), Some(Answer::Denied)) => {
                return Err(format!("{tool_name} was used although it was denied"));
            }
            _ => false,
        };
        Ok(if is_known { None } else { Observed::of(kind) })
    }

    /// Whether an announced call was decided before. One that was allowed is announced once.
    fn announce(&mut self, id: &str, tool_name: &str, input: &Value) -> bool {
        match self.calls.get(id) {
            None => false,
            Some(Answer::CarriedOut | Answer::Denied) => true,
            Some(Answer::Allowed(call)) => {
                let is_same = *call == AskedCall::new(tool_name.to_owned(), input);
                self.calls.remove(id);
                is_same
            }
        }
    }
}

impl AskedCall {
    fn new(tool_name: String, input: &Value) -> Self {
        Self {
            tool_name,
            input_digest: Sha256::digest(input.to_string()).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn announced(id: &str, name: &str, input: Value) -> AgentEventKind {
        AgentEventKind::ToolCall {
            tool_name: name.to_owned(),
            tool_use_id: Some(id.to_owned()),
            parent_tool_use_id: None,
            input,
        }
    }

    fn result(id: &str, is_error: bool) -> AgentEventKind {
        AgentEventKind::ToolResult {
            tool_name: "Bash".to_owned(),
            tool_use_id: Some(id.to_owned()),
            output: json!("done"),
            is_error,
        }
    }

    fn listing() -> Value {
        json!({"command": "ls"})
    }

    fn answered(is_allowed: bool) -> AnsweredCalls {
        let mut answered = AnsweredCalls::default();
        let question = PermissionQuestion {
            tool_name: "Bash".to_owned(),
            tool_use_id: "1".to_owned(),
            input: listing(),
        };
        answered.add_question(question, is_allowed);
        answered
    }

    fn is_judged(answered: &mut AnsweredCalls, event: &AgentEventKind) -> bool {
        answered.unjudged(event).unwrap().is_some()
    }

    #[test]
    fn only_the_call_that_was_allowed_is_not_judged_again() {
        let others = [
            announced("2", "Bash", listing()),
            announced("1", "Write", listing()),
            announced("1", "Bash", json!({"command": "rm -rf ."})),
        ];
        for other in others {
            assert!(is_judged(&mut answered(true), &other), "{other:?}");
        }
        let mut calls = answered(true);
        let same = announced("1", "Bash", listing());
        assert!(!is_judged(&mut calls, &same));
        assert!(is_judged(&mut calls, &same), "twice");
    }

    #[test]
    fn a_denied_call_may_be_told_but_not_made() {
        let mut calls = answered(false);
        assert!(!is_judged(&mut calls, &announced("1", "Bash", listing())));
        assert!(calls.unjudged(&result("1", true)).is_ok());
        let breach = calls.unjudged(&result("1", false));
        assert!(breach.unwrap_err().contains("although it was denied"));
    }

    #[test]
    fn a_call_that_the_host_carried_out_is_not_judged_again() {
        let mut calls = AnsweredCalls::default();
        calls.add_use("1".to_owned(), true);
        assert!(!is_judged(&mut calls, &announced("1", "Write", listing())));
        assert!(calls.unjudged(&result("1", false)).unwrap().is_none());
    }
}
