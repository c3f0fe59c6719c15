//! Tools that change after they were looked at.
//!
//! A server can describe a tool harmlessly until it is trusted, and otherwise afterwards. Prints of all
//! tools, taken before and after, tell what changed.

use std::collections::BTreeMap;

use abp_json::View;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::digest;

/// A part of a tool's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolPart {
    /// What it is said to do.
    Description,
    /// What it takes.
    InputSchema,
    /// What it gives.
    OutputSchema,
    /// Hints: whether it only reads, destroys, may be repeated.
    Annotations,
    /// Anything else.
    Other,
}

/// The digests of a list of tools, each part by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolPrints(BTreeMap<String, BTreeMap<ToolPart, [u8; 32]>>);

/// What is different between two lists of tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drift {
    /// Tools that are new.
    pub added: Vec<String>,
    /// Tools that are gone.
    pub removed: Vec<String>,
    /// Tools that are described otherwise.
    pub changed: Vec<ToolChange>,
}

/// A tool that is described otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToolChange {
    /// The tool.
    pub name: String,
    /// What of its description changed.
    pub parts: Vec<ToolPart>,
}

impl ToolPrints {
    /// Adds the tools of a result of `tools/list`, which may be one page of several. A tool without a
    /// name cannot be called and is passed over.
    pub fn add(&mut self, result: View<'_>) {
        let tools = result.get("tools").into_iter().flat_map(View::items);
        for tool in tools {
            if let Some(name) = tool.get("name").and_then(View::as_str) {
                self.0.insert(name.into_owned(), prints(tool));
            }
        }
    }

    /// What is different in a later list.
    #[must_use]
    pub fn drift(&self, later: &Self) -> Drift {
        let missing_in = |one: &Self, other: &Self| {
            let names = one.0.keys().filter(|name| !other.0.contains_key(*name));
            names.cloned().collect()
        };
        let changed = self.0.iter().filter_map(|(name, before)| {
            let after = later.0.get(name)?;
            let parts = ToolPart::ALL
                .into_iter()
                .filter(|part| before.get(part) != after.get(part));
            let parts: Vec<_> = parts.collect();
            (!parts.is_empty()).then(|| ToolChange {
                name: name.clone(),
                parts,
            })
        });
        Drift {
            added: missing_in(later, self),
            removed: missing_in(self, later),
            changed: changed.collect(),
        }
    }
}

impl Drift {
    /// Whether nothing is different.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

impl ToolPart {
    const ALL: [Self; 5] = [
        Self::Description,
        Self::InputSchema,
        Self::OutputSchema,
        Self::Annotations,
        Self::Other,
    ];

    fn of(key: &str) -> Self {
        match key {
            "description" => Self::Description,
            "inputSchema" => Self::InputSchema,
            "outputSchema" => Self::OutputSchema,
            "annotations" => Self::Annotations,
            _ => Self::Other,
        }
    }
}

fn prints(tool: View<'_>) -> BTreeMap<ToolPart, [u8; 32]> {
    let mut hashes: BTreeMap<ToolPart, Sha256> = BTreeMap::new();
    for (key, value) in digest::members(tool) {
        let hash = hashes.entry(ToolPart::of(&key)).or_default();
        digest::add(hash, &[key.as_bytes(), &value]);
    }
    let prints = hashes.into_iter();
    prints
        .map(|(part, hash)| (part, hash.finalize().into()))
        .collect()
}
