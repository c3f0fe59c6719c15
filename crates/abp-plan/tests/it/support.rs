//! Backends to plan for.

use std::collections::BTreeMap;

use abp_core::{Capability, CapabilityManifest, SupportLevel, WorkOrder, WorkOrderBuilder};
use abp_dialect::{Dialect, TargetProfile};
use abp_plan::{Candidate, ModelOffer, ModelTarget, PlanSettings, ServedModels};
use abp_policy::Holders;
use serde_json::Value;

pub(crate) fn manifest(native: &[Capability]) -> CapabilityManifest {
    let native = native.iter().cloned();
    native
        .map(|capability| (capability, SupportLevel::Native))
        .collect()
}

/// A real model API of a dialect.
pub(crate) fn upstream(name: &str, dialect: Dialect, native: &[Capability]) -> Candidate {
    Candidate {
        backend: name.to_owned(),
        manifest: Some(manifest(native)),
        holders: Holders::NONE,
        priority: 0,
        is_demonstration: false,
        model: Some(ModelOffer {
            dialects: vec![dialect],
            served: None,
        }),
    }
}

pub(crate) fn serving(candidate: Candidate, names: &[&str], aliases: &[(&str, &str)]) -> Candidate {
    let text = |name: &&str| (*name).to_owned();
    let served = ServedModels {
        names: names.iter().map(text).collect(),
        aliases: aliases.iter().map(|(a, b)| (text(a), text(b))).collect(),
    };
    Candidate {
        model: candidate.model.map(|offer| ModelOffer {
            served: Some(served),
            ..offer
        }),
        ..candidate
    }
}

/// Settings under which every candidate that is a model API is asked as one.
pub(crate) fn settings(candidates: &[Candidate]) -> PlanSettings {
    let targets = candidates.iter().filter_map(|candidate| {
        let dialect = *candidate.model.as_ref()?.dialects.first()?;
        let target = ModelTarget {
            dialect,
            profile: TargetProfile::default(),
        };
        Some((candidate.backend.clone(), target))
    });
    PlanSettings {
        models: targets.collect(),
        ..PlanSettings::default()
    }
}

pub(crate) fn order(model: Option<&str>, abp: &Value) -> WorkOrder {
    let mut order = WorkOrderBuilder::new("answer").build();
    order.config.model = model.map(str::to_owned);
    order.config.vendor = BTreeMap::from([("abp".to_owned(), abp.clone())]);
    order
}
