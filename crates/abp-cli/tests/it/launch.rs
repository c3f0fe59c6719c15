//! Agents that are started by `abp launch`, with stand-ins for the real ones.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::desk::{Desk, Ran, text};
use crate::served::{Served, say, within_a_second};

/// An agent that writes down what it was given, waits until it may end, and ends with 7.
const AGENT: &str = r#"#!/bin/sh
env -0 > env
printf '%s\n' "$@" > args
[ "$1" = --settings ] && cp "$2" settings.json
[ -n "$GEMINI_CLI_HOME" ] && cp "$GEMINI_CLI_HOME/.gemini/settings.json" settings.json
trap 'exit 9' TERM
touch started
while [ ! -e may-end ]; do sleep 0.05; done
exit 7
"#;

/// A desk with all agents on its search path.
struct Agents {
    desk: Desk,
}

/// What an agent was given.
struct Given {
    environment: BTreeMap<String, String>,
    arguments: Vec<String>,
    settings: Value,
}

impl Agents {
    fn new() -> Self {
        let desk = Desk::new();
        std::fs::create_dir(desk.path("bin")).unwrap();
        for name in ["claude", "codex", "gemini", "copilot", "kimi", "opencode"] {
            desk.write(&format!("bin/{name}"), AGENT);
            let executable = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(desk.path("bin").join(name), executable).unwrap();
        }
        Self { desk }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let path = format!("{}:/usr/bin:/bin", self.desk.path("bin").display());
        let mut command = self.desk.command(&[&["launch"], arguments].concat());
        // Nobody listens on port 1.
        command.env("PATH", path).env("ABP_LISTEN", "127.0.0.1:1");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts an agent and waits until it has told what it was given.
    fn start(&self, mut command: Command) -> (Child, Given) {
        for left in ["started", "may-end", "settings.json"] {
            drop(std::fs::remove_file(self.desk.path(left)));
        }
        let child = command.spawn().unwrap();
        within_a_second(|| self.desk.path("started").exists().then_some(()));
        let read = |name: &str| std::fs::read_to_string(self.desk.path(name));
        let environment = read("env").unwrap();
        let variables = environment.split_terminator('\0');
        let variables = variables.map(|line| line.split_once('=').unwrap());
        let given = Given {
            environment: variables
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect(),
            arguments: read("args").unwrap().lines().map(str::to_owned).collect(),
            settings: read("settings.json")
                .map_or(Value::Null, |text| serde_json::from_str(&text).unwrap()),
        };
        (child, given)
    }

    fn end(&self, child: Child) -> Ran {
        self.desk.write("may-end", "");
        Ran::new(child.wait_with_output().unwrap())
    }

    fn keys(&self) -> Vec<Value> {
        let (_, listed) = self.desk.json(&["keys", "list", "--all"]);
        listed["keys"].as_array().unwrap().clone()
    }
}

impl Given {
    /// The gateway's address and the key, wherever the agent looks for them.
    fn gateway(&self, agent: &str) -> (String, String) {
        let variable = |name: &str| self.environment[name].clone();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (base, key) = match agent {
            "claude" => {
                let set = &self.settings["env"];
                (
                    text(&set["ANTHROPIC_BASE_URL"]),
                    text(&set["ANTHROPIC_AUTH_TOKEN"]),
                )
            }
            "codex" => {
                let settings = self.arguments.join(" ");
                let (_, rest) = settings.split_once("base_url=\"").unwrap();
                let (base, _) = rest.split_once('"').unwrap();
                (base.to_owned(), variable("ABP_LAUNCH_KEY"))
            }
            "gemini" => (
                variable("GOOGLE_GEMINI_BASE_URL"),
                variable("GEMINI_API_KEY"),
            ),
            "copilot" => (
                variable("COPILOT_PROVIDER_BASE_URL"),
                variable("COPILOT_PROVIDER_BEARER_TOKEN"),
            ),
            "kimi" => (
                variable("KIMI_MODEL_BASE_URL"),
                variable("KIMI_MODEL_API_KEY"),
            ),
            _ => {
                let config: Value =
                    serde_json::from_str(&self.environment["OPENCODE_CONFIG_CONTENT"]).unwrap();
                let options = &config["provider"]["abp"]["options"];
                (text(&options["baseURL"]), text(&options["apiKey"]))
            }
        };
        (base.trim_end_matches("/v1").to_owned(), key)
    }
}

#[test]
fn every_agent_gets_a_gateway_and_a_key_of_its_own_until_it_ends() {
    // The agent, and a variable of its user that would lead it past the gateway.
    for (agent, astray) in [
        ("claude", "ANTHROPIC_API_KEY"),
        ("codex", ""),
        ("gemini", "GOOGLE_GENAI_USE_VERTEXAI"),
        ("copilot", "COPILOT_PROVIDER_API_KEY_COMMAND"),
        ("kimi", ""),
        ("opencode", ""),
    ] {
        let agents = Agents::new();
        let mut command = agents.command(&[agent, "--model", "mock", "--", "do it", "-p"]);
        if !astray.is_empty() {
            command.env(astray, "elsewhere");
        }
        let (child, given) = agents.start(command);
        assert!(
            given
                .arguments
                .ends_with(&["do it".to_owned(), "-p".to_owned()])
        );
        assert_eq!(given.environment.get(astray), None, "{agent}");
        let (base, key) = given.gateway(agent);
        assert!(!given.arguments.join(" ").contains(&key), "{agent}");
        let operator = agents.desk.state("gateway.key");
        assert_ne!(std::fs::read_to_string(operator).unwrap().trim(), key);
        let (status, answer) = say(&base, &key, "hello");
        assert_eq!(status, 200, "{agent}: {answer:#}");
        let told = format!(
            "{:?} {:?} {}",
            given.environment, given.arguments, given.settings
        );
        assert!(
            told.contains("mock"),
            "{agent} is not told which model: {told}"
        );
        assert!(
            told.contains("label"),
            "{agent} may be refused for a loss: {told}"
        );

        let ran = agents.end(child);
        assert_eq!(ran.status, 7, "{}{}", ran.stdout, ran.stderr);
        let [made] = agents.keys().try_into().unwrap();
        assert_eq!(made["state"], "revoked");
        assert_eq!(made["requests"], 1);
        let address = base.strip_prefix("http://").unwrap();
        assert!(
            std::net::TcpStream::connect(address).is_err(),
            "the gateway is still there"
        );
        if let Some(home) = given.environment.get("GEMINI_CLI_HOME") {
            assert!(!std::path::Path::new(home).exists());
        }
    }
}

#[test]
fn a_gateway_that_runs_is_used_where_it_knows_our_keys() {
    let agents = Agents::new();
    let served = Served::start(&agents.desk, &[]);
    let launched = |arguments: &[&str]| {
        let mut command = agents.command(&[&["kimi"], arguments].concat());
        command.env("ABP_LISTEN", served.address());
        let (child, given) = agents.start(command);
        let (base, key) = given.gateway("kimi");
        let (status, _) = say(&base, &key, "hello");
        assert_eq!(status, 200);
        agents.end(child);
        (base, key)
    };
    let (base, key) = launched(&["--budget-usd", "1"]);
    assert_eq!(base, served.base);
    within_a_second(|| (served.say(&key, "hello").0 == 401).then_some(()));
    assert_eq!(agents.keys()[0]["budget_usd"], 1.0);
    assert_ne!(launched(&["--state-dir", "elsewhere"]).0, served.base);
    let by_name = [
        "--model",
        "mock",
        "--state-dir",
        "elsewhere",
        "--base-url",
        &served.base,
    ];
    let operator = agents.desk.state("gateway.key");
    let with_key = ["--key-file", text(&operator)];
    let (base, key) = launched(&[&by_name[..], &with_key].concat());
    assert_eq!((&base, &key), (&served.base, &served.key));
    let ran = agents.command(&[&["kimi"], &by_name[..]].concat()).output();
    let ran = Ran::new(ran.unwrap());
    assert_eq!(ran.status, 4, "{}", ran.stderr);
    assert!(ran.stderr.contains("--key-file"), "{}", ran.stderr);
    let nobody = [
        "kimi",
        "--model",
        "mock",
        "--base-url",
        "http://127.0.0.1:1",
    ];
    let ran = Ran::new(agents.command(&nobody).output().unwrap());
    assert_eq!(ran.status, 6, "{}", ran.stderr);
}

#[test]
fn a_request_to_end_is_the_agents() {
    let agents = Agents::new();
    let (child, _) = agents.start(agents.command(&["claude"]));
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    let ran = Ran::new(child.wait_with_output().unwrap());
    assert_eq!(ran.status, 9, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(agents.keys()[0]["state"], "revoked");
}

#[test]
fn an_agent_that_is_not_there_can_be_installed() {
    let agents = Agents::new();
    let mut command = agents.command(&["codex"]);
    let ran = Ran::new(command.env("PATH", "/usr/bin:/bin").output().unwrap());
    assert_eq!(ran.status, 6);
    let told = "npm install --global @openai/codex";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    assert!(agents.keys().is_empty(), "a key was made for nobody");
}

#[test]
fn print_starts_and_makes_nothing() {
    let agents = Agents::new();
    let mut command = agents.command(&["claude", "--print", "--model", "a model", "--", "it's me"]);
    let ran = Ran::new(command.output().unwrap());
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    for line in [
        "unset ANTHROPIC_API_KEY",
        r#"#     "ANTHROPIC_BASE_URL": "http://127.0.0.1:PORT","#,
        r#"#     "ANTHROPIC_MODEL": "a model","#,
        r"claude --settings DIRECTORY/claude.json 'it'\''s me'",
    ] {
        assert!(
            ran.stdout.lines().any(|told| told == line),
            "{line}: {}",
            ran.stdout
        );
    }
    assert!(!agents.desk.path("started").exists());
    assert!(!agents.desk.state("").exists());
    let mut command = agents.command(&["codex", "--print", "--json"]);
    let ran = Ran::new(command.output().unwrap());
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(told["gateway"], "embedded");
    assert_eq!(told["set"]["ABP_LAUNCH_KEY"], "KEY");
}

#[test]
fn what_cannot_be_known_is_asked_for() {
    let agents = Agents::new();
    agents.desk.write(
        "patterns.toml",
        "[upstreams.vendor]\ndialect = \"claude\"\nbase_url = \"http://127.0.0.1:1\"\nmodels = [\"claude-*\"]\n",
    );
    agents.desk.write("wrong.key", "abp_0123456789abcdef0123");
    let cases: [(&[&str], u8, &str); 5] = [
        (
            &["opencode", "--print", "--config", "patterns.toml"],
            2,
            "say with --model",
        ),
        (
            &["kimi", "--print", "--base-url", "http://127.0.0.1:1"],
            2,
            "say with --model",
        ),
        (
            &["codex", "--key-file", "absent.key"],
            2,
            "--key-file absent.key cannot be read",
        ),
        (
            &["codex", "--key-file", "wrong.key"],
            4,
            "do not include it",
        ),
        (
            &["codex", "--key-file", "wrong.key", "--budget-usd", "2"],
            2,
            "cannot be used with",
        ),
    ];
    for (arguments, status, told) in cases {
        let ran = Ran::new(agents.command(arguments).output().unwrap());
        let place = format!("{arguments:?}: {} {}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(told), "{place}");
        assert_eq!(ran.status, i32::from(status), "{place}");
        assert!(!agents.desk.path("started").exists(), "{place}");
    }
    let chosen = [
        "opencode",
        "--print",
        "--config",
        "patterns.toml",
        "--model",
        "claude-x",
    ];
    let ran = Ran::new(agents.command(&chosen).output().unwrap());
    assert!(
        ran.stdout.contains("abp/claude-x"),
        "{} {}",
        ran.stdout,
        ran.stderr
    );
}

/// Gemini CLI looks for everything in one directory: what the user has there comes along.
#[test]
fn gemini_keeps_what_its_user_set_up() {
    let agents = Agents::new();
    let own = agents.desk.home().join(".gemini");
    std::fs::create_dir_all(&own).unwrap();
    let write = |name: &str, content: &str| std::fs::write(own.join(name), content).unwrap();
    write(
        "settings.json",
        r#"{"mcpServers":{"mine":{"command":"x"}},"security":{"auth":{"selectedType":"oauth-personal"},"other":1}}"#,
    );
    write("trustedFolders.json", "{}");
    let before = std::fs::read(own.join("settings.json")).unwrap();
    let mut command = agents.command(&["gemini"]);
    command.env("HOME", agents.desk.home());
    let (child, given) = agents.start(command);
    let settings = &given.settings;
    assert_eq!(settings["mcpServers"]["mine"]["command"], "x", "{settings}");
    assert_eq!(settings["security"]["other"], 1, "{settings}");
    let auth = &settings["security"]["auth"]["selectedType"];
    assert_eq!(auth, "gemini-api-key", "{settings}");
    let home = std::path::PathBuf::from(&given.environment["GEMINI_CLI_HOME"]);
    assert!(home.join(".gemini/trustedFolders.json").exists());
    agents.end(child);
    let after = std::fs::read(own.join("settings.json")).unwrap();
    assert_eq!(before, after);
}
