//! Texts with places for the address, the key and the model of a run.

use abp_error::{AbpError, ErrorCode};

/// The values of a run.
#[derive(Debug, Clone, Copy)]
pub struct GatewayTarget<'a> {
    /// The address of the run's gateway, as the agent reaches it, without a path.
    pub url: &'a str,
    /// The run's key.
    pub key: &'a str,
    /// The model to ask for.
    pub model: &'a str,
}

/// Fills in `{url}`, `{key}` and `{model}`.
///
/// # Errors
/// Refuses a value that a quoted text of TOML or JSON could not hold as it is.
pub fn fill(text: &str, target: &GatewayTarget<'_>) -> Result<String, AbpError> {
    let values = [
        ("{url}", target.url),
        ("{key}", target.key),
        ("{model}", target.model),
    ];
    let mut filled = text.to_owned();
    for (place, value) in values {
        if !filled.contains(place) {
            continue;
        }
        if let Some(wrong) = value.chars().find(|c| !is_plain(*c)) {
            let message = format!("{value:?} cannot be given to an agent: it has {wrong:?} in it");
            return Err(AbpError::new(ErrorCode::ValidationFailed, message));
        }
        filled = filled.replace(place, value);
    }
    Ok(filled)
}

/// Fills in the values of pairs.
///
/// # Errors
/// As [`fill`].
pub fn fill_pairs<'a, N: ToString + 'a, V: AsRef<str> + 'a>(
    pairs: impl IntoIterator<Item = (N, V)>,
    target: &GatewayTarget<'_>,
) -> Result<Vec<(String, String)>, AbpError> {
    let pairs = pairs.into_iter();
    pairs
        .map(|(name, text)| Ok((name.to_string(), fill(text.as_ref(), target)?)))
        .collect()
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.:/@+[]".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: GatewayTarget<'_> = GatewayTarget {
        url: "http://127.0.0.1:3128/models",
        key: "abp_1",
        model: "m",
    };

    #[test]
    fn places_are_filled_and_nothing_else_is() {
        let cases = [
            ("", ""),
            ("{url}/v1", "http://127.0.0.1:3128/models/v1"),
            ("k={key} m={model} m={model}", "k=abp_1 m=m m=m"),
            ("{\"a\":{\"b\":1}}", "{\"a\":{\"b\":1}}"),
        ];
        for (text, expected) in cases {
            assert_eq!(fill(text, &TARGET).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_value_that_would_leave_its_quotes_is_refused() {
        for model in ["a\"b", "a\nb", "a\\b", "a b", "ä"] {
            let target = GatewayTarget { model, ..TARGET };
            assert!(fill("model = \"{model}\"", &target).is_err(), "{model:?}");
            // It is not needed here.
            assert!(fill("{url}", &target).is_ok(), "{model:?}");
        }
    }
}
