//! The borders of what counts as a host, in targets and in patterns.

use abp_core::PolicyProfile;
use abp_policy::{NetworkGrant, NetworkListing, NetworkTarget, PolicyEngine, Verdict};

fn with_denied(pattern: &str) -> Result<PolicyEngine, String> {
    let profile = PolicyProfile {
        deny_network: vec![pattern.to_owned()],
        ..PolicyProfile::default()
    };
    PolicyEngine::new(&profile).map_err(|error| error.to_string())
}

/// A pattern with a wildcard is not read as a host, so its bytes are all that can be checked. One that
/// holds a byte that no target can have would deny nothing while it looks as if it did.
#[test]
fn b12_a_pattern_that_can_match_no_host_is_refused() {
    let cases = [
        ("*.exa mple", "whitespace or a control byte"),
        ("*.example\t", "whitespace or a control byte"),
        ("*\0", "whitespace or a control byte"),
        ("*\u{7f}", "whitespace or a control byte"),
        ("*.m\u{fc}nchen.example", "`xn--`"),
        ("*@host.example", "user information"),
        ("{user@,}host.example", "user information"),
        ("*%2eexample", "percent sign"),
        ("https://*.example", "not a URL"),
        ("*.example/", "not a URL"),
    ];
    for (pattern, expected) in cases {
        let error = with_denied(pattern).expect_err(pattern);
        assert!(error.contains(expected), "{pattern:?}: {error}");
        // As a target, for the same reason.
        let engine = with_denied("*.fine.example").expect("a pattern");
        let decision = engine.can_reach_network(pattern);
        assert_eq!(decision.verdict, Verdict::Deny, "{pattern:?}");
        assert!(decision.reason.contains(expected), "{}", decision.reason);
    }
}

#[test]
fn b12_names_are_as_long_as_names_can_be() {
    let engine = with_denied("never.example").expect("a pattern");
    let label = |length: usize| "a".repeat(length);
    // Three labels of 63 and one that fills up to the length.
    let name = |length: usize| {
        let whole = [label(63), label(63), label(63)].join(".");
        format!("{whole}.{}", label(length - whole.len() - 1))
    };
    let cases = [
        (label(1), None),
        (label(63), None),
        (label(64), Some("label longer than 63")),
        (label(65), Some("label longer than 63")),
        (format!("{}.example", label(63)), None),
        (
            format!("x.{}.example", label(64)),
            Some("label longer than 63"),
        ),
        (name(252), None),
        (name(253), None),
        (format!("{}.", name(253)), None),
        (name(254), Some("longer than 253 bytes")),
        (
            format!("{}.{}", name(253), label(9)),
            Some("longer than 253 bytes"),
        ),
    ];
    for (target, refused) in cases {
        let decision = engine.can_reach_network(&target);
        match refused {
            None => assert!(decision.is_allowed(), "{}: {decision:?}", target.len()),
            Some(why) => assert!(decision.reason.contains(why), "{decision:?}"),
        }
        assert_eq!(
            with_denied(&target).is_ok(),
            refused.is_none(),
            "{}",
            target.len()
        );
    }
}

/// An IPv6 address has colons of its own; only one behind its brackets, or the only one, is a port's.
#[test]
fn b12_a_port_is_told_from_an_address() {
    let cases = [
        ("::1", "::1", true),
        ("::1", "[::1]", true),
        ("::1", "[::1]:443", true),
        ("[::1]:443", "::1", true),
        ("[::1]:443", "[::1]:80", false),
        ("fe80::1:2", "fe80:0::1:2", true),
        ("fe80::1", "fe80::1:443", false),
        ("host.example:443", "host.example:443", true),
        ("host.example:443", "host.example:80", false),
        ("host.example", "host.example:80", true),
    ];
    for (pattern, target, denied) in cases {
        let engine = with_denied(pattern).expect(pattern);
        let decision = engine.can_reach_network(target);
        assert_eq!(
            decision.rule.is_some(),
            denied,
            "{pattern} {target}: {decision:?}"
        );
        assert_eq!(
            decision.is_allowed(),
            !denied,
            "{pattern} {target}: {decision:?}"
        );
    }
    let engine = with_denied("never.example").expect("a pattern");
    for odd in [
        "host:1:2",
        "[::1",
        "[::1]x",
        "[::1]:",
        "host:",
        "host:0",
        "host:65536",
        ":443",
    ] {
        let decision = engine.can_reach_network(odd);
        assert_eq!(decision.verdict, Verdict::Deny, "{odd}: {decision:?}");
    }
}

/// The way out of a sandbox asks which patterns mean a target: `*` matches an address without being
/// written for it, and a pattern without a port does not name one.
#[test]
fn a_listing_tells_what_its_patterns_name() {
    let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    let profile = PolicyProfile {
        allow_network: owned(&[
            "*",
            "10.0.0.*",
            "[fe80::1]:8080",
            "a.example:*",
            "10.1.2.3:80",
        ]),
        deny_network: owned(&["bad.example:25"]),
        ..PolicyProfile::default()
    };
    let listed = |engine: &PolicyEngine, text: &str| {
        let target = NetworkTarget::parse(text).unwrap();
        match engine.network_listing(&target) {
            NetworkListing::Denied(rule) => format!("denied by {rule}"),
            NetworkListing::NotListed(rule) => format!("not listed: {rule}"),
            NetworkListing::Granted(grants) => {
                let tell = |grant: &NetworkGrant| {
                    let address = if grant.names_address { " address" } else { "" };
                    let port = if grant.names_port { " port" } else { "" };
                    format!("{}{address}{port}", grant.rule.index)
                };
                let told: Vec<String> = grants.iter().map(tell).collect();
                told.join(", ")
            }
        }
    };
    let engine = PolicyEngine::new(&profile).unwrap();
    for (target, expected) in [
        ("b.example:1", "0"),
        ("A.example.:1", "0, 3 port"),
        ("10.0.0.7:1", "0, 1 address"),
        ("[::ffff:10.0.0.7]:1", "0, 1 address"),
        ("10.1.2.3:80", "0, 4 address port"),
        ("10.1.2.3:81", "0"),
        ("[fe80::1]:8080", "0, 2 address port"),
        (
            "bad.example:25",
            "denied by deny_network[0] \"bad.example:25\"",
        ),
        ("bad.example:80", "0"),
    ] {
        assert_eq!(listed(&engine, target), expected, "{target}");
    }
    let empty = PolicyEngine::default();
    let not_listed = "not listed: allow_network[0] \"<not listed>\"";
    assert_eq!(listed(&empty, "a.example:443"), not_listed);
}
