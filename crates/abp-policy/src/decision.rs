//! The answer to one question, with the rule it rests on.

use std::fmt;

use abp_core::PolicyProfile;
use serde::Serialize;

/// The longest part of a name that a reason repeats; names come from agents and have no limit.
const SHOWN_CHARS: usize = 200;

/// What follows from the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may be done.
    Allow,
    /// A person decides.
    Ask,
    /// It may not be done.
    Deny,
}

/// A list of the policy profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyList {
    /// Tools that may be used.
    AllowedTools,
    /// Tools that may not be used.
    DisallowedTools,
    /// Paths that may not be read.
    DenyRead,
    /// Paths that may not be written.
    DenyWrite,
    /// Hosts that may be reached.
    AllowNetwork,
    /// Hosts that may not be reached.
    DenyNetwork,
    /// Tools that need a person's approval.
    RequireApprovalFor,
}

impl PolicyList {
    /// Every list, in the order of the profile.
    pub const ALL: [Self; 7] = [
        Self::AllowedTools,
        Self::DisallowedTools,
        Self::DenyRead,
        Self::DenyWrite,
        Self::AllowNetwork,
        Self::DenyNetwork,
        Self::RequireApprovalFor,
    ];

    /// The patterns of this list.
    #[must_use]
    pub fn patterns(self, profile: &PolicyProfile) -> &[String] {
        match self {
            Self::AllowedTools => &profile.allowed_tools,
            Self::DisallowedTools => &profile.disallowed_tools,
            Self::DenyRead => &profile.deny_read,
            Self::DenyWrite => &profile.deny_write,
            Self::AllowNetwork => &profile.allow_network,
            Self::DenyNetwork => &profile.deny_network,
            Self::RequireApprovalFor => &profile.require_approval_for,
        }
    }

    /// The name of the profile's field.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllowedTools => "allowed_tools",
            Self::DisallowedTools => "disallowed_tools",
            Self::DenyRead => "deny_read",
            Self::DenyWrite => "deny_write",
            Self::AllowNetwork => "allow_network",
            Self::DenyNetwork => "deny_network",
            Self::RequireApprovalFor => "require_approval_for",
        }
    }
}

impl fmt::Display for PolicyList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One pattern of the profile and its place.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Rule {
    /// The list the pattern is in.
    pub list: PolicyList,
    /// The pattern as it was written.
    pub pattern: String,
    /// Its place in the list, from 0.
    pub index: usize,
}

impl Rule {
    /// The pattern that stands for everything an allow list does not name.
    pub const NOT_LISTED: &'static str = "<not listed>";

    /// The rule behind the patterns of an allow list: everything else is denied.
    pub(crate) fn not_listed(list: PolicyList, patterns: usize) -> Self {
        Self {
            list,
            pattern: Self::NOT_LISTED.to_owned(),
            index: patterns,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}] {:?}", self.list, self.index, self.pattern)
    }
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// What follows.
    pub verdict: Verdict,
    /// The pattern that decided; none where no pattern matched, or where the name itself was
    /// refused.
    pub rule: Option<Rule>,
    /// The same in words.
    pub reason: String,
}

impl Decision {
    /// Whether it may be done without asking anybody.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allow
    }

    pub(crate) fn by_rule(verdict: Verdict, subject: &Subject<'_>, rule: Rule) -> Self {
        let verb = match verdict {
            Verdict::Allow => "is allowed by",
            Verdict::Ask => "needs approval by",
            Verdict::Deny => "is denied by",
        };
        Self {
            verdict,
            reason: format!("{subject} {verb} {rule}"),
            rule: Some(rule),
        }
    }

    pub(crate) fn unnamed(subject: &Subject<'_>) -> Self {
        Self {
            verdict: Verdict::Allow,
            rule: None,
            reason: format!("no rule speaks against {subject}"),
        }
    }

    pub(crate) fn not_listed(subject: &Subject<'_>, list: PolicyList, patterns: usize) -> Self {
        Self {
            verdict: Verdict::Deny,
            rule: Some(Rule::not_listed(list, patterns)),
            reason: format!("{subject} matches no pattern of {list}"),
        }
    }

    pub(crate) fn refused(subject: &Subject<'_>, why: &str) -> Self {
        Self {
            verdict: Verdict::Deny,
            rule: None,
            reason: format!("{subject} is refused: {why}"),
        }
    }
}

/// What a question is about, shown so that nothing in it can pass for something else.
pub(crate) struct Subject<'a> {
    kind: &'static str,
    name: &'a str,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(kind: &'static str, name: &'a str) -> Self {
        Self { kind, name }
    }
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chars = self.name.chars();
        let mut shown: String = chars.by_ref().take(SHOWN_CHARS).collect();
        if chars.next().is_some() {
            shown.push('…');
        }
        write!(f, "{} {shown:?}", self.kind)
    }
}
