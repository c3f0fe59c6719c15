//! Callers: the principal of the gateway, which a key was recognised as, and that of the control plane,
//! which says what it may do.

use std::sync::Arc;

use abp_control::Principal;
use abp_gateway::Refusal;
use abp_store::KeyScope;

/// The principal behind a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    key: Arc<abp_gateway::Principal>,
    principal: Principal,
}

impl Caller {
    pub(crate) fn new(key: Arc<abp_gateway::Principal>) -> Self {
        let principal = Principal::of_caller(&key);
        Self { key, principal }
    }

    /// The principal as the control plane knows it.
    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The principal as the gateway knows it.
    pub(crate) fn key(&self) -> &abp_gateway::Principal {
        &self.key
    }

    /// The name under which runs and exchanges are recorded.
    pub(crate) fn id(&self) -> &str {
        &self.key.id
    }

    /// Whether it sees and decides about the runs of every principal.
    pub(crate) fn is_admin(&self) -> bool {
        self.principal.is_admin()
    }

    /// Refuses a caller whose key lacks a scope.
    pub(crate) fn require(&self, scope: KeyScope) -> Result<(), Refusal> {
        Ok(self.principal.require(scope)?)
    }

    /// Whether something recorded under that principal is the caller's to see.
    pub(crate) fn owns(&self, principal: &str) -> bool {
        self.principal.may_see(Some(principal))
    }
}
