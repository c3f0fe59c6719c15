//! Generated files: the JSON schemas, and the tables inside the documents.
//!
//! What can be derived from the code is derived, and CI compares: a table that is kept by hand is
//! wrong after the second change. A document keeps its prose; only the text between
//! `<!-- generated:NAME -->` and `<!-- /generated:NAME -->` belongs to the generator.

mod blocks;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

use crate::output::say;
use crate::workspace::Workspace;
use blocks::{BLOCKS, Block};

const REPAIR: &str = "cargo xtask schema";

/// Writes every generated file that is not as it should be.
pub(crate) fn write() -> Result<()> {
    let workspace = Workspace::load()?;
    for change in changes(&workspace)? {
        let path = workspace.root.join(&change.path);
        match &change.text {
            Some(text) => {
                let dir = path.parent().context("a file has a directory")?;
                fs::create_dir_all(dir)?;
                fs::write(&path, text)?;
                say(format_args!("wrote {}", change.path));
            }
            None => {
                fs::remove_file(&path)?;
                say(format_args!("removed {}", change.path));
            }
        }
    }
    Ok(())
}

/// Fails if [`write()`] would change anything.
pub(crate) fn check() -> Result<()> {
    let changes = changes(&Workspace::load()?)?;
    if changes.is_empty() {
        return Ok(());
    }
    let paths: Vec<_> = changes.iter().map(|change| change.path.as_str()).collect();
    bail!(
        "generated files differ: {}; repair with `{REPAIR}`",
        paths.join(", ")
    );
}

/// A file that has to be written, or removed when there is no text.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    path: String,
    text: Option<String>,
}

fn changes(workspace: &Workspace) -> Result<Vec<Change>> {
    let mut wanted = schemas()?;
    for block in BLOCKS {
        let body = (block.render)(workspace)?;
        let so_far = match wanted.remove(block.file) {
            Some(text) => text,
            None => document(&workspace.root, block)?,
        };
        let text = replace(&so_far, block.name, &body).with_context(|| block.file.to_owned())?;
        wanted.insert(block.file.to_owned(), text);
    }
    let mut changes: Vec<_> = stale_schemas(&workspace.root, &wanted)?;
    for (path, text) in wanted {
        if fs::read_to_string(workspace.root.join(&path)).ok().as_ref() != Some(&text) {
            changes.push(Change {
                path,
                text: Some(text),
            });
        }
    }
    Ok(changes)
}

fn schemas() -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let again = abp_core::schema::documents();
    for ((stem, schema), (_, again)) in abp_core::schema::documents().into_iter().zip(again) {
        // A default that is computed, such as a new id or the time, ends up in the schema.
        ensure!(
            schema == again,
            "the schema of {stem} is different each time it is generated"
        );
        let mut text = serde_json::to_string_pretty(&sorted(schema))?;
        text.push('\n');
        files.insert(format!("schemas/{stem}.json"), text);
    }
    let mut text = serde_json::to_string_pretty(&sorted(abp_control_http::openapi_document()))?;
    text.push('\n');
    files.insert("schemas/openapi.json".to_owned(), text);
    Ok(files)
}

/// Orders the keys of every object: whether `serde_json` keeps them in the order of insertion is up
/// to the features of whoever else is in the build.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<_, _> = fields.into_iter().collect();
            let fields = fields.into_iter().map(|(key, value)| (key, sorted(value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => scalar,
    }
}

fn stale_schemas(root: &Path, wanted: &BTreeMap<String, String>) -> Result<Vec<Change>> {
    let Ok(entries) = fs::read_dir(root.join("schemas")) else {
        return Ok(Vec::new());
    };
    let mut stale = Vec::new();
    for entry in entries {
        let path = format!("schemas/{}", entry?.file_name().to_string_lossy());
        if path.ends_with(".json") && !wanted.contains_key(&path) {
            stale.push(Change { path, text: None });
        }
    }
    stale.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(stale)
}

/// Reads the document of a block, or starts one that holds nothing else yet.
fn document(root: &Path, block: &Block) -> Result<String> {
    let path = root.join(block.file);
    if path.exists() {
        return fs::read_to_string(&path).with_context(|| block.file.to_owned());
    }
    let (open, close) = markers(block.name);
    Ok(format!("# {}\n\n{open}\n{close}\n", block.title))
}

fn markers(name: &str) -> (String, String) {
    let open = format!("<!-- generated:{name} -->");
    let close = format!("<!-- /generated:{name} -->");
    (open, close)
}

/// Returns `document` with `body` between the markers of `name`.
fn replace(document: &str, name: &str, body: &str) -> Result<String> {
    let (open, close) = markers(name);
    let parts = document.split_once(&open).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(&close)?;
        Some((before, after))
    });
    let Some((before, after)) = parts else {
        bail!("add the lines `{open}` and `{close}` where the generated text belongs");
    };
    if after.contains(&open) {
        bail!("`{open}` occurs twice; keep one");
    }
    let body = body.trim_end();
    Ok(format!("{before}{open}\n\n{body}\n\n{close}{after}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_block_is_replaced_and_the_prose_kept() {
        let document = "a\n<!-- generated:x -->\nold\n<!-- /generated:x -->\nb\n";
        let once = replace(document, "x", "new\n").expect("markers");
        let expected = "a\n<!-- generated:x -->\n\nnew\n\n<!-- /generated:x -->\nb\n";
        assert_eq!(once, expected);
        assert_eq!(replace(&once, "x", "new\n").expect("markers"), expected);
    }

    #[test]
    fn a_document_without_the_markers_is_an_error() {
        let check = |document: &str, part: &str| {
            let error = replace(document, "x", "new").expect_err("no place");
            assert!(error.to_string().contains(part), "{error}");
        };
        check("prose", "add the lines");
        check("<!-- generated:x -->", "add the lines");
        check("<!-- /generated:x --><!-- generated:x -->", "add the lines");
        let twice = "<!-- generated:x --><!-- /generated:x -->".repeat(2);
        check(&twice, "occurs twice");
    }

    /// Compared as text: two objects with other orders are equal as values.
    #[test]
    fn keys_are_ordered_at_every_depth() {
        let value = json!({"b": [{"d": 1, "c": 2}], "a": {"f": null, "e": "x"}});
        let text = sorted(value).to_string();
        assert_eq!(text, r#"{"a":{"e":"x","f":null},"b":[{"c":2,"d":1}]}"#);
    }
}
