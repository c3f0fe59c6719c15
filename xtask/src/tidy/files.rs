//! Files stay readable in one sitting, and their names say what is in them.

use super::Finding;
use crate::workspace::{TextFile, Workspace};

const MAX_LINES: usize = 800;
const MAX_LIB_LINES: usize = 150;

/// Names that say "whatever did not fit elsewhere".
const VAGUE: &[&str] = &["misc", "util", "utils", "helpers", "common"];

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let paths = workspace.files.iter().map(|file| file.path.as_str());
    let mut findings: Vec<_> = paths.filter_map(bad_name).collect();
    for (file, source) in workspace.rust_files() {
        let (product, tests) = source.line_counts();
        findings.extend(too_long(file, product, tests));
        if !file.text.starts_with("//!") {
            let message = "start the file with a `//!` line that says what it is for";
            findings.push(Finding::at(&file.path, 1, message));
        }
    }
    findings
}

fn bad_name(path: &str) -> Option<Finding> {
    let vague = path.split('/').find(|part| {
        let stem = part.split('.').next().unwrap_or_default();
        VAGUE.contains(&stem) || stem.starts_with("comprehensive")
    });
    if let Some(part) = vague {
        let message = format!("`{part}` says nothing: name it after its content");
        return Some(Finding::in_file(path, message));
    }
    let dir = path.strip_suffix("/mod.rs")?;
    let below_tests = dir.rsplit('/').nth(1) == Some("tests");
    let message = "use `name.rs` beside `name/` instead of `mod.rs`";
    (!below_tests).then(|| Finding::in_file(path, message))
}

fn too_long(file: &TextFile, product: usize, tests: usize) -> Option<Finding> {
    let (lines, max) = if file.path.ends_with("/src/lib.rs") {
        (product, MAX_LIB_LINES)
    } else if product == 0 {
        (tests, MAX_LINES)
    } else {
        (product, MAX_LINES)
    };
    (lines > max).then(|| {
        let message = format!("{lines} lines, at most {max}: move a part into a module of its own");
        Finding::in_file(&file.path, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let check = |path: &str, fine: bool| {
            assert_eq!(bad_name(path).is_none(), fine, "{path}");
        };
        check("crates/a/src/lib.rs", true);
        check("crates/a/src/utils.rs", false);
        check("crates/a/src/utils/text.rs", false);
        check("crates/a/tests/it/comprehensive_tests.rs", false);
        check("crates/a/src/commonmark.rs", true);
        check("crates/a/src/codec/mod.rs", false);
        check("crates/a/tests/peer/mod.rs", true);
        check("hosts/lib/common.js", false);
    }

    #[test]
    fn lengths() {
        let check = |path: &str, product: usize, tests: usize, fine: bool| {
            let file = TextFile::new(path.to_owned(), String::new());
            let found = too_long(&file, product, tests);
            assert_eq!(found.is_none(), fine, "{path} {product} {tests}");
        };
        check("crates/a/src/b.rs", 800, 5000, true);
        check("crates/a/src/b.rs", 801, 0, false);
        check("crates/a/src/lib.rs", 151, 0, false);
        check("crates/a/src/lib.rs", 150, 60, true);
        check("crates/a/tests/it/b.rs", 0, 801, false);
    }
}
