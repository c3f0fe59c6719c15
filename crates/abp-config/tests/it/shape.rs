//! The table of settings, the schema, the templates and what is shown, against each other.

use std::collections::BTreeSet;
use std::fs;

use abp_config::{
    Config, Loaded, Setting, load, project_template, render_json, render_toml, settings, template,
};
use serde_json::Value;

use crate::layers::at_home;

/// The dotted keys of everything in a schema that has no properties of its own.
fn keys(schema: &Value, root: &Value, path: &str, found: &mut BTreeSet<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let pointer = name.trim_start_matches('#');
        return keys(root.pointer(pointer).unwrap(), root, path, found);
    }
    let below = |name: &str| format!("{path}{}{name}", if path.is_empty() { "" } else { "." });
    let mut is_leaf = true;
    for part in ["oneOf", "anyOf"]
        .iter()
        .filter_map(|word| schema[*word].as_array())
    {
        let resolved = |one: &Value| match one["$ref"].as_str() {
            Some(name) => root.pointer(name.trim_start_matches('#')).unwrap().clone(),
            None => one.clone(),
        };
        // An optional table is one of two as well: itself and nothing.
        let part = part.iter().map(resolved);
        let part: Vec<_> = part.filter(|one| one["type"] != "null").collect();
        if part.iter().any(|one| one.get("properties").is_some()) {
            is_leaf = false;
            part.iter().for_each(|one| keys(one, root, path, found));
        }
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        is_leaf = false;
        // The schema lists every capability.
        let name = if path == "emulation" { "*" } else { name };
        keys(member, root, &below(name), found);
    }
    for word in ["additionalProperties", "patternProperties"] {
        if let Some(member) = schema.get(word).filter(|member| member.is_object()) {
            is_leaf = false;
            keys(member, root, &below("*"), found);
        }
    }
    if is_leaf {
        found.insert(path.to_owned());
    }
}

#[test]
fn the_table_and_the_schema_agree() {
    let schema = Config::json_schema();
    let mut described = BTreeSet::new();
    keys(&schema, &schema, "", &mut described);
    let current = settings().iter().filter(|one| one.successor().is_none());
    let listed: BTreeSet<_> = current.map(Setting::key).collect();
    assert_eq!(described, listed);
    let project: Vec<_> = settings()
        .iter()
        .filter(|one| one.project_may_set())
        .collect();
    assert_eq!(
        project.len(),
        6,
        "what a project may set was extended: {project:?}"
    );
}

fn load_text(text: &str, as_project: bool) -> Loaded {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("backplane.toml");
    fs::write(&path, text).unwrap();
    let mut sources = at_home();
    if as_project {
        sources.project = Some(path);
    } else {
        sources.user = Some(path);
    }
    load(&sources).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The template with its settings switched on: a comment that could be one is one.
fn uncommented(text: &str) -> String {
    let is_setting = |line: &str| {
        line.starts_with('[')
            || line
                .split_once(" = ")
                .is_some_and(|(key, _)| !key.contains(' '))
    };
    let line = |line: &str| match line.strip_prefix("# ") {
        Some(rest) if is_setting(rest) => rest.to_owned(),
        _ => line.to_owned(),
    };
    text.lines().map(|one| line(one) + "\n").collect()
}

#[test]
fn the_templates_load_without_a_word() {
    for (text, as_project) in [(template(), false), (project_template(), true)] {
        for text in [text.to_owned(), uncommented(text).replace("~/", "/")] {
            let loaded = load_text(&text, as_project);
            assert!(loaded.warnings.is_empty(), "{text}\n{:#?}", loaded.warnings);
        }
    }
    let whole = uncommented(template());
    let missing = settings()
        .iter()
        .filter(|one| one.successor().is_none())
        .filter(|one| {
            let name = one
                .key()
                .rsplit('.')
                .find(|part| *part != "*")
                .unwrap()
                .to_owned();
            !whole.contains(&format!("{name} = "))
        });
    let missing: BTreeSet<_> = missing.map(Setting::key).collect();
    let left_out: BTreeSet<_> = [
        "cache_read_usd_per_mtok",
        "cache_write_usd_per_mtok",
        "request_usd",
    ]
    .iter()
    .map(|name| format!("prices.*.*.{name}"))
    .chain(["detail", "reason"].map(|name| format!("emulation.*.{name}")))
    .collect();
    assert_eq!(missing, left_out, "the template shows every setting");
}

#[test]
fn what_is_shown_hides_secrets_and_names_origins() {
    let loaded = load_text(
        "port = 9\n[backends.a]\ntype = 'sidecar'\ncommand = 'x'\n\
         env = { HOST = 'not-to-be-shown' }\n\
         [mcp.servers.b]\ncommand = 'y'\nenv = { HOST = 'not-to-be-shown' }\n",
        false,
    );
    let text = render_toml(&loaded, true);
    assert!(
        text.contains("port = 9  # ") && text.contains("backplane.toml:1\n"),
        "{text}"
    );
    assert!(text.contains("log_level = \"warn\"  # default\n"), "{text}");
    let json = render_json(&loaded, true);
    assert_eq!(json["origins"]["port"]["line"], 1);
    assert_eq!(json["config"]["backends"]["a"]["env"]["HOST"], "***");
    assert_eq!(render_json(&loaded, false)["port"], 9);
    let seen = format!("{text}{json}{:?}", loaded.config);
    assert!(!seen.contains("not-to-be-shown"), "{seen}");
}
