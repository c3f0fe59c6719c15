//! Which upstream is asked when one does not answer as it should.

use std::time::{Duration, Instant};

use abp_config::UpstreamConfig;
use abp_dialect::Dialect;
use abp_testkit::{Cut, FakeVendor, Reply as Vendor, Script, fixture};

use crate::lab::{KEY, Lab, Reply, request, sha256, upstream};

const BUSY: &str = r#"{"error":{"message":"busy","type":"server_error","param":null,"code":null}}"#;

fn vendor(script: impl Into<Script>) -> FakeVendor {
    FakeVendor::start(script).expect("a vendor")
}

fn good() -> Vendor {
    Vendor::json(fixture("openai/response_text.json").expect("a fixture"))
}

/// An upstream that goes on to another.
fn first(vendor: &FakeVendor, then: &str) -> UpstreamConfig {
    let mut first = upstream(Dialect::OpenAi, vendor);
    first.fallback = vec![then.to_owned()];
    first
}

fn lab(upstreams: &[(&str, UpstreamConfig)]) -> Lab {
    Lab::start_with(upstreams, |config, _| config.server.max_attempts = 3)
}

/// B20: how long a vendor wants to be left alone concerns that vendor only.
#[test]
fn b20_a_vendor_that_asks_for_patience_does_not_keep_others_from_answering() {
    for (status, wait) in [(429, "20"), (503, "20"), (429, "2"), (503, "2"), (500, "0")] {
        let unwell = vendor(
            Vendor::json(BUSY)
                .status(status)
                .header("retry-after", wait),
        );
        let well = vendor(good());
        let mut second = upstream(Dialect::OpenAi, &well);
        second.weight = 0;
        let lab = lab(&[("a", first(&unwell, "b")), ("b", second)]);
        let asked = Instant::now();
        let reply = lab.ask(Dialect::OpenAi, "m", false);
        let place = format!("{status}, {wait}: {} {}", reply.head, reply.text());
        assert_eq!(reply.status, 200, "{place}");
        assert_eq!(reply.header("x-abp-backend"), Some("b"), "{place}");
        let waited = asked.elapsed();
        assert!(waited < Duration::from_secs(2), "{place}: {waited:?}");
        assert_eq!(unwell.requests().len(), 1, "{place}");
    }
}

/// B20: a short wait is waited for, a long one is told.
#[test]
fn b20_a_vendor_alone_is_asked_again_after_what_it_asks_for() {
    let busy = |wait| Vendor::json(BUSY).status(503).header("retry-after", wait);
    let soon = vendor(Script::InOrder(vec![busy("1"), good()]));
    let lab_of = |vendor: &FakeVendor| lab(&[("a", upstream(Dialect::OpenAi, vendor))]);
    let asked = Instant::now();
    let reply = lab_of(&soon).ask(Dialect::OpenAi, "m", false);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(asked.elapsed() >= Duration::from_secs(1));
    let late = vendor(Script::InOrder(vec![busy("30"), good()]));
    let reply = lab_of(&late).ask(Dialect::OpenAi, "m", false);
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(reply.header("retry-after"), Some("30"));
    assert_eq!(late.requests().len(), 1);
}

/// A vendor's limits are per model: the others are served.
#[test]
fn a_model_that_rests_keeps_no_other_from_answering() {
    let busy = Vendor::json(BUSY).status(429).header("retry-after", "60");
    let limited = vendor(Script::By(Box::new(move |request| {
        let asked = String::from_utf8_lossy(&request.body).contains("popular");
        if asked { busy.clone() } else { good() }
    })));
    let lab = lab(&[("a", upstream(Dialect::OpenAi, &limited))]);
    let status = |model| lab.ask(Dialect::OpenAi, model, false).status;
    assert_eq!(status("popular"), 429);
    assert_eq!(status("other"), 200);
    let rests = lab.ask(Dialect::OpenAi, "popular", false);
    assert_eq!(rests.status, 429, "{}", rests.head);
    assert_eq!(rests.header("x-abp-error"), Some("BACKEND_RATE_LIMITED"));
    assert!(rests.header("retry-after").is_some(), "{}", rests.head);
    assert_eq!(limited.requests().len(), 2);
}

/// The receipt is about the upstream whose answer was given, also where another was tried after it.
#[test]
fn the_receipt_tells_of_whose_answer_was_given() {
    let nobody = {
        let gone = vendor(good());
        upstream(Dialect::Claude, &gone)
    };
    let unwell = vendor(Vendor::json(BUSY).status(503));
    let mut gone = nobody;
    gone.weight = 0;
    let lab = Lab::start_with(
        &[("a", first(&unwell, "gone")), ("gone", gone)],
        |config, _| config.server.max_attempts = 2,
    );
    let reply = lab.ask(Dialect::OpenAi, "m", false);
    let place = format!("{} {}", reply.head, reply.text());
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (503, BUSY),
        "{place}"
    );
    assert_eq!(reply.header("x-abp-backend"), Some("a"), "{place}");
    assert_eq!(reply.header("x-abp-mode"), Some("passthrough"), "{place}");
    let receipt = lab.receipt(&reply);
    let exchange = &receipt["exchange"];
    let asked = request(Dialect::OpenAi, "m", false);
    assert_eq!(receipt["backend"]["id"], "a", "{receipt}");
    assert_eq!(exchange["upstream_dialect"], "openai", "{exchange}");
    assert_eq!(
        exchange["sent_sha256"],
        sha256(asked.as_bytes()),
        "{exchange}"
    );
    assert_eq!(
        exchange["received_sha256"],
        sha256(BUSY.as_bytes()),
        "{exchange}"
    );
    assert_eq!(
        exchange["delivered_sha256"],
        sha256(BUSY.as_bytes()),
        "{exchange}"
    );
}

/// What a caller asks for and cannot be asked says nothing about the vendor.
#[test]
fn a_name_that_is_no_model_closes_no_circuit() {
    let answer = fixture("gemini/response_text.json").expect("a fixture");
    let gemini = vendor(Vendor::json(answer));
    let lab = lab(&[("gemini", upstream(Dialect::Gemini, &gemini))]);
    let ask = |model: &str| lab.ask(Dialect::OpenAi, model, false);
    for _ in 0..10 {
        let reply = ask("gemini-/../x");
        assert_eq!(reply.status, 400, "{} {}", reply.head, reply.text());
    }
    assert!(gemini.requests().is_empty());
    assert_eq!(ask("gemini-2.5-flash").status, 200);
}

/// Whoever has a key is let in, however many wrong ones come from the same address.
#[test]
fn wrong_keys_lock_nobody_out() {
    let vendor = vendor(good());
    let lab = lab(&[("up", upstream(Dialect::OpenAi, &vendor))]);
    let body = request(Dialect::OpenAi, "m", false);
    let ask = |key: &str| -> Reply { lab.post_as(key, "/v1/chat/completions", &body, "") };
    let wrong: Vec<u16> = (0..30).map(|_| ask("wrong").status).collect();
    assert_eq!((wrong[0], wrong[29]), (401, 429), "{wrong:?}");
    assert_eq!(ask(KEY).status, 200);
}

/// B13: some vendors repeat the key that they refuse.
#[test]
fn b13_the_key_in_a_vendors_error_goes_no_further() {
    let refusal = format!(
        r#"{{"error":{{"message":"Incorrect API key provided: {}","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}}}"#,
        crate::lab::VENDOR_KEY
    );
    let vendor = vendor(Vendor::json(refusal.clone()).status(401));
    let lab = lab(&[("up", upstream(Dialect::OpenAi, &vendor))]);
    for caller in [Dialect::OpenAi, Dialect::Claude, Dialect::Gemini] {
        let reply = lab.ask(caller, "m", false);
        assert_eq!(reply.status, 401, "{}", reply.text());
        let told = reply.text();
        assert!(told.contains("Incorrect API key"), "{caller}: {told}");
        assert!(!told.contains(crate::lab::VENDOR_KEY), "{caller}: {told}");
        let exchange = &lab.receipt(&reply)["exchange"];
        assert_eq!(exchange["received_sha256"], sha256(refusal.as_bytes()));
        assert_eq!(exchange["delivered_sha256"], sha256(&reply.body));
    }
}

/// B14: a vendor gets its own key, and no other's.
#[test]
fn b14_each_vendor_gets_its_own_key() {
    let dir = tempfile::tempdir().expect("a directory");
    let keys = ["sk-canary-of-one", "sk-canary-of-two"];
    let vendors = keys.map(|_| vendor(good()));
    let upstreams = [0, 1].map(|number| {
        let file = dir.path().join(keys[number]);
        std::fs::write(&file, keys[number]).expect("a key");
        let mut upstream = upstream(Dialect::OpenAi, &vendors[number]);
        upstream.api_key_file = Some(file);
        upstream.models = vec![format!("m{number}")];
        upstream
    });
    let [one, two] = upstreams;
    let lab = lab(&[("one", one), ("two", two)]);
    for caller in [Dialect::OpenAi, Dialect::Claude] {
        for model in ["m0", "m1"] {
            assert_eq!(
                lab.ask(caller, model, false).status,
                200,
                "{caller} {model}"
            );
        }
    }
    for (vendor, own) in vendors.iter().zip(keys) {
        let requests = vendor.requests();
        assert_eq!(requests.len(), 2);
        for request in requests {
            let heard = format!("{request:?} {}", String::from_utf8_lossy(&request.body));
            assert!(heard.contains(own), "{heard}");
            let others = keys.iter().filter(|key| **key != own).chain([&KEY]);
            for other in others {
                assert!(!heard.contains(other), "{heard}");
            }
        }
    }
}

/// B20: what was begun is not begun again, by nobody.
#[test]
fn b20_nothing_is_sent_again_once_the_caller_has_part_of_an_answer() {
    let whole = fixture("openai/stream_text.sse").expect("a fixture");
    let at = whole.len() / 2;
    let broken = vendor(Vendor::events(whole.clone()).cut_at(at, Cut::Reset));
    let well = vendor(Vendor::events(whole));
    let mut second = upstream(Dialect::OpenAi, &well);
    second.weight = 0;
    let lab = lab(&[("a", first(&broken, "b")), ("b", second)]);
    for caller in [Dialect::OpenAi, Dialect::Claude] {
        let before = broken.requests().len();
        let reply = lab.ask(caller, "m", true);
        assert_eq!(reply.header("x-abp-backend"), Some("a"), "{}", reply.head);
        assert_eq!(broken.requests().len(), before + 1, "{caller}");
        assert!(well.requests().is_empty(), "{caller}");
    }
}

/// A5: a server with a certificate is asked over TLS, and by nobody in the clear.
#[test]
fn a5_a_server_with_a_certificate_encrypts() {
    let dir = tempfile::tempdir().expect("a directory");
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
    let certified = certified.expect("a certificate");
    let place = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let cert = place("cert.pem", &certified.cert.pem());
    let key = place("key.pem", &certified.signing_key.serialize_pem());
    let vendor = vendor(good());
    let up = upstream(Dialect::OpenAi, &vendor);
    let encrypted = Lab::start_with(&[("up", up.clone())], |_, options| {
        options.tls = Some((cert.clone(), key));
    });
    // One gateway asks the other, which is the vendor of the first.
    let mut outer = up;
    outer.base_url = format!("https://localhost:{}/v1", encrypted.addr.port());
    outer.ca_file = Some(cert);
    outer.api_key_file = Some(place("abp.key", KEY));
    let lab = lab(&[("outer", outer)]);
    let reply = lab.ask(Dialect::Claude, "m", false);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(vendor.requests().len(), 1);
    let plain = encrypted.ask(Dialect::OpenAi, "m", false);
    assert_eq!(plain.status, 0, "{plain:?}");
    assert_eq!(vendor.requests().len(), 1);
}

/// Tokens are counted by whoever reads the request as it is; another vendor is not asked in its words.
#[test]
fn counting_does_not_go_on_to_another_dialect() {
    let unwell = vendor(Vendor::json(BUSY).status(503));
    let other = vendor(Vendor::json(r#"{"totalTokens":7}"#));
    let mut claude = upstream(Dialect::Claude, &unwell);
    claude.fallback = vec!["other".to_owned()];
    let mut gemini = upstream(Dialect::Gemini, &other);
    gemini.weight = 0;
    let lab = lab(&[("claude", claude), ("other", gemini)]);
    let body = request(Dialect::Claude, "m", false);
    let reply = lab.post("/v1/messages/count_tokens", &body);
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(other.requests().is_empty(), "{:?}", other.requests());
}

/// A stream that cannot be translated any further is over, though its vendor goes on.
#[test]
fn a_stream_that_told_of_its_error_is_not_waited_for() {
    let error = "data: {\"error\":{\"message\":\"lost\",\"type\":\"server_error\"}}\n\n";
    let endless = vendor(Vendor::events(error).stall_at(error.len()));
    let mut up = upstream(Dialect::OpenAi, &endless);
    up.idle_timeout_secs = 60;
    let lab = Lab::start(&[("up", up)]);
    let asked = Instant::now();
    let reply = lab.ask(Dialect::Claude, "m", true);
    assert!(reply.whole, "it is cut off: {}", reply.text());
    assert!(asked.elapsed() < Duration::from_secs(10), "it goes on");
    assert!(reply.text().contains("lost"), "{}", reply.text());
    assert_eq!(lab.receipt(&reply)["outcome"], "failed");
}

/// Whoever is let through to see how a vendor is, and cannot ask it, leaves that to the next.
#[test]
fn a_probe_that_is_not_made_is_anothers() {
    let answer = fixture("gemini/response_text.json").expect("a fixture");
    let busy = Vendor::json(BUSY).status(503).header("retry-after", "1");
    let gemini = vendor(Script::InOrder(vec![busy, Vendor::json(answer)]));
    let lab = Lab::start(&[("gemini", upstream(Dialect::Gemini, &gemini))]);
    let status = |model: &str| lab.ask(Dialect::OpenAi, model, false).status;
    assert_eq!(status("gemini-x"), 503);
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(status("gemini-/../x"), 400);
    assert_eq!(status("gemini-x"), 200);
}
