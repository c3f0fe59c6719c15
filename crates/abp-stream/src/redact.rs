//! Taking secrets out of events.

use std::fmt;

use abp_core::AgentEvent;
use serde_json::{Map, Value};

/// What stands where a secret was.
const MASK: &str = "[redacted]";
/// Shorter values would tear ordinary text apart.
const MIN_SECRET_LEN: usize = 8;

/// Replaces known secret values wherever they occur in an event.
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: Vec<String>,
}

impl Redactor {
    /// A redactor for these values; values of fewer than eight bytes are ignored.
    pub fn new<S: Into<String>>(secrets: impl IntoIterator<Item = S>) -> Self {
        let mut secrets: Vec<String> = secrets
            .into_iter()
            .map(Into::into)
            .filter(|secret: &String| secret.len() >= MIN_SECRET_LEN)
            .collect();
        // A secret that contains another one goes first, so that no rest of it stays.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self { secrets }
    }

    /// The values of those variables whose names say that they are secret.
    pub fn for_environment<'a>(
        variables: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Self {
        Self::new(
            variables
                .into_iter()
                .filter(|(name, _)| names_a_secret(name))
                .map(|(_, value)| value),
        )
    }

    /// Also replaces these values.
    #[must_use]
    pub fn and<S: Into<String>>(self, secrets: impl IntoIterator<Item = S>) -> Self {
        let more = secrets.into_iter().map(Into::into);
        Self::new(self.secrets.into_iter().chain(more))
    }

    /// The event without secrets.
    #[must_use]
    pub fn redact(&self, event: AgentEvent) -> AgentEvent {
        if self.secrets.is_empty() {
            return event;
        }
        let Ok(mut value) = serde_json::to_value(&event) else {
            return event;
        };
        if !self.redact_value(&mut value) {
            return event;
        }
        // Only string contents changed, so the event reads back; were it not so, it must not pass.
        serde_json::from_value(value).unwrap_or_else(|_| {
            AgentEvent::new(
                event.ts,
                abp_core::AgentEventKind::Warning {
                    message: format!(
                        "an event of kind {} was held back: it could not be redacted",
                        event.kind.name()
                    ),
                },
            )
        })
    }

    /// The text without secrets; `None` where there were none.
    fn redact_text(&self, text: &str) -> Option<String> {
        let mut result: Option<String> = None;
        for secret in &self.secrets {
            let current = result.as_deref().unwrap_or(text);
            if current.contains(secret.as_str()) {
                result = Some(current.replace(secret.as_str(), MASK));
            }
        }
        result
    }

    /// Takes secrets out of a JSON value; says whether there were any.
    pub fn redact_value(&self, value: &mut Value) -> bool {
        match value {
            Value::String(text) => match self.redact_text(text) {
                Some(redacted) => {
                    *text = redacted;
                    true
                }
                None => false,
            },
            Value::Array(items) => items
                .iter_mut()
                .fold(false, |changed, item| self.redact_value(item) | changed),
            Value::Object(members) => {
                let redacted = members
                    .values_mut()
                    .fold(false, |changed, member| self.redact_value(member) | changed);
                self.redact_names(members) | redacted
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
}

impl Redactor {
    /// Takes secrets out of the names of members; one that two members then share is numbered.
    fn redact_names(&self, members: &mut Map<String, Value>) -> bool {
        if !members.keys().any(|name| self.redact_text(name).is_some()) {
            return false;
        }
        for (name, member) in std::mem::take(members) {
            let redacted = self.redact_text(&name).unwrap_or(name);
            let numbered = (2..).map(|number| format!("{redacted} {number}"));
            let mut names = std::iter::once(redacted.clone()).chain(numbered);
            let free = names.find(|name| !members.contains_key(name));
            members.insert(free.unwrap_or(redacted), member);
        }
        true
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} secrets)", self.secrets.len())
    }
}

/// Whether the name of a variable says that its value is secret.
#[must_use]
pub fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"]
        .iter()
        .any(|mark| name.contains(mark))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_members_hold_no_secrets_either() {
        let redactor = Redactor::new(["canary-1234", "another-5678"]);
        let mut value = json!({
            "canary-1234": 1, "x": [{ "is another-5678": "canary-1234" }], "another-5678": 2,
        });
        assert!(redactor.redact_value(&mut value));
        let expected = json!({
            "[redacted]": 2, "[redacted] 2": 1, "x": [{ "is [redacted]": "[redacted]" }],
        });
        assert_eq!(value, expected);
        assert!(!redactor.redact_value(&mut json!({ "canary": "1234" })));
    }
}
