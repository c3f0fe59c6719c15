//! The compiled profile.

use std::path::Path;

use abp_core::PolicyProfile;
use abp_glob::{GlobError, GlobList, GlobMatch};

use crate::decision::Subject;
use crate::network::{NetworkGrant, NetworkList, NetworkListing, NetworkTarget};
use crate::path::why_not_normal;
use crate::{ApprovedRead, ApprovedWrite, Decision, PolicyError, PolicyList, Rule, Verdict};

/// A compiled policy profile. The default one is empty and allows everything.
#[derive(Debug, Clone, Default)]
pub struct PolicyEngine {
    profile: PolicyProfile,
    allowed_tools: GlobList,
    disallowed_tools: GlobList,
    deny_read: GlobList,
    deny_write: GlobList,
    allow_network: NetworkList,
    deny_network: NetworkList,
    require_approval_for: GlobList,
}

impl PolicyEngine {
    /// Compiles a profile.
    ///
    /// # Errors
    /// Names the list and the pattern that is malformed or exceeds a limit.
    pub fn new(profile: &PolicyProfile) -> Result<Self, PolicyError> {
        fn compile<T>(
            list: PolicyList,
            patterns: &[String],
            compile: impl Fn(&[String]) -> Result<T, GlobError>,
        ) -> Result<T, PolicyError> {
            compile(patterns).map_err(|problem| PolicyError::new(list, problem))
        }
        let PolicyProfile {
            allowed_tools,
            disallowed_tools,
            deny_read,
            deny_write,
            allow_network,
            deny_network,
            require_approval_for,
        } = profile;
        Ok(Self {
            allowed_tools: compile(PolicyList::AllowedTools, allowed_tools, GlobList::new)?,
            disallowed_tools: compile(
                PolicyList::DisallowedTools,
                disallowed_tools,
                GlobList::new,
            )?,
            deny_read: compile(PolicyList::DenyRead, deny_read, GlobList::for_paths)?,
            deny_write: compile(PolicyList::DenyWrite, deny_write, GlobList::for_paths)?,
            allow_network: compile(PolicyList::AllowNetwork, allow_network, NetworkList::new)?,
            deny_network: compile(PolicyList::DenyNetwork, deny_network, NetworkList::new)?,
            require_approval_for: compile(
                PolicyList::RequireApprovalFor,
                require_approval_for,
                GlobList::new,
            )?,
            profile: profile.clone(),
        })
    }

    /// Whether a tool may be used at all; [`Self::needs_approval`] says whether somebody must be
    /// asked first, and [`Self::judge_tool`] answers both.
    #[must_use]
    pub fn can_use_tool(&self, name: &str) -> Decision {
        if let Some(denied) = self.denies_tool(name) {
            return denied;
        }
        let subject = Subject::new("tool", name);
        match self.allowed_tools.first_match(name) {
            Some(found) => self.by_rule(Verdict::Allow, &subject, PolicyList::AllowedTools, found),
            None if self.allowed_tools.is_empty() => Decision::unnamed(&subject),
            None => self.not_listed(&subject, PolicyList::AllowedTools),
        }
    }

    /// Whether a tool that may be used needs a person's approval: [`Verdict::Ask`] or
    /// [`Verdict::Allow`].
    #[must_use]
    pub fn needs_approval(&self, tool: &str) -> Decision {
        let subject = Subject::new("tool", tool);
        match self.require_approval_for.first_match(tool) {
            Some(found) => self.by_rule(
                Verdict::Ask,
                &subject,
                PolicyList::RequireApprovalFor,
                found,
            ),
            None => Decision::unnamed(&subject),
        }
    }

    /// Whether a tool is denied, has to be asked for, or may simply be used, in this order.
    #[must_use]
    pub fn judge_tool(&self, name: &str) -> Decision {
        self.judge_aliases(name, &[])
    }

    /// Judges a tool that goes by several names: one that is disallowed denies it, one that needs
    /// approval has it asked for, and one that is allowed is enough.
    #[must_use]
    pub fn judge_aliases(&self, name: &str, aliases: &[&str]) -> Decision {
        self.judge_names(name, aliases, &[])
    }

    /// Judges a tool that goes by names of its own and by names that another tool could have taken as well.
    /// Any of them can deny it or have approval asked for; only its own ones can allow it, because a tool
    /// that calls itself as another one would otherwise have that one's permissions.
    #[must_use]
    pub fn judge_names(&self, name: &str, own: &[&str], shared: &[&str]) -> Decision {
        let own_names = || std::iter::once(name).chain(own.iter().copied());
        let names = || own_names().chain(shared.iter().copied());
        if let Some(denied) = names().find_map(|name| self.denies_tool(name)) {
            return denied;
        }
        let mut judged = own_names().map(|name| self.can_use_tool(name));
        let Some(usable) = judged.find(Decision::is_allowed) else {
            return self.can_use_tool(name);
        };
        let mut approvals = names().map(|name| self.needs_approval(name));
        let asked = approvals.find(|approval| !approval.is_allowed());
        asked.unwrap_or(usable)
    }

    /// Whether a path may be read. The path is the one the workspace resolved: relative to its
    /// root, without `.` or `..`, and with every link followed.
    #[must_use]
    pub fn can_read_path(&self, path: &Path) -> Decision {
        self.path_decision(PolicyList::DenyRead, &self.deny_read, path)
    }

    /// Whether a path may be written; the path has the form [`Self::can_read_path`] needs.
    #[must_use]
    pub fn can_write_path(&self, path: &Path) -> Decision {
        self.path_decision(PolicyList::DenyWrite, &self.deny_write, path)
    }

    /// Whether a host may be reached, named as `host`, `host:port`, `[v6]` or `[v6]:port`.
    ///
    /// The caller must connect to the same text it asked about. A target without a port stands for
    /// all ports: it is denied where one port is, and allowed only where all are.
    #[must_use]
    pub fn can_reach_network(&self, target: &str) -> Decision {
        let subject = Subject::new("host", target);
        let target = match NetworkTarget::parse(target) {
            Ok(target) => target,
            Err(why) => return Decision::refused(&subject, why),
        };
        if let Some(found) = self.deny_network.forbidding(&target) {
            return self.by_rule(Verdict::Deny, &subject, PolicyList::DenyNetwork, found);
        }
        match self.allow_network.granting(&target) {
            Some(found) => self.by_rule(Verdict::Allow, &subject, PolicyList::AllowNetwork, found),
            None if self.allow_network.is_empty() => Decision::unnamed(&subject),
            None => self.not_listed(&subject, PolicyList::AllowNetwork),
        }
    }

    /// The patterns of a list.
    #[must_use]
    pub fn patterns(&self, list: PolicyList) -> &[String] {
        list.patterns(&self.profile)
    }

    /// The rules on files that name one path of the workspace, and everything beneath it, with that path:
    /// those that a mount can hold.
    #[must_use]
    pub fn named_paths(&self) -> Vec<(Rule, String)> {
        let lists = [
            (PolicyList::DenyRead, &self.deny_read),
            (PolicyList::DenyWrite, &self.deny_write),
        ];
        let named = lists.into_iter().flat_map(|(list, globs)| {
            globs.named_paths().map(move |(found, path)| {
                let pattern = found.pattern.to_owned();
                let index = found.index;
                (
                    Rule {
                        list,
                        pattern,
                        index,
                    },
                    path,
                )
            })
        });
        // A path that leads somewhere else than it says is no name of one.
        named
            .filter(|(_, path)| why_not_normal(Path::new(path)).is_none())
            .collect()
    }

    /// The patterns that name a target, for a proxy that grants nothing which is not listed.
    ///
    /// [`Self::can_reach_network`] lets an empty `allow_network` grant everything and asks for one
    /// pattern only; the way out of a sandbox needs the opposite, and has to know whether a pattern
    /// was written for an address or a port.
    #[must_use]
    pub fn network_listing(&self, target: &NetworkTarget) -> NetworkListing {
        if let Some(found) = self.deny_network.forbidding(target) {
            return NetworkListing::Denied(self.written_rule(PolicyList::DenyNetwork, found));
        }
        let granting = self.allow_network.all_granting(target);
        let grants: Vec<NetworkGrant> = granting
            .map(|(found, names_address, names_port)| NetworkGrant {
                rule: self.written_rule(PolicyList::AllowNetwork, found),
                names_address,
                names_port,
            })
            .collect();
        if grants.is_empty() {
            let patterns = self.patterns(PolicyList::AllowNetwork).len();
            NetworkListing::NotListed(Rule::not_listed(PolicyList::AllowNetwork, patterns))
        } else {
            NetworkListing::Granted(grants)
        }
    }

    /// The compiled `deny_read` patterns: a staged copy is made without what they match.
    #[must_use]
    pub fn unreadable_paths(&self) -> &GlobList {
        &self.deny_read
    }

    /// Whether any rule is about hosts.
    #[must_use]
    pub fn has_network_rules(&self) -> bool {
        !self.profile.allow_network.is_empty() || !self.profile.deny_network.is_empty()
    }

    /// Turns an allowed path into the token the workspace reads against.
    ///
    /// # Errors
    /// The decision, where it is not to allow.
    pub fn approve_read(&self, path: &Path) -> Result<ApprovedRead, Decision> {
        let decision = self.can_read_path(path);
        if decision.is_allowed() {
            Ok(ApprovedRead::new(path))
        } else {
            Err(decision)
        }
    }

    /// Turns an allowed path into the token the workspace writes against.
    ///
    /// # Errors
    /// The decision, where it is not to allow.
    pub fn approve_write(&self, path: &Path) -> Result<ApprovedWrite, Decision> {
        let decision = self.can_write_path(path);
        if decision.is_allowed() {
            Ok(ApprovedWrite::new(path))
        } else {
            Err(decision)
        }
    }

    /// Every rule of the profile, in the profile's order. An allow list ends in the rule that denies
    /// whatever it does not name.
    pub fn rules(&self) -> impl Iterator<Item = Rule> {
        PolicyList::ALL.into_iter().flat_map(|list| {
            let patterns = self.patterns(list);
            let allows = matches!(list, PolicyList::AllowedTools | PolicyList::AllowNetwork);
            let rest = allows && !patterns.is_empty();
            let rest = rest.then(|| Rule::not_listed(list, patterns.len()));
            let numbered = patterns.iter().enumerate();
            let numbered = numbered.map(move |(index, pattern)| Rule {
                list,
                pattern: pattern.clone(),
                index,
            });
            numbered.chain(rest)
        })
    }

    /// The denial of a tool by its name alone, whatever is allowed.
    fn denies_tool(&self, name: &str) -> Option<Decision> {
        let subject = Subject::new("tool", name);
        if let Some(why) = why_not_a_tool(name) {
            return Some(Decision::refused(&subject, why));
        }
        let found = self.disallowed_tools.first_match(name)?;
        Some(self.by_rule(Verdict::Deny, &subject, PolicyList::DisallowedTools, found))
    }

    fn path_decision(&self, list: PolicyList, denied: &GlobList, path: &Path) -> Decision {
        let shown = path.to_string_lossy();
        let subject = Subject::new("path", &shown);
        if let Some(why) = why_not_normal(path) {
            return Decision::refused(&subject, why);
        }
        match denied.first_match(path) {
            Some(found) => self.by_rule(Verdict::Deny, &subject, list, found),
            None => Decision::unnamed(&subject),
        }
    }

    fn by_rule(
        &self,
        verdict: Verdict,
        subject: &Subject<'_>,
        list: PolicyList,
        found: GlobMatch<'_>,
    ) -> Decision {
        Decision::by_rule(verdict, subject, self.written_rule(list, found))
    }

    /// The rule as the profile writes it; the compiled pattern may be a normalised form.
    fn written_rule(&self, list: PolicyList, found: GlobMatch<'_>) -> Rule {
        let written = self.patterns(list).get(found.index).map(String::as_str);
        Rule {
            list,
            pattern: written.unwrap_or(found.pattern).to_owned(),
            index: found.index,
        }
    }

    fn not_listed(&self, subject: &Subject<'_>, list: PolicyList) -> Decision {
        Decision::not_listed(subject, list, self.patterns(list).len())
    }
}

/// Why a name cannot be a tool's: whoever runs it may trim it and then run a denied tool.
fn why_not_a_tool(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("the name is empty");
    }
    if name.contains(char::is_control) {
        return Some("the name contains a control character");
    }
    (name.trim() != name).then_some("the name begins or ends with whitespace")
}
