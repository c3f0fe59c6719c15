//! Upstreams as backends of runs, and what `abp doctor` says of them.

use std::os::unix::fs::PermissionsExt as _;

use abp_testkit::{FakeVendor, Reply};
use serde_json::{Value, json};

use crate::desk::{Desk, Ran};
use crate::served::Served;

/// An upstream in a configuration.
fn upstream(name: &str, dialect: &str, base_url: &str, more: &str) -> String {
    format!("[upstreams.{name}]\ndialect = \"{dialect}\"\nbase_url = \"{base_url}\"\n{more}\n")
}

/// Runs something on a backend and returns the exit status and the receipt.
fn run(desk: &Desk, backend: &str, more: &[&str]) -> (i32, Value) {
    let run = ["run", "--task", "say hello", "--backend", backend, "--json"];
    let mut command = desk.command(&[&run, more].concat());
    let ran = Ran::new(command.env("GATEWAY_KEY", key(desk)).output().unwrap());
    let receipt = desk.receipts().pop().map(std::fs::read);
    let receipt = receipt.map_or(Value::Null, |read| {
        serde_json::from_slice(&read.unwrap()).unwrap()
    });
    assert!(!receipt.is_null(), "{}{}", ran.stdout, ran.stderr);
    (ran.status, receipt)
}

/// The key of the gateway that a desk's upstreams lead to.
fn key(desk: &Desk) -> String {
    std::fs::read_to_string(desk.path("upstream.key")).unwrap_or_default()
}

fn message(receipt: &Value) -> &str {
    let trace = receipt["trace"].as_array().unwrap();
    let told = trace
        .iter()
        .find(|event| event["type"] == "assistant_message");
    told.unwrap_or_else(|| panic!("{receipt:#}"))["text"]
        .as_str()
        .unwrap()
}

#[test]
fn a_run_on_the_embedded_model_ends_in_a_receipt_with_its_usage_and_price() {
    let desk = Desk::new();
    let (status, receipt) = run(&desk, "upstream:mock", &[]);
    assert_eq!((status, &receipt["outcome"]), (0, &json!("complete")));
    assert_eq!(receipt["backend"]["id"], "upstream:mock");
    assert_eq!(message(&receipt), "You said: say hello");
    let usage = &receipt["usage"];
    let count = |name: &str| usage[name].as_u64().unwrap_or_else(|| panic!("{usage:#}"));
    let tokens = count("input_tokens") + count("output_tokens");
    let cost = usage["estimated_cost_usd"].as_f64().unwrap();
    #[expect(clippy::cast_precision_loss, reason = "a handful of tokens")]
    let expected = tokens as f64 / 1e6;
    assert!((cost - expected).abs() < 2e-6, "{usage:#}");
    let streamed = receipt["trace"].as_array().unwrap().iter();
    let deltas = streamed.filter(|event| event["type"] == "assistant_delta");
    assert!(deltas.count() > 1, "{receipt:#}");
    let (_, backends) = desk.json(&["backends"]);
    let mut backends = backends["backends"].as_array().unwrap().iter();
    let mock = backends
        .find(|backend| backend["name"] == "upstream:mock")
        .unwrap();
    assert_eq!(mock["capabilities"]["tool_use"], "native");
    assert_eq!(mock["capabilities"]["tool_bash"], "unsupported");
}

/// A gateway is the upstream, in every dialect that it serves.
#[test]
fn a_run_is_written_in_the_dialect_of_its_upstream() {
    let (desk, other) = (Desk::new(), Desk::new());
    let served = Served::start(&other, &[]);
    desk.write("upstream.key", &served.key);
    let mut config = String::from(
        "[prices.list.vendor-mock]\ninput_usd_per_mtok = 1000000.0\noutput_usd_per_mtok = 0.0\n",
    );
    let dialects = ["openai", "codex", "claude", "gemini", "kimi", "copilot"];
    for dialect in dialects {
        let version = if ["claude", "gemini"].contains(&dialect) {
            ""
        } else {
            "/v1"
        };
        let more = "api_key_env = \"GATEWAY_KEY\"\nmodels = [\"m-*\", \"mine\"]\nprices = \"list\"\n\
                    aliases = { mine = \"vendor-mock\" }";
        config += &upstream(dialect, dialect, &format!("{}{version}", served.base), more);
    }
    desk.write("gateway.toml", config);
    for dialect in dialects {
        let backend = format!("upstream:{dialect}");
        let (status, receipt) = run(&desk, &backend, &["--config", "gateway.toml"]);
        assert_eq!(
            (status, &receipt["outcome"]),
            (0, &json!("complete")),
            "{receipt:#}"
        );
        assert_eq!(message(&receipt), "You said: say hello", "{dialect}");
        // The only name it serves is an alias; the vendor is asked, and paid, under its own.
        let usage = &receipt["usage"];
        let input = usage["input_tokens"].as_u64().unwrap();
        assert_eq!(
            usage["estimated_cost_usd"].as_f64(),
            u32::try_from(input).ok().map(f64::from)
        );
        for receipt in desk.receipts() {
            std::fs::remove_file(receipt).unwrap();
        }
    }
}

#[test]
fn what_a_dialect_cannot_carry_is_in_the_receipt_or_refused() {
    let (desk, other) = (Desk::new(), Desk::new());
    let served = Served::start(&other, &[]);
    desk.write("upstream.key", &served.key);
    let key = "api_key_env = \"GATEWAY_KEY\"";
    let base_url = format!("{}/v1", served.base);
    desk.write("gateway.toml", upstream("chat", "openai", &base_url, key));
    let request = json!({
        "model": "mock", "max_tokens": 50, "top_k": 3,
        "messages": [{"role": "user", "content": "hello"}],
    });
    let request = format!("abp.request={request}");
    let params = ["--config", "gateway.toml", "--param", "abp.dialect=claude"];
    let params = [&params[..], &["--param", &request]].concat();
    let (status, receipt) = run(&desk, "upstream:chat", &params);
    assert_eq!(status, 0, "{receipt:#}");
    let losses = receipt["plan"]["losses"].as_array().unwrap();
    let lost = losses
        .iter()
        .any(|loss| loss["pointer"] == "/top_k" && loss["kind"] == "dropped");
    assert!(lost, "{losses:#?}");
    let strict = [&params[..], &["--param", "abp.on_loss=reject"]].concat();
    let refused = desk.abp(
        &[
            &["run", "--task", "t", "--backend", "upstream:chat"],
            &strict[..],
        ]
        .concat(),
    );
    assert_eq!(refused.status, 3, "{}", refused.stderr);
}

#[test]
fn an_upstream_without_its_key_stands_in_nobodys_way() {
    let desk = Desk::new();
    let more = "api_key_env = \"NO_SUCH_VARIABLE\"";
    desk.write("backplane.toml", "");
    desk.write(
        "gateway.toml",
        upstream("vendor", "openai", "http://127.0.0.1:9/v1", more),
    );
    let config = ["--config", "gateway.toml"];
    let other = desk.abp(&[&["run", "--task", "t"], &config[..]].concat());
    assert_eq!(other.status, 0, "{}", other.stderr);
    let run = ["run", "--task", "t", "--backend", "upstream:vendor"];
    let ran = desk.abp(&[&run, &config[..]].concat());
    assert_ne!(ran.status, 0);
    assert!(
        ran.stdout.contains("NO_SUCH_VARIABLE"),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
    let (status, backends) = desk.json(&[&["backends", "--probe"], &config[..]].concat());
    assert_eq!(status, 6);
    let mut backends = backends["backends"].as_array().unwrap().iter();
    let vendor = backends
        .find(|backend| backend["name"] == "upstream:vendor")
        .unwrap();
    assert_eq!(vendor["probe"]["status"], "failed");
    assert_eq!(vendor["capabilities"]["streaming"], "native");
}

/// The checks of `abp doctor`: what each is about, its status, and what it says.
fn doctor(desk: &Desk, variables: &[(&str, &str)]) -> (i32, Vec<(String, String, String)>) {
    let doctor = ["doctor", "--config", "gateway.toml", "--json"];
    let mut command = desk.command(&doctor);
    let ran = Ran::new(command.envs(variables.iter().copied()).output().unwrap());
    for (_, secret) in variables.iter().filter(|(name, _)| name.ends_with("KEY")) {
        assert!(!ran.stdout.contains(secret), "{}", ran.stdout);
    }
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    let checks = told["checks"].as_array().unwrap().iter();
    let text = |check: &Value, name: &str| check[name].as_str().unwrap().to_owned();
    let checks = checks.map(|check| {
        (
            text(check, "name"),
            text(check, "status"),
            text(check, "detail"),
        )
    });
    (ran.status, checks.collect())
}

/// The setting for a key in a file that anybody can read.
fn open_key(desk: &Desk, key: &str) -> String {
    desk.write("open.key", key);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(desk.path("open.key"), open).unwrap();
    format!("api_key_file = {:?}", desk.path("open.key"))
}

#[test]
fn the_doctor_asks_every_upstream_and_never_shows_a_key() {
    let (desk, other) = (Desk::new(), Desk::new());
    let served = Served::start(&other, &[]);
    let unwell = FakeVendor::start(Reply::json("{}").status(503)).unwrap();
    let invalid = r#"{"error":{"code":400,"status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#;
    let strict = FakeVendor::start(Reply::json(invalid).status(400)).unwrap();
    let open_key = open_key(&desk, &served.key);
    let base = &served.base;
    let secure = base.replace("http:", "https:");
    let keyed = "api_key_env = \"GOOD_KEY\"";
    // Name, dialect, address, more, and what is expected of it.
    let cases = [
        ("well", "claude", base.clone(), keyed, ("ok", "answers")),
        (
            "well-gemini",
            "gemini",
            base.clone(),
            keyed,
            ("ok", "the key in GOOD_KEY; it lists"),
        ),
        (
            "stranger",
            "claude",
            base.clone(),
            "api_key_env = \"BAD_KEY\"",
            ("failed", "does not take"),
        ),
        (
            "strange-gemini",
            "gemini",
            strict.url(""),
            keyed,
            ("failed", "does not take"),
        ),
        (
            "open",
            "claude",
            base.clone(),
            &open_key,
            ("warning", "others can read"),
        ),
        (
            "keyless",
            "claude",
            base.clone(),
            "api_key_env = \"NO_KEY\"",
            ("failed", "NO_KEY"),
        ),
        (
            "lost",
            "openai",
            format!("{base}/v9"),
            keyed,
            ("warning", "404"),
        ),
        (
            "unwell",
            "openai",
            unwell.url("/v1"),
            "",
            ("warning", "503"),
        ),
        (
            "gone",
            "openai",
            "http://127.0.0.1:9/v1".to_owned(),
            "",
            ("failed", "cannot connect"),
        ),
        (
            "nameless",
            "openai",
            "http://no-such-host.invalid/v1".to_owned(),
            "",
            ("failed", "cannot connect"),
        ),
        (
            "plain",
            "openai",
            format!("{secure}/v1"),
            "",
            ("failed", ""),
        ),
    ];
    let config = cases
        .each_ref()
        .map(|(name, dialect, base, more, _)| upstream(name, dialect, base, more));
    desk.write("gateway.toml", config.concat());
    let variables = [
        ("GOOD_KEY", served.key.as_str()),
        ("BAD_KEY", "abp_somebody_elses"),
    ];
    let (status, checks) = doctor(&desk, &variables);
    assert_eq!(status, 1);
    for (name, _, _, _, (expected, words)) in &cases {
        let name = format!("upstream {name}");
        let (_, status, detail) = checks.iter().find(|check| check.0 == name).unwrap();
        assert_eq!(status, expected, "{name}: {detail}");
        assert!(detail.contains(words), "{name}: {detail}");
    }
}

#[test]
fn the_doctor_looks_at_the_gateways_address_and_key() {
    let desk = Desk::new();
    desk.write("gateway.toml", "");
    let told = |variables: &[(&str, &str)], name: &str| {
        let (status, checks) = doctor(&desk, variables);
        let (_, verdict, detail) = checks.into_iter().find(|check| check.0 == name).unwrap();
        (status, verdict, detail)
    };
    let listen = |address: &str| told(&[("ABP_LISTEN", address)], "gateway");
    let (status, verdict, detail) = listen("127.0.0.1:0");
    assert_eq!((status, verdict.as_str()), (0, "ok"), "{detail}");
    let served = Served::start(&desk, &[]);
    let (_, verdict, detail) = listen(served.address());
    assert_eq!(verdict, "ok");
    assert!(detail.starts_with("a gateway listens"), "{detail}");
    let other = FakeVendor::start(Reply::json("{}")).unwrap();
    let (status, verdict, detail) = listen(&other.addr().to_string());
    assert_eq!((status, verdict.as_str()), (0, "warning"), "{detail}");
    let key = desk.state("gateway.key");
    assert_eq!(told(&[], "gateway key").1, "ok");
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (status, verdict, detail) = told(&[], "gateway key");
    assert_eq!((status, verdict.as_str()), (1, "failed"), "{detail}");
}

/// What a run costs is the price of the model that answered, whoever chose the backend and the model; a
/// budget is held to it.
#[test]
fn a_run_is_charged_for_the_model_that_answered() {
    let desk = Desk::new();
    let answer = json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "answered",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 0, "total_tokens": 100},
    });
    let vendor = FakeVendor::start(Reply::json(answer.to_string())).unwrap();
    let price = |model: &str, rate: &str| {
        format!("[prices.list.{model}]\ninput_usd_per_mtok = {rate}\noutput_usd_per_mtok = 0.0\n")
    };
    let vendor = upstream(
        "vendor",
        "openai",
        &format!("http://{}/v1", vendor.addr()),
        "models = [\"mine\"]\nprices = \"list\"\naliases = { mine = \"asked\" }",
    );
    let (asked, answered) = (price("asked", "1.0"), price("answered", "10000.0"));
    // Prices, the budget, and what comes of it: the status, and the cost in dollars.
    let cases = [
        (format!("{asked}{answered}"), "2", 0, Some(1.0)),
        (format!("{asked}{answered}"), "0.5", 5, Some(1.0)),
        // A model without a price of its own costs what the one that was asked for costs.
        (asked, "2", 0, Some(0.000_1)),
        // Nothing is known to cost anything before it is asked.
        (answered, "2", 2, None),
    ];
    for backend in ["auto", "upstream:vendor"] {
        for (prices, budget, status, cost) in &cases {
            desk.write("gateway.toml", format!("{prices}{vendor}"));
            let before = desk.receipts();
            let run = ["run", "--task", "say hello", "--config", "gateway.toml"];
            let with = ["--backend", backend, "--max-budget-usd", budget];
            let ran = desk.abp(&[&run[..], &with[..]].concat());
            assert_eq!(ran.status, *status, "{backend}: {prices}{}", ran.stderr);
            let mut new = desk.receipts();
            new.retain(|path| !before.contains(path));
            let receipt = new.pop().map_or(Value::Null, |path| {
                serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
            });
            let found = receipt["usage"]["estimated_cost_usd"].as_f64();
            assert_eq!(found, *cost, "{backend}: {prices}");
        }
    }
}

/// Where the choice is left to ABP, anything real comes before what only demonstrates; priorities,
/// dialects and lists of models decide among the real ones.
#[test]
fn a_choice_is_between_real_upstreams_that_serve_the_model() {
    let desk = Desk::new();
    let address = "http://127.0.0.1:1";
    let config = [
        upstream(
            "chat",
            "openai",
            address,
            "models = [\"gpt-*\", \"shared\"]",
        ),
        upstream(
            "claude",
            "claude",
            address,
            "models = [\"claude-*\", \"shared\"]\npriority = 3",
        ),
    ];
    desk.write("two.toml", config.concat());
    let plan = |more: &[&str]| {
        let dry = ["run", "--task", "t", "--dry-run", "--config", "two.toml"];
        desk.abp(&[&dry, more].concat())
    };
    for (model, expected) in [
        ("gpt-5", "backend    upstream:chat\n"),
        ("claude-opus-4-8", "backend    upstream:claude\n"),
        ("shared", "backend    upstream:claude\n"),
    ] {
        let planned = plan(&["--backend", "auto", "--model", model]);
        assert!(
            planned.stdout.contains(expected),
            "{model}: {}",
            planned.stdout
        );
        assert!(
            !planned.stdout.contains("fallback   mock"),
            "{}",
            planned.stdout
        );
        for name in ["mock", "upstream:mock"] {
            let lines: Vec<_> = planned.stdout.lines().collect();
            let place = lines
                .iter()
                .position(|line| line.starts_with(&format!("{name}  score")));
            let verdict = lines[place.unwrap_or_else(|| panic!("{}", planned.stdout)) + 1];
            assert!(verdict.starts_with("  not chosen because "), "{verdict}");
        }
    }
    let named = plan(&["--backend", "upstream:chat", "--model", "claude-opus-4-8"]);
    assert_ne!(named.status, 0);
    assert!(
        named
            .stderr
            .contains("does not serve the model \"claude-opus-4-8\""),
        "{}",
        named.stderr
    );
    // Nothing serves it but what only demonstrates: that is said, and not hidden.
    let planned = plan(&["--backend", "auto", "--model", "mock"]);
    assert!(
        planned
            .stdout
            .contains("it only demonstrates the way of an order"),
        "{}",
        planned.stdout
    );
}

/// Files of the context reach the model with their contents, through the gate and in sight.
#[test]
fn context_reaches_a_model_as_far_as_the_policy_allows() {
    let desk = Desk::new();
    desk.write("notes.txt", "the river is the Tiber")
        .write(".env", "TOKEN=canary-77");
    let context = [
        "--context",
        ".env",
        "--context",
        "notes.txt",
        "--context",
        "absent.txt",
    ];
    let (status, receipt) = run(&desk, "upstream:mock", &context);
    assert_eq!(status, 0, "{receipt:#}");
    let said = message(&receipt);
    assert!(said.ends_with("the river is the Tiber"), "{said}");
    assert!(!receipt.to_string().contains("canary-77"));
    let trace = receipt["trace"].as_array().unwrap();
    let of = |kind: &str, pointer: &str| -> Vec<&str> {
        let events = trace.iter().filter(|event| event["type"] == kind);
        events
            .map(|event| event.pointer(pointer).and_then(Value::as_str).unwrap())
            .collect()
    };
    assert_eq!(
        of("tool_call", "/input/path"),
        [".env", "notes.txt", "absent.txt"]
    );
    let warned = of("warning", "/message");
    for file in [".env", "absent.txt"] {
        let expected = format!("the content of {file:?} was not sent to the model: ");
        assert!(
            warned.iter().any(|message| message.starts_with(&expected)),
            "{warned:?}"
        );
    }
}

/// The examples of the help, and what a user finds afterwards.
#[test]
fn known_vendors_are_added_and_removed() {
    let desk = Desk::new();
    let file = desk.home().join(".config/abp/backplane.toml");
    let add = |arguments: &[&str]| desk.json(&[&["upstreams", "add"], arguments].concat());
    let (status, told) = add(&["openrouter"]);
    assert_eq!(status, 0, "{told:#}");
    assert_eq!(
        told["next"],
        json!(["export OPENROUTER_API_KEY=…", "abp doctor"])
    );
    for arguments in [
        &["ollama", "--name", "local", "--model", "qwen*"][..],
        &["azure", "--set", "resource=my-resource"],
        &["bedrock-claude", "--set", "region=eu-west-1"],
    ] {
        let (status, told) = add(arguments);
        assert_eq!(status, 0, "{told:#}");
    }
    let (_, told) = desk.json(&["upstreams", "list"]);
    let upstreams = &told["upstreams"];
    assert_eq!(upstreams["local"]["models"], json!(["qwen*"]));
    assert_eq!(upstreams["azure"]["auth"], "azure");
    let bedrock = &upstreams["bedrock-claude"];
    assert_eq!(
        bedrock["base_url"],
        "https://bedrock-runtime.eu-west-1.amazonaws.com/anthropic"
    );
    assert_eq!(bedrock["aws_region"], "eu-west-1");
    assert!(desk.abp(&["config", "check", "--strict"]).status == 0);
    let before = std::fs::read_to_string(&file).unwrap();
    for (arguments, words) in [
        (&["openrouter"][..], "already"),
        (&["bedrock"], "--set region=VALUE"),
        (&["nobody"], "--presets"),
        (&["groq", "--set", "x=1"], "nothing called"),
        (&["groq", "--base-url", "ftp://h"], "address"),
    ] {
        let ran = desk.abp(&[&["upstreams", "add"], arguments].concat());
        assert_eq!(ran.status, 2, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(words), "{arguments:?}: {}", ran.stderr);
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    for name in ["openrouter", "local", "azure", "bedrock-claude"] {
        let (status, told) = desk.json(&["upstreams", "remove", name]);
        assert_eq!(status, 0, "{told:#}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), "");
    let left: Vec<_> = std::fs::read_dir(file.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "no draft is left: {left:?}");
    let ran = desk.abp(&["upstreams", "list", "--presets", "--json"]);
    assert!(ran.stdout.contains("\"groq\""), "{}", ran.stdout);
}
