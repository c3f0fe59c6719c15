//! What a request cannot reach, and what does not get out.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use abp_control::operator_key;
use abp_dialect::Dialect;
use abp_testkit::{FakeVendor, Reply as Vendor};
use serde_json::{Value, json};

use crate::lab::{KEY, Lab, VENDOR_KEY, path, request, upstream};

const DIALECTS: [Dialect; 4] = [
    Dialect::OpenAi,
    Dialect::Codex,
    Dialect::Claude,
    Dialect::Gemini,
];

/// An answer of a dialect.
fn answer(dialect: Dialect) -> Vendor {
    Vendor::fixture(&format!("{dialect}/response_text.json")).expect("a fixture")
}

/// A7, B8: whatever members a request has, no program is started and nobody else is called.
#[test]
fn a7_b8_no_request_names_a_program_or_an_address() {
    let elsewhere = FakeVendor::start(Vendor::json("{}")).expect("a vendor");
    let dir = tempfile::tempdir().expect("a directory");
    let made = dir.path().join("made");
    let command = ["touch", made.to_str().expect("a path")];
    let hostile = json!({
        "command": command, "args": command, "env": { "LD_PRELOAD": made }, "cwd": "/",
        "backend": { "type": "sidecar", "command": command },
        "mcp_servers": { "x": { "command": command[0], "args": [command[1]] } },
        "endpoint": elsewhere.url(""), "webhook_url": elsewhere.url("/hook"),
        "upstream": { "base_url": elsewhere.url("/v1") }, "proxy": elsewhere.url(""),
    });
    for caller in DIALECTS {
        for target in DIALECTS {
            let vendor = FakeVendor::start(answer(target)).expect("a vendor");
            let lab = Lab::start(&[("up", upstream(target, &vendor))]);
            let mut body: Value =
                serde_json::from_str(&request(caller, "m", false)).expect("a request");
            let members = body.as_object_mut().expect("an object");
            members.extend(hostile.as_object().expect("an object").clone());
            let reply = lab.post(&path(caller, "m", false), &body.to_string());
            let place = format!("{caller} to {target}: {}", reply.text());
            // The caller's own vendor judges them; to others they mean nothing, or are refused as losses.
            let expected = reply.status == 200 || (caller != target && reply.status == 422);
            assert!(expected, "{place}");
            let sent = usize::from(reply.status == 200);
            assert_eq!(vendor.requests().len(), sent, "{place}");
            for name in ["api_base", "api_key", "base_url", "custom_host"] {
                let members = body.as_object_mut().expect("an object");
                members.insert(name.to_owned(), elsewhere.url("/v1").into());
                let reply = lab.post(&path(caller, "m", false), &body.to_string());
                assert_eq!(reply.status, 400, "{name}, {place}");
                body.as_object_mut().expect("an object").remove(name);
            }
            assert_eq!(vendor.requests().len(), sent, "{place}");
        }
    }
    assert_eq!(elsewhere.connections(), 0);
    assert!(!made.exists());
}

/// A12: a key file that somebody else prepared is not used, and not written through.
#[test]
fn a12_prepared_key_files_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = |name: &str| dir.path().join(name);
    let write = |name: &str, mode: u32| {
        std::fs::write(place(name), "abp_0123456789abcdef").expect("a file");
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(place(name), mode).expect("a mode");
    };
    write("own", 0o600);
    write("open", 0o644);
    write("short", 0o600);
    std::fs::write(place("short"), "abp_1").expect("a file");
    symlink(place("own"), place("link")).expect("a link");
    symlink(place("absent"), place("dangling")).expect("a link");
    std::fs::create_dir(place("directory")).expect("a directory");
    // Opening a pipe that nobody writes to must not wait for somebody.
    let pipe = std::process::Command::new("mkfifo")
        .args(["-m", "600"])
        .arg(place("pipe"))
        .status();
    assert!(pipe.expect("mkfifo").success());
    for refused in ["open", "short", "link", "dangling", "directory", "pipe"] {
        let error = operator_key(&place(refused)).expect_err(refused);
        assert!(error.to_string().contains(refused), "{error}");
    }
    assert!(!place("absent").exists(), "nothing is made through a link");
    assert!(operator_key(&place("own")).is_ok());
}

/// A16: names that callers make up do not become labels without end.
#[test]
fn a16_metrics_stay_small() {
    let vendor = FakeVendor::start(answer(Dialect::OpenAi)).expect("a vendor");
    let lab = Lab::start(&[("up", upstream(Dialect::OpenAi, &vendor))]);
    let ask = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            let model = format!("made-up-{number}");
            assert_eq!(lab.ask(Dialect::OpenAi, &model, false).status, 200);
        }
        lab.get("/metrics").text()
    };
    let enough = ask(0..250).lines().count();
    let metrics = ask(250..400);
    assert_eq!(metrics.lines().count(), enough, "{metrics}");
    assert!(metrics.contains("made-up-1"), "{metrics}");
    assert!(!metrics.contains("Hello"), "no text of a request");
}

/// B4: a body that would have to be unpacked is refused unread, wherever it goes.
#[test]
fn b4_packed_bodies_are_refused() {
    let vendor = FakeVendor::start(answer(Dialect::OpenAi)).expect("a vendor");
    let lab = Lab::start(&[("up", upstream(Dialect::OpenAi, &vendor))]);
    let targets = DIALECTS.map(|dialect| path(dialect, "m", false));
    let more = ["/v1/messages/count_tokens", "/v1/translate"].map(str::to_owned);
    for target in targets.iter().chain(&more) {
        for packing in ["gzip", "zstd", "br", "deflate", "identity, gzip", "x-gzip"] {
            let header = format!("content-encoding: {packing}\r\n");
            let body = request(Dialect::OpenAi, "m", false);
            let reply = lab.post_as(KEY, target, &body, &header);
            assert_eq!(reply.status, 415, "{target} {packing}: {}", reply.text());
        }
    }
    assert!(vendor.requests().is_empty());
    let plain = lab.post_as(
        KEY,
        "/v1/chat/completions",
        &request(Dialect::OpenAi, "m", false),
        "content-encoding: identity\r\n",
    );
    assert_eq!(plain.status, 200, "{}", plain.text());
}

/// B25: what the gateway knows of an exchange stays with it.
#[test]
fn b25_a_vendor_gets_the_request_and_nothing_of_ours() {
    for caller in DIALECTS {
        for target in DIALECTS {
            let vendor = FakeVendor::start(answer(target)).expect("a vendor");
            let lab = Lab::start(&[("up", upstream(target, &vendor))]);
            let headers = "x-abp-session: canary-session\r\nx-abp-on-loss: label\r\n\
                           x-request-id: canary-request\r\ncookie: canary-cookie\r\n";
            let reply = lab.post_as(
                KEY,
                &path(caller, "m", false),
                &request(caller, "m", false),
                headers,
            );
            assert_eq!(reply.status, 200, "{caller} to {target}: {}", reply.text());
            let run = reply.header("x-abp-run-id").expect("a run id");
            let sent = vendor.requests().remove(0);
            let sent = format!("{:?} {}", sent, String::from_utf8_lossy(&sent.body));
            for ours in [
                KEY,
                "canary",
                "x-abp",
                run,
                lab.dir.path().to_str().expect("a path"),
            ] {
                let sent = sent.replace(VENDOR_KEY, "");
                assert!(
                    !sent.contains(ours),
                    "{caller} to {target}: {ours} in {sent}"
                );
            }
        }
    }
}

/// B26: there is no HTTP/2 to abuse.
#[test]
fn b26_only_one_version_of_http_is_spoken() {
    let vendor = FakeVendor::start(answer(Dialect::OpenAi)).expect("a vendor");
    let lab = Lab::start(&[("up", upstream(Dialect::OpenAi, &vendor))]);
    let settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    let reply = lab.raw(settings);
    let told = matches!(reply.status, 400 | 403 | 505);
    let closed = reply.status == 0 && reply.head.is_empty();
    assert!(told || closed, "{reply:?}");
    let upgrade =
        "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n";
    let body = request(Dialect::OpenAi, "m", false);
    let raw = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\n{upgrade}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let reply = lab.raw(raw.as_bytes());
    assert_ne!(reply.status, 101, "{reply:?}");
}

/// A4: a page that is listed can use the server from a browser; no other hears that it could.
#[test]
fn a4_listed_pages_are_told_that_they_may() {
    let vendor = FakeVendor::start(answer(Dialect::OpenAi)).expect("a vendor");
    let up = upstream(Dialect::OpenAi, &vendor);
    let listed = "https://console.example";
    let lab = Lab::start_with(&[("up", up)], |_, options| {
        options.allowed_origins = vec![listed.to_owned()];
    });
    let preflight = |origin: &str| {
        let raw = format!(
            "OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\norigin: {origin}\r\n\
             access-control-request-method: POST\r\nconnection: close\r\n\
             access-control-request-headers: authorization, content-type\r\n\r\n"
        );
        lab.raw(raw.as_bytes())
    };
    let allowed = preflight(listed);
    assert_eq!(allowed.status, 204, "{}", allowed.head);
    assert_eq!(allowed.header("access-control-allow-origin"), Some(listed));
    let headers = allowed.header("access-control-allow-headers");
    assert_eq!(headers, Some("authorization, content-type"));
    let body = request(Dialect::OpenAi, "m", false);
    let ask = |headers: &str| lab.post_as(KEY, "/v1/chat/completions", &body, headers);
    let shared = ask(&format!("origin: {listed}\r\n"));
    assert_eq!(shared.status, 200, "{}", shared.text());
    assert_eq!(shared.header("access-control-allow-origin"), Some(listed));
    for (reply, status) in [
        (preflight("https://evil.example"), 403),
        (ask("origin: https://evil.example\r\n"), 403),
        (ask("origin: http://localhost\r\n"), 200),
        (ask(""), 200),
    ] {
        assert_eq!(reply.status, status, "{}", reply.head);
        let told = reply.head.to_ascii_lowercase();
        assert!(!told.contains("access-control"), "{told}");
    }
}

/// Models are listed in the words of whoever asks, and found by the patterns that serve them.
#[test]
fn models_are_told_in_the_words_of_the_address() {
    let vendor = FakeVendor::start(answer(Dialect::OpenAi)).expect("a vendor");
    let mut up = upstream(Dialect::OpenAi, &vendor);
    up.models = vec!["gpt-4o".to_owned(), "o3-*".to_owned()];
    let lab = Lab::start(&[("up", up)]);
    for (path, place) in [
        ("/v1/models", "/data/0/object"),
        ("/openai/v1/models", "/data/0/object"),
        ("/anthropic/v1/models", "/data/0/display_name"),
        ("/v1beta/models", "/models/0/supportedGenerationMethods"),
        ("/genai/v1/models", "/models/0/supportedGenerationMethods"),
        ("/v1/models/o3-mini", "/object"),
        ("/anthropic/v1/models/o3-mini", "/display_name"),
    ] {
        let reply = lab.get(path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        assert!(
            reply.json().pointer(place).is_some(),
            "{path}: {}",
            reply.text()
        );
    }
    for (path, place) in [
        ("/v1/models/unknown", "/error/type"),
        ("/anthropic/v1/models/unknown", "/type"),
        ("/v1beta/models/unknown", "/error/status"),
        ("/v1/messages/batches", "/type"),
        ("/v1beta/models/x:embedContent", "/error/status"),
    ] {
        let reply = lab.get(path);
        assert!(reply.status >= 400, "{path}");
        assert!(
            reply.json().pointer(place).is_some(),
            "{path}: {}",
            reply.text()
        );
    }
    let by_query = format!(
        "GET /genai/v1/models?key={KEY} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    );
    assert_eq!(lab.raw(by_query.as_bytes()).status, 200);
}
