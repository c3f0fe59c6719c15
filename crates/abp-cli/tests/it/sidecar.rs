//! Programs of any language as backends.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::desk::Desk;

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap().to_owned()
}

/// A sidecar in shell; `$id` is the run's id, and `order` a file with what it was given.
const PRELUDE: &str = r#"
say() { printf '%s\n' "$1"; }
hello() { say '{"t":"hello","contract_version":"abp/v0.1","backend":{"id":"shell"},"capabilities":{"streaming":"native"}}'; }
run() { read -r line; printf '%s' "$line" > "$SEEN"; id=${line#*'"id":"'}; id=${id%%'"'*}; }
event() { say "{\"t\":\"event\",\"ref_id\":\"$id\",\"event\":{\"ts\":\"2026-01-01T00:00:00Z\",$1}}"; }
final() { say "{\"t\":\"final\",\"ref_id\":\"$id\",\"receipt\":$1}"; }
"#;

/// A desk with a configured sidecar named `agent`; what it was given ends up in `seen.json`, beside its
/// workspace. No sandbox would let it write there, so there is none.
pub(crate) fn desk(script: &str, settings: &str) -> Desk {
    desk_with(script, settings, "engine = \"none\"")
}

/// A desk with a configured sidecar named `agent` in a sandbox with these settings.
pub(crate) fn desk_with(script: &str, settings: &str, sandbox: &str) -> Desk {
    let desk = Desk::new();
    desk.write("agent.sh", format!("{PRELUDE}{script}"));
    let (script, seen) = (desk.path("agent.sh"), desk.path("seen.json"));
    let config = format!(
        "state_dir = {state:?}\n[sandbox]\n{sandbox}\n[backends.agent]\ntype = \"sidecar\"\ncommand = \"sh\"\nargs = [{script:?}]\n{settings}\n[backends.agent.env]\nSEEN = {seen:?}\n",
        state = desk.state(""),
    );
    desk.write("operator.toml", config);
    desk
}

pub(crate) fn run(desk: &Desk, more: &[&str]) -> (i32, Value) {
    let run = [
        "run",
        "--config",
        "operator.toml",
        "--backend",
        "agent",
        "--task",
        "say hello",
    ];
    let (status, _) = desk.json(&[&run, more].concat());
    let receipt = desk
        .receipts()
        .pop()
        .map(|path| std::fs::read(path).unwrap());
    let receipt = receipt.map_or(Value::Null, |receipt| {
        serde_json::from_slice(&receipt).unwrap()
    });
    (status, receipt)
}

#[test]
fn c21_a_run_is_what_the_host_saw_and_the_receipt_of_the_sidecar_a_claim() {
    // It claims another run, other changes, other times, a hash of its own and a clean workspace.
    let script = r#"hello; run; echo new > made.txt;
        event '"type":"assistant_message","text":"done"';
        final '{"meta":{"run_id":"00000000-0000-4000-8000-000000000000","duration_ms":1},"receipt_sha256":"beef","outcome":"complete",
          "verification":{"harness_ok":true,"git_diff":"none"},"trace":[{"type":"x"}],"usage":{"input_tokens":5},"usage_raw":{"credits":2},
          "artifacts":[{"kind":"note","path":"made.txt"}]}' | tr -d '\n'; echo"#;
    let desk = desk(script, "");
    let (status, receipt) = run(&desk, &[]);
    assert_eq!(status, 0, "{receipt:#}");
    assert_eq!(receipt["backend"]["id"], "shell");
    assert_eq!(receipt["outcome"], "complete");
    assert_ne!(receipt["receipt_sha256"], "beef");
    assert_ne!(
        receipt["meta"]["run_id"],
        "00000000-0000-4000-8000-000000000000"
    );
    let diff = receipt["verification"]["git_diff"].as_str().unwrap();
    assert!(diff.contains("+new"), "{diff}");
    assert_eq!(receipt["usage"]["input_tokens"], 5);
    assert_eq!(receipt["usage_raw"]["credits"], 2);
    assert_eq!(receipt["artifacts"][0]["path"], "made.txt");
    assert!(receipt["enforcement"]["contained_by"].is_string());
    let verified = desk.abp(&["receipt", "verify", desk.receipts()[0].to_str().unwrap()]);
    assert_eq!(verified.status, 0, "{}", verified.stderr);
    // What it was given: the staged copy to work in, and the plan's payload to work on.
    let seen: Value =
        serde_json::from_slice(&std::fs::read(desk.path("seen.json")).unwrap()).unwrap();
    let order = &seen["work_order"];
    assert_eq!(seen["id"], receipt["meta"]["run_id"]);
    assert!(
        order["workspace"]["root"]
            .as_str()
            .unwrap()
            .contains("stages"),
        "{order:#}"
    );
    let conversation = order["config"]["vendor"]["abp"]["conversation"].to_string();
    assert!(conversation.contains("say hello"), "{conversation}");
}

#[test]
fn c10_a_sidecar_that_fails_leaves_a_failed_receipt_with_its_last_words() {
    let script = "hello; run; event '\"type\":\"assistant_delta\",\"text\":\"so far\"'; echo out of memory >&2; exit 42";
    let (status, receipt) = run(&desk(script, ""), &[]);
    assert_eq!((status, &receipt["outcome"]), (1, &"failed".into()));
    let error = &receipt["error"];
    assert_eq!(error["code"], "BACKEND_CRASHED");
    assert_eq!(error["context"]["exit_code"], 42);
    assert_eq!(error["context"]["exit"], "exit code 42");
    assert_eq!(error["context"]["stderr_tail"], "out of memory\n");
    assert!(receipt["trace"].to_string().contains("so far"));
}

/// The exit status and the end of standard error are shown, and neither can drive the terminal.
#[test]
fn the_end_of_a_failed_sidecar_is_shown() {
    let script = r#"hello; run; n=0; while [ $n -lt 30 ]; do echo "line $n" >&2; n=$((n+1)); done;
        printf '\033[31mred\rover\n' >&2; head -c 5000 /dev/zero | tr '\0' x >&2; exit 42"#;
    let desk = desk(script, "");
    let run = [
        "run",
        "--config",
        "operator.toml",
        "--backend",
        "agent",
        "--task",
        "t",
    ];
    let ran = desk.abp(&run);
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    let receipt = desk.receipts().pop().unwrap();
    let inspected = desk.abp(&["inspect", receipt.to_str().unwrap()]);
    for shown in [ran.stdout, inspected.stdout] {
        let parts = [
            "\nexit       exit code 42\n",
            "\nstderr     the last 20 lines; the receipt has 12 more\n",
            "\n  | line 29\n  | \u{fffd}[31mred\u{fffd}over\n  | xxx",
        ];
        for part in parts {
            assert!(shown.contains(part), "{part:?} is not in:\n{shown}");
        }
        assert!(!shown.contains("  | line 11\n"), "{shown}");
        assert!(!shown.contains(['\u{1b}', '\r']), "{shown:?}");
        let longest = shown.lines().map(|line| line.chars().count()).max();
        assert!(longest < Some(300), "{shown}");
    }
}

#[test]
fn a_signal_that_ended_a_sidecar_is_shown() {
    let desk = desk("hello; run; kill -KILL $$", "");
    let run = ["run", "--config", "operator.toml", "--backend", "agent"];
    let ran = desk.abp(&[&run[..], &["--task", "t"]].concat());
    let exit = ran.stdout.lines().find(|line| line.starts_with("exit"));
    assert!(
        exit.is_some_and(|exit| exit.contains('9')),
        "{}",
        ran.stdout
    );
    assert!(!ran.stdout.contains("\nstderr"), "{}", ran.stdout);
}

/// What the sidecar was given, as it read it.
fn seen(desk: &Desk) -> Value {
    serde_json::from_slice(&std::fs::read(desk.path("seen.json")).unwrap()).unwrap()
}

#[test]
fn d16_the_state_is_out_of_reach_and_the_receipt_says_so() {
    // The receipts, keys and other stages are two levels up.
    let script = r#"hello; run; ls -A "$STATE" > listed; cat "$STATE"/*.db > stolen; echo x > "$STATE/planted";
        echo mine > made.txt; event '"type":"assistant_message","text":"done"'; final '{"outcome":"complete"}'"#;
    let desk = desk(script, "");
    let config = std::fs::read_to_string(desk.path("operator.toml")).unwrap();
    let state = desk.path(".agent-backplane");
    desk.write("operator.toml", format!("{config}STATE = {state:?}\n"));
    let (status, receipt) = run(&desk, &[]);
    assert_eq!(status, 0, "{receipt:#}");
    assert_eq!(receipt["enforcement"]["state"], "hidden", "{receipt:#}");
    assert!(!state.join("planted").exists());
    let diff = receipt["verification"]["git_diff"].as_str().unwrap();
    assert!(diff.contains("+mine"), "{diff}");
    assert!(
        diff.contains("b/listed") && !diff.contains("store"),
        "{diff}"
    );
}

#[test]
fn b13_a_configured_secret_is_in_nothing_that_is_recorded() {
    let script = r#"hello; run; echo "stderr $MY_TOKEN" >&2;
        event "\"type\":\"assistant_message\",\"text\":\"event $MY_TOKEN\"";
        event "\"type\":\"tool_result\",\"tool_name\":\"T\",\"output\":{\"$MY_TOKEN\":[\"x$MY_TOKEN\"]}";
        final "{\"outcome\":\"failed\",\"error\":{\"code\":\"BACKEND_CRASHED\",\"message\":\"error $MY_TOKEN\"},\"usage_raw\":{\"raw\":\"$MY_TOKEN\"},\"artifacts\":[{\"kind\":\"$MY_TOKEN\",\"path\":\"p\"}]}"; exit 3"#;
    let desk = desk(script, "");
    let config = std::fs::read_to_string(desk.path("operator.toml")).unwrap();
    let secret = "canary-0123456789abcdef";
    desk.write("operator.toml", format!("{config}MY_TOKEN = {secret:?}\n"));
    let (_, receipt) = run(&desk, &[]);
    let text = receipt.to_string();
    assert!(!text.contains(secret), "{receipt:#}");
    assert_eq!(receipt["error"]["message"], "error [redacted]");
    assert_eq!(receipt["error"]["context"]["exit"], "exit code 3");
    let tail = &receipt["error"]["context"]["stderr_tail"];
    assert_eq!(tail, "stderr [redacted]\n");
    assert_eq!(receipt["usage_raw"]["raw"], "[redacted]");
    assert_eq!(receipt["artifacts"][0]["kind"], "[redacted]");
}

#[test]
fn c9_an_event_of_the_hosts_own_ends_the_run() {
    let script = r#"hello; run; event '"type":"assistant_delta","text":"before"';
        event '"type":"permission_resolved","tool_name":"Bash","outcome":"approved","decided_by":"alice","reason":"r"';
        event '"type":"assistant_delta","text":"after"'; final '{"outcome":"complete"}'"#;
    let (status, receipt) = run(&desk(script, ""), &[]);
    assert_ne!(status, 0);
    assert_eq!(receipt["outcome"], "failed");
    assert_eq!(receipt["error"]["code"], "PROTOCOL_UNEXPECTED_MESSAGE");
    let message = receipt["error"]["message"].as_str().unwrap();
    assert!(message.contains("permission_resolved"), "{message}");
    let trace = receipt["trace"].to_string();
    assert!(trace.contains("before"), "{trace}");
    assert!(
        !trace.contains("after") && !trace.contains("alice"),
        "{trace}"
    );
}

#[test]
fn an_emulation_reaches_the_sidecar() {
    let say = |answer: &str| {
        format!(
            "hello; run; event '\"type\":\"assistant_message\",\"text\":\"{answer}\"'; final '{{\"outcome\":\"complete\"}}'"
        )
    };
    let thinking = desk(&say("ok"), "");
    let (status, receipt) = run(&thinking, &["--require", "extended_thinking:emulated"]);
    assert_eq!(status, 0, "{receipt:#}");
    let applied = &receipt["plan"]["emulation"]["applied"];
    assert_eq!(applied[0]["capability"], "extended_thinking");
    let order = seen(&thinking)["work_order"].take();
    let told = "say hello\n\n<abp-instructions>\n[extended_thinking] Think step by step before answering.\n</abp-instructions>";
    assert_eq!(order["task"], told);
    let listed = &order["config"]["vendor"]["abp"]["emulation"];
    assert_eq!(
        listed[0]["instruction"],
        "Think step by step before answering."
    );
    let conversation = order["config"]["vendor"]["abp"]["conversation"].to_string();
    assert!(
        conversation.contains("Think step by step"),
        "{conversation}"
    );

    // The schema is told, and the answer checked.
    let schema = r#"abp.output_schema={"type":"object","required":["n"]}"#;
    for (answer, outcome) in [(r#"{\"n\":1}"#, "complete"), ("no", "failed")] {
        let desk = desk(&say(answer), "");
        let more = [
            "--param",
            schema,
            "--require",
            "structured_output_json_schema:emulated",
        ];
        let (_, receipt) = run(&desk, &more);
        assert_eq!(receipt["outcome"], outcome, "{receipt:#}");
        let task = seen(&desk)["work_order"]["task"].to_string();
        assert!(task.contains("follows this JSON schema: {"), "{task}");
    }
}

#[test]
fn the_check_shows_what_abp_tells_the_agent() {
    let desk = Desk::new();
    let hosts = repository().join("hosts");
    for (program, script) in [("python3", "python/host.py"), ("node", "node/host.js")] {
        let script = hosts.join(script);
        let ran = desk.abp(&["sidecar", "check", "--", program, script.to_str().unwrap()]);
        assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
        let line = ran
            .stdout
            .lines()
            .find(|line| line.contains("instructions"));
        let line = line.expect("the check is shown");
        assert!(
            line.contains("Think step by step before answering."),
            "{line}"
        );
        assert!(line.contains("says that its agent got it"), "{line}");
    }
}

#[test]
fn nothing_is_run_before_the_real_capabilities_are_known_to_suffice() {
    for (script, more, code) in [
        (
            "hello; run; final '{\"outcome\":\"complete\"}'",
            &["--require", "tool_bash:native"][..],
            "CAPABILITY_UNSUPPORTED",
        ),
        (
            "hello; run; final '{\"outcome\":\"complete\"}'",
            &[
                "--param",
                "abp.mode=passthrough",
                "--param",
                "abp.request=\"{}\"",
            ],
            "CAPABILITY_UNSUPPORTED",
        ),
        ("echo no; exit 1", &[], "BACKEND_CRASHED"),
    ] {
        let desk = desk(script, "");
        let (status, receipt) = run(&desk, more);
        assert_ne!(status, 0);
        assert_eq!(receipt["error"]["code"], code, "{receipt:#}");
        assert!(
            receipt["plan"].is_null(),
            "a plan that was refused was applied"
        );
        // The script makes the file when its input ends, too; then there is nothing in it.
        let seen = std::fs::read(desk.path("seen.json")).unwrap_or_default();
        assert!(seen.trim_ascii().is_empty(), "the run was sent");
    }
}

#[test]
fn limits_of_the_configuration_hold() {
    let desk = desk("hello; run; while :; do sleep 1; done", "timeout_secs = 1");
    let (_, receipt) = run(&desk, &[]);
    assert_eq!(receipt["error"]["code"], "BACKEND_TIMEOUT", "{receipt:#}");
}

#[test]
fn c13_killing_abp_itself_leaves_no_sidecar() {
    let desk = desk("hello; run; (setsid sleep 300 &) ; sleep 300", "");
    let run = [
        "run",
        "--config",
        "operator.toml",
        "--backend",
        "agent",
        "--task",
        "wait",
    ];
    let mut host = desk.command(&run).stdout(Stdio::null()).spawn().unwrap();
    let marked = || {
        let seen = desk.path("seen.json");
        abp_sandbox::procfs::with_variable("SEEN", seen.to_str().unwrap())
    };
    let waiting = Instant::now();
    // The shell and two sleepers.
    while marked().len() < 3 {
        assert!(
            waiting.elapsed() < Duration::from_secs(20),
            "{:?}",
            marked()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    host.kill().unwrap();
    host.wait().unwrap();
    let killed = Instant::now();
    while !marked().is_empty() {
        assert!(killed.elapsed() < Duration::from_secs(2), "{:?}", marked());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn built_in_hosts_are_found_where_they_are_said_to_be() {
    let desk = Desk::new();
    let ran = desk.abp(&["run", "--backend", "sidecar:python", "--task", "x"]);
    assert_eq!(ran.status, 6, "{}", ran.stderr);
    assert!(ran.stderr.contains("ABP_HOSTS_DIR"), "{}", ran.stderr);
    let mut command = desk.command(&[
        "run",
        "--backend",
        "sidecar:python",
        "--task",
        "write a.txt: hi",
    ]);
    let ran = command
        .env("ABP_HOSTS_DIR", repository().join("hosts"))
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    assert!(String::from_utf8_lossy(&ran.stdout).contains("+hi"));
}

/// Asks before it uses a tool, announces it where it may, and says what it was told.
const ASKING: &str = r#"
hello; run
say "{\"t\":\"permission_request\",\"ref_id\":\"$id\",\"id\":\"q\",\"tool_name\":\"Write\",\"tool_use_id\":\"c\",\"input\":{\"path\":\"a.txt\"}}"
read -r answer
case $answer in
  *'"approved":true'*) echo hi > a.txt; event '"type":"tool_call","tool_name":"Write","tool_use_id":"c","input":{"path":"a.txt"}' ;;
  *'"reason":'*) event '"type":"assistant_message","text":"I was denied"' ;;
esac
final '{"outcome":"complete"}'
read -r rest || exit 0
"#;

#[test]
fn a_sidecar_that_asks_is_answered_before_it_acts() {
    // The policy, a tool that is approved in advance, the file's state, and the answer that is recorded.
    let cases = [
        ("{}", "", true, ""),
        (
            r#"{"disallowed_tools": ["Write"]}"#,
            "",
            false,
            "denied by policy",
        ),
        (
            r#"{"deny_write": ["*.txt"]}"#,
            "",
            false,
            "denied by policy",
        ),
        (
            r#"{"require_approval_for": ["Write"]}"#,
            "",
            false,
            "denied by default",
        ),
        (
            r#"{"require_approval_for": ["Write"]}"#,
            "Write",
            true,
            "approved by a person",
        ),
    ];
    for (policy, approved, is_written, answers) in cases {
        let desk = desk(ASKING, "");
        desk.write("policy.json", policy);
        let arguments = ["--policy", "policy.json", "--approve", approved];
        let count = if approved.is_empty() { 2 } else { 4 };
        let (status, receipt) = run(&desk, &arguments[..count]);
        assert_eq!(status, 0, "{policy}: {receipt:#}");
        assert_eq!(receipt["outcome"], "complete", "{policy}");
        let diff = receipt["verification"]["git_diff"].as_str().unwrap_or("");
        assert_eq!(diff.contains("+hi"), is_written, "{policy}: {diff}");
        let trace = receipt["trace"].as_array().unwrap();
        let resolved = trace
            .iter()
            .filter(|event| event["type"] == "permission_resolved");
        let resolved: Vec<_> = resolved
            .map(|event| {
                let by = event["decided_by"].as_str().unwrap();
                let is_person = !matches!(by, "policy" | "default");
                let by = if is_person { "a person" } else { by };
                format!("{} by {by}", event["outcome"].as_str().unwrap())
            })
            .collect();
        // Not judged a second time when it is announced.
        assert_eq!(resolved.join(", "), answers, "{policy}");
    }
}

#[test]
fn a_host_without_its_packages_says_how_to_install_them() {
    let desk = Desk::new();
    let hosts = repository().join("hosts");
    let copy = desk.path("hosts");
    std::fs::create_dir_all(copy.join("claude")).unwrap();
    std::fs::copy(hosts.join("claude/host.js"), copy.join("claude/host.js")).unwrap();
    let abp = |arguments: &[&str]| {
        let mut command = desk.command(arguments);
        command.env("ABP_HOSTS_DIR", &copy).output().unwrap()
    };
    let install = format!("npm ci --ignore-scripts --prefix {}/claude", copy.display());
    let ran = abp(&["run", "--backend", "sidecar:claude", "--task", "x"]);
    assert_eq!(ran.status.code(), Some(6));
    let stderr = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(stderr.contains(&install), "{stderr}");
    let listed = abp(&["backends", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    // Hosts and agents that are not installed are in one list, each with the command that installs it.
    let missing = |listed: &Value, name: &str| {
        let rows = listed["missing"].as_array().unwrap().iter();
        let remedies = rows.filter(|row| row["name"].as_str().unwrap().starts_with(name));
        let remedies = remedies.map(|row| row["remedy"].as_str().unwrap().to_owned());
        remedies.collect::<Vec<_>>()
    };
    let hosts = missing(&listed, "sidecar:");
    assert_eq!(hosts.len(), 1, "{hosts:?}");
    assert!(hosts[0].contains(&install), "{hosts:?}");
    let agents = missing(&listed, "claude");
    assert_eq!(agents.len(), 1, "{agents:?}");
    assert!(
        agents[0].contains("abp agents install claude"),
        "{agents:?}"
    );
    let package = copy.join("claude/node_modules/@anthropic-ai/claude-agent-sdk");
    std::fs::create_dir_all(&package).unwrap();
    std::fs::write(package.join("package.json"), "{}").unwrap();
    let listed = abp(&["backends", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(missing(&listed, "sidecar:"), [""; 0]);
    let mut rows = listed["backends"].as_array().unwrap().iter();
    let claude = rows.find(|row| row["name"] == "sidecar:claude");
    let tools = &claude.unwrap()["policy_enforced_by"]["tools"];
    assert_eq!(tools["by"], "permission request");
}

/// Asks a model where it is told to, and claims to have used more than it did.
const ASKS_A_MODEL: &str = r#"
import { settingOf } from '../lib/run.js';
import { hello } from '../lib/sidecar.js';
hello({ id: 'claude' }, { streaming: 'native' }).serve(async (order, ctx) => {
  const { url, key } = settingOf(order, 'model_api');
  const headers = { 'content-type': 'application/json', 'anthropic-version': '2023-06-01', authorization: `Bearer ${key}` };
  const body = JSON.stringify({ model: 'scripted', max_tokens: 10, messages: [{ role: 'user', content: 'hi' }] });
  const response = await fetch(`${url}/v1/messages`, { method: 'POST', headers, body });
  await ctx.reportUsage({ input_tokens: 999999, output_tokens: 999999 });
  await ctx.emit('assistant_message', { text: `${response.status} ${key} ${JSON.stringify(await response.json())}` });
});
"#;

#[test]
fn a_host_asks_models_with_the_key_of_its_run() {
    let hosts = repository().join("hosts");
    let model = std::process::Command::new("node")
        .arg(hosts.join("tests/scripted_model.js"))
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut model) = model else {
        return abp_testkit::skip("a host and its gateway", "node is not installed");
    };
    let mut url = String::new();
    let mut told = std::io::BufReader::new(model.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut told, &mut url).unwrap();
    let desk = Desk::new();
    let copy = desk.path("hosts");
    let package = copy.join("claude/node_modules/@anthropic-ai/claude-agent-sdk");
    std::fs::create_dir_all(&package).unwrap();
    std::fs::write(package.join("package.json"), "{}").unwrap();
    std::fs::write(copy.join("claude/host.js"), ASKS_A_MODEL).unwrap();
    std::fs::create_dir(copy.join("lib")).unwrap();
    for name in ["frames.js", "redact.js", "run.js", "sidecar.js"] {
        std::fs::copy(hosts.join("lib").join(name), copy.join("lib").join(name)).unwrap();
    }
    std::fs::write(copy.join("package.json"), r#"{"type": "module"}"#).unwrap();
    let config = format!(
        "state_dir = {state:?}\nhosts_dir = {copy:?}\n[upstreams.scripted]\ndialect = \"claude\"\nbase_url = {url:?}\napi_key_env = \"SCRIPTED_KEY\"\nmodels = [\"scripted\"]\n",
        state = desk.state(""),
        url = url.trim(),
    );
    desk.write("operator.toml", config);
    let mut command = desk.command(&[
        "run",
        "--config",
        "operator.toml",
        "--backend",
        "sidecar:claude",
        "--task",
        "x",
        // Not for an order to say.
        "--param",
        r#"abp.model_api={"url":"http://127.0.0.1:9","key":"k"}"#,
    ]);
    let ran = command
        .env("SCRIPTED_KEY", "upstream-key-0001")
        .output()
        .unwrap();
    model.kill().unwrap();
    model.wait().unwrap();
    let receipt = desk.receipts().pop().map(std::fs::read).unwrap().unwrap();
    let text = String::from_utf8(receipt).unwrap();
    let receipt: Value = serde_json::from_str(&text).unwrap();
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{stderr}{receipt:#}");
    assert_eq!(receipt["usage_source"], "measured", "{receipt:#}");
    assert_eq!(receipt["usage"]["input_tokens"], 100);
    assert_eq!(receipt["exchanges"].as_array().unwrap().len(), 1);
    assert!(
        !text.contains("999999"),
        "a claim was taken for a measurement"
    );
    let trace = receipt["trace"].as_array().unwrap();
    let said = trace
        .iter()
        .find(|event| event["type"] == "assistant_message");
    let said = said.unwrap()["text"].as_str().unwrap();
    assert!(said.starts_with("200 "), "{said}");
    // The host wrote its key into the answer; nothing that is recorded has it, or the upstream's.
    assert!(!text.contains("upstream-key-0001"));
    let key = said.split(' ').nth(1).unwrap();
    assert!(key.contains("redacted") || key.contains('*'), "{said}");
}

fn check_json(desk: &Desk, program: &[&str]) -> (i32, Value) {
    let check = ["sidecar", "check", "--json", "--timeout", "5", "--"];
    let ran = desk.abp(&[&check, program].concat());
    let found = serde_json::from_str(&ran.stdout);
    let found = found.unwrap_or_else(|_| panic!("{}{}", ran.stdout, ran.stderr));
    (ran.status, found)
}

#[test]
fn every_starter_passes_the_check() {
    let desk = Desk::new();
    for (language, program, file) in [
        ("python", "python3", "sidecar.py"),
        ("node", "node", "sidecar.mjs"),
    ] {
        assert_eq!(
            desk.abp(&["sidecar", "init", "--lang", language, language])
                .status,
            0
        );
        let again = desk.abp(&["sidecar", "init", "--lang", language, language]);
        assert_eq!(again.status, 2, "a starter replaced a file");
        let path = format!("{language}/{file}");
        let (status, found) = check_json(&desk, &[program, &path]);
        assert_eq!((status, &found["passed"]), (0, &true.into()), "{found:#}");
        assert_eq!(found["checks"].as_array().unwrap().len(), 8);
    }
}

/// It is an example of another package, which a test of this one alone does not build.
#[test]
fn the_starter_in_rust_passes_the_check() {
    let programs = Path::new(env!("CARGO_BIN_EXE_abp")).parent().unwrap();
    let starter = programs.join("examples/starter");
    if !starter.is_file() {
        return abp_testkit::skip("the starter in Rust", "its example is not built");
    }
    let (status, found) = check_json(&Desk::new(), &[starter.to_str().unwrap()]);
    assert_eq!(status, 0, "{found:#}");
}

#[test]
fn every_broken_sidecar_fails_the_check_for_its_reason() {
    let fixtures = repository().join("fixtures/sidecar");
    let expectations = std::fs::read(fixtures.join("expectations.json")).unwrap();
    let expectations: Value = serde_json::from_slice(&expectations).unwrap();
    let check = &|script: &String, expected: &Value| {
        let desk = Desk::new();
        let path = fixtures.join(script);
        let (status, found) = check_json(&desk, &["python3", path.to_str().unwrap()]);
        assert_eq!(status, 1, "{script}: {found:#}");
        let failed = found["checks"].as_array().unwrap().iter();
        let codes: Vec<_> = failed
            .filter(|one| one["verdict"] == "failed")
            .map(|one| &one["code"])
            .collect();
        assert!(
            codes.contains(&&expected["error_code"]),
            "{script}: {found:#}"
        );
    };
    std::thread::scope(|scope| {
        for (script, expected) in expectations.as_object().unwrap() {
            scope.spawn(move || check(script, expected));
        }
    });
}

#[test]
fn c20_a_workspace_that_outgrows_its_limit_ends_the_run() {
    let script = "hello; run; for n in 1 2 3 4; do head -c 400000 /dev/urandom >big$n; done; sleep 60; final '{\"outcome\":\"complete\"}'";
    let desk = desk(script, "max_workspace_mb = 1");
    let started = Instant::now();
    let (status, receipt) = run(&desk, &[]);
    assert_ne!(status, 0, "{receipt:#}");
    assert!(started.elapsed() < Duration::from_secs(30));
    assert_eq!(receipt["error"]["code"], "EXECUTION_WORKSPACE_ERROR");
}
