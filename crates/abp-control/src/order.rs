//! The one builder of orders, for every face of the control plane.

use abp_core::{PolicyProfile, WorkOrder, WorkOrderBuilder};
use abp_error::{AbpError, ErrorCode};

use crate::ControlPlane;
use crate::policy::{joined, usual_policy};

/// An order in the making: what the caller says, and which policy it wants.
#[derive(Debug, Clone)]
pub struct OrderDraft {
    order: WorkOrder,
    policy: PolicyChoice,
}

/// The policy a caller wants.
#[derive(Debug, Clone, Default)]
pub enum PolicyChoice {
    /// The default protections, and what the order itself says.
    #[default]
    Default,
    /// The default protections, and a profile besides.
    Also(PolicyProfile),
    /// A configured profile besides the default protections.
    Named(String),
    /// A profile instead of the default protections. The caller dropped them explicitly.
    Only(PolicyProfile),
    /// These protections for lack of others: the operator's default profile replaces them.
    Unless(PolicyProfile),
}

impl OrderDraft {
    /// A draft for a task.
    #[must_use]
    pub fn new(task: &str) -> Self {
        Self::of(WorkOrderBuilder::new(task).build())
    }

    /// A draft of an order that was written elsewhere. Its policy adds to the default protections.
    #[must_use]
    pub fn of(order: WorkOrder) -> Self {
        Self {
            order,
            policy: PolicyChoice::Default,
        }
    }

    /// Chooses the policy.
    #[must_use]
    pub fn policy(mut self, policy: PolicyChoice) -> Self {
        self.policy = policy;
        self
    }

    /// Changes anything else of the order.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut WorkOrder)) -> Self {
        change(&mut self.order);
        self
    }

    /// The order, under the policy that follows from the draft and the operator's configuration. The
    /// operator's restrictions hold whichever policy was chosen.
    ///
    /// # Errors
    /// Fails where a policy is named that is not configured.
    pub fn build(self, plane: &ControlPlane) -> Result<WorkOrder, AbpError> {
        let Self { mut order, policy } = self;
        let config = plane.config();
        let protections = || {
            let configured = plane.default_policy();
            configured.unwrap_or_else(|| usual_policy(&order))
        };
        let own = order.policy.clone();
        order.policy = match policy {
            PolicyChoice::Default => joined(protections(), own),
            PolicyChoice::Also(profile) => joined(joined(protections(), own), profile),
            PolicyChoice::Named(name) => {
                let named = config.policies.get(&name).cloned();
                let named = named.ok_or_else(|| unknown_policy(&name))?;
                joined(joined(protections(), own), named)
            }
            PolicyChoice::Only(profile) => joined(own, profile),
            PolicyChoice::Unless(profile) => joined(plane.default_policy().unwrap_or(profile), own),
        };
        config.restrictions.apply(&mut order.policy);
        Ok(order)
    }
}

fn unknown_policy(name: &str) -> AbpError {
    let message =
        format!("no policy is named {name:?}; name one of [policies] in the configuration");
    AbpError::new(ErrorCode::ValidationFailed, message)
}
