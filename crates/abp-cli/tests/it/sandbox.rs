//! Sandboxes: what agents and programs of the command line can do in one, and what is said of it.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::desk::{Desk, Ran};
use crate::policy::rule;
use crate::sidecar::{desk_with, run};

/// A sidecar that writes what came of each attempt to `tried.txt`, line by line.
const HOSTILE: &str = r#"
try() { name=$1; shift; if "$@" >/dev/null 2>&1; then echo "$name done" >> tried.txt; else echo "$name failed" >> tried.txt; fi; }
overwrite() { sh -c 'echo forged > "$1"' sh "$1"; }
hello; SEEN=/tmp/seen; run
try locked overwrite locked/file
try locked-new overwrite locked/new
try locked-rename mv locked away
try lock-file overwrite Cargo.lock
try read-home cat "$CANARY"
try read-source cat "$SOURCE/.env"
try source overwrite "$SOURCE/forged.txt"
try home overwrite "$CANARY"
try read-state ls "$STATE"
try connect python3 -c "import socket, os; socket.create_connection(('127.0.0.1', int(os.environ['PORT'])), 2)"
try proxied env -u no_proxy -u NO_PROXY python3 -c "import urllib.request as r, os; r.urlopen('http://127.0.0.1:' + os.environ['PORT'], timeout=5)"
try named python3 -c "import urllib.request as r; r.urlopen('http://evil.test/', timeout=5)"
final '{"outcome":"complete"}'
"#;

/// What an agent in a sandbox may do under a policy, and who held each rule, in one run.
#[test]
fn d15_d16_each_rule_is_held_by_the_layer_that_the_receipt_names() {
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    let desk = desk_with(HOSTILE, "", "");
    let canary = desk.home().join("canary");
    std::fs::write(&canary, "alive").unwrap();
    let settings = format!(
        "SOURCE = {:?}\nCANARY = {canary:?}\nSTATE = {:?}\nPORT = \"{}\"\n",
        desk.path(""),
        desk.state(""),
        outside.local_addr().unwrap().port()
    );
    let config = std::fs::read_to_string(desk.path("operator.toml")).unwrap();
    desk.write("operator.toml", format!("{config}{settings}"));
    std::fs::create_dir(desk.path("locked")).unwrap();
    desk.write("locked/file", "kept\n")
        .write(".env", "SECRET=1\n");
    let policy = json!({"deny_write": ["locked", "*.lock"], "allow_network": ["example.test"]});
    desk.write("policy.json", policy.to_string());
    let (status, receipt) = run(&desk, &["--policy", "policy.json"]);
    // The new file that matches a pattern is found by the verification and fails the run.
    assert_eq!(
        (status, &receipt["error"]["code"]),
        (4, &json!("POLICY_DENIED")),
        "{receipt:#}"
    );

    let diff = receipt["verification"]["git_diff"].as_str().unwrap();
    let tried = diff.split("+++ b/tried.txt").nth(1).unwrap();
    let succeeded: Vec<&str> = tried
        .lines()
        .filter(|line| line.ends_with(" done"))
        .collect();
    // Its own copy is its to write, and so are the private directories that have the names of the source
    // and of the home directory.
    let expected = ["+lock-file done", "+source done", "+home done"];
    assert_eq!(succeeded, expected, "{tried}");
    assert_eq!(tried.matches(" failed").count(), 9, "{tried}");
    assert_eq!(std::fs::read_to_string(canary).unwrap(), "alive");
    assert!(!desk.path("forged.txt").exists() && !desk.path("Cargo.lock").exists());

    let held = |list: &str, pattern: &str| {
        let rule = rule(&receipt, list, pattern);
        (
            rule["enforced_by"].clone(),
            rule["by"].clone(),
            rule["denied"].clone(),
        )
    };
    let network = "network namespace and egress proxy";
    assert_eq!(
        held("deny_write", "locked"),
        (json!("kernel"), json!("mount namespace"), json!(0))
    );
    assert_eq!(
        held("deny_write", "*.lock"),
        (json!("host"), json!("verification"), json!(1))
    );
    assert_eq!(
        held("deny_read", "**/.env"),
        (json!("host"), json!("not staged"), json!(0))
    );
    assert_eq!(
        held("allow_network", "example.test"),
        (json!("kernel"), json!(network), json!(0))
    );
    assert_eq!(
        held("allow_network", "<not listed>").2,
        json!(2),
        "{receipt:#}"
    );
    let sandbox = &receipt["enforcement"]["sandbox"];
    assert_eq!(
        (&sandbox["engine"], &sandbox["network"]),
        (&json!("namespaces"), &json!("proxied"))
    );
    let layers = sandbox["layers"].to_string();
    for layer in [
        "user namespace",
        "mount namespace",
        "network namespace",
        "seccomp",
    ] {
        assert!(layers.contains(layer), "{layers}");
    }
    let trace = receipt["trace"].as_array().unwrap().iter();
    let refused: Vec<&Value> = trace
        .filter(|event| event["type"] == "network_connection")
        .collect();
    let hosts: Vec<_> = refused.iter().map(|event| &event["host"]).collect();
    assert_eq!(hosts, [&json!("127.0.0.1"), &json!("evil.test")]);
    assert!(
        refused
            .iter()
            .all(|event| event["allowed"] == false && event["origin"] == "host")
    );
}

/// A demand is checked rule by rule, on what the open session holds.
#[test]
fn d15_a_demand_for_the_kernel_is_refused_where_one_rule_cannot_be_mounted() {
    let script = r#"hello; SEEN=/tmp/seen; run; final '{"outcome":"complete"}'"#;
    let desk = desk_with(script, "", "");
    let cases = [
        (json!({"deny_write": ["readme.txt"]}), 0),
        (json!({"deny_write": ["readme.txt", "*.lock"]}), 3),
        // A placeholder is mounted where the directory above it is there.
        (json!({"deny_write": ["not-there.txt"]}), 0),
        (json!({"deny_write": ["absent/not-there.txt"]}), 3),
        (json!({"deny_network": ["*"]}), 0),
    ];
    for (policy, expected) in cases {
        desk.write("policy.json", policy.to_string());
        let flags = ["--policy", "policy.json", "--no-default-policy"];
        let demand = ["--param", "abp.enforcement=kernel"];
        let (status, receipt) = run(&desk, &[&flags[..], &demand].concat());
        assert_eq!(status, expected, "{policy}: {receipt:#}");
    }
}

/// D17: without the kernel's help nothing starts, unless the operator says so, which is recorded.
#[test]
fn d17_a_sandbox_that_cannot_be_had_starts_nothing() {
    let script = r#"hello; SEEN=/tmp/seen; run; touch started; final '{"outcome":"complete"}'"#;
    let desk = desk_with(script, "", "engine = \"namespaces\"");
    let words = [
        "run",
        "--config",
        "operator.toml",
        "--backend",
        "agent",
        "--task",
        "t",
        "--json",
    ];
    let without = |words: &[&str]| {
        let inside = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
        let shell = [
            "--user",
            "--map-root-user",
            "sh",
            "-c",
            inside,
            env!("CARGO_BIN_EXE_abp"),
        ];
        let command = desk.program("unshare", &[&shell, words].concat()).output();
        Ran::new(command.unwrap())
    };
    let refused = without(&words);
    assert_eq!(refused.status, 6, "{}{}", refused.stdout, refused.stderr);
    let shown = format!("{}{}", refused.stdout, refused.stderr);
    assert!(shown.contains("SANDBOX_UNAVAILABLE"), "{shown}");
    assert!(shown.contains("max_user_namespaces"), "{shown}");

    // A plan on such a machine expects what Landlock can hold, and no more.
    let config = std::fs::read_to_string(desk.path("operator.toml")).unwrap();
    desk.write(
        "operator.toml",
        config.replace("\"namespaces\"", "\"auto\""),
    );
    let policy = json!({"deny_write": ["readme.txt"], "deny_network": ["*"]});
    desk.write("policy.json", policy.to_string());
    let more = [
        "--policy",
        "policy.json",
        "--no-default-policy",
        "--dry-run",
    ];
    let planned = without(&[&words[..], &more].concat());
    let plan: Value = serde_json::from_str(&planned.stdout).unwrap();
    let rules = plan["policy"]["rules"].as_array().unwrap().iter();
    let held: Vec<_> = rules
        .map(|rule| (&rule["enforced_by"], &rule["by"]))
        .collect();
    let expected = [
        (&json!("host"), &json!("verification")),
        (&json!("host"), &json!("landlock and seccomp")),
    ];
    assert_eq!(held, expected, "{plan:#}");

    let desk = desk_with(script, "", "engine = \"none\"");
    let (status, receipt) = run(&desk, &[]);
    assert_eq!(status, 0, "{receipt:#}");
    let sandbox = json!({"engine": "none", "network": "open"});
    assert_eq!(receipt["enforcement"]["sandbox"], sandbox);
    let notes = receipt["workspace"]["notes"].to_string();
    assert!(notes.contains("not sandboxed"), "{notes}");
}

/// The trace lists so many connections and no more; every refusal is counted.
#[test]
fn refusals_are_counted_beyond_those_that_are_listed() {
    let script = r#"hello; SEEN=/tmp/seen; run
python3 -c "
import socket
for number in range(1200):
    proxy = socket.create_connection(('127.0.0.1', 3128), 10)
    proxy.sendall(b'CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n')
    while proxy.recv(4096):
        pass
" >&2
final '{"outcome":"complete"}'"#;
    let desk = desk_with(script, "", "");
    desk.write(
        "policy.json",
        json!({"allow_network": ["example.test"]}).to_string(),
    );
    let (status, receipt) = run(&desk, &["--policy", "policy.json"]);
    assert_eq!(status, 0, "{receipt:#}");
    let denied = &rule(&receipt, "allow_network", "<not listed>")["denied"];
    assert_eq!(denied, &json!(1200));
    let trace = receipt["trace"].as_array().unwrap().iter();
    let listed = trace
        .clone()
        .filter(|event| event["type"] == "network_connection");
    assert_eq!(listed.count(), 1000);
    let mut warnings = trace.filter(|event| event["type"] == "warning");
    assert!(warnings.any(|event| event["message"].to_string().contains("1000 connections")));
}

/// What the operator opens is open, and said to be.
#[test]
fn an_open_network_and_lent_paths_are_what_they_say() {
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = outside.local_addr().unwrap().port();
    let desk = Desk::new();
    let lent = tempfile::tempdir().unwrap();
    std::fs::write(lent.path().join("model"), "weights").unwrap();
    let lent = lent.path().canonicalize().unwrap();
    let script = format!(
        "cat {path}/model && ! echo x > {path}/new 2>/dev/null && echo \" $GIVEN$OTHER\"",
        path = lent.display()
    );
    let path = lent.to_str().unwrap();
    let words = [
        "sandbox",
        "run",
        "--read-only",
        path,
        "--env",
        "GIVEN=given",
    ];
    let ran = desk.abp(&[&words[..], &["--", "sh", "-c", &script]].concat());
    assert_eq!(
        (ran.status, &*ran.stdout),
        (0, "weights given\n"),
        "{}",
        ran.stderr
    );
    let unlent = desk.abp(&["sandbox", "run", "--", "sh", "-c", &script]);
    assert_ne!(unlent.status, 0);

    let connect = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 2)");
    let connects = |config: &str| {
        desk.write("operator.toml", config);
        let words = ["sandbox", "run", "--config", "operator.toml", "--"];
        desk.abp(&[&words[..], &["python3", "-c", &connect]].concat())
            .status
            == 0
    };
    assert!(!connects(""));
    assert!(connects("[sandbox]\nnetwork = \"open\"\n"));
    let explain = [
        "sandbox",
        "explain",
        "--config",
        "operator.toml",
        "--network",
        "example.test",
    ];
    let (_, plan) = desk.json(&explain);
    assert_eq!(plan["sandbox"]["network"], "open");
    assert_eq!(plan["rules"][0]["enforced_by"], "none", "{plan:#}");
}

/// Where there are no namespaces: no paths outside the list, and no network.
#[test]
fn d16_landlock_alone_confines_a_run() {
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    let script = r#"
try() { name=$1; shift; if "$@" >/dev/null 2>&1; then echo "$name done" >> tried.txt; else echo "$name failed" >> tried.txt; fi; }
hello; SEEN=$TMPDIR/seen; run
try temporary sh -c 'echo x > "$TMPDIR/file"'
try source sh -c 'echo forged > "$SOURCE/forged.txt"'
try read-source cat "$SOURCE/.env"
try read-home cat "$CANARY"
try read-state ls "$STATE"
try connect python3 -c "import socket, os; socket.create_connection(('127.0.0.1', int(os.environ['PORT'])), 2)"
final '{"outcome":"complete"}'"#;
    let desk = desk_with(script, "", "engine = \"landlock\"");
    let canary = desk.home().join("canary");
    std::fs::write(&canary, "alive").unwrap();
    let config = std::fs::read_to_string(desk.path("operator.toml")).unwrap();
    let settings = format!(
        "SOURCE = {:?}\nCANARY = {canary:?}\nSTATE = {:?}\nPORT = \"{}\"\n",
        desk.path(""),
        desk.state(""),
        outside.local_addr().unwrap().port()
    );
    desk.write("operator.toml", format!("{config}{settings}"))
        .write(".env", "SECRET=1\n");
    desk.write(
        "policy.json",
        json!({"allow_network": ["127.0.0.1:*"]}).to_string(),
    );
    let (status, receipt) = run(&desk, &["--policy", "policy.json"]);
    assert_eq!(status, 0, "{receipt:#}");
    let sandbox = &receipt["enforcement"]["sandbox"];
    assert_eq!(
        (&sandbox["engine"], &sandbox["network"]),
        (&json!("landlock"), &json!("closed"))
    );
    let diff = receipt["verification"]["git_diff"].as_str().unwrap();
    let tried = diff.split("+++ b/tried.txt").nth(1).unwrap();
    let tried: Vec<&str> = tried
        .lines()
        .filter_map(|line| line.strip_prefix('+'))
        .collect();
    let expected = [
        "temporary done",
        "source failed",
        "read-source failed",
        "read-home failed",
        "read-state failed",
        "connect failed",
    ];
    assert_eq!(tried, expected, "{diff}");
    assert!(!desk.path("forged.txt").exists());
    let network = rule(&receipt, "allow_network", "127.0.0.1:*");
    assert_eq!(network["by"], "landlock and seccomp");
}

#[test]
fn a_program_of_the_command_line_is_confined() {
    let desk = Desk::new();
    std::fs::create_dir(desk.path("locked")).unwrap();
    desk.write("locked/file", "kept\n")
        .write("secret.txt", "s\n");
    let policy = json!({"deny_write": ["locked", "*.pem"], "deny_read": ["secret.txt"]});
    desk.write("policy.json", policy.to_string());
    let script = "echo made > made; rm locked/file; mv locked away; cat secret.txt; \
                  echo x > ../outside; python3 -c \
                  \"import urllib.request as r; r.urlopen('http://evil.test/', timeout=5)\"; ls -A ~; exit 7";
    let run = [
        "sandbox",
        "run",
        "--policy",
        "policy.json",
        "--",
        "sh",
        "-c",
        script,
    ];
    let ran = desk.abp(&run);
    assert_eq!((ran.status, &*ran.stdout), (7, ""), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("refused connection to evil.test"),
        "{}",
        ran.stderr
    );
    assert_eq!(
        std::fs::read_to_string(desk.path("made")).unwrap(),
        "made\n"
    );
    assert_eq!(
        std::fs::read_to_string(desk.path("locked/file")).unwrap(),
        "kept\n"
    );

    let (status, plan) = desk.json(&["sandbox", "explain", "--policy", "policy.json"]);
    assert_eq!(status, 0);
    let rules: Vec<_> = plan["rules"].as_array().unwrap().iter().collect();
    let held: Vec<_> = rules
        .iter()
        .map(|rule| (&rule["pattern"], &rule["enforced_by"]))
        .collect();
    let expected = [
        (&json!("secret.txt"), &json!("kernel")),
        (&json!("locked"), &json!("kernel")),
        (&json!("*.pem"), &json!("none")),
    ];
    assert_eq!(held, expected, "{plan:#}");

    // The home directory holds the keys.
    let home = desk.home();
    let refused = desk.abp(&[
        "sandbox",
        "run",
        "--workspace",
        home.to_str().unwrap(),
        "--",
        "true",
    ]);
    assert_eq!(refused.status, 6, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("home directory"),
        "{}",
        refused.stderr
    );
    let missing = desk.abp(&["sandbox", "run", "--", "no-such-program"]);
    assert_ne!(missing.status, 0);
    assert!(
        missing.stderr.contains("no-such-program"),
        "{}",
        missing.stderr
    );
}

/// A run tests its project in the stage, with what the user's own builds left: dependencies are there, can be
/// written, and no byte of it reaches the source or the changes.
#[test]
fn runs_can_test_projects_with_lent_dependencies() {
    let script = r#"hello; SEEN=/tmp/seen; run
{ cat node_modules/dep/index.js; cat node_modules/dep/.env && echo leaked
echo cache > node_modules/dep/cache && cat node_modules/dep/cache
rm -r target; mkdir target; echo built > target/out
PYTHONPATH=.venv/lib python3 -c 'import dependency; print(dependency.NAME)'
node -e "console.log(require('dep'))"; ls -A other; } > said 2>/dev/null
final '{"outcome":"complete"}'
"#;
    let desk = desk_with(script, "", "");
    desk.write(".gitignore", "node_modules\n.venv/\ntarget\nother\n");
    for (file, content) in [
        ("node_modules/dep/index.js", "module.exports = 'js';\n"),
        ("node_modules/dep/.env", "SECRET=1\n"),
        (".venv/lib/dependency.py", "NAME = 'py'\n"),
        ("target/old", "old\n"),
        ("other/file", "other\n"),
    ] {
        std::fs::create_dir_all(desk.path(file).parent().unwrap()).unwrap();
        desk.write(file, content);
    }
    for more in [&[][..], &["--snapshot"]] {
        let before = desk.receipts();
        run(&desk, more);
        let mut receipts = desk.receipts();
        receipts.retain(|path| !before.contains(path));
        let receipt: Value = serde_json::from_slice(&std::fs::read(&receipts[0]).unwrap()).unwrap();
        if receipt["workspace"]["stage"] == "copy" && more.is_empty() {
            return abp_testkit::skip("lent directories", "no overlay can be mounted");
        }
        assert_eq!(receipt["outcome"], "complete", "{receipt:#}");
        let status = receipt["verification"]["git_status"].as_str().unwrap();
        assert_eq!(status, "?? said\n", "{more:?}: {receipt:#}");
        let diff = receipt["verification"]["git_diff"].as_str().unwrap();
        let said: Vec<&str> = diff
            .lines()
            .filter_map(|line| line.strip_prefix('+'))
            .collect();
        let mut expected = vec!["++ b/said", "module.exports = 'js';", "cache", "py"];
        expected.extend(works("node").then_some("js"));
        assert_eq!(said, expected, "{more:?}: {receipt:#}");
        let left_out = receipt["workspace"]["left_out"].to_string();
        assert!(left_out.contains("the run may use it"), "{left_out}");
        let hidden = rule(&receipt, "deny_read", "**/.env");
        assert_eq!(hidden["by"], "not staged");
    }
    assert!(desk.path("target/old").exists() && !desk.path("target/out").exists());
    assert!(!desk.path("node_modules/dep/cache").exists());
}

/// CVE-2026-25725: a sandbox that protects settings which are there lets an agent create those that are not.
#[test]
fn d14_protected_settings_that_are_absent_cannot_be_created() {
    let script = r#"hello; SEEN=/tmp/seen; run
try() { name=$1; shift; if "$@" >/dev/null 2>&1; then echo "$name done" >> tried.txt; fi; }
put() { sh -c 'mkdir -p "$(dirname "$1")"; echo forged > "$1"' sh "$1"; }
try settings put .claude/settings.json
try rename mv .claude away
try remove rmdir .claude
try link ln -sfn /tmp .claude
try mcp put .mcp.json
try mcp-rename sh -c 'echo forged > t && mv t .mcp.json'
try codex put .codex/config.toml
try nested put sub/.vscode/tasks.json
echo fine > allowed.txt
final '{"outcome":"complete"}'
"#;
    let desk = desk_with(script, "", "");
    std::fs::create_dir(desk.path("sub")).unwrap();
    // Ignored settings of the user's own are not staged and not shown, and stay protected.
    std::fs::create_dir(desk.path(".codex")).unwrap();
    desk.write("sub/file", "x\n")
        .write(".codex/config.toml", "own\n")
        .write(".gitignore", ".codex\n");
    let protected = [".claude/**", ".mcp.json", ".codex", "sub/.vscode/**"];
    let policy = json!({ "deny_write": protected });
    desk.write("policy.json", policy.to_string());
    for more in [
        &["--policy", "policy.json"][..],
        &["--policy", "policy.json", "--snapshot"],
    ] {
        let before = desk.receipts();
        run(&desk, more);
        let mut receipts = desk.receipts();
        receipts.retain(|path| !before.contains(path));
        let receipt: Value = serde_json::from_slice(&std::fs::read(&receipts[0]).unwrap()).unwrap();
        assert_eq!(receipt["outcome"], "complete", "{receipt:#}");
        let status = receipt["verification"]["git_status"].as_str().unwrap();
        let left: Vec<&str> = status.lines().filter(|line| *line != "?? t").collect();
        assert_eq!(left, ["?? allowed.txt"], "{more:?}: {receipt:#}");
        for pattern in protected {
            let rule = rule(&receipt, "deny_write", pattern);
            assert_eq!(rule["enforced_by"], "kernel", "{pattern}: {rule}");
        }
        let id = receipt["meta"]["run_id"].as_str().unwrap();
        let applied = desk.abp(&["apply", "--config", "operator.toml", id]);
        assert_eq!(applied.status, 0, "{}", applied.stderr);
        for absent in [".claude", ".mcp.json", "sub/.vscode"] {
            assert!(!desk.path(absent).exists(), "{absent} is in the source");
        }
        std::fs::remove_file(desk.path("allowed.txt")).unwrap();
        drop(std::fs::remove_file(desk.path("t")));
    }
    let own = std::fs::read_to_string(desk.path(".codex/config.toml")).unwrap();
    assert_eq!(own, "own\n");
}

/// In place, patterns hide what they match when the program starts; a link that matches keeps its rule from
/// being held.
#[test]
fn d13_patterns_hide_what_they_match_in_place() {
    let desk = Desk::new();
    std::fs::create_dir_all(desk.path("a/b")).unwrap();
    for file in ["x.key", "a/b/y.key", "a/.env", "a/kept"] {
        desk.write(file, "secret\n");
    }
    std::os::unix::fs::symlink("a/kept", desk.path("z.pem")).unwrap();
    let policy = json!({"deny_read": ["**/*.key", "**/.env", "*.pem", "*.none"]});
    desk.write("policy.json", policy.to_string());
    let run = ["sandbox", "run", "--policy", "policy.json", "--"];
    let script = "cat x.key a/b/y.key a/.env; mv a moved; cat moved/.env; cat a/kept";
    let ran = desk.abp(&[&run[..], &["sh", "-c", script]].concat());
    assert_eq!(ran.stdout, "secret\n", "{}", ran.stderr);
    let (_, plan) = desk.json(&["sandbox", "explain", "--policy", "policy.json"]);
    let rules = plan["rules"].as_array().unwrap().iter();
    let held: Vec<_> = rules
        .map(|rule| rule["enforced_by"].as_str().unwrap())
        .collect();
    assert_eq!(held, ["kernel", "kernel", "none", "none"], "{plan:#}");
}

/// A script that is named by a path with `..` in it is found, although the directory on the way is absent.
#[test]
fn arguments_with_parent_components_lead_to_the_lent_file() {
    let script =
        "hello; SEEN=/tmp/seen; run; echo made > made.txt; final '{\"outcome\":\"complete\"}'";
    let desk = desk_with(script, "", "");
    std::fs::create_dir(desk.path("way")).unwrap();
    let config = std::fs::read_to_string(desk.path("operator.toml")).unwrap();
    let (plain, winding) = (desk.path("agent.sh"), desk.path("way/../agent.sh"));
    let plain = format!("{plain:?}");
    assert!(config.contains(&plain));
    desk.write(
        "operator.toml",
        config.replace(&plain, &format!("{winding:?}")),
    );
    let (status, receipt) = run(&desk, &["--exclude", "way"]);
    assert_eq!(status, 0, "{receipt:#}");
}

/// Variables that make programs load or run other files do not reach an agent, and no program is taken from
/// the workspace.
#[test]
fn d20_variables_of_the_host_do_not_reach_an_agent() {
    let script =
        "hello; SEEN=/tmp/seen; run; env > variables.txt; final '{\"outcome\":\"complete\"}'";
    let desk = desk_with(script, "", "");
    // Found first if the workspace were searched.
    desk.write("sh", "#!/bin/sh\nexit 1\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(desk.path("sh"), executable).unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = desk.command(&[
        "run",
        "--config",
        "operator.toml",
        "--backend",
        "agent",
        "--task",
        "x",
    ]);
    let hostile = [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "NODE_OPTIONS",
        "GIT_DIR",
        "GIT_SSH_COMMAND",
        "BASH_ENV",
        "ENV",
        "PYTHONSTARTUP",
        "PYTHONPATH",
        "RUBYOPT",
        "PERL5OPT",
        "JAVA_TOOL_OPTIONS",
        "MY_TOKEN",
    ];
    for name in hostile {
        command.env(name, "/nowhere/hostile");
    }
    command.env("PATH", format!(".::./:{path}"));
    let ran = Ran::new(command.output().unwrap());
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    let receipt: Value =
        serde_json::from_slice(&std::fs::read(desk.receipts().pop().unwrap()).unwrap()).unwrap();
    let diff = receipt["verification"]["git_diff"].as_str().unwrap();
    assert!(diff.contains("+PATH="), "{diff}");
    assert!(!diff.contains("hostile"), "{diff}");
    for name in hostile {
        assert!(!diff.contains(&format!("+{name}=")), "{name}: {diff}");
    }
    let mut search = diff.lines().filter_map(|line| line.strip_prefix("+PATH="));
    let search = std::env::split_paths(search.next().unwrap());
    let relative: Vec<_> = search.filter(|path| !path.is_absolute()).collect();
    assert!(relative.is_empty(), "{relative:?}");
}

/// Agreement to a file that takes effect on the developer's machine is for its content: another content of the same
/// path needs another one.
#[test]
fn d27_agreement_to_a_file_does_not_outlive_its_content() {
    let script = "hello; SEEN=/tmp/seen; run; mkdir -p .vscode; date +%N > .vscode/tasks.json; \
                  final '{\"outcome\":\"complete\"}'";
    let desk = desk_with(script, "", "");
    let mut contents = Vec::new();
    for _ in 0..2 {
        let before = desk.receipts();
        run(&desk, &[]);
        let mut receipts = desk.receipts();
        receipts.retain(|path| !before.contains(path));
        let receipt: Value = serde_json::from_slice(&std::fs::read(&receipts[0]).unwrap()).unwrap();
        let id = receipt["meta"]["run_id"].as_str().unwrap();
        let apply = ["apply", "--config", "operator.toml", id];
        let refused = desk.abp(&apply);
        assert_ne!(refused.status, 0, "{}", refused.stdout);
        assert!(
            refused.stderr.contains(".vscode/tasks.json"),
            "{}",
            refused.stderr
        );
        let applied = desk.abp(&[&apply[..], &["--allow-host-files"]].concat());
        assert_eq!(applied.status, 0, "{}", applied.stderr);
        contents.push(std::fs::read_to_string(desk.path(".vscode/tasks.json")).unwrap());
    }
    assert_ne!(contents[0], contents[1]);
}

fn works(program: &str) -> bool {
    let ran = Command::new(program).arg("--version").output();
    ran.is_ok_and(|ran| ran.status.success())
}

/// The name and the content of a file.
type File = (&'static str, &'static str);

/// Builds and tests of ordinary projects run inside, with the network off.
#[test]
fn projects_can_be_tested_inside() {
    let cargo = [
        (
            "Cargo.toml",
            "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        ),
        (
            "src/lib.rs",
            "#[test]\nfn adds() { assert_eq!(1 + 1, 2); }\n",
        ),
    ];
    let node = [
        (
            "package.json",
            r#"{"name": "small", "scripts": {"test": "node --test"}}"#,
        ),
        (
            "a.test.js",
            "require('node:test')('adds', () => { if (1 + 1 !== 2) throw 1; });\n",
        ),
    ];
    let python = [("test_small.py", "def test_adds():\n    assert 1 + 1 == 2\n")];
    let projects: [(&[File], &[&str]); 3] = [
        (&cargo, &["cargo", "test", "--offline"]),
        (&node, &["npm", "test"]),
        (&python, &["python3", "-m", "pytest", "-q"]),
    ];
    for (files, command) in projects {
        let works = |words: &[&str]| {
            let ran = Command::new(words[0]).args(&words[1..]).output();
            ran.is_ok_and(|ran| ran.status.success())
        };
        let is_there = match command[0] {
            "python3" => works(&["python3", "-c", "import pytest"]),
            // A toolchain outside the home directory is not lent by itself.
            "cargo" => std::env::var_os("RUSTUP_HOME").is_none() && works(&["cargo", "--version"]),
            program => works(&[program, "--version"]),
        };
        if !is_there {
            abp_testkit::skip(
                &format!("a sandboxed {}", command.join(" ")),
                "it is not installed",
            );
            continue;
        }
        // With the user's own home directory: toolchains are there.
        let desk = Desk::new();
        for (name, content) in files {
            let path = desk.path(name);
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).unwrap();
            desk.write(name, content);
        }
        let mut run = desk.command(&[&["sandbox", "run", "--"], command].concat());
        if let Some(home) = std::env::var_os("HOME") {
            run.env("HOME", home).env("ABP_HOME", desk.state(""));
        }
        let ran = Ran::new(run.output().unwrap());
        assert_eq!(ran.status, 0, "{command:?}: {}\n{}", ran.stdout, ran.stderr);
    }
}
