//! What the engine decides. Cases named after a row of the security checks (`d13_…`, `b12_…`) are
//! the ones that row asks for.

use std::path::Path;

use abp_core::PolicyProfile;
use abp_error::ErrorCode;
use abp_policy::{Decision, PolicyEngine, PolicyList, Verdict};
use proptest::prelude::*;

fn owned(patterns: &[&str]) -> Vec<String> {
    patterns
        .iter()
        .map(|pattern| (*pattern).to_owned())
        .collect()
}

fn engine(profile: &PolicyProfile) -> PolicyEngine {
    PolicyEngine::new(profile).expect("profile compiles")
}

/// The verdict and the rule, `list[index]`, of a decision.
fn seen(decision: &Decision) -> (Verdict, Option<String>) {
    let rule = decision.rule.as_ref();
    (
        decision.verdict,
        rule.map(|rule| format!("{}[{}]", rule.list, rule.index)),
    )
}

#[test]
fn tools() {
    let profile = PolicyProfile {
        allowed_tools: owned(&["Read", "Bash*", "mcp/*"]),
        disallowed_tools: owned(&["Write", "BashKill"]),
        require_approval_for: owned(&["Bash"]),
        ..PolicyProfile::default()
    };
    let engine = engine(&profile);
    let check = |name: &str, verdict: Verdict, rule: Option<&str>| {
        let expected = (verdict, rule.map(str::to_owned));
        assert_eq!(seen(&engine.judge_tool(name)), expected, "{name:?}");
    };
    check("Read", Verdict::Allow, Some("allowed_tools[0]"));
    check("Bash", Verdict::Ask, Some("require_approval_for[0]"));
    check("BashOutput", Verdict::Allow, Some("allowed_tools[1]"));
    check("mcp/git/log", Verdict::Allow, Some("allowed_tools[2]"));
    check("Write", Verdict::Deny, Some("disallowed_tools[0]"));
    check("BashKill", Verdict::Deny, Some("disallowed_tools[1]"));
    check("read", Verdict::Deny, Some("allowed_tools[3]"));
    check("Read ", Verdict::Deny, None);
    check("Read\0", Verdict::Deny, None);
    check("", Verdict::Deny, None);
    assert!(engine.can_use_tool("Bash").is_allowed());
    assert!(engine.needs_approval("Read").is_allowed());
}

#[test]
fn a_tool_of_several_names_is_held_to_all_of_them() {
    let profile = PolicyProfile {
        allowed_tools: owned(&["files__*", "look", "peek", "wipe"]),
        disallowed_tools: owned(&["wipe", "*__burn"]),
        require_approval_for: owned(&["files__move"]),
        ..PolicyProfile::default()
    };
    let engine = engine(&profile);
    let cases = [
        ("look", "other__look", Verdict::Allow),
        ("read", "files__read", Verdict::Allow),
        ("read", "other__read", Verdict::Deny),
        ("wipe", "files__wipe", Verdict::Deny),
        ("burn", "files__burn", Verdict::Deny),
        ("move", "files__move", Verdict::Ask),
        (" peek", "files__ peek", Verdict::Deny),
    ];
    for (name, alias, expected) in cases {
        let decision = engine.judge_aliases(name, &[alias]);
        assert_eq!(decision.verdict, expected, "{name} {alias}: {decision:?}");
    }
}

#[test]
fn paths() {
    let profile = PolicyProfile {
        deny_read: owned(&["**/.env", "secrets/"]),
        deny_write: owned(&[".git", "*.lock", "/etc"]),
        ..PolicyProfile::default()
    };
    let engine = engine(&profile);
    let check = |path: &str, read: Option<&str>, write: Option<&str>| {
        let rule = |decision: &Decision| seen(decision).1;
        let path = Path::new(path);
        assert_eq!(
            rule(&engine.can_read_path(path)).as_deref(),
            read,
            "{path:?}"
        );
        assert_eq!(
            rule(&engine.can_write_path(path)).as_deref(),
            write,
            "{path:?}"
        );
        assert_eq!(
            engine.approve_read(path).is_ok(),
            read.is_none(),
            "{path:?}"
        );
        assert_eq!(
            engine.approve_write(path).is_ok(),
            write.is_none(),
            "{path:?}"
        );
    };
    check("src/main.rs", None, None);
    check(".env", Some("deny_read[0]"), None);
    check("a/b/.env", Some("deny_read[0]"), None);
    check("secrets/a/b", Some("deny_read[1]"), None);
    check("secrets.md", None, None);
    check(".git/config", None, Some("deny_write[0]"));
    check(".gitignore", None, None);
    check("a/Cargo.lock", None, Some("deny_write[1]"));
    check("etc/x", None, Some("deny_write[2]"));
}

#[test]
fn d13_only_normal_paths_are_decided_on() {
    let engine = engine(&PolicyProfile::default());
    for path in [
        "",
        ".",
        "..",
        "./a",
        "a/.",
        "a/./b",
        "a/../b",
        "../a",
        "a//b",
        "a/",
        "/a",
        "/proc/self/root",
        "a\0b",
    ] {
        let path = Path::new(path);
        let expected = (Verdict::Deny, None);
        assert_eq!(seen(&engine.can_read_path(path)), expected, "D13 {path:?}");
        assert_eq!(seen(&engine.can_write_path(path)), expected, "D13 {path:?}");
        assert!(engine.approve_write(path).is_err(), "D13 {path:?}");
    }
}

#[test]
fn network_rules() {
    let profile = PolicyProfile {
        allow_network: owned(&[
            "*.Example.com.",
            "api.test:443",
            "[::1]:8080",
            "10.0.0.*",
            "{a,b}.test:*",
        ]),
        deny_network: owned(&["bad.example.com", "mail.example.com:25", "10.0.0.9"]),
        ..PolicyProfile::default()
    };
    let engine = engine(&profile);
    let check = |target: &str, verdict: Verdict, rule: Option<&str>| {
        let expected = (verdict, rule.map(str::to_owned));
        assert_eq!(
            seen(&engine.can_reach_network(target)),
            expected,
            "{target:?}"
        );
    };
    let (allow, deny) = (Verdict::Allow, Verdict::Deny);
    check("a.example.com", allow, Some("allow_network[0]"));
    check("A.B.EXAMPLE.COM.:8443", allow, Some("allow_network[0]"));
    check("example.com", deny, Some("allow_network[5]"));
    check("evilexample.com", deny, Some("allow_network[5]"));
    check("a.example.com.evil.com", deny, Some("allow_network[5]"));
    check("bad.example.com:443", deny, Some("deny_network[0]"));
    check("BAD.example.com.", deny, Some("deny_network[0]"));
    check("mail.example.com:443", allow, Some("allow_network[0]"));
    check("mail.example.com:25", deny, Some("deny_network[1]"));
    check("mail.example.com", deny, Some("deny_network[1]"));
    check("api.test:443", allow, Some("allow_network[1]"));
    check("api.test:80", deny, Some("allow_network[5]"));
    check("api.test", deny, Some("allow_network[5]"));
    check("[::1]:8080", allow, Some("allow_network[2]"));
    check("[0:0:0:0:0:0:0:1]:8080", allow, Some("allow_network[2]"));
    check("::1", deny, Some("allow_network[5]"));
    check("10.0.0.1:80", allow, Some("allow_network[3]"));
    check("[::ffff:10.0.0.1]:80", allow, Some("allow_network[3]"));
    check("10.0.0.evil.example", deny, Some("allow_network[5]"));
    check("10.0.0.9", deny, Some("deny_network[2]"));
    check("[::ffff:10.0.0.9]", deny, Some("deny_network[2]"));
    check("b.test:1", allow, Some("allow_network[4]"));
}

#[test]
fn b12_hosts_that_readers_disagree_about_are_refused() {
    let engine = engine(&PolicyProfile::default());
    assert!(engine.can_reach_network("a.example.com:443").is_allowed());
    for target in [
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "a\0.b",
        "a\n",
        " a",
        "a b",
        "u@a",
        "a%2eb",
        "a/b",
        "https://a",
        "ä.de",
        "a:",
        "a:0",
        "a:080",
        "a:65536",
        "a:+1",
        "a:x",
        "[a]",
        "[::1",
        "[::1]x",
        "[::1]:",
        "[fe80::1%eth0]",
        "127.1",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "2130706433",
        "0x7f000001",
        "1.2.3.4.5",
        "a\\b",
        "a?b",
        "*",
    ] {
        let decision = engine.can_reach_network(target);
        assert_eq!(seen(&decision), (Verdict::Deny, None), "B12 {target:?}");
    }
}

#[test]
fn a_profile_that_cannot_be_compiled_names_the_pattern() {
    let check = |profile: &PolicyProfile, list: PolicyList, index: Option<usize>, message: &str| {
        let error = PolicyEngine::new(profile).expect_err("profile is refused");
        assert_eq!((error.list(), error.index()), (list, index));
        assert_eq!(error.code(), ErrorCode::PolicyInvalid);
        assert!(error.to_string().contains(message), "{error}");
    };
    let mut profile = PolicyProfile {
        deny_network: owned(&["fine", "https://host/"]),
        ..PolicyProfile::default()
    };
    check(&profile, PolicyList::DenyNetwork, Some(1), "not a URL");
    profile.allow_network = owned(&["a..b"]);
    check(&profile, PolicyList::AllowNetwork, Some(0), "\"a..b\"");
    profile.deny_write = owned(&["x", "./["]);
    check(&profile, PolicyList::DenyWrite, Some(1), "\"./[\"");
    profile.deny_read = owned(&["*a"; 600])
        .into_iter()
        .map(|pattern| pattern.repeat(60))
        .collect();
    check(&profile, PolicyList::DenyRead, Some(0), "60 stars");
    profile.allowed_tools = owned(&["a"; 1_001]);
    check(&profile, PolicyList::AllowedTools, None, "1001 patterns");
}

#[test]
fn rules_come_in_the_profiles_order() {
    let profile = PolicyProfile {
        allowed_tools: owned(&["a", "b"]),
        deny_write: owned(&["./c"]),
        require_approval_for: owned(&["d"]),
        ..PolicyProfile::default()
    };
    let rules: Vec<String> = engine(&profile)
        .rules()
        .map(|rule| rule.to_string())
        .collect();
    let expected = [
        "allowed_tools[0] \"a\"",
        "allowed_tools[1] \"b\"",
        "allowed_tools[2] \"<not listed>\"",
        "deny_write[0] \"./c\"",
        "require_approval_for[0] \"d\"",
    ];
    assert_eq!(rules, expected);
}

const PATTERN: &str = "[a-c*?{},.\\[\\]!/:-]{1,12}";

proptest! {
    /// Adding an allow rule never opens what a deny rule closes.
    #[test]
    fn deny_wins(deny in PATTERN, allow in PATTERN, name in "[a-c]{1,3}(\\.[a-c]{1,3}){0,2}") {
        let denied = PolicyProfile {
            disallowed_tools: vec![deny.clone()],
            deny_network: vec![deny],
            ..PolicyProfile::default()
        };
        let both = PolicyProfile {
            allowed_tools: vec![allow.clone()],
            allow_network: vec![allow],
            ..denied.clone()
        };
        let (Ok(denied), Ok(both)) = (PolicyEngine::new(&denied), PolicyEngine::new(&both)) else {
            return Ok(());
        };
        prop_assert!(denied.can_use_tool(&name).is_allowed() || !both.can_use_tool(&name).is_allowed());
        prop_assert!(denied.can_reach_network(&name).is_allowed() || !both.can_reach_network(&name).is_allowed());
    }

    /// An empty profile allows every name in normal form, and D13: the token holds exactly the path
    /// that was decided on.
    #[test]
    fn an_empty_profile_allows_everything(path in "[^/\\x00.]{1,8}(/[^/\\x00.]{1,8}){0,3}", host in "[a-z]{1,8}(\\.[a-z]{1,8}){0,3}") {
        let engine = engine(&PolicyProfile::default());
        let path = Path::new(&path);
        prop_assert_eq!(engine.approve_read(path).map(|read| read.path().to_owned()), Ok(path.to_owned()));
        prop_assert_eq!(engine.approve_write(path).map(|write| write.path().to_owned()), Ok(path.to_owned()));
        prop_assert!(engine.can_reach_network(&host).is_allowed());
        prop_assert!(engine.judge_tool(&host).is_allowed());
    }

    /// A11: whatever the patterns and the names, an answer comes.
    #[test]
    fn hostile_profiles_and_names_never_panic(
        patterns in prop::collection::vec("\\PC{0,30}", 0..6),
        name in "\\PC{0,40}",
    ) {
        let profile = PolicyProfile {
            allowed_tools: patterns.clone(),
            deny_read: patterns.clone(),
            allow_network: patterns.clone(),
            deny_network: patterns,
            ..PolicyProfile::default()
        };
        let Ok(engine) = PolicyEngine::new(&profile) else { return Ok(()) };
        drop(engine.judge_tool(&name));
        drop(engine.can_read_path(Path::new(&name)));
        drop(engine.can_reach_network(&name));
    }
}
