//! Links between documents resolve, and the architecture stays short enough to be read.

use std::path::Path;

use super::Finding;
use crate::workspace::Workspace;

const ARCHITECTURE: &str = "docs/architecture.md";
const MAX_ARCHITECTURE_LINES: usize = 500;

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &workspace.files {
        if !is_document(&file.path) {
            continue;
        }
        let dir = Path::new(&file.path).parent().unwrap_or(Path::new(""));
        for (line, target) in links(&file.text) {
            if !resolves(&workspace.root, dir, &target) {
                let message = format!("the link to `{target}` leads nowhere in this repository");
                findings.push(Finding::at(&file.path, line, message));
            }
        }
        let lines = file.text.lines().count();
        if file.path == ARCHITECTURE && lines > MAX_ARCHITECTURE_LINES {
            let message = format!("{lines} lines, at most {MAX_ARCHITECTURE_LINES}: shorten it");
            findings.push(Finding::in_file(&file.path, message));
        }
    }
    findings
}

fn is_document(path: &str) -> bool {
    let named = [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "crates/README.md",
    ];
    named.contains(&path) || (path.starts_with("docs/") && path.ends_with(".md"))
}

fn resolves(root: &Path, dir: &Path, target: &str) -> bool {
    let path = match target.strip_prefix('/') {
        Some(from_root) => root.join(from_root),
        None => root.join(dir).join(target),
    };
    // A link out of the repository works only on the machine it was written on.
    match (path.canonicalize(), root.canonicalize()) {
        (Ok(path), Ok(root)) => path.starts_with(root),
        _ => false,
    }
}

/// Returns the relative link targets with their lines, without their fragments.
fn links(markdown: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut fenced = false;
    for (index, line) in markdown.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        let line = without_code_spans(line);
        let inline = line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', ' ']).next());
        let defined = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "))
            .and_then(|(_, target)| target.split_whitespace().next());
        let targets = inline.chain(defined).filter_map(relative_target);
        links.extend(targets.map(|target| (index + 1, target)));
    }
    links
}

fn relative_target(target: &str) -> Option<String> {
    let target = target.trim_matches(['<', '>']);
    let path = target.split(['#', '?']).next()?;
    let is_external = path.contains("://") || path.starts_with("mailto:");
    (!path.is_empty() && !is_external).then(|| path.to_owned())
}

fn without_code_spans(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_where_they_are_links() {
        let check = |markdown: &str, expected: &[(usize, &str)]| {
            let found = links(markdown);
            let found: Vec<_> = found
                .iter()
                .map(|(line, to)| (*line, to.as_str()))
                .collect();
            assert_eq!(found, expected, "{markdown}");
        };
        check(
            "see [a](docs/a.md) and [b](b.md#part)",
            &[(1, "docs/a.md"), (1, "b.md")],
        );
        check("\n![i](i.png \"title\")", &[(2, "i.png")]);
        check("[a]: docs/a.md", &[(1, "docs/a.md")]);
        check("[x](https://example.org/x) [y](#here) [z](mailto:a@b)", &[]);
        check("`[a](b.md)` and `v[0](1)`", &[]);
        check("[`Type`](type.md)", &[(1, "type.md")]);
        check("```\n[a](b.md)\n```\n[c](d.md)", &[(4, "d.md")]);
    }

    #[test]
    fn links_stay_inside() {
        let root = crate::workspace::root().expect("root");
        let check = |dir: &str, target: &str, expected: bool| {
            let found = resolves(&root, Path::new(dir), target);
            assert_eq!(found, expected, "{target} from {dir}");
        };
        check("", "Cargo.toml", true);
        check("xtask", "../Cargo.toml", true);
        check("xtask", "src", true);
        check("xtask", "/Cargo.toml", true);
        check("", "no-such-file.md", false);
        check("", "..", false);
    }
}
