//! Calls that were allowed before the agent announced them.
//!
//! An agent that asks first says `tool_call` afterwards, for the same call. It was judged then, and a person
//! may have been asked: judging it again would ask the same question twice. An announcement counts as the
//! allowed call where id, tool and input are the same; anything else is judged by itself.

use std::collections::BTreeMap;

use abp_backend_core::PermissionQuestion;
use abp_core::AgentEventKind;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The most calls that are remembered. A call beyond them is judged again, which is safe.
const MAX_REMEMBERED: usize = 1_024;

/// The allowed calls that were not announced yet, by id.
#[derive(Debug, Default)]
pub(crate) struct PermittedCalls {
    calls: BTreeMap<String, PermittedCall>,
}

#[derive(Debug, PartialEq, Eq)]
struct PermittedCall {
    tool_name: String,
    input_digest: [u8; 32],
}

impl PermittedCalls {
    /// Remembers a call that was allowed.
    pub(crate) fn add(&mut self, question: PermissionQuestion) {
        if self.calls.len() < MAX_REMEMBERED {
            let call = PermittedCall::new(question.tool_name, &question.input);
            self.calls.insert(question.tool_use_id, call);
        }
    }

    /// Whether an event announces a call that was allowed. Each is announced once.
    pub(crate) fn take(&mut self, kind: &AgentEventKind) -> bool {
        let AgentEventKind::ToolCall {
            tool_name,
            tool_use_id: Some(id),
            input,
            ..
        } = kind
        else {
            return false;
        };
        let allowed = self.calls.remove(id);
        allowed.is_some_and(|call| call == PermittedCall::new(tool_name.clone(), input))
    }
}

impl PermittedCall {
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

    #[test]
    fn only_the_call_that_was_allowed_is_not_judged_again() {
        let input = || json!({"command": "ls"});
        let others = [
            announced("2", "Bash", input()),
            announced("1", "Write", input()),
            announced("1", "Bash", json!({"command": "rm -rf ."})),
        ];
        for other in others {
            let mut permitted = PermittedCalls::default();
            permitted.add(PermissionQuestion {
                tool_name: "Bash".to_owned(),
                tool_use_id: "1".to_owned(),
                input: input(),
            });
            assert!(!permitted.take(&other), "{other:?}");
        }
        let mut permitted = PermittedCalls::default();
        permitted.add(PermissionQuestion {
            tool_name: "Bash".to_owned(),
            tool_use_id: "1".to_owned(),
            input: input(),
        });
        assert!(permitted.take(&announced("1", "Bash", input())));
        assert!(!permitted.take(&announced("1", "Bash", input())), "twice");
    }
}
