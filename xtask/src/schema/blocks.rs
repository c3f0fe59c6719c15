//! The tables that are generated into documents.
//!
//! A new one is a line in [`BLOCKS`] and the function it names; the document gets the two markers.

use abp_control::ProbeEvidence;
use abp_core::{Capability, EmulationStrategy, SupportLevel};
use abp_dialect::Dialect;
use abp_mapping::{Feature, known_rules};
use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// The evidence of probed backends.
const EVIDENCE: &str = "crates/abp-agents/evidence";

/// One generated part of one document.
pub(super) struct Block {
    /// Relative to the root.
    pub(super) file: &'static str,
    /// The heading, should the document not exist yet.
    pub(super) title: &'static str,
    /// The name in the markers.
    pub(super) name: &'static str,
    pub(super) render: fn(&Workspace) -> Result<String>,
}

pub(super) const BLOCKS: &[Block] = &[
    Block {
        file: "crates/README.md",
        title: "Crates",
        name: "crates",
        render: crates,
    },
    Block {
        file: "docs/capabilities.md",
        title: "Capabilities",
        name: "capabilities",
        render: |_| Ok(capabilities()),
    },
    Block {
        file: "docs/capabilities.md",
        title: "Capabilities",
        name: "agents",
        render: agents,
    },
    Block {
        file: "docs/capability_negotiation.md",
        title: "Capability negotiation",
        name: "emulation",
        render: |_| Ok(emulation()),
    },
    Block {
        file: "docs/control_plane_http.md",
        title: "The control plane over HTTP",
        name: "routes",
        render: |_| Ok(routes()),
    },
    Block {
        file: "docs/error_codes.md",
        title: "Error codes",
        name: "errors",
        render: |_| errors(),
    },
    Block {
        file: "docs/translation.md",
        title: "Translation",
        name: "matrix",
        render: |_| Ok(matrix()),
    },
];

/// One row per capability, one column for each probed backend, from the evidence of `abp agents probe`.
fn agents(workspace: &Workspace) -> Result<String> {
    let mut probed: Vec<ProbeEvidence> = Vec::new();
    for entry in std::fs::read_dir(workspace.root.join(EVIDENCE))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        let evidence = serde_json::from_str(&text);
        probed.push(evidence.with_context(|| path.display().to_string())?);
    }
    probed.sort_by(|left, right| left.backend.cmp(&right.backend));
    let names: Vec<&str> = probed.iter().map(|one| one.backend.as_str()).collect();
    let mut table = Table::new(&[&["capability"], &names[..]].concat());
    let mut row = |name: &str, cells: Vec<String>| {
        let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
        table.row(&[&[name], &cells[..]].concat());
    };
    let version = |one: &ProbeEvidence| {
        let text = one.version.as_deref().unwrap_or("–");
        text.rsplit(' ').next().unwrap_or(text).to_owned()
    };
    row("version", probed.iter().map(version).collect());
    row("date", probed.iter().map(|one| one.date.clone()).collect());
    for capability in Capability::KNOWN.iter().map(Capability::as_str) {
        let cells: Vec<String> = probed.iter().map(|one| cell(one, capability)).collect();
        if cells.iter().any(|cell| cell != "–") {
            row(&format!("`{capability}`"), cells);
        }
    }
    Ok(table.0)
}

fn cell(evidence: &ProbeEvidence, capability: &str) -> String {
    let mut rows = evidence.capabilities.iter();
    let Some(row) = rows.find(|row| row.capability == capability) else {
        return "–".to_owned();
    };
    let is_claimed = row.claimed != SupportLevel::Unsupported;
    let word = match (is_claimed, row.shown) {
        (true, Some(true)) => "shown",
        (true, None) => "claimed",
        (true, Some(false)) => "claimed, not shown",
        (false, Some(true)) => "shown, not claimed",
        (false, _) => "–",
    };
    word.to_owned()
}

/// One row per control route, as the OpenAPI document has them.
fn routes() -> String {
    let document = super::sorted(abp_control_http::openapi_document());
    let mut table = Table::new(&["method", "path", "scope", "purpose"]);
    let paths = document.get("paths").and_then(serde_json::Value::as_object);
    for (path, methods) in paths.into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let text = |name: &str| {
                let value = operation.get(name).and_then(serde_json::Value::as_str);
                value.unwrap_or_default().to_owned()
            };
            table.row(&[
                &method.to_uppercase(),
                &format!("`{path}`"),
                &format!("`{}`", text("x-abp-scope")),
                &text("summary"),
            ]);
        }
    }
    table.0
}

/// One row per crate, the lowest layer first.
fn crates(workspace: &Workspace) -> Result<String> {
    let mut table = Table::new(&["layer", "crate", "what it does"]);
    for (name, layer) in workspace.layers.crates() {
        let mut members = workspace.metadata.members();
        let Some(package) = members.find(|package| package.name == name) else {
            continue;
        };
        let dir = workspace.relative(package.dir());
        let sources = ["src/lib.rs", "src/main.rs"].map(|path| format!("{dir}/{path}"));
        let mut found = sources.iter().filter_map(|path| workspace.file(path));
        let summary = found.next().map(|file| first_paragraph(&file.text));
        let summary = summary.filter(|summary| !summary.is_empty());
        let summary = summary.with_context(|| format!("{name} starts without a `//!` line"))?;
        table.row(&[layer.title(), &format!("`{name}`"), &summary]);
    }
    Ok(table.0)
}

/// Returns the first paragraph of a file's documentation on one line.
fn first_paragraph(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let lines: Vec<_> = lines
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    lines.join(" ")
}

/// One row for each feature and source, one column for each target.
fn matrix() -> String {
    let targets = Dialect::ALL.map(Dialect::as_str);
    let mut table = Table::new(&[&["feature", "from"][..], &targets[..]].concat());
    let rules = known_rules();
    for feature in Feature::ALL {
        for from in Dialect::ALL {
            let cells = Dialect::ALL.map(|to| match rules.lookup(from, to, feature) {
                None => ".",
                Some(rule) => rule.fidelity.symbol(),
            });
            if cells.iter().any(|cell| *cell != ".") {
                table.row(&[&[feature.as_str(), from.as_str()][..], &cells[..]].concat());
            }
        }
    }
    table.0
}

fn capabilities() -> String {
    let mut table = Table::new(&["capability", "wire name", "also accepted", "meaning"]);
    for capability in abp_core::Capability::KNOWN {
        let aliases = capability.aliases().iter();
        let aliases: Vec<_> = aliases.map(|alias| format!("`{alias}`")).collect();
        table.row(&[
            &format!("`{capability:?}`"),
            &format!("`{}`", capability.as_str()),
            &aliases.join(", "),
            capability.description(),
        ]);
    }
    table.0
}

fn emulation() -> String {
    let mut table = Table::new(&["capability", "default strategy", "detail"]);
    for capability in abp_core::Capability::KNOWN {
        let strategy = abp_emulation::default_strategy(capability);
        let (name, detail) = match &strategy {
            EmulationStrategy::SystemPromptInjection { prompt } => {
                ("system prompt injection", prompt)
            }
            EmulationStrategy::PostProcessing { detail } => ("post-processing", detail),
            EmulationStrategy::Disabled { reason } => ("disabled", reason),
        };
        table.row(&[&format!("`{}`", capability.as_str()), name, detail]);
    }
    table.0
}

fn errors() -> Result<String> {
    let mut table = Table::new(&["code", "category", "HTTP", "exit", "meaning", "what to do"]);
    for code in abp_error::ErrorCode::ALL {
        let category = serde_json::to_value(code.category())?;
        table.row(&[
            &format!("`{}`", code.as_str()),
            category.as_str().context("a category is a string")?,
            &code.http_status().to_string(),
            &code.exit_status().code().to_string(),
            code.explanation(),
            code.remedy(),
        ]);
    }
    Ok(table.0)
}

/// A Markdown table.
struct Table(String);

impl Table {
    fn new(columns: &[&str]) -> Self {
        let mut table = Self(String::new());
        table.row(columns);
        table.0.push_str(&"|---".repeat(columns.len()));
        table.0.push_str("|\n");
        table
    }

    fn row(&mut self, cells: &[&str]) {
        for cell in cells {
            self.0.push_str("| ");
            self.0.push_str(&cell.replace('|', "\\|"));
            self.0.push(' ');
        }
        self.0.push_str("|\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_described_by_its_first_paragraph() {
        let check = |source: &str, expected: &str| assert_eq!(first_paragraph(source), expected);
        check("//! One\n//! sentence.\n//!\n//! Two.\n", "One sentence.");
        check("//! One.\nuse x;\n//! no", "One.");
        check("use x;\n//! no", "");
    }

    #[test]
    fn a_bar_does_not_end_a_cell() {
        let mut table = Table::new(&["a", "b"]);
        table.row(&["x | y", ""]);
        assert_eq!(table.0, "| a | b |\n|---|---|\n| x \\| y |  |\n");
    }
}
