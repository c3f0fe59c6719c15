//! Who holds the rules of a policy.
//!
//! Enforcement is a property of a rule in one session: the same `deny_write` is held by the host's
//! verification on a staged copy and by nothing in place. A [`Holders`] says it for every kind of rule;
//! the layers of a run each bring one, and [`Holders::or_stronger`] joins them.

use abp_core::{EnforcementLevel, PolicyProfile, WorkspaceMode};
use serde::Serialize;

use crate::PolicyList;

/// The mechanism that holds rules of one kind, and how strong it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// How strong the mechanism is.
    pub level: EnforcementLevel,
    /// The mechanism, as receipts name it; empty where there is none.
    pub by: &'static str,
}

/// The holder of each kind of rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Holders {
    /// `allowed_tools` and `disallowed_tools`.
    pub tools: Holder,
    /// `require_approval_for`.
    pub approvals: Holder,
    /// `deny_read`.
    pub reads: Holder,
    /// `deny_write`.
    pub writes: Holder,
    /// `allow_network` and `deny_network`.
    pub network: Holder,
}

impl Holder {
    /// Nothing evaluates the rule.
    pub const NONE: Self = Self {
        level: EnforcementLevel::None,
        by: "",
    };

    /// The backend says what it did, and a breach ends the run.
    pub const ANNOUNCED: Self = Self {
        level: EnforcementLevel::Advisory,
        by: "announced actions",
    };

    /// A mount that no process of the sandbox can change.
    pub const MOUNTED: Self = Self::kernel("mount namespace");

    /// The agent asks first, and the host answers.
    pub const ASKED: Self = Self::host("permission request");

    /// A mechanism of the host.
    #[must_use]
    pub const fn host(by: &'static str) -> Self {
        Self {
            level: EnforcementLevel::Host,
            by,
        }
    }

    /// A mechanism of the kernel.
    #[must_use]
    pub const fn kernel(by: &'static str) -> Self {
        Self {
            level: EnforcementLevel::Kernel,
            by,
        }
    }

    fn or_stronger(self, other: Self) -> Self {
        if other.level > self.level {
            other
        } else {
            self
        }
    }
}

impl Holders {
    /// Nothing holds any rule.
    pub const NONE: Self = Self {
        tools: Holder::NONE,
        approvals: Holder::NONE,
        reads: Holder::NONE,
        writes: Holder::NONE,
        network: Holder::NONE,
    };

    /// An agent with tools of its own that says what it did.
    pub const ANNOUNCED: Self = Self {
        tools: Holder::ANNOUNCED,
        approvals: Holder::ANNOUNCED,
        reads: Holder::ANNOUNCED,
        writes: Holder::ANNOUNCED,
        // A request that was announced has been made; one that was not is unknown.
        network: Holder::NONE,
    };

    /// An agent that asks before each use of one of its own tools and obeys the answer.
    pub const ASKED: Self = Self {
        tools: Holder::host("permission request"),
        approvals: Holder::host("permission request"),
        ..Self::ANNOUNCED
    };

    /// A backend that has no tools but those of the host, which ask the gate first.
    pub const HOST_TOOLS: Self = Self {
        tools: Holder::host("tool proxy"),
        approvals: Holder::host("tool proxy"),
        reads: Holder::host("tool proxy"),
        writes: Holder::host("tool proxy"),
        network: Holder::NONE,
    };

    /// What the host's own handling of the workspace holds, whatever the backend does.
    #[must_use]
    pub const fn of_workspace(mode: WorkspaceMode) -> Self {
        match mode {
            WorkspaceMode::Staged => Self {
                reads: Holder::host("not staged"),
                writes: Holder::host("verification"),
                ..Self::NONE
            },
            // In place a breach is found when it has happened, and not everywhere: repositories, ignored
            // directories and targets of links are not looked into.
            WorkspaceMode::PassThrough => Self {
                writes: Holder {
                    level: EnforcementLevel::Advisory,
                    by: "verification of files that are not ignored",
                },
                ..Self::NONE
            },
        }
    }

    /// The holder of a list's rules.
    #[must_use]
    pub const fn of(&self, list: PolicyList) -> Holder {
        match list {
            PolicyList::AllowedTools | PolicyList::DisallowedTools => self.tools,
            PolicyList::RequireApprovalFor => self.approvals,
            PolicyList::DenyRead => self.reads,
            PolicyList::DenyWrite => self.writes,
            PolicyList::AllowNetwork | PolicyList::DenyNetwork => self.network,
        }
    }

    /// Two layers together: the stronger holder of each kind.
    #[must_use]
    pub fn or_stronger(self, other: Self) -> Self {
        Self {
            tools: self.tools.or_stronger(other.tools),
            approvals: self.approvals.or_stronger(other.approvals),
            reads: self.reads.or_stronger(other.reads),
            writes: self.writes.or_stronger(other.writes),
            network: self.network.or_stronger(other.network),
        }
    }
}

/// The lists of a profile that hold rules, in the profile's order.
#[must_use]
pub fn lists_in_use(profile: &PolicyProfile) -> Vec<PolicyList> {
    let lists = PolicyList::ALL.into_iter();
    lists
        .filter(|list| !list.patterns(profile).is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_join_to_the_stronger_holder_of_each_kind() {
        let staged = Holders::of_workspace(WorkspaceMode::Staged);
        let joined = Holders::ANNOUNCED.or_stronger(staged);
        let expected = [
            (PolicyList::AllowedTools, "announced actions"),
            (PolicyList::DisallowedTools, "announced actions"),
            (PolicyList::DenyRead, "not staged"),
            (PolicyList::DenyWrite, "verification"),
            (PolicyList::AllowNetwork, ""),
            (PolicyList::DenyNetwork, ""),
            (PolicyList::RequireApprovalFor, "announced actions"),
        ];
        let found = PolicyList::ALL.map(|list| (list, joined.of(list).by));
        assert_eq!(found, expected);
        let in_place = Holders::of_workspace(WorkspaceMode::PassThrough);
        let in_place = Holders::NONE.or_stronger(in_place);
        assert_eq!(in_place.writes.level, EnforcementLevel::Advisory);
        assert_eq!(in_place.reads, Holder::NONE);
    }

    #[test]
    fn only_lists_with_patterns_are_in_use() {
        let profile = PolicyProfile {
            deny_network: vec!["*".to_owned()],
            allowed_tools: vec!["Read".to_owned()],
            ..PolicyProfile::default()
        };
        let expected = [PolicyList::AllowedTools, PolicyList::DenyNetwork];
        assert_eq!(lists_in_use(&profile), expected);
    }
}
