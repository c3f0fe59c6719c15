//! How each requirement would be provided by one backend.

use std::collections::BTreeSet;

use abp_capability::{
    CompatibilityReport, NegotiationResult, SupportLevel, check_capability, generate_report,
};
use abp_core::{
    Capability, CapabilityManifest, CapabilityRequirement, CapabilityRequirements,
    EmulationStrategy, EnforcementLevel, MinSupport,
};
use abp_dialect::Dialect;
use abp_emulation::{EmulationEngine, can_emulate};
use abp_mapping::Feature;
use abp_policy::{Holders, PolicyList};

/// Everything a backend is measured against.
#[derive(Debug, Clone, PartialEq)]
pub struct Demands {
    /// The capabilities.
    pub requirements: CapabilityRequirements,
    /// The weakest enforcement that is accepted for any rule of the policy.
    pub min_enforcement: EnforcementLevel,
    /// The lists of the policy that hold rules.
    pub lists: Vec<PolicyList>,
    /// Whether ABP may change the conversation to emulate something; not in passthrough.
    pub may_emulate: bool,
    /// The model that is asked for, as the order or the vendor's request names it.
    pub model: Option<String>,
    /// What is carried to a model in some vendor's terms: the request of the order, or the order's own
    /// words for a model whose vendor is known.
    pub request: Option<SourceRequest>,
}

/// A request in a vendor's terms, as far as it matters for the choice of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRequest {
    /// Its dialect: of a vendor's request, or of the vendor of the model that is asked for.
    pub dialect: Dialect,
    /// Whether the order carries a vendor's request; otherwise only its model's vendor is known.
    pub is_vendor_request: bool,
    /// The features it uses.
    pub features: BTreeSet<Feature>,
}

/// How one requirement is provided.
#[derive(Debug, Clone, PartialEq)]
pub enum Provision {
    /// By the backend, natively.
    Native,
    /// By the backend, emulated or restricted.
    ByBackend {
        /// How.
        strategy: String,
    },
    /// By ABP's own emulation.
    ByEmulation(EmulationStrategy),
    /// Not at all, which the requirement (`any`) accepts.
    Waived,
    /// Not at all.
    Refused {
        /// Why.
        reason: String,
    },
}

/// How one backend answers all demands.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// Each requirement with its provision.
    pub provisions: Vec<(CapabilityRequirement, Provision)>,
    /// Why the backend's enforcement of the policy is too weak, where it is.
    pub enforcement_problem: Option<String>,
}

impl Evaluation {
    /// Evaluates a manifest.
    #[must_use]
    pub fn new(
        demands: &Demands,
        manifest: &CapabilityManifest,
        holders: &Holders,
        engine: &EmulationEngine,
    ) -> Self {
        let provide = |requirement: &CapabilityRequirement| {
            (
                requirement.clone(),
                provide(requirement, manifest, engine, demands.may_emulate),
            )
        };
        Self {
            provisions: demands.requirements.required.iter().map(provide).collect(),
            enforcement_problem: enforcement_problem(holders, demands),
        }
    }

    /// Whether the backend can do everything.
    #[must_use]
    pub fn is_eligible(&self) -> bool {
        self.enforcement_problem.is_none()
            && !self
                .provisions
                .iter()
                .any(|(_, provision)| matches!(provision, Provision::Refused { .. }))
    }

    /// The capabilities ABP is to emulate.
    #[must_use]
    pub fn required_emulations(&self) -> Vec<Capability> {
        self.provisions
            .iter()
            .filter(|(_, provision)| matches!(provision, Provision::ByEmulation(_)))
            .map(|(requirement, _)| requirement.capability.clone())
            .collect()
    }

    /// What the requirements come to on this backend, with ABP's own emulations counted in. Wishes
    /// (`any`) that are not provided are left out: they stand in no backend's way.
    #[must_use]
    pub fn compatibility(&self) -> CompatibilityReport {
        let mut provided = NegotiationResult::default();
        let mut strategies = Vec::new();
        for (requirement, provision) in &self.provisions {
            let capability = requirement.capability.clone();
            match provision {
                Provision::Native => provided.native.push(capability),
                Provision::ByBackend { strategy } => {
                    provided.emulatable.push(capability);
                    strategies.push(strategy.clone());
                }
                Provision::ByEmulation(strategy) => {
                    provided.emulatable.push(capability);
                    strategies.push(name_strategy(strategy));
                }
                Provision::Refused { .. } => provided.unsupported.push(capability),
                Provision::Waived => {}
            }
        }
        let mut report = generate_report(&provided);
        // The report of a negotiation alone knows no strategies.
        let emulated = report.details.iter_mut();
        let emulated = emulated.filter_map(|(_, level)| match level {
            SupportLevel::Emulated { strategy } => Some(strategy),
            SupportLevel::Native | SupportLevel::Unsupported => None,
        });
        for (named, strategy) in emulated.zip(strategies) {
            *named = strategy;
        }
        report
    }

    /// A sentence for each demand.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<_> = self
            .provisions
            .iter()
            .map(|(requirement, provision)| {
                format!("{} {}", requirement.capability, describe(provision))
            })
            .collect();
        reasons.extend(self.enforcement_problem.clone());
        reasons
    }

    /// The lines for what stands in the way.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        let refused =
            |(requirement, provision): &(CapabilityRequirement, Provision)| match provision {
                Provision::Refused { reason } => {
                    Some(format!("{} {reason}", requirement.capability))
                }
                Provision::Native
                | Provision::ByBackend { .. }
                | Provision::ByEmulation(_)
                | Provision::Waived => None,
            };
        self.provisions
            .iter()
            .filter_map(refused)
            .chain(self.enforcement_problem.clone())
            .collect()
    }
}

/// Names every list whose rules would be held less strongly than the order demands.
pub(crate) fn enforcement_problem(holders: &Holders, demands: &Demands) -> Option<String> {
    let demanded = demands.min_enforcement;
    let weak = demands.lists.iter().filter_map(|&list| {
        let offered = holders.of(list).level;
        (offered < demanded).then(|| format!("{list} would be enforced by {}", enforcer(offered)))
    });
    let weak: Vec<_> = weak.collect();
    (!weak.is_empty()).then(|| {
        format!(
            "{}, the order demands {}",
            weak.join(", "),
            enforcer(demanded)
        )
    })
}

fn provide(
    requirement: &CapabilityRequirement,
    manifest: &CapabilityManifest,
    engine: &EmulationEngine,
    may_emulate: bool,
) -> Provision {
    match (
        check_capability(manifest, &requirement.capability),
        requirement.min_support,
    ) {
        (SupportLevel::Native, _) => Provision::Native,
        (SupportLevel::Emulated { strategy }, MinSupport::Emulated | MinSupport::Any) => {
            Provision::ByBackend { strategy }
        }
        (SupportLevel::Emulated { strategy }, MinSupport::Native) => Provision::Refused {
            reason: format!("is required native, and the backend offers it emulated ({strategy})"),
        },
        (SupportLevel::Unsupported, MinSupport::Any) => Provision::Waived,
        (SupportLevel::Unsupported, MinSupport::Native) => Provision::Refused {
            reason: "is required native, and the backend does not offer it".to_owned(),
        },
        (SupportLevel::Unsupported, MinSupport::Emulated) if !may_emulate => Provision::Refused {
            reason: "is not offered by the backend, and passthrough adds nothing".to_owned(),
        },
        (SupportLevel::Unsupported, MinSupport::Emulated) => {
            match engine.strategy(&requirement.capability) {
                EmulationStrategy::Disabled { reason } => Provision::Refused {
                    reason: if can_emulate(&requirement.capability) {
                        format!(
                            "is not offered by the backend, and its emulation is switched off: {reason}"
                        )
                    } else {
                        format!("is not offered by the backend and not emulated: {reason}")
                    },
                },
                strategy => Provision::ByEmulation(strategy),
            }
        }
    }
}

fn describe(provision: &Provision) -> String {
    match provision {
        Provision::Native => "is native".to_owned(),
        Provision::ByBackend { strategy } => format!("is emulated by the backend ({strategy})"),
        Provision::ByEmulation(EmulationStrategy::Disabled { reason })
        | Provision::Refused { reason } => reason.clone(),
        Provision::ByEmulation(strategy) => {
            format!("is emulated by {}", name_strategy(strategy))
        }
        Provision::Waived => "is not offered, and the order does not insist on it".to_owned(),
    }
}

fn name_strategy(strategy: &EmulationStrategy) -> String {
    match strategy {
        EmulationStrategy::SystemPromptInjection { .. } => "ABP (system prompt)".to_owned(),
        EmulationStrategy::PostProcessing { detail } => format!("ABP ({detail})"),
        EmulationStrategy::Disabled { reason } => reason.clone(),
    }
}

fn enforcer(level: EnforcementLevel) -> &'static str {
    match level {
        EnforcementLevel::None => "nothing",
        EnforcementLevel::Advisory => "observation alone (advisory)",
        EnforcementLevel::Host => "the host",
        EnforcementLevel::Kernel => "the kernel",
    }
}
