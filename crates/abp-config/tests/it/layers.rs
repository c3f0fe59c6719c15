//! Which layer wins, and what a project file may do.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use abp_config::{
    BackendConfig, Config, ConfigErrors, Loaded, Override, Problem, SettingOrigin, Sources, load,
    render_json, settings,
};
use abp_core::PolicyProfile;
use tempfile::TempDir;

const USER: &str = r#"
default_backend = "agent"
default_policy = "house"
state_dir = "state"
log_level = "info"
[restrictions]
deny_read = ["a", "b"]
[policies.house]
deny_read = ["**/.env"]
[backends.agent]
type = "sidecar"
command = "bin/agent"
[backends.agent.env]
TOKEN = "not-to-be-shown"
[backends.play]
type = "mock"
script = "play.json"
[upstreams.house]
dialect = "claude"
base_url = "https://models.example"
api_key_file = "house.key"
prices = "list"
fallback = ["spare"]
[upstreams.house.aliases]
fast = "claude-haiku-4-5"
[upstreams.spare]
dialect = "codex"
base_url = "http://127.0.0.1:9/v1"
[prices.list."gpt-4.1"]
input_usd_per_mtok = 3
"#;

/// A directory with a user's, a project's and an operator's file; empty texts make no file.
fn sources(user: &str, project: &str, operator: &str) -> (TempDir, Sources) {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        if !text.is_empty() {
            fs::write(&path, text).unwrap();
        }
        path
    };
    let sources = Sources {
        user: Some(write("user.toml", user)),
        project: Some(write("project.toml", project)),
        operator: (!operator.is_empty()).then(|| write("operator.toml", operator)),
        ..at_home()
    };
    (dir, sources)
}

/// A process in `/desk` of a user with a home directory.
pub(crate) fn at_home() -> Sources {
    Sources {
        working_dir: Some(PathBuf::from("/desk")),
        env: env(&[("HOME", "/h")]),
        ..Sources::default()
    }
}

fn load_three(user: &str, project: &str, operator: &str) -> Result<Loaded, ConfigErrors> {
    let (_dir, sources) = sources(user, project, operator);
    load(&sources)
}

fn problems(loaded: &Loaded) -> Vec<Problem> {
    loaded.warnings.iter().map(|one| one.problem).collect()
}

#[test]
fn nothing_at_all_is_the_default() {
    let loaded = load_three("", "", "").unwrap();
    let expected = Config {
        state_dir: PathBuf::from("/h/.local/state/abp"),
        stages_dir: loaded.config.stages_dir.clone(),
        ..Config::default()
    };
    assert_eq!(loaded.config, expected);
    assert!(loaded.warnings.is_empty() && loaded.files.is_empty());
    assert_eq!(loaded.origins["port"], SettingOrigin::Default);
}

#[test]
fn each_layer_wins_over_the_one_below() {
    let (_dir, mut sources) = sources(USER, "", "log_level = \"debug\"\nport = 1\n");
    let level = |sources: &Sources| {
        let loaded = load(sources).unwrap();
        let origin = loaded.origins["log_level"].to_string();
        (loaded.config.log_level.as_str(), origin)
    };
    let (value, origin) = level(&sources);
    assert!(
        value == "debug" && origin.ends_with("operator.toml:1"),
        "{origin}"
    );
    sources.env = env(&[
        ("ABP_LOG_LEVEL", "trace"),
        ("ABP_PORT", ""),
        ("ABP_HOME", "~/x"),
        ("HOME", "/h"),
    ]);
    assert_eq!(level(&sources), ("trace", "env ABP_LOG_LEVEL".to_owned()));
    sources.overrides = vec![Override {
        key: "log_level".to_owned(),
        value: "error".to_owned(),
        flag: "--log-level".to_owned(),
    }];
    assert_eq!(level(&sources), ("error", "flag --log-level".to_owned()));
    let loaded = load(&sources).unwrap();
    assert_eq!(loaded.config.state_dir, Path::new("/h/x"));
    assert_eq!(loaded.config.port, 1, "an empty variable is not set");
    sources.operator = None;
    assert_eq!(load(&sources).unwrap().config.port, 8088);
}

pub(crate) fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

#[test]
fn named_tables_are_replaced_whole_and_restrictions_add_up() {
    let operator = r#"
        [restrictions]
        deny_read = ["c", "a"]
        [policies.house]
        deny_write = ["x"]
        [backends.agent]
        type = "mock"
    "#;
    let project = "[restrictions]\ndeny_read = ['d']\n";
    let loaded = load_three(USER, project, operator).unwrap();
    let config = &loaded.config;
    assert_eq!(config.restrictions.deny_read, ["a", "b", "d", "c"]);
    assert!(
        loaded.origins["restrictions.deny_read[2]"]
            .to_string()
            .ends_with("project.toml:2")
    );
    assert!(config.policies["house"].deny_read.is_empty());
    assert!(matches!(
        config.backends["agent"],
        BackendConfig::Mock { .. }
    ));
    assert_eq!(config.prices["list"]["gpt-4.1"].input_usd_per_mtok, 3.0);
    assert!(
        loaded
            .origins
            .contains_key("prices.list.\"gpt-4.1\".input_usd_per_mtok")
    );
    let mut policy = PolicyProfile {
        deny_read: vec!["b".to_owned()],
        ..PolicyProfile::default()
    };
    config.restrictions.apply(&mut policy);
    assert_eq!(policy.deny_read, ["b", "a", "d", "c"]);
}

#[test]
fn paths_start_at_their_file() {
    let (dir, sources) = sources(USER, "", "");
    let config = load(&sources).unwrap().config;
    assert_eq!(config.state_dir, dir.path().join("state"));
    let BackendConfig::Mock { script, .. } = &config.backends["play"] else {
        panic!("{config:?}");
    };
    assert_eq!(*script, Some(dir.path().join("play.json")));
    let BackendConfig::Sidecar { command, .. } = &config.backends["agent"] else {
        panic!("{config:?}");
    };
    assert_eq!(Path::new(command), dir.path().join("bin/agent"));
}

#[test]
fn an_upstream_has_its_defaults_and_is_replaced_whole() {
    let operator = "[server]\ntls_cert = 'cert.pem'\n[upstreams.house]\ndialect = 'openai'\n\
                    base_url = 'http://[::1]:9/v1'\n";
    let user = format!("{USER}[server]\ntls_key = 'key.pem'\nmax_attempts = 2\n");
    let (dir, mut sources) = sources(&user, "", operator);
    let config = load(&sources).unwrap().config;
    let house = serde_json::to_value(&config.upstreams["house"]).unwrap();
    let expected = serde_json::json!({
        "dialect": "openai",
        "base_url": "http://[::1]:9/v1",
        "api_key_ttl_secs": 300,
        "models": ["*"],
        "weight": 1,
        "priority": 0,
        "connect_timeout_ms": 10_000,
        "first_byte_timeout_secs": 600,
        "idle_timeout_secs": 120,
        "total_timeout_secs": 3_600,
        "max_answer_mb": 64,
        "max_concurrent": 256,
    });
    assert_eq!(house, expected);
    let server = &config.server;
    assert_eq!(server.tls_key, Some(dir.path().join("key.pem")));
    assert_eq!(server.tls_cert, Some(dir.path().join("cert.pem")));
    assert_eq!((server.max_attempts, server.max_concurrent), (2, 4_096));
    sources
        .env
        .extend(env(&[("ABP_DEFAULT_BACKEND", "upstream:spare")]));
    assert!(load(&sources).is_ok());
    // What the operator's file made whole is not whole without it.
    sources.operator = None;
    let errors = load(&sources).unwrap_err().to_string();
    assert!(
        errors.contains("`server.tls_key` is set without"),
        "{errors}"
    );
}

#[test]
fn b9_a_project_file_cannot_take_over() {
    let project = fs::read_to_string("../../fixtures/config/project.toml").unwrap();
    let (dir, sources) = sources(USER, &project, "");
    let with = load(&sources).unwrap();
    fs::remove_file(dir.path().join("project.toml")).unwrap();
    let mut without = load(&sources).unwrap().config;
    without.restrictions.deny_write = vec!["migrations/**".to_owned()];
    assert_eq!(with.config, without, "only the restriction is taken");
    let refused = problems(&with)
        .iter()
        .filter(|one| **one == Problem::Refused)
        .count();
    assert_eq!(refused, 12, "{:#?}", with.warnings);
    assert!(with.warnings.iter().all(|one| match &one.origin {
        Some(SettingOrigin::File { path, line, .. }) => path.ends_with("project.toml") && *line > 0,
        _ => false,
    }));
}

#[test]
fn a_project_chooses_a_backend_where_the_user_did_not() {
    let backend = "[backends.agent]\ntype = 'mock'\n";
    let user_chose = format!("default_backend = 'mock'\n{backend}");
    let cases = [
        (backend, "default_backend = 'agent'", Some("agent"), None),
        (
            backend,
            "default_backend = 'other'",
            None,
            Some(Problem::UnknownName),
        ),
        (
            &user_chose,
            "default_backend = 'agent'",
            Some("mock"),
            Some(Problem::Refused),
        ),
        ("", "default_backend = 'auto'", Some("auto"), None),
    ];
    for (user, project, chosen, problem) in cases {
        let loaded = load_three(user, project, "").unwrap();
        assert_eq!(
            loaded.config.default_backend.as_deref(),
            chosen,
            "{project}"
        );
        assert_eq!(problems(&loaded), Vec::from_iter(problem), "{project}");
    }
}

#[test]
fn strict_makes_an_error_of_what_has_no_effect() {
    for text in ["prot = 1", "receipts_dir = 'x'"] {
        let (_dir, mut sources) = sources(text, "", "");
        assert_eq!(load(&sources).unwrap().warnings.len(), 1, "{text}");
        sources.strict = true;
        assert_eq!(load(&sources).unwrap_err().diagnostics.len(), 1, "{text}");
    }
}

/// Every variable of the table sets its setting, in a table of the configuration as well as at its top.
#[test]
fn every_variable_sets_its_setting() {
    let values = [
        ("ABP_DEFAULT_BACKEND", "mock"),
        ("ABP_DEFAULT_POLICY", "p"),
        ("ABP_DEFAULT_PRICES", "p"),
        ("ABP_HOME", "/v/state"),
        ("ABP_STAGES_DIR", "/v/stages"),
        ("ABP_HOSTS_DIR", "/v/hosts"),
        ("ABP_AGENTS_DIR", "/v/agents"),
        ("ABP_LOG_LEVEL", "trace"),
        ("ABP_APPROVAL_TIMEOUT_SECS", "7"),
        ("ABP_BIND_ADDRESS", "127.0.0.2"),
        ("ABP_PORT", "9"),
        ("ABP_SANDBOX_ENGINE", "landlock"),
        ("ABP_DATABASE_URL", "postgres://h/d"),
        ("ABP_STORE_KEYS", "/v/keys"),
        ("ABP_NODE", "n"),
    ];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("operator.toml");
    std::fs::write(&file, "[policies.p]\n[prices.p]\n").unwrap();
    for setting in settings().iter().filter(|one| one.successor().is_none()) {
        let Some(variable) = setting.env() else {
            continue;
        };
        let (_, value) = values.iter().find(|(name, _)| *name == variable).unwrap();
        let sources = Sources {
            env: env(&[(variable, value), ("HOME", "/h")]),
            operator: Some(file.clone()),
            ..at_home()
        };
        let loaded = load(&sources).unwrap_or_else(|errors| panic!("{variable}: {errors}"));
        let shown = render_json(&loaded, false);
        let pointer = format!("/{}", setting.key().replace('.', "/"));
        let found = shown
            .pointer(&pointer)
            .unwrap_or_else(|| panic!("{variable}"));
        let found = found.to_string();
        // Every state directory has stages of its own below the one that is set.
        let found = found.trim_matches('"');
        assert!(found.starts_with(value), "{variable}: {found}");
    }
}

#[test]
fn variables_and_flags_are_checked_too() {
    let cases = [
        (
            env(&[("ABP_PORT", "x")]),
            "env ABP_PORT: expected an integer from 1 to 65535",
        ),
        (
            env(&[("ABP_PORT", "0")]),
            "env ABP_PORT: expected an integer",
        ),
        (env(&[("ABP_LOG_LEVEL", "wran")]), "\"wran\" is not one of"),
        (
            env(&[("ABP_DEFAULT_BACKEND", "x")]),
            "env ABP_DEFAULT_BACKEND: there is no backend",
        ),
        (env(&[("ABP_HOME", "a\u{FFFD}")]), "not valid Unicode"),
        (env(&[("ABP_HOME", "~/a")]), "home directory"),
    ];
    for (env, expected) in cases {
        let errors = load(&Sources { env, ..at_home() }).unwrap_err();
        assert!(errors.to_string().contains(expected), "{errors}");
    }
    let odd = [
        ("ABP_RECEIPTS_DIR", Some(Problem::Deprecated)),
        ("ABP_DEFUALT_BACKEND", Some(Problem::UnknownKey)),
        ("ABP_CONFIG", None),
        ("ABP_SOMETHING_ELSE", None),
    ];
    for (name, problem) in odd {
        let env = env(&[(name, "x"), ("HOME", "/h")]);
        let loaded = load(&Sources { env, ..at_home() }).unwrap();
        assert_eq!(problems(&loaded), Vec::from_iter(problem), "{name}");
    }
    let known_backends = vec!["x".to_owned()];
    let env = env(&[("ABP_DEFAULT_BACKEND", "x"), ("HOME", "/h")]);
    assert!(
        load(&Sources {
            env,
            known_backends,
            ..at_home()
        })
        .is_ok()
    );
    let overrides = vec![Override {
        key: "colour".to_owned(),
        value: String::new(),
        flag: "--colour".to_owned(),
    }];
    assert!(
        load(&Sources {
            overrides,
            ..at_home()
        })
        .is_err()
    );
}

#[test]
fn the_usual_places() {
    let home = ("HOME", "/h");
    let named = ("ABP_CONFIG", "c.toml");
    let user = Some("/h/.config/abp/backplane.toml");
    let project = Some("w/backplane.toml");
    let xdg = Some("/x/abp/backplane.toml");
    let cases = [
        (vec![home], None, [user, project, None]),
        (
            vec![home, ("XDG_CONFIG_HOME", "/x")],
            None,
            [xdg, project, None],
        ),
        (vec![("XDG_CONFIG_HOME", "x")], None, [None, project, None]),
        (vec![named], None, [None, None, Some("c.toml")]),
        (
            vec![home, named],
            Some("f.toml"),
            [user, None, Some("f.toml")],
        ),
    ];
    for (pairs, flag, expected) in cases {
        let found = Sources::discover(env(&pairs), Path::new("w"), flag.map(PathBuf::from));
        let expected = expected.map(|path| path.map(PathBuf::from));
        assert_eq!(
            [found.user, found.project, found.operator],
            expected,
            "{pairs:?}"
        );
    }
}

#[test]
fn the_users_file_is_not_read_again_as_a_project() {
    let (_dir, mut sources) = sources(USER, "", "");
    sources.project.clone_from(&sources.user);
    let loaded = load(&sources).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    assert_eq!(loaded.files.len(), 1);
}
