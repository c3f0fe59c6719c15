//! Foreign text in a log: without secrets, and on one line.

use std::borrow::Cow;

use secrecy::{ExposeSecret, SecretString};

/// Stands for a secret.
const HIDDEN: &str = "***";

/// A text without these secrets.
#[must_use]
pub fn redact<'t>(text: &'t str, secrets: &[SecretString]) -> Cow<'t, str> {
    let mut found: Vec<&str> = secrets
        .iter()
        .map(ExposeSecret::expose_secret)
        .filter(|secret| !secret.is_empty() && text.contains(secret))
        .collect();
    // A secret may begin with another one; the rest of it must not stay.
    found.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let mut text = Cow::Borrowed(text);
    for secret in found {
        text = Cow::Owned(text.replace(secret, HIDDEN));
    }
    text
}

/// A text on one line, without characters that end a line, move the cursor, colour a terminal or
/// reorder what a reader sees. They are written as in Rust: `\n`, `\u{1b}`.
#[must_use]
pub fn escape_for_log(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if acts(character) {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
    }
    Cow::Owned(safe)
}

/// Whether a character does something instead of being shown.
fn acts(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{061C}'
                | '\u{200B}'..='\u{200F}'
                | '\u{2028}'..='\u{202E}'
                | '\u{2060}'..='\u{2069}'
                | '\u{FEFF}'
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_do_not_stay() {
        let secrets = ["sk-1", "sk-12345", "", "päss"].map(SecretString::from);
        let cases = [
            ("nothing here", "nothing here"),
            ("key=sk-12345;", "key=***;"),
            ("sk-1 sk-12345 sk-1", "*** *** ***"),
            ("päss", "***"),
        ];
        for (text, expected) in cases {
            assert_eq!(redact(text, &secrets), expected, "{text}");
        }
        assert!(matches!(redact("plain", &secrets), Cow::Borrowed(_)));
    }

    #[test]
    fn a15_a_log_line_stays_one_line() {
        let cases = [
            ("plain é 漢字 🦀", "plain é 漢字 🦀"),
            ("a\r\nERROR forged", "a\\r\\nERROR forged"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("\u{9b}31m \u{7f} \0", "\\u{9b}31m \\u{7f} \\u{0}"),
            ("gnp.\u{202e}exe \u{2066}x", "gnp.\\u{202e}exe \\u{2066}x"),
            (
                "a\u{2028}b\u{200f}\u{61c}\u{feff}",
                "a\\u{2028}b\\u{200f}\\u{61c}\\u{feff}",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(escape_for_log(text), expected);
        }
        assert!(matches!(escape_for_log("plain"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn a15_whatever_the_text(text in any::<String>()) {
            let safe = escape_for_log(&text);
            prop_assert!(!safe.contains(acts), "{safe:?}");
            prop_assert_eq!(escape_for_log(&safe), safe.as_ref());
        }
    }
}
