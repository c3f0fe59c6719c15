//! Reads `xtask/layers.toml`: where each crate sits, and every exception with its reason.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// A storey of the architecture; dependencies point to a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// No crate of ours below, no contact with the world.
    Leaf,
    /// No crate of ours below, but files or processes.
    LeafEffects,
    /// The types everybody compiles against.
    Contract,
    /// Functions on values.
    Pure,
    /// Files, processes, network, databases.
    Effects,
    /// The supervisor of runs.
    Orchestration,
    /// What users start or link.
    Edges,
    /// Tests and repository tasks; no other layer may depend on it.
    Dev,
}

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Layers {
    /// `[from, to, reason]`: edges inside one layer.
    sideways: Vec<[String; 3]>,
    layers: Members,
    pub(crate) purity: Purity,
    pub(crate) names: Names,
    #[serde(default)]
    pub(crate) exception: Vec<Exception>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Members {
    leaf: Vec<String>,
    leaf_effects: Vec<String>,
    contract: Vec<String>,
    pure: Vec<String>,
    effects: Vec<String>,
    orchestration: Vec<String>,
    edges: Vec<String>,
    dev: Vec<String>,
}

/// What the pure layers may not reach.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Purity {
    /// Packages that bring an event loop, sockets or a database, directly or through another.
    pub(crate) banned_dependencies: Vec<String>,
}

/// Type names that several crates define on purpose.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Names {
    /// `[name, reason]`
    pub(crate) shared: Vec<[String; 2]>,
    /// `[module, reason]`: modules whose types are named by somebody else.
    pub(crate) foreign_modules: Vec<[String; 2]>,
}

/// One finding that is accepted, and why.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exception {
    pub(crate) rule: String,
    pub(crate) file: String,
    /// Part of the finding's message, so that one exception does not cover the next finding.
    pub(crate) text: String,
    pub(crate) reason: String,
}

impl Layer {
    /// Bottom first.
    pub(crate) const ALL: [Self; 8] = [
        Self::Leaf,
        Self::LeafEffects,
        Self::Contract,
        Self::Pure,
        Self::Effects,
        Self::Orchestration,
        Self::Edges,
        Self::Dev,
    ];

    /// Returns the height; both kinds of leaf stand on the ground.
    pub(crate) fn level(self) -> u8 {
        match self {
            Self::Leaf | Self::LeafEffects => 0,
            Self::Contract => 1,
            Self::Pure => 2,
            Self::Effects => 3,
            Self::Orchestration => 4,
            Self::Edges => 5,
            Self::Dev => 6,
        }
    }

    /// Says whether code on this layer may neither do I/O nor read a clock.
    pub(crate) fn is_pure(self) -> bool {
        match self {
            Self::Leaf | Self::Contract | Self::Pure => true,
            Self::LeafEffects | Self::Effects | Self::Orchestration | Self::Edges | Self::Dev => {
                false
            }
        }
    }

    /// Returns the name for people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Leaf => "0 leaf",
            Self::LeafEffects => "0 leaf (effects)",
            Self::Contract => "1 contract",
            Self::Pure => "2 pure",
            Self::Effects => "3 effects",
            Self::Orchestration => "4 orchestration",
            Self::Edges => "5 edges",
            Self::Dev => "dev",
        }
    }
}

impl Layers {
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        let layers: Self = toml::from_str(text)?;
        let mut seen = Vec::new();
        for (name, _) in layers.crates() {
            ensure!(!seen.contains(&name), "{name} is listed on two layers");
            seen.push(name);
        }
        Ok(layers)
    }

    /// Returns every listed crate with its layer, bottom first.
    pub(crate) fn crates(&self) -> impl Iterator<Item = (&str, Layer)> {
        Layer::ALL.into_iter().flat_map(|layer| {
            let members = self.layers.on(layer).iter();
            members.map(move |name| (name.as_str(), layer))
        })
    }

    /// Returns the layer of `name`, if it is listed.
    pub(crate) fn of(&self, name: &str) -> Option<Layer> {
        self.crates()
            .find_map(|(listed, layer)| (listed == name).then_some(layer))
    }

    /// Returns the allowed edges inside a layer.
    pub(crate) fn sideways(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sideways
            .iter()
            .map(|[from, to, _reason]| (from.as_str(), to.as_str()))
    }
}

impl Members {
    fn on(&self, layer: Layer) -> &[String] {
        match layer {
            Layer::Leaf => &self.leaf,
            Layer::LeafEffects => &self.leaf_effects,
            Layer::Contract => &self.contract,
            Layer::Pure => &self.pure,
            Layer::Effects => &self.effects,
            Layer::Orchestration => &self.orchestration,
            Layer::Edges => &self.edges,
            Layer::Dev => &self.dev,
        }
    }
}
