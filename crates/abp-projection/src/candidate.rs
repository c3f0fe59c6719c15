//! Backends that could be chosen.

use std::collections::BTreeMap;
use std::path::Path;

use abp_core::CapabilityManifest;
use abp_dialect::Dialect;
use abp_glob::GlobList;
use abp_policy::Holders;

/// A backend that could be chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub backend: String,
    /// What it can do; `None` where that is only known once it is opened.
    pub manifest: Option<CapabilityManifest>,
    /// Who would hold the rules of the policy on it.
    pub holders: Holders,
    /// The operator's preference; higher is better.
    pub priority: u32,
    /// Whether it only demonstrates the way of an order. It is never chosen while a real backend can
    /// do the order.
    pub is_demonstration: bool,
    /// The model API behind it; `None` for agents, which bring their own.
    pub model: Option<ModelOffer>,
}

/// A model API: the dialects it is asked in, and the models it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelOffer {
    /// The dialects, the best first.
    pub dialects: Vec<Dialect>,
    /// The models; `None` where the operator lists none, and any may be asked for.
    pub served: Option<ServedModels>,
}

/// The models that an operator lists for an upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServedModels {
    /// Names and patterns of names.
    pub names: Vec<String>,
    /// Names that callers use, and what the vendor calls the model then.
    pub aliases: BTreeMap<String, String>,
}

impl ServedModels {
    /// Whether a model is served: by an alias, by the name that an alias stands for, or by a pattern.
    /// A pattern that cannot be compiled serves the model of exactly that name.
    #[must_use]
    pub fn serves(&self, model: &str) -> bool {
        let is_named = |name: &String| name == model;
        self.aliases.contains_key(model)
            || self.aliases.values().any(is_named)
            || self.names.iter().any(is_named)
            || GlobList::new(&self.names)
                .is_ok_and(|names| names.first_match(Path::new(model)).is_some())
    }

    /// The vendor's name for a model.
    #[must_use]
    pub fn vendor_name<'m>(&'m self, model: &'m str) -> &'m str {
        self.aliases.get(model).map_or(model, String::as_str)
    }

    /// The model of an order that names none: the first that is listed by its name.
    #[must_use]
    pub fn first_named(&self) -> Option<&str> {
        let mut names = self.names.iter().chain(self.aliases.keys());
        names
            .find(|name| !name.contains(['*', '?', '[', '{']))
            .map(String::as_str)
    }

    /// Everything that is listed, in words.
    #[must_use]
    pub fn describe(&self) -> String {
        let names: Vec<_> = self.names.iter().chain(self.aliases.keys()).collect();
        match names.as_slice() {
            [] => "no model".to_owned(),
            names => names
                .iter()
                .map(|name| name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        }
    }
}

impl ModelOffer {
    /// The dialect in which something of `source` is best said: its own where that is spoken.
    #[must_use]
    pub fn dialect_for(&self, source: Option<Dialect>) -> Option<Dialect> {
        let own = source.filter(|source| self.dialects.contains(source));
        own.or_else(|| self.dialects.first().copied())
    }
}

impl Candidate {
    /// Why the candidate cannot be asked for a model, where it cannot.
    pub(crate) fn model_problem(&self, model: Option<&str>) -> Option<String> {
        let served = self.model.as_ref()?.served.as_ref()?;
        let model = model.filter(|model| !served.serves(model))?;
        let listed = served.describe();
        Some(format!(
            "it does not serve the model {model:?}; the configuration lists {listed}"
        ))
    }
}
