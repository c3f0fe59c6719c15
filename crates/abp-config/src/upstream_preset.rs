//! Vendors whose settings are known, and their tables in a file.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::settings::{dotted, string_text};

/// A vendor whose settings are known.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamPreset {
    /// Its name, for people.
    pub title: String,
    /// The dialect it speaks.
    pub dialect: String,
    /// Its address; `{name}` stands for something that only the user knows.
    pub base_url: String,
    /// The environment variable that usually holds its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// The file that holds its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<String>,
    /// The way in which its key is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<String>,
    /// The region that signatures are for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws_region: Option<String>,
    /// Patterns of the models that it serves; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// What is passed on to it as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass_through: Vec<String>,
    /// The meaning of each `{name}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub about: BTreeMap<String, String>,
    /// Differences from the dialect that a user should know of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The known vendors by name.
#[must_use]
pub fn upstream_presets() -> &'static BTreeMap<String, UpstreamPreset> {
    static PRESETS: OnceLock<BTreeMap<String, UpstreamPreset>> = OnceLock::new();
    // A test reads the file; there is no other one.
    PRESETS
        .get_or_init(|| toml::from_str(include_str!("upstream_presets.toml")).unwrap_or_default())
}

/// The user's own part of an upstream that is made from a preset.
#[derive(Debug, Clone, Default)]
pub struct PresetChoices {
    /// Values for the names in the address.
    pub values: BTreeMap<String, String>,
    /// Another address.
    pub base_url: Option<String>,
    /// The environment variable that holds the key.
    pub api_key_env: Option<String>,
    /// The file that holds the key.
    pub api_key_file: Option<String>,
    /// The models it is asked for, instead of the preset's.
    pub models: Vec<String>,
}

impl UpstreamPreset {
    /// The table `[upstreams.NAME]`.
    ///
    /// # Errors
    /// Fails with what is missing, or given without being asked for.
    pub fn table(&self, name: &str, choices: &PresetChoices) -> Result<String, String> {
        let unknown = choices
            .values
            .keys()
            .find(|key| !self.about.contains_key(*key));
        if let Some(unknown) = unknown {
            return Err(format!("there is nothing called {unknown:?} to set"));
        }
        let fill = |text: &str| {
            let mut text = text.to_owned();
            for (key, value) in &choices.values {
                text = text.replace(&format!("{{{key}}}"), value);
            }
            text
        };
        let missing = |key: &&String| !choices.values.contains_key(*key);
        let base_url = match &choices.base_url {
            Some(own) => own.clone(),
            None => match self.about.keys().find(missing) {
                None => fill(&self.base_url),
                Some(key) => {
                    let about = self.about.get(key).map_or("", String::as_str);
                    return Err(format!("it needs --set {key}=VALUE: {about}"));
                }
            },
        };
        let (env, file) = match (&choices.api_key_env, &choices.api_key_file) {
            (None, None) => (self.api_key_env.as_ref(), self.api_key_file.as_ref()),
            (env, file) => (env.as_ref(), file.as_ref()),
        };
        let texts = [
            ("dialect", Some(self.dialect.clone())),
            ("base_url", Some(base_url)),
            ("api_key_env", env.cloned()),
            ("api_key_file", file.cloned()),
            ("auth", self.auth.clone()),
            ("aws_region", self.aws_region.as_deref().map(fill)),
        ];
        let mut table = format!("[{}]\n", dotted(&["upstreams", name]));
        for (key, value) in texts {
            if let Some(value) = value {
                table.push_str(&format!("{key} = {}\n", string_text(&value)));
            }
        }
        let models = match choices.models.is_empty() {
            true => &self.models,
            false => &choices.models,
        };
        for (key, values) in [("models", models), ("pass_through", &self.pass_through)] {
            if !values.is_empty() {
                let values: Vec<_> = values.iter().map(|value| string_text(value)).collect();
                table.push_str(&format!("{key} = [{}]\n", values.join(", ")));
            }
        }
        Ok(table)
    }
}

/// A file's text with a table at its end.
#[must_use]
pub fn with_table(text: &str, table: &str) -> String {
    let gap = match text {
        "" => "",
        text if text.ends_with("\n\n") => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    format!("{text}{gap}{table}")
}

/// A file's text without the tables of an upstream; everything else, comments included, stays as it is.
///
/// # Errors
/// Fails where the upstream is not a table of its own there: it has to be removed by hand.
pub fn without_upstream(text: &str, name: &str) -> Result<String, String> {
    let parse = |text: &str| {
        text.parse::<Table>()
            .map_err(|error| error.message().to_owned())
    };
    let mut expected = parse(text)?;
    let upstreams = expected.get_mut("upstreams").and_then(Value::as_table_mut);
    let removed = upstreams.and_then(|upstreams| upstreams.remove(name));
    if removed.is_none() {
        return Err(format!("it has no upstream {name:?}"));
    }
    let left = without_tables(text, name);
    // The lines that were cut are exactly that upstream, or nothing is.
    let upstreams = expected.get("upstreams").and_then(Value::as_table);
    if upstreams.is_some_and(Table::is_empty) {
        expected.remove("upstreams");
    }
    match parse(&left) {
        Ok(parsed) if parsed == expected => Ok(left),
        _ => Err(format!(
            "[upstreams.{name}] is not a table of its own; remove it by hand"
        )),
    }
}

/// The lines outside of an upstream's tables. Comments in front of the next table belong to that.
fn without_tables(text: &str, name: &str) -> String {
    let is_upstream = |path: &[String]| matches!(path, [group, upstream, ..] if group == "upstreams" && upstream == name);
    let (mut left, mut comments, mut is_removed) = (String::new(), String::new(), false);
    for line in text.split_inclusive('\n') {
        if let Some(path) = header(line) {
            is_removed = is_upstream(&path);
            if !is_removed {
                left.push_str(&comments);
            }
            comments.clear();
        }
        if !is_removed {
            left.push_str(line);
        } else if line.trim().starts_with('#') || (line.trim().is_empty() && !comments.is_empty()) {
            comments.push_str(line);
        } else {
            comments.clear();
        }
    }
    left + &comments
}

/// The path of a table's header, where a line is one.
fn header(line: &str) -> Option<Vec<String>> {
    let line = line.trim();
    if !line.starts_with('[') {
        return None;
    }
    let mut table: Table = line.parse().ok()?;
    let mut path = Vec::new();
    while let Some((key, value)) = table.into_iter().next() {
        path.push(key);
        table = match value {
            Value::Table(inner) => inner,
            Value::Array(items) => match items.into_iter().next() {
                Some(Value::Table(inner)) => inner,
                _ => Table::new(),
            },
            _ => Table::new(),
        };
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, UpstreamConfig};

    #[test]
    fn every_preset_is_a_valid_upstream() {
        let presets: BTreeMap<String, UpstreamPreset> =
            toml::from_str(include_str!("upstream_presets.toml")).unwrap();
        assert!(presets.len() >= 12);
        for (name, preset) in &presets {
            let values = preset
                .about
                .keys()
                .map(|key| (key.clone(), "xy".to_owned()));
            let choices = PresetChoices {
                values: values.collect(),
                ..PresetChoices::default()
            };
            let table = preset.table(name, &choices).unwrap();
            let config: Config = toml::from_str(&table).unwrap();
            let upstream: &UpstreamConfig = &config.upstreams[name];
            assert!(!upstream.base_url.contains('{'), "{table}");
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("backplane.toml");
            std::fs::write(&file, &table).unwrap();
            let sources = crate::Sources {
                operator: Some(file),
                working_dir: Some(directory.path().to_owned()),
                env: [("HOME".to_owned(), directory.path().display().to_string())].into(),
                strict: true,
                ..crate::Sources::default()
            };
            crate::load(&sources).unwrap_or_else(|errors| panic!("{table}: {errors:?}"));
            for key in preset.about.keys() {
                let mut fewer = choices.clone();
                fewer.values.remove(key);
                let problem = preset.table(name, &fewer).unwrap_err();
                assert!(problem.contains(key), "{problem}");
            }
        }
    }

    #[test]
    fn an_upstream_is_removed_and_nothing_else() {
        let text = "# first\nport = 1\n\n[upstreams.a]\ndialect = \"openai\" # why\nbase_url = \"http://h\"\n\n\
                    [upstreams.a.headers]\nx = \"1\"\n[upstreams.\"b.c\"]\ndialect = \"claude\"\n\
                    base_url = \"http://h\"\n# last\n[prices.list]\n";
        let left = without_upstream(text, "a").unwrap();
        assert!(
            left.starts_with("# first\nport = 1\n\n[upstreams.\"b.c\"]\n"),
            "{left}"
        );
        assert!(left.ends_with("# last\n[prices.list]\n"), "{left}");
        let left = without_upstream(&left, "b.c").unwrap();
        assert_eq!(left, "# first\nport = 1\n\n# last\n[prices.list]\n");
        assert_eq!(with_table(&left, "[x]\n"), format!("{left}\n[x]\n"));

        for other in [
            "upstreams.a.dialect = \"openai\"\n",
            "[upstreams]\na = { dialect = \"openai\" }\n",
            "text = \"\"\"\n[upstreams.a]\n\"\"\"\n[upstreams.a]\ndialect = \"openai\"\n",
        ] {
            let problem = without_upstream(other, "a").unwrap_err();
            assert!(problem.contains("by hand"), "{other}: {problem}");
        }
        assert!(
            without_upstream(text, "c")
                .unwrap_err()
                .contains("no upstream")
        );
    }
}
