//! One concept has one definition: no public type name in two crates, unless that is explained.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::workspace::{Names, Workspace};

const KEYWORDS: &[&str] = &["pub struct ", "pub enum ", "pub trait "];

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let names = &workspace.layers.names;
    let mut places: BTreeMap<&str, Vec<Place<'_>>> = BTreeMap::new();
    for (file, source) in workspace.rust_files() {
        let (Some(crate_dir), Some(inside)) = (file.crate_dir(), file.path_in_crate()) else {
            continue;
        };
        if !inside.starts_with("src/") || is_foreign(inside, names) {
            continue;
        }
        for (line, code) in source.product_lines() {
            if let Some(name) = public_type(code) {
                let path = file.path.as_str();
                let place = Place {
                    crate_dir,
                    path,
                    line,
                };
                places.entry(name).or_default().push(place);
            }
        }
    }
    places.retain(|name, _| !names.shared.iter().any(|[shared, _]| shared == name));
    places
        .iter()
        .flat_map(|(name, places)| defined_twice(name, places))
        .collect()
}

/// Where a name is defined.
struct Place<'a> {
    crate_dir: &'a str,
    path: &'a str,
    line: usize,
}

fn defined_twice(name: &str, places: &[Place<'_>]) -> Vec<Finding> {
    let crates: BTreeSet<_> = places.iter().map(|place| place.crate_dir).collect();
    if crates.len() < 2 {
        return Vec::new();
    }
    let listed: Vec<_> = crates.into_iter().collect();
    let message = format!(
        "`{name}` is defined in {}: define it once, or rename the one that means something else",
        listed.join(" and ")
    );
    places
        .iter()
        .map(|place| Finding::at(place.path, place.line, message.clone()))
        .collect()
}

fn public_type(code: &str) -> Option<&str> {
    let code = code.trim_start();
    let rest = KEYWORDS
        .iter()
        .find_map(|keyword| code.strip_prefix(keyword))?;
    rest.split(|c| !crate::source::is_word(c)).next()
}

/// Says whether a file is part of a module whose types are named by a vendor.
fn is_foreign(path_in_crate: &str, names: &Names) -> bool {
    let path = path_in_crate.strip_prefix("src/").unwrap_or(path_in_crate);
    let top = path.split(['/', '.']).next();
    names
        .foreign_modules
        .iter()
        .any(|[module, _]| top == Some(module))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_types_are_recognised() {
        let check = |code: &str, expected: Option<&str>| assert_eq!(public_type(code), expected);
        check("pub struct Receipt {", Some("Receipt"));
        check("    pub enum Kind<'a> {", Some("Kind"));
        check("pub trait Codec: Send {", Some("Codec"));
        check("pub struct Id(u64);", Some("Id"));
        check("pub(crate) struct Hidden;", None);
        check("struct Private;", None);
        check("pub fn f() {}", None);
    }

    #[test]
    fn only_two_crates_clash() {
        let place = |crate_dir| Place {
            crate_dir,
            path: "p",
            line: 1,
        };
        let found = |crates: &[&'static str]| {
            let places: Vec<_> = crates.iter().copied().map(place).collect();
            defined_twice("Name", &places).len()
        };
        assert_eq!(found(&["a"]), 0);
        assert_eq!(found(&["a", "a"]), 0);
        assert_eq!(found(&["a", "b"]), 2);
    }

    #[test]
    fn foreign_modules_are_top_level() {
        let names = Names {
            shared: Vec::new(),
            foreign_modules: vec![["wire".to_owned(), "theirs".to_owned()]],
        };
        let check = |path: &str, expected: bool| assert_eq!(is_foreign(path, &names), expected);
        check("src/wire.rs", true);
        check("src/wire/chat.rs", true);
        check("src/wired.rs", false);
        check("src/stream/wire.rs", false);
    }
}
