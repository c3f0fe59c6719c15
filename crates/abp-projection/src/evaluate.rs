//! How each requirement would be provided by one backend.

use abp_capability::{SupportLevel, check_capability};
use abp_core::{
    Capability, CapabilityManifest, CapabilityRequirement, CapabilityRequirements,
    EmulationStrategy, EnforcementLevel, MinSupport,
};
use abp_emulation::EmulationEngine;
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

    /// One line for each demand.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<_> = self
            .provisions
            .iter()
            .map(|(requirement, provision)| {
                format!("{}: {}", requirement.capability, describe(provision))
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
                    Some(format!("{}: {reason}", requirement.capability))
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
            reason: format!("required native, the backend offers it emulated ({strategy})"),
        },
        (SupportLevel::Unsupported, MinSupport::Any) => Provision::Waived,
        (SupportLevel::Unsupported, MinSupport::Native) => Provision::Refused {
            reason: "required native, the backend does not offer it".to_owned(),
        },
        (SupportLevel::Unsupported, MinSupport::Emulated) if !may_emulate => Provision::Refused {
            reason: "the backend does not offer it, and passthrough adds nothing".to_owned(),
        },
        (SupportLevel::Unsupported, MinSupport::Emulated) => match engine
            .strategy(&requirement.capability)
        {
            EmulationStrategy::Disabled { reason } => Provision::Refused {
                reason: format!("the backend does not offer it, and it is not emulated: {reason}"),
            },
            strategy => Provision::ByEmulation(strategy),
        },
    }
}

fn describe(provision: &Provision) -> String {
    match provision {
        Provision::Native => "native".to_owned(),
        Provision::ByBackend { strategy } => format!("emulated by the backend ({strategy})"),
        Provision::ByEmulation(EmulationStrategy::SystemPromptInjection { .. }) => {
            "emulated by ABP (system prompt)".to_owned()
        }
        Provision::ByEmulation(EmulationStrategy::PostProcessing { detail }) => {
            format!("emulated by ABP ({detail})")
        }
        Provision::ByEmulation(EmulationStrategy::Disabled { reason })
        | Provision::Refused { reason } => {
            format!("refused: {reason}")
        }
        Provision::Waived => "not offered, and not insisted on".to_owned(),
    }
}

fn enforcer(level: EnforcementLevel) -> &'static str {
    match level {
        EnforcementLevel::None => "nothing",
        EnforcementLevel::Advisory => "nobody (advisory)",
        EnforcementLevel::Host => "the host",
        EnforcementLevel::Kernel => "the kernel",
    }
}
