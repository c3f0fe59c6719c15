//! Where state and stages are, and where relative paths start.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use abp_config::{
    Config, Layer, Override, Problem, Setting, SettingOrigin, Sources, load, render_toml, settings,
};
use serde_json::Value;

use crate::layers::env;

fn state_flag(value: &str) -> Override {
    Override {
        key: "state_dir".to_owned(),
        value: value.to_owned(),
        flag: "--state-dir".to_owned(),
    }
}

/// Takes a source away.
type Step<'a> = &'a dyn Fn(&mut Sources);

/// Each row has one source less than the one before.
#[test]
fn the_state_directory_is_the_first_that_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (user, operator) = (dir.path().join("u/b.toml"), dir.path().join("o/b.toml"));
    for path in [&user, &operator] {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "state_dir = 'kept'\n").unwrap();
    }
    let mut sources = Sources {
        user: Some(user),
        operator: Some(operator),
        working_dir: Some(PathBuf::from("/desk")),
        env: env(&[
            ("ABP_HOME", "home"),
            ("XDG_STATE_HOME", "/xdg"),
            ("XDG_CACHE_HOME", "/cache"),
            ("HOME", "/h"),
        ]),
        overrides: vec![state_flag("flag")],
        ..Sources::default()
    };
    let remove_xdg = |sources: &mut Sources| {
        sources
            .env
            .insert("XDG_STATE_HOME".to_owned(), "xdg".to_owned());
    };
    let steps: [(Step<'_>, PathBuf, &str); 6] = [
        (&|_| {}, "/desk/flag".into(), "flag --state-dir"),
        (
            &|s| s.overrides.clear(),
            "/desk/home".into(),
            "env ABP_HOME",
        ),
        (
            &|s| drop(s.env.remove("ABP_HOME")),
            dir.path().join("o/kept"),
            "o/b.toml:1",
        ),
        (
            &|s| s.operator = None,
            dir.path().join("u/kept"),
            "u/b.toml:1",
        ),
        (&|s| s.user = None, "/xdg/abp".into(), "env XDG_STATE_HOME"),
        // A relative base directory is ignored.
        (&remove_xdg, "/h/.local/state/abp".into(), "default"),
    ];
    for (step, expected, origin) in steps {
        step(&mut sources);
        let loaded = load(&sources).unwrap();
        assert_eq!(loaded.config.state_dir, expected);
        let found = loaded.origins["state_dir"].to_string();
        assert!(found.ends_with(origin), "{found}");
    }
    for home in [None, Some("h"), Some("")] {
        sources.env.remove("HOME");
        sources
            .env
            .extend(home.map(|home| ("HOME".to_owned(), home.to_owned())));
        let errors = load(&sources).unwrap_err();
        let [one] = errors.diagnostics.as_slice() else {
            panic!("{errors:?}");
        };
        assert_eq!(one.problem, Problem::NoDirectory);
        assert!(
            one.help.as_ref().unwrap().contains("--state-dir"),
            "{one:?}"
        );
    }
}

#[test]
fn a_project_does_not_say_where_state_is() {
    let dir = tempfile::tempdir().unwrap();
    let project = dir.path().join("backplane.toml");
    fs::write(&project, "state_dir = 'here'\nstages_dir = 'there'\n").unwrap();
    let sources = Sources {
        project: Some(project),
        env: env(&[("HOME", "/h")]),
        ..Sources::default()
    };
    let loaded = load(&sources).unwrap();
    let problems: Vec<_> = loaded.warnings.iter().map(|one| one.problem).collect();
    assert_eq!(problems, [Problem::Refused, Problem::Refused]);
    assert_eq!(loaded.config.state_dir, Path::new("/h/.local/state/abp"));
    assert!(loaded.config.stages_dir.starts_with("/h/.cache/abp/stages"));
}

fn stages(
    state: &str,
    stages: Option<&str>,
    variables: &[(&str, &str)],
) -> Result<PathBuf, String> {
    let mut sources = Sources {
        env: env(variables),
        overrides: vec![state_flag(state)],
        ..Sources::default()
    };
    sources.overrides.extend(stages.map(|value| Override {
        key: "stages_dir".to_owned(),
        value: value.to_owned(),
        flag: "--stages-dir".to_owned(),
    }));
    let loaded = load(&sources).map_err(|errors| errors.to_string())?;
    Ok(loaded.config.stages_dir)
}

#[test]
fn every_state_directory_has_its_own_stages() {
    let dir = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(dir.path()).unwrap();
    let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
    fs::create_dir(root.join("one")).unwrap();
    std::os::unix::fs::symlink("one", root.join("same")).unwrap();
    let home = [("HOME", "/h")];
    let named = |name: &str| stages(&at(name), None, &home).unwrap();
    let one = named("one");
    assert_eq!(one, named("same"), "the same directory by another name");
    assert_eq!(one, named("x/../one"));
    let before = named("two");
    fs::create_dir(root.join("two")).unwrap();
    assert_eq!(before, named("two"), "before and after it is made");
    assert_ne!(one, before);
    let digest = one.file_name().unwrap().to_str().unwrap();
    assert_eq!(one, Path::new("/h/.cache/abp/stages").join(digest));
    assert!(
        digest.len() == 16 && digest.bytes().all(|b| b.is_ascii_hexdigit()),
        "{digest}"
    );
    // The SHA-256 of "/s".
    let fixed = "8e295f312d7e62d4";
    let cases = [
        (
            None,
            vec![("HOME", "/h"), ("XDG_CACHE_HOME", "/c")],
            "/c/abp/stages",
        ),
        (
            None,
            vec![("HOME", "/h"), ("XDG_CACHE_HOME", "c")],
            "/h/.cache/abp/stages",
        ),
        (Some("/d"), vec![], "/d"),
    ];
    for (given, variables, expected) in cases {
        let found = stages("/s", given, &variables).unwrap();
        assert_eq!(found, Path::new(expected).join(fixed));
    }
    let again = format!("/d/{fixed}");
    assert_eq!(stages("/s", Some(&again), &[]).unwrap(), Path::new(&again));
}

#[test]
fn state_and_stages_are_never_inside_one_another() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::os::unix::fs::symlink("state", dir.path().join("link")).unwrap();
    let apart = "contain one another";
    let none = "no directory for stages";
    let home = ("HOME", "/h");
    let cases = [
        (at("state"), Some(at("state")), vec![home], apart),
        (at("state"), Some(at("state/stages")), vec![home], apart),
        (at("state/inner"), Some(at("state")), vec![home], apart),
        (at("state"), Some(at("link/stages")), vec![home], apart),
        (at("state"), Some(at("x/../state/y")), vec![home], apart),
        ("/h/.cache".to_owned(), None, vec![home], apart),
        (
            "/h/.cache/abp/stages/mine".to_owned(),
            None,
            vec![home],
            apart,
        ),
        (
            "/s".to_owned(),
            None,
            vec![("XDG_CACHE_HOME", "/s/c")],
            apart,
        ),
        ("/".to_owned(), None, vec![home], apart),
        ("/s".to_owned(), None, vec![], none),
        ("/s".to_owned(), None, vec![("HOME", "h")], none),
    ];
    for (state, given, variables, expected) in cases {
        let found = stages(&state, given.as_deref(), &variables).unwrap_err();
        assert!(found.contains(expected), "{state} {given:?}: {found}");
    }
    assert!(stages(&at("state"), Some(&at("state2")), &[]).is_ok());
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "loading makes nothing: {left:?}");
}

#[test]
fn a_place_that_cannot_be_read_in_full_is_an_error() {
    for name in [
        "HOME",
        "XDG_CONFIG_HOME",
        "XDG_STATE_HOME",
        "XDG_CACHE_HOME",
    ] {
        let mut sources = Sources {
            env: env(&[("HOME", "/h")]),
            ..Sources::default()
        };
        sources.env.insert(name.to_owned(), "/h\u{FFFD}".to_owned());
        let errors = load(&sources).unwrap_err().to_string();
        assert!(errors.contains(&format!("env {name}")), "{errors}");
    }
}

/// A file that sets every path, each to the same relative one.
const PATHS: &str = r#"
state_dir = "P"
stages_dir = "S"
hosts_dir = "P"
agents_dir = "P"
[server]
tls_cert = "P"
tls_key = "P"
roots = ["P"]
[store]
keys = "P"
[webhooks.w]
url = "https://h"
secret_file = "P"
[upstreams.u]
dialect = "openai"
base_url = "https://h"
api_key_file = "P"
ca_file = "P"
[mcp]
roots = ["P"]
[mcp.emulate]
roots = ["P"]
[mcp.servers.m]
command = "P"
[mcp.servers.m.sandbox]
workspace = "P"
read_only = ["P"]
[sandbox]
read_only = ["P"]
[backends.m]
type = "mock"
script = "P"
[backends.s]
type = "sidecar"
command = "P"
"#;

/// The dotted keys of the table of settings for every text in a configuration.
fn texts(value: &Value, path: &mut Vec<String>, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                path.push(if name.len() == 1 { "*" } else { name }.to_owned());
                texts(member, path, found);
                path.pop();
            }
        }
        Value::Array(items) => items.iter().for_each(|item| texts(item, path, found)),
        Value::String(text) => found.push((path.join("."), text.clone())),
        _ => {}
    }
}

fn paths(config: &Config) -> Vec<(String, String)> {
    let known: BTreeSet<_> = settings()
        .iter()
        .filter(|one| one.is_path())
        .map(Setting::key)
        .collect();
    let mut found = Vec::new();
    texts(
        &serde_json::to_value(config).unwrap(),
        &mut Vec::new(),
        &mut found,
    );
    found.retain(|(key, _)| known.contains(key));
    let seen: BTreeSet<_> = found.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(seen, known, "the file sets every path");
    found
}

/// Absolute, home-relative and relative paths, in files that are named absolutely and relatively.
#[test]
fn every_path_of_a_file_starts_at_that_file() {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    fs::create_dir_all(work.join("conf")).unwrap();
    let file = work.join("conf/backplane.toml");
    let file_dir = work.join("conf");
    // Tests run in the crate's directory, so a relative name of the file leads there from here.
    let here = std::env::current_dir().unwrap();
    let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
    let relative = up.join(file.strip_prefix("/").unwrap());
    let written = [
        ("bin/agent", file_dir.join("bin/agent")),
        ("./agent", file_dir.join("./agent")),
        ("../agent", file_dir.join("../agent")),
        ("~/agent", PathBuf::from("/h/agent")),
        ("/opt/agent", PathBuf::from("/opt/agent")),
    ];
    for (given, expected) in written {
        let text = PATHS.replace('P', given).replace("\"S\"", "'/elsewhere'");
        fs::write(&file, text).unwrap();
        for (layer, name) in [
            (Layer::User, file.clone()),
            (Layer::Operator, file.clone()),
            (Layer::Operator, relative.clone()),
        ] {
            let mut sources = Sources {
                working_dir: Some(here.clone()),
                env: env(&[("HOME", "/h")]),
                ..Sources::default()
            };
            match layer {
                Layer::User => sources.user = Some(name),
                _ => sources.operator = Some(name),
            }
            let loaded = load(&sources).unwrap();
            for (key, found) in paths(&loaded.config) {
                let found = Path::new(&found);
                assert!(found.is_absolute(), "{key}: {found:?}");
                if key == "stages_dir" {
                    assert!(found.starts_with("/elsewhere"), "{found:?}");
                } else {
                    let same = |path: &Path| -> PathBuf {
                        let mut out = PathBuf::new();
                        for part in path.components() {
                            match part {
                                std::path::Component::ParentDir => drop(out.pop()),
                                part => out.push(part),
                            }
                        }
                        out
                    };
                    assert_eq!(same(found), same(&expected), "{key} = {given:?}");
                }
            }
        }
    }
}

#[test]
fn a_command_without_a_separator_is_a_name_to_look_up() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("backplane.toml");
    fs::write(dir.path().join("agent"), "").unwrap();
    fs::write(
        &file,
        "[backends.s]\ntype = 'sidecar'\ncommand = 'agent'\n[mcp.servers.m]\ncommand = 'agent'\n",
    )
    .unwrap();
    let sources = Sources {
        operator: Some(file),
        env: env(&[("HOME", "/h")]),
        ..Sources::default()
    };
    let config = serde_json::to_value(load(&sources).unwrap().config).unwrap();
    assert_eq!(config["backends"]["s"]["command"], "agent");
    assert_eq!(config["mcp"]["servers"]["m"]["command"], "agent");
}

#[test]
fn paths_of_variables_start_at_the_process() {
    let mut sources = Sources {
        working_dir: Some(PathBuf::from("/desk")),
        env: env(&[
            ("HOME", "/h"),
            ("ABP_HOME", "state"),
            ("ABP_STAGES_DIR", "../stages"),
            ("ABP_HOSTS_DIR", "hosts"),
        ]),
        ..Sources::default()
    };
    let config = load(&sources).unwrap().config;
    assert_eq!(config.state_dir, Path::new("/desk/state"));
    assert_eq!(config.hosts_dir, Some(PathBuf::from("/desk/hosts")));
    assert!(config.stages_dir.starts_with("/desk/../stages"));
    // Where the working directory is gone, nothing is guessed.
    for working_dir in [None, Some(PathBuf::from("work"))] {
        sources.working_dir = working_dir;
        let errors = load(&sources).unwrap_err();
        assert_eq!(errors.diagnostics.len(), 3, "{errors:?}");
        assert!(errors.to_string().contains("is relative"), "{errors}");
    }
}

#[test]
fn a_shown_configuration_means_the_same() {
    let sources = Sources {
        env: env(&[("HOME", "/h"), ("ABP_STAGES_DIR", "/d")]),
        ..Sources::default()
    };
    let loaded = load(&sources).unwrap();
    assert!(matches!(
        &loaded.origins["stages_dir"],
        SettingOrigin::Env { name } if name == "ABP_STAGES_DIR"
    ));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shown.toml");
    fs::write(&file, render_toml(&loaded, true)).unwrap();
    let again = Sources {
        operator: Some(file),
        ..Sources::default()
    };
    assert_eq!(load(&again).unwrap().config, loaded.config);
}
