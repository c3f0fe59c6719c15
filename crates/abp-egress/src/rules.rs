//! The rules of a way out, over the policy of a run.

use std::net::SocketAddr;

use abp_policy::{NetworkGrant, NetworkListing, NetworkTarget, PolicyEngine, Rule};

use crate::address::special_range;
use crate::event::EgressRule;

/// The ports that a pattern without a port stands for.
const WEB_PORTS: [u16; 2] = [80, TLS_PORT];

/// The port on which nothing but TLS is tunneled, whatever is listed.
const TLS_PORT: u16 = 443;

/// Decides what leaves a sandbox.
///
/// The patterns are those of the policy, read more strictly than [`PolicyEngine::can_reach_network`]
/// reads them: an empty `allow_network` grants nothing, a pattern without a port stands for ports 80
/// and 443, and addresses, as well as names that resolve into special ranges, need a pattern that was
/// written for that address.
#[derive(Debug, Clone)]
pub struct EgressRules {
    engine: PolicyEngine,
}

/// An allowed target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) rule: Rule,
    /// Whether a tunnel may carry something else than TLS. That takes a pattern that names the port: a
    /// tunnel to port 80 could otherwise carry requests whose Host header nothing has checked.
    pub(crate) allows_plain_tunnel: bool,
}

impl EgressRules {
    /// The network rules of a policy.
    #[must_use]
    pub fn new(engine: PolicyEngine) -> Self {
        Self { engine }
    }

    /// No target is allowed; only routes lead out.
    #[must_use]
    pub fn deny_all() -> Self {
        Self::new(PolicyEngine::default())
    }

    /// Judges a target before its name is resolved.
    pub(crate) fn judge_target(
        &self,
        target: &NetworkTarget,
        port: u16,
    ) -> Result<Grant, EgressRule> {
        let grants = match self.engine.network_listing(target) {
            NetworkListing::Denied(policy) | NetworkListing::NotListed(policy) => {
                return Err(EgressRule::Policy { policy });
            }
            NetworkListing::Granted(grants) => grants,
        };
        let is_address = target.address().is_some();
        let mut listed = grants
            .into_iter()
            .filter(|grant| grant.names_address || !is_address)
            .peekable();
        if listed.peek().is_none() {
            return Err(EgressRule::AddressNotListed);
        }
        let is_web = WEB_PORTS.contains(&port);
        let mut usable: Vec<NetworkGrant> =
            listed.filter(|grant| grant.names_port || is_web).collect();
        // A pattern with a port grants more than one without.
        usable.sort_by_key(|grant| !grant.names_port);
        let Some(grant) = usable.into_iter().next() else {
            return Err(EgressRule::PortNotListed { port });
        };
        Ok(Grant {
            rule: grant.rule,
            allows_plain_tunnel: grant.names_port && port != TLS_PORT,
        })
    }

    /// Judges an address that is about to be dialed for an allowed target.
    pub(crate) fn judge_address(&self, address: SocketAddr) -> Result<(), EgressRule> {
        let target = NetworkTarget::parse(&address.to_string())
            .map_err(|why| EgressRule::TargetSpelling { why })?;
        let is_listed = match self.engine.network_listing(&target) {
            NetworkListing::Denied(policy) => return Err(EgressRule::Policy { policy }),
            NetworkListing::Granted(grants) => grants.iter().any(|grant| grant.names_address),
            NetworkListing::NotListed(_) => false,
        };
        match special_range(address.ip()) {
            Some(range) if !is_listed => Err(EgressRule::SpecialAddress {
                address: address.ip(),
                range,
            }),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use abp_core::PolicyProfile;

    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> EgressRules {
        let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
        let profile = PolicyProfile {
            allow_network: owned(allow),
            deny_network: owned(deny),
            ..PolicyProfile::default()
        };
        EgressRules::new(PolicyEngine::new(&profile).unwrap())
    }

    /// The rule in words, and whether a plain tunnel may be made.
    fn judged(rules: &EgressRules, target: &str) -> (String, bool) {
        let target = NetworkTarget::parse(target).unwrap();
        match rules.judge_target(&target, target.port().unwrap()) {
            Ok(grant) => (grant.rule.to_string(), grant.allows_plain_tunnel),
            Err(rule) => (format!("denied: {rule}"), false),
        }
    }

    #[test]
    fn targets_are_granted_only_by_patterns_that_mean_them() {
        let rules = rules(
            &[
                "*",
                "db.example:5432",
                "web.example:80",
                "10.0.0.*:8080",
                "tls.example:443",
                "any.example:*",
            ],
            &["bad.example", "10.0.0.9"],
        );
        let literal = "denied: addresses are refused unless allow_network lists them";
        let port =
            |port: u16| format!("denied: port {port} is refused unless allow_network names it");
        let allow = |index: usize, pattern: &str| format!("allow_network[{index}] {pattern:?}");
        let deny =
            |index: usize, pattern: &str| format!("denied: deny_network[{index}] {pattern:?}");
        let cases = [
            ("a.example:443", allow(0, "*"), false),
            ("a.example:80", allow(0, "*"), false),
            ("a.example:22", port(22), false),
            ("db.example:5432", allow(1, "db.example:5432"), true),
            ("db.example:443", allow(0, "*"), false),
            ("web.example:80", allow(2, "web.example:80"), true),
            ("tls.example:443", allow(4, "tls.example:443"), false),
            ("any.example:9", allow(5, "any.example:*"), true),
            ("10.0.0.1:8080", allow(3, "10.0.0.*:8080"), true),
            ("10.0.0.1:443", literal.to_owned(), false),
            ("10.0.0.9:8080", deny(1, "10.0.0.9"), false),
            ("8.8.8.8:443", literal.to_owned(), false),
            ("[::1]:443", literal.to_owned(), false),
            ("bad.example:443", deny(0, "bad.example"), false),
        ];
        for (target, expected, plain) in cases {
            assert_eq!(judged(&rules, target), (expected, plain), "{target}");
        }
    }

    #[test]
    fn an_empty_list_grants_nothing() {
        let not_listed = "denied: allow_network[0] \"<not listed>\"";
        for rules in [EgressRules::deny_all(), rules(&[], &["bad.example"])] {
            for target in ["a.example:443", "8.8.8.8:443", "[::1]:80", "localhost:80"] {
                assert_eq!(judged(&rules, target), (not_listed.to_owned(), false));
            }
        }
    }

    #[test]
    fn addresses_are_judged_where_the_name_was_allowed() {
        let rules = rules(&["*", "192.168.1.5:443", "[fd00::5]"], &["93.184.216.34"]);
        for (address, is_allowed) in [
            ("8.8.8.8:443", true),
            ("93.184.216.34:443", false),
            ("[::ffff:93.184.216.34]:443", false),
            ("192.168.1.5:443", true),
            ("192.168.1.5:80", false),
            ("192.168.1.6:443", false),
            ("[fd00::5]:443", true),
            ("[fd00::6]:443", false),
            ("[2606:4700::1111]:443", true),
            ("127.0.0.1:443", false),
            ("169.254.169.254:80", false),
        ] {
            let judged = rules.judge_address(address.parse().unwrap());
            assert_eq!(judged.is_ok(), is_allowed, "{address} {judged:?}");
        }
    }
}
