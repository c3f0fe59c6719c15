//! Misspelled restrictions are errors; other unknown keys are warnings.

use std::fs;

use abp_config::{Diagnostic, Problem, SettingOrigin, Severity, load};

use crate::layers::{at_home, env};

/// The text, then for an error the line, the column and the name that is suggested, or for a
/// warning nothing.
type Case = (&'static str, Option<(usize, usize, &'static str)>);

const NONE: &str = "no such setting";

const CASES: &[Case] = &[
    // Sections.
    (
        "[restrictons]\ndeny_read = ['a']\n",
        Some((1, 2, "`restrictions`")),
    ),
    ("port = 1\n[Restrictions]\n", Some((2, 2, "`restrictions`"))),
    (
        "restriction.deny_read = ['a']\n",
        Some((1, 1, "`restrictions`")),
    ),
    (
        "restricions = { deny_read = ['a'] }\n",
        Some((1, 1, "`restrictions`")),
    ),
    ("[policy.house]\n", Some((1, 2, "`policies`"))),
    ("[polcies.house]\n", Some((1, 2, "`policies`"))),
    ("[price.list.'*']\n", Some((1, 2, "`prices`"))),
    ("[servr]\nallowed_hosts = ['h']\n", Some((1, 2, "`server`"))),
    ("[mpc]\nroots = ['/r']\n", Some((1, 2, "`mcp`"))),
    // Single settings at the top.
    (
        "defualt_policy = 'house'\n",
        Some((1, 1, "`default_policy`")),
    ),
    (
        "default-policy = 'house'\n",
        Some((1, 1, "`default_policy`")),
    ),
    (
        "aproval_timeout_secs = 3\n",
        Some((1, 1, "`approval_timeout_secs`")),
    ),
    // Keys inside a section that restricts: all of them.
    (
        "[restrictions]\ndeny_reed = ['a']\n",
        Some((2, 1, "`deny_read`")),
    ),
    ("[restrictions]\n  colour = 'a'\n", Some((2, 3, NONE))),
    (
        "[policies.house]\ndenywrite = ['a']\n",
        Some((2, 1, "`deny_write`")),
    ),
    ("[policies.house]\nx = 1\n", Some((2, 1, NONE))),
    ("[prices.list.'*']\nx = 1\n", Some((2, 1, NONE))),
    (
        "[server]\nallowed_host = ['h']\n",
        Some((2, 1, "`allowed_hosts`")),
    ),
    ("[server]\nx = 1\n", Some((2, 1, NONE))),
    (
        "[mcp.servers.a]\ncommand = 'c'\ndeny_tool = ['x']\n",
        Some((3, 1, "`deny_tools`")),
    ),
    // Limits inside other sections.
    (
        "[backends.a]\ntype = 'sidecar'\ncommand = 'c'\nmax_memry_mb = 16\n",
        Some((4, 1, "`max_memory_mb`")),
    ),
    (
        "[backends.a]\ntype = 'sidecar'\ncommand = 'c'\ntimout_secs = 1\n",
        Some((4, 1, "`timeout_secs`")),
    ),
    (
        "[backends.a]\ntype = 'mock'\nsandbox = 'strict'\n",
        Some((3, 1, NONE)),
    ),
    (
        "[upstreams.u]\ndialect = 'openai'\nbase_url = 'https://h'\nmax_concurent = 1\n",
        Some((4, 1, "`max_concurrent`")),
    ),
    // Restrictions in the wrong section.
    (
        "deny_read = ['a']\n",
        Some((1, 1, "`restrictions.deny_read`")),
    ),
    (
        "dny_read = ['a']\n",
        Some((1, 1, "`restrictions.deny_read`")),
    ),
    (
        "allowed_hosts = ['h']\n",
        Some((1, 1, "`server.allowed_hosts`")),
    ),
    (
        "timeout_secs = 3\n",
        Some((1, 1, "`mcp.servers.NAME.timeout_secs`")),
    ),
    // Restrictions of no or of another version.
    ("[isolation]\n", Some((1, 2, NONE))),
    ("sandbx = 'none'\n", Some((1, 1, "`sandbox`"))),
    ("[sandbox]\nengin = 'none'\n", Some((2, 1, "`engine`"))),
    ("[budgets.team]\n", Some((1, 2, NONE))),
    ("[limts]\n", Some((1, 2, NONE))),
    ("max_cost_usd = 3\n", Some((1, 1, NONE))),
    ("forbidden_words = []\n", Some((1, 1, NONE))),
    // The rest.
    ("prot = 1\n", None),
    ("colour = 'red'\n", None),
    ("log_levl = 'warn'\n", None),
    ("default_backed = 'mock'\n", None),
    ("stat_dir = '/s'\n", None),
    ("[backend.a]\ntype = 'mock'\n", None),
    ("[upstrems.a]\n", None),
    ("[backends.a]\ntype = 'mock'\nscrpt = 'x'\n", None),
    (
        "[upstreams.u]\ndialect = 'openai'\nbase_url = 'https://h'\nwieght = 1\n",
        None,
    ),
    (
        "[emulation.vision]\ntype = 'disabled'\nreason = 'r'\nx = 1\n",
        None,
    ),
];

fn found(text: &str, as_project: bool) -> Vec<Diagnostic> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("backplane.toml");
    fs::write(&path, text).unwrap();
    let mut sources = at_home();
    if as_project {
        sources.project = Some(path);
    } else {
        sources.user = Some(path);
    }
    match load(&sources) {
        Ok(loaded) => loaded.warnings,
        Err(errors) => errors.diagnostics,
    }
}

#[test]
fn a_restriction_that_is_not_read_is_an_error() {
    for (text, expected) in CASES {
        let found = found(text, false);
        let [one] = found.as_slice() else {
            panic!("{text}: {found:#?}");
        };
        assert_eq!(one.problem, Problem::UnknownKey, "{text}");
        let Some((line, column, suggested)) = *expected else {
            assert_eq!(one.severity, Severity::Warning, "{text}: {one:?}");
            continue;
        };
        assert_eq!(one.severity, Severity::Error, "{text}: {one:?}");
        let Some(SettingOrigin::File {
            path,
            line: at_line,
            column: at_column,
            ..
        }) = &one.origin
        else {
            panic!("{text}: {one:?}");
        };
        assert!(path.ends_with("backplane.toml"));
        assert_eq!((*at_line, *at_column), (line, column), "{text}");
        let help = one.help.as_deref().unwrap_or_default();
        assert!(help.contains(suggested), "{text}: {help}");
    }
}

/// In a repository's file too, although most of what it says is ignored.
#[test]
fn a_repository_cannot_misspell_its_restrictions_either() {
    let errors = [
        "[restrictons]\ndeny_read = ['a']\n",
        "[restrictions]\ndeny_command = ['rm']\n",
        "[restrictions]\ndeny_tokens = ['a']\n",
        "[isolation]\n",
        "deny_write = ['a']\n",
    ];
    for text in errors {
        let found = found(text, true);
        assert_eq!(found.len(), 1, "{text}: {found:#?}");
        assert_eq!(found[0].severity, Severity::Error, "{text}");
    }
    for text in ["webhook = 'x'\n", "colour = 'x'\n", "api_tokn = 'x'\n"] {
        let found = found(text, true);
        assert_eq!(found.len(), 1, "{text}: {found:#?}");
        assert_eq!(found[0].severity, Severity::Warning, "{text}");
    }
}

#[test]
fn a_misspelled_variable_is_judged_the_same_way() {
    let cases = [
        ("ABP_DEFUALT_POLICY", Some(Severity::Error)),
        ("ABP_APPROVAL_TIMOUT_SECS", Some(Severity::Error)),
        ("ABP_DEFUALT_BACKEND", Some(Severity::Warning)),
        ("ABP_SOMETHING_ELSE", None),
    ];
    for (name, expected) in cases {
        let mut sources = at_home();
        sources.env.extend(env(&[(name, "x")]));
        let found = match load(&sources) {
            Ok(loaded) => loaded.warnings,
            Err(errors) => errors.diagnostics,
        };
        let severities: Vec<_> = found.iter().map(|one| one.severity).collect();
        assert_eq!(severities, Vec::from_iter(expected), "{name}");
    }
}
