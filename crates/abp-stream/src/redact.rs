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
        // Numbered by the order of the names, whichever order the map keeps.
        let mut named: Vec<_> = std::mem::take(members).into_iter().collect();
        named.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (name, member) in named {
            let redacted = self.redact_text(&name).unwrap_or(name);
            let numbered = (2..).map(|number| format!("{redacted} {number}"));
            let mut names = std::iter::once(redacted.clone()).chain(numbered);
            let free = names.find(|name| !members.contains_key(name));
            members.insert(free.unwrap_or(redacted), member);
        }
        true
    }
}

impl Redactor {
    /// Takes secrets out of a text, from its start as far as that can be decided: the rest may be the
    /// beginning of a secret, unless the text is at its end. Returns the text without secrets, and how
    /// many bytes of the given one it stands for.
    fn redact_decided(&self, text: &str, end: TextEnd) -> (String, usize) {
        let mut redacted = String::with_capacity(text.len());
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            // A longer secret that begins here may still follow.
            let may_follow =
                |secret: &String| secret.len() > rest.len() && secret.starts_with(rest);
            if end == TextEnd::Open && self.secrets.iter().any(may_follow) {
                break;
            }
            // The longest one comes first.
            let found = self
                .secrets
                .iter()
                .find(|secret| rest.starts_with(secret.as_str()));
            match (found, rest.chars().next()) {
                (Some(secret), _) => {
                    redacted.push_str(MASK);
                    at += secret.len();
                }
                (None, Some(plain)) => {
                    redacted.push(plain);
                    at += plain.len_utf8();
                }
                (None, None) => break,
            }
        }
        (redacted, at)
    }
}

/// Whether a text goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextEnd {
    Open,
    Reached,
}

/// Takes secrets out of a text that comes in pieces, also where a secret is split between pieces.
///
/// A piece whose end could be the beginning of a secret is given on without that end, which comes with
/// the next piece: with the secret `canary-1234`, the pieces `a can` and `teen` become `a ` and
/// `canteen`. At most the length of the longest secret less one byte is held back.
#[derive(Clone, Default)]
pub struct PieceRedactor {
    held: String,
}

impl PieceRedactor {
    /// The next piece, with what was held back before and without what is held back now.
    pub fn push(&mut self, redactor: &Redactor, piece: &str) -> String {
        if redactor.secrets.is_empty() {
            return piece.to_owned();
        }
        self.held.push_str(piece);
        let (redacted, decided) = redactor.redact_decided(&self.held, TextEnd::Open);
        self.held.drain(..decided);
        redacted
    }

    /// What was held back: the text is at its end.
    pub fn finish(&mut self, redactor: &Redactor) -> String {
        let held = std::mem::take(&mut self.held);
        redactor.redact_decided(&held, TextEnd::Reached).0
    }
}

impl fmt::Debug for PieceRedactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PieceRedactor({} bytes held)", self.held.len())
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
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const SECRETS: [&str; 4] = ["aabaabaa", "aabaabaabb", "bbaabaabaa", "äöüäöü"];

    /// Texts in which secrets, their beginnings and what looks like them are frequent.
    fn text() -> impl Strategy<Value = Vec<String>> {
        let part = prop_oneof![
            prop::sample::select(SECRETS.to_vec()).prop_map(str::to_owned),
            "[abäö]{0,4}",
        ];
        prop::collection::vec(part, 0..8).prop_map(|parts| {
            let text = parts.concat();
            text.chars().map(String::from).collect()
        })
    }

    proptest! {
        /// However a text is split, its pieces become what the whole becomes; no secret passes, and no
        /// more is held back than could be the beginning of one.
        #[test]
        fn a_split_text_is_redacted_like_the_whole(
            characters in text(),
            splits in prop::collection::vec(0usize..5, 0..40),
        ) {
            let redactor = Redactor::new(SECRETS);
            let longest = SECRETS.iter().map(|secret| secret.len()).max().unwrap();
            let whole = characters.concat();
            let expected = redactor.redact_decided(&whole, TextEnd::Reached).0;
            let mut pieces = PieceRedactor::default();
            let (mut told, mut rest) = (String::new(), characters.as_slice());
            for length in splits.into_iter().chain([usize::MAX]) {
                let (piece, left) = rest.split_at(length.min(rest.len()));
                rest = left;
                told.push_str(&pieces.push(&redactor, &piece.concat()));
                prop_assert!(pieces.held.len() < longest);
                let is_beginning = |secret: &&str| secret.starts_with(&pieces.held);
                prop_assert!(SECRETS.iter().any(is_beginning), "{:?}", pieces.held);
            }
            told.push_str(&pieces.finish(&redactor));
            prop_assert_eq!(&pieces.finish(&redactor), "");
            prop_assert_eq!(&told, &expected);
            for secret in SECRETS {
                prop_assert!(!told.contains(secret), "{told:?}");
            }
        }
    }

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
