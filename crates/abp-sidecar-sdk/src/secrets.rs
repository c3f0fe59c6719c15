//! Which values of a configured environment are secret.

use std::collections::BTreeMap;

use abp_stream::names_a_secret;
use secrecy::SecretString;

/// The values that are taken out of everything that is recorded: those whose variable is named after
/// a secret, and those that look like one. A word, a number, a path or an address without a password
/// would tear ordinary text apart.
#[must_use]
pub fn secret_values(variables: &BTreeMap<String, String>) -> Vec<SecretString> {
    let secret = variables
        .iter()
        .filter(|(name, value)| names_a_secret(name) || !is_plain(value));
    secret.map(|(_, value)| value.clone().into()).collect()
}

fn is_plain(value: &str) -> bool {
    is_place(value) || !(has(value, char::is_alphabetic) && has(value, char::is_numeric))
}

/// A path, a list of paths, or an address without user and password.
fn is_place(value: &str) -> bool {
    match value.split_once("://") {
        Some((_, rest)) => !rest.contains(['@', '?']),
        None => value.starts_with(['/', '.', '~']),
    }
}

fn has(value: &str, is_kind: impl Fn(char) -> bool) -> bool {
    value.chars().any(is_kind)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn secrets_are_told_from_settings() {
        let cases = [
            ("OPENAI_API_KEY", "correct horse battery", true),
            ("DB", "postgres://u:hunter22@db/x", true),
            ("HOOK", "https://example.com/h?sig=a1b2c3d4", true),
            ("CANARY", "q7Zk2mPx91", true),
            ("NODE_ENV", "production", false),
            ("PORT", "8080", false),
            ("CACHE", "/var/cache/agent2", false),
            ("REGISTRY", "https://registry2.example.com/npm", false),
        ];
        for (name, value, is_secret) in cases {
            let variables = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            let found = secret_values(&variables);
            let found: Vec<_> = found.iter().map(SecretString::expose_secret).collect();
            let expected: &[&str] = if is_secret { &[value] } else { &[] };
            assert_eq!(found, expected, "{name}");
        }
    }
}
