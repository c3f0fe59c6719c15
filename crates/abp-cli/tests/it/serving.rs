//! `abp serve` from its start to its end, whichever that is.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use abp_testkit::{FakeVendor, Reply};
use serde_json::{Value, json};

use crate::desk::Desk;
use crate::keys::{create, listed};
use crate::served::{Served, post, within_a_second};

/// The lines of the README that ask a server started without configuration.
fn curl_lines() -> String {
    let readme = include_str!("../../../../README.md");
    let block = readme
        .split("```sh\n")
        .filter_map(|rest| rest.split("```").next())
        .find(|block| block.contains("curl $BASE"));
    let (_, lines) = block.unwrap().split_once('\n').unwrap();
    lines.replace("curl ", "curl --silent --fail ")
}

#[test]
fn the_lines_of_the_readme_are_answered_in_all_four_families() {
    if Command::new("curl").arg("--version").output().is_err() {
        return abp_testkit::skip("the README's curl lines", "curl is not installed");
    }
    let desk = Desk::new();
    let served = Served::start(&desk, &[]);
    let script = format!(
        "set -e\nKEY=$(abp keys show operator); BASE={}\n{}",
        served.base,
        curl_lines()
    );
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_abp"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    let ran = Command::new("bash")
        .args(["-c", &script])
        .current_dir(desk.path(""))
        .env("HOME", desk.home())
        .env("PATH", path)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    let answers = serde_json::Deserializer::from_slice(&ran.stdout).into_iter::<Value>();
    let answers: Vec<Value> = answers.map(|answer| answer.unwrap()).collect();
    let places = [
        "/choices/0/message/content",
        "/output/0/content/0/text",
        "/content/0/text",
        "/candidates/0/content/parts/0/text",
    ];
    assert_eq!(answers.len(), places.len());
    for (answer, place) in answers.iter().zip(places) {
        let text = answer.pointer(place).unwrap_or(&Value::Null);
        assert_eq!(text, "You said: hello", "{answer:#}");
    }
}

#[test]
fn keys_and_budgets_survive_a_kill() {
    let desk = Desk::new();
    // Room for the long answer, and then for the short one but not for the one in between: each is reserved
    // with 1,024 tokens and its bytes besides.
    let (id, key) = create(&desk, &["--token-budget", "6000"]);
    let body = json!({
        "model": "mock", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}],
    });
    let vendor = FakeVendor::start(Reply::silence()).unwrap();
    desk.write(
        "slow.toml",
        format!(
            "state_dir = {:?}\n[upstreams.slow]\ndialect = \"openai\"\nbase_url = \"{}\"\nmodels = [\"slow\"]\n",
            desk.state(""),
            vendor.url("/v1")
        ),
    );
    let served = Served::start(&desk, &["--config", "slow.toml"]);
    assert_eq!(post(&served.base, &key, &body).0, 200);
    within_a_second(|| (listed(&desk, &id)["reserved_tokens"] == 0).then_some(()));
    let spent = listed(&desk, &id)["spent_tokens"].as_u64().unwrap();
    assert!(spent > 0);

    // One request is on its way when everything ends.
    let mut pending = TcpStream::connect(served.address()).unwrap();
    let slow = json!({
        "model": "slow", "max_tokens": 3000, "messages": [{"role": "user", "content": "hi"}],
    });
    let slow = slow.to_string();
    write!(
        pending,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{slow}",
        slow.len()
    )
    .unwrap();
    assert!(vendor.wait_until(|requests| !requests.is_empty()));
    drop(served);

    let again = Served::start(&desk, &["--config", "slow.toml"]);
    // Nobody knows what the vendor did with that request, so it counts as what it could have cost.
    let account = within_a_second(|| {
        let account = listed(&desk, &id);
        (account["reserved_tokens"] == 0).then_some(account)
    });
    let now_spent = account["spent_tokens"].as_u64().unwrap();
    assert!(now_spent >= spent + 3000, "{account:#}");
    assert_eq!(post(&again.base, &key, &body).0, 200);
    let dear = json!({
        "model": "mock", "max_tokens": 1000, "messages": [{"role": "user", "content": "hi"}],
    });
    assert_eq!(post(&again.base, &key, &dear).0, 402);
}

#[test]
fn a_request_to_stop_lets_answers_end() {
    let desk = Desk::new();
    let vendor = Reply::fixture("openai/stream_text.sse").unwrap();
    let vendor = vendor.in_chunks(64).every(Duration::from_millis(30));
    let vendor = FakeVendor::start(vendor).unwrap();
    desk.write(
        "slow.toml",
        format!(
            "state_dir = {:?}\n[upstreams.slow]\ndialect = \"openai\"\nbase_url = \"{}\"\nmodels = [\"slow\"]\n",
            desk.state(""),
            vendor.url("/v1")
        ),
    );
    let mut served = Served::start(&desk, &["--config", "slow.toml"]);
    let body = r#"{"model":"slow","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let mut stream = TcpStream::connect(served.address()).unwrap();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        served.key,
        body.len()
    )
    .unwrap();
    let mut first = [0; 32];
    stream.read_exact(&mut first).unwrap();
    served.terminate();
    within_a_second(|| TcpStream::connect(served.address()).err());
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("\r\n0\r\n\r\n"), "{rest}");
    assert!(rest.contains("data: [DONE]"), "{rest}");
    assert!(served.wait().success());
}

/// A6, A13, A15, B13: a server shows its keys to nobody, leaves no memory behind, and its log has one line
/// for each thing that happens, whatever callers and vendors say.
#[test]
fn a6_a13_a15_b13_what_a_server_shows_of_itself() {
    const VENDOR_KEY: &str = "sk-canary-of-the-vendor";
    let desk = Desk::new();
    let unwell = format!(
        r#"{{"error":{{"message":"\u001b[31mred\r\nforged line {VENDOR_KEY}","type":"x"}}}}"#
    );
    let vendor = FakeVendor::start(Reply::json(unwell).status(503)).unwrap();
    let gone = FakeVendor::start(Reply::json("{}")).unwrap();
    let nobody = gone.url("/v1");
    drop(gone);
    desk.write("vendor.key", VENDOR_KEY);
    desk.write(
        "noisy.toml",
        format!(
            "log_level = \"trace\"\nstate_dir = {:?}\n\
             [upstreams.unwell]\ndialect = \"openai\"\nbase_url = \"{}\"\napi_key_file = {:?}\nmodels = [\"unwell*\"]\n\
             [upstreams.gone]\ndialect = \"openai\"\nbase_url = \"{nobody}\"\napi_key_file = {:?}\nmodels = [\"gone*\"]\n",
            desk.state(""),
            vendor.url("/v1"),
            desk.path("vendor.key"),
            desk.path("vendor.key"),
        ),
    );
    let log = desk.path("log");
    let mut command = desk.command(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--json",
        "--config",
        "noisy.toml",
    ]);
    command.stderr(std::fs::File::create(&log).unwrap());
    let mut served = Served::spawn(&mut command);
    let key = served.key.clone();
    for model in ["unwell", "gone\u{1b}[31m\r\nforged line", "nobody\u{7}"] {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "x"}]});
        let (status, told) = post(&served.base, &key, &body);
        assert!(status >= 400, "{told}");
        assert!(!told.to_string().contains(VENDOR_KEY), "{told}");
    }
    let wrong = format!("{key}x");
    assert_eq!(post(&served.base, &wrong, &json!({})).0, 401);
    let of_process = |name: &str| {
        let path = format!("/proc/{}/{name}", served.id());
        String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
    };
    assert!(!of_process("cmdline").contains(&key));
    let limits = of_process("limits");
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let words: Vec<_> = core.unwrap().split_whitespace().collect();
    assert_eq!(words[4..6], ["0", "0"], "{limits}");
    served.terminate();
    assert!(served.wait().success());
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("no answer"), "the failure is logged: {log}");
    let spans = log.lines().filter(|line| line.contains("abp.span"));
    let exchanges = spans.filter(|line| line.contains("exchange"));
    assert_eq!(exchanges.count(), 3, "{log}");
    for secret in [VENDOR_KEY, &key] {
        assert!(!log.contains(secret), "{log}");
    }
    let control = |letter: char| letter.is_control() && letter != '\n';
    assert!(!log.contains(control), "{}", log.escape_debug());
    let forged = log.lines().find(|line| line.starts_with("forged"));
    assert_eq!(forged, None, "{log}");
}

/// The lines of the page about the HTTP interface, as they are written there.
#[test]
fn the_lines_of_the_http_page_submit_follow_prove_and_decide() {
    for tool in ["curl", "jq"] {
        if Command::new(tool).arg("--version").output().is_err() {
            return abp_testkit::skip("the curl session", &format!("{tool} is not installed"));
        }
    }
    let page = include_str!("../../../../docs/control_plane_http.md");
    let mut blocks = page
        .split("```sh\n")
        .filter_map(|rest| rest.split("```").next());
    let session = blocks.find(|block| block.contains("v1/runs")).unwrap();
    let desk = Desk::new();
    let served = Served::start(&desk, &[]);
    let script = session.replace("http://127.0.0.1:8088", &served.base);
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_abp"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    let ran = Command::new("bash")
        .args(["-c", &format!("set -e\n{script}")])
        .current_dir(desk.path(""))
        .env("HOME", desk.home())
        .env("PATH", path)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success(),
        "{told}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    for part in [
        "event: end",
        r#""state":"complete""#,
        "+++ b/abp-hello.md",
        r#""verdict":"proven""#,
        r#""is_changed":true"#,
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}
