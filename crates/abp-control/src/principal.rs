//! Who asks: the identity behind a call, and what it may do.

use std::collections::BTreeSet;

use abp_error::{AbpError, ErrorCode};
use abp_store::KeyScope;

/// The identity that a call is made for. A principal sees its own runs and approvals; one with the scope
/// `admin` sees all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    id: Option<String>,
    name: String,
    via: &'static str,
    scopes: BTreeSet<KeyScope>,
}

impl Principal {
    /// The person whose state directory this is, at a command line of this machine. May do everything.
    #[must_use]
    pub fn local(name: &str) -> Self {
        Self {
            id: None,
            name: name.to_owned(),
            via: "cli",
            scopes: BTreeSet::from([KeyScope::Admin]),
        }
    }

    /// The holder of the server's own key. May do everything.
    #[must_use]
    pub fn operator() -> Self {
        Self {
            id: Some("operator".to_owned()),
            name: "operator".to_owned(),
            via: "http",
            scopes: BTreeSet::from([KeyScope::Admin]),
        }
    }

    /// The holder of an API key.
    #[must_use]
    pub fn key(id: &str, name: &str, scopes: impl IntoIterator<Item = KeyScope>) -> Self {
        Self {
            id: Some(id.to_owned()),
            name: name.to_owned(),
            via: "http",
            scopes: scopes.into_iter().collect(),
        }
    }

    /// The holder of a key that the gateway recognised.
    #[must_use]
    pub fn of_caller(caller: &abp_gateway::Principal) -> Self {
        match caller.is_operator {
            true => Self::operator(),
            false => Self::key(&caller.id, &caller.name, caller.scopes().iter().copied()),
        }
    }

    /// The same principal, coming another way, such as `mcp` or `acp`.
    #[must_use]
    pub fn via(mut self, via: &'static str) -> Self {
        self.via = via;
        self
    }

    /// The id that its runs are stored with; `None` for the local user.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Its name for people, as events and receipts say it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The way its calls come: `cli`, `http`.
    #[must_use]
    pub fn way(&self) -> &'static str {
        self.via
    }

    /// Whether it may do that.
    #[must_use]
    pub fn may(&self, scope: KeyScope) -> bool {
        self.scopes.contains(&scope) || self.is_admin()
    }

    /// Whether it may do everything, for every principal.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.scopes.contains(&KeyScope::Admin)
    }

    /// Refuses what the principal may not do.
    ///
    /// # Errors
    /// Names the scope that is missing.
    pub fn require(&self, scope: KeyScope) -> Result<(), AbpError> {
        if self.may(scope) {
            return Ok(());
        }
        let message = format!("the key {:?} does not have the scope `{scope}`", self.name);
        Err(AbpError::new(ErrorCode::PolicyDenied, message).with_context("scope", scope.as_str()))
    }

    /// Whether a run or approval of that principal is one it may see.
    #[must_use]
    pub fn may_see(&self, owner: Option<&str>) -> bool {
        self.is_admin() || (owner.is_some() && owner == self.id())
    }

    /// An idempotency key as it is stored: two principals may choose the same.
    pub(crate) fn own_key(&self, key: &str) -> String {
        match &self.id {
            Some(id) => format!("{id}\u{1f}{key}"),
            None => key.to_owned(),
        }
    }

    /// The principal whose runs it sees; `None` where it sees all.
    pub(crate) fn visible(&self) -> Option<String> {
        match self.is_admin() {
            true => None,
            // An id that no run is stored with.
            false => Some(self.id.clone().unwrap_or_default()),
        }
    }
}
