//! The effective configuration as text.

use serde_json::{Map, Value, json};

use crate::Loaded;
use crate::settings::{dotted, key_text, string_text};

/// Stands for values that are not shown.
const HIDDEN: &str = "***";

/// The configuration as TOML, with the origin of each value as a comment where that is wanted.
///
/// Values of environment variables for backends and MCP servers, and of headers, are hidden, and the password
/// of the database.
#[must_use]
pub fn render_toml(loaded: &Loaded, with_origins: bool) -> String {
    let mut writer = Writer {
        loaded,
        with_origins,
        out: String::new(),
    };
    if let Value::Object(root) = shown(loaded) {
        writer.table(&root, &mut Vec::new());
    }
    writer.out
}

/// The configuration as JSON; with origins, as `{"config": …, "origins": {"KEY": …}}`.
///
/// Values of environment variables for backends and MCP servers, and of headers, are hidden.
#[must_use]
pub fn render_json(loaded: &Loaded, with_origins: bool) -> Value {
    let config = shown(loaded);
    if with_origins {
        json!({ "config": config, "origins": loaded.origins })
    } else {
        config
    }
}

fn shown(loaded: &Loaded) -> Value {
    let mut config = serde_json::to_value(&loaded.config).unwrap_or_default();
    let groups = [
        ("/backends", "env"),
        ("/mcp/servers", "env"),
        ("/upstreams", "headers"),
    ];
    for (group, member) in groups {
        let group = config.pointer_mut(group).and_then(Value::as_object_mut);
        for one in group.into_iter().flat_map(Map::values_mut) {
            let values = one.get_mut(member).and_then(Value::as_object_mut);
            for value in values.into_iter().flat_map(Map::values_mut) {
                *value = json!(HIDDEN);
            }
        }
    }
    let headers = config.pointer_mut("/telemetry/headers");
    let headers = headers.and_then(Value::as_object_mut);
    for value in headers.into_iter().flat_map(Map::values_mut) {
        *value = json!(HIDDEN);
    }
    if let Some(url) = config.pointer_mut("/store/url") {
        *url = json!(without_password(url.as_str().unwrap_or_default()));
    }
    config
}

/// The address of a database, which may hold a password before the host or among its parameters.
fn without_password(url: &str) -> String {
    let address = url.split('?').next().unwrap_or_default();
    let Some((scheme, rest)) = address.split_once("://") else {
        return HIDDEN.to_owned();
    };
    match rest.rsplit_once('@') {
        None => address.to_owned(),
        Some((user, host)) => match user.split_once(':') {
            None => address.to_owned(),
            Some((user, _)) => format!("{scheme}://{user}:{HIDDEN}@{host}"),
        },
    }
}

struct Writer<'a> {
    loaded: &'a Loaded,
    with_origins: bool,
    out: String,
}

impl Writer<'_> {
    fn table(&mut self, table: &Map<String, Value>, path: &mut Vec<String>) {
        let values = || table.iter().filter(|(_, value)| !value.is_object());
        // Groups of named tables need no line of their own, named tables do.
        if path.len() > 1 || (!path.is_empty() && values().next().is_some()) {
            self.out += &format!("\n[{}]", dotted(path));
            self.origin(path);
        }
        for (key, value) in values() {
            self.out += &format!("{} = {}", key_text(key), value_text(value));
            path.push(key.clone());
            self.origin(path);
            path.pop();
        }
        for (key, value) in table {
            if let Value::Object(inner) = value {
                path.push(key.clone());
                self.table(inner, path);
                path.pop();
            }
        }
    }

    /// Ends a line, with the origins of what it says.
    fn origin(&mut self, path: &[String]) {
        if self.with_origins {
            let key = dotted(path);
            let items = format!("{key}[");
            let origins = &self.loaded.origins;
            let mut found: Vec<String> = origins
                .range(items.clone()..)
                .take_while(|(key, _)| key.starts_with(&items))
                .map(|(_, origin)| origin.to_string())
                .collect();
            if found.is_empty() {
                found.extend(origins.get(&key).map(ToString::to_string));
            }
            found.dedup();
            if !found.is_empty() {
                let comment = found.join(", ").replace(char::is_control, "\u{FFFD}");
                self.out += &format!("  # {comment}");
            }
        }
        self.out.push('\n');
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => string_text(text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(value_text).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn passwords_of_databases_are_hidden() {
        for (url, shown) in [
            ("postgres://db/abp", "postgres://db/abp"),
            ("postgres://abp@db:5432/abp", "postgres://abp@db:5432/abp"),
            ("postgres://abp:s3cret@db/abp", "postgres://abp:***@db/abp"),
            ("postgres://abp:s@3:c@db/abp", "postgres://abp:***@db/abp"),
            ("postgres://db/abp?password=s3cret", "postgres://db/abp"),
            ("s3cret", "***"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
