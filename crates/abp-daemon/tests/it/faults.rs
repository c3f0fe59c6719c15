//! What callers of every dialect see when upstreams of every dialect fail.

use std::time::{Duration, Instant};

use abp_dialect::Dialect;
use abp_testkit::{Cut, ExchangeEnd, FakeVendor, Reply as Vendor, fixture};
use abp_translate::{StreamSummary, StreamWatch};

use crate::lab::{Lab, Reply, upstream};

/// The dialects with routes of their own.
const CALLERS: [Dialect; 4] = [
    Dialect::OpenAi,
    Dialect::Claude,
    Dialect::Gemini,
    Dialect::Codex,
];

/// Every pair of a caller and an upstream.
fn pairs() -> impl Iterator<Item = (Dialect, Dialect)> {
    let targets = |caller| {
        Dialect::ALL
            .into_iter()
            .map(move |upstream| (caller, upstream))
    };
    CALLERS.into_iter().flat_map(targets)
}

fn stream_of(dialect: Dialect) -> Vec<u8> {
    fixture(&format!("{dialect}/stream_text.sse")).expect("a stream")
}

fn watched(caller: Dialect, reply: &Reply) -> StreamSummary {
    let mut watch = StreamWatch::new(caller).expect("a codec");
    watch.push(&reply.body);
    watch.finish()
}

fn lab(dialect: Dialect, vendor: &FakeVendor) -> Lab {
    Lab::start(&[("up", upstream(dialect, vendor))])
}

/// B17: a stream that broke is told as an error, and never ends as if it were finished.
#[test]
fn b17_a_stream_that_is_cut_ends_in_the_callers_error() {
    for (caller, target) in pairs() {
        let whole = stream_of(target);
        let (early, late) = (whole.len() / 3, whole.len() / 2);
        let cases = [
            (
                "a reset",
                early,
                Vendor::events(whole.clone()).cut_at(early, Cut::Reset),
            ),
            (
                "an end",
                late,
                Vendor::events(whole.clone()).cut_at(late, Cut::Eof),
            ),
            (
                "an end in order",
                late,
                Vendor::events(whole[..late].to_vec()),
            ),
        ];
        for (how, at, cut) in cases {
            let vendor = FakeVendor::start(cut).expect("a vendor");
            let lab = lab(target, &vendor);
            let reply = lab.ask(caller, "m", true);
            let place = format!("{caller} from {target}, {how} at {at}: {}", reply.text());
            assert_eq!(reply.status, 200, "{place}");
            let seen = watched(caller, &reply);
            assert!(seen.error.is_some(), "no error: {place}");
            assert!(!seen.complete, "it ends as if finished: {place}");
            assert!(!reply.text().contains("[DONE]"), "a terminator: {place}");
            assert_has_no_half_event(&reply, &place);
            if caller == Dialect::Codex {
                assert_is_of_one_answer(&reply, &place);
            }
            let receipt = lab.receipt(&reply);
            assert_eq!(receipt["outcome"], "failed", "{place}");
        }
    }
}

/// An answer that has come to its end is whole, however the vendor's connection ends.
#[test]
fn a_vendor_that_does_not_hang_up_has_answered() {
    let pairs = [
        (Dialect::Codex, Dialect::Codex),
        (Dialect::Claude, Dialect::Claude),
        (Dialect::OpenAi, Dialect::OpenAi),
        (Dialect::Codex, Dialect::Claude),
    ];
    for (caller, target) in pairs {
        let whole = stream_of(target);
        let length = whole.len();
        let vendor = FakeVendor::start(Vendor::events(whole).stall_at(length)).expect("a vendor");
        let lab = lab(target, &vendor);
        let reply = lab.ask(caller, "m", true);
        let seen = watched(caller, &reply);
        let place = format!("{caller} from {target}: {}", reply.text());
        assert!(
            seen.complete && seen.error.is_none() && reply.whole,
            "{place}"
        );
        assert_eq!(lab.receipt(&reply)["outcome"], "complete", "{place}");
    }
}

/// Clients fail at half an event, before they hear of the error after it.
fn assert_has_no_half_event(reply: &Reply, place: &str) {
    let text = reply.text();
    let mut datas = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let half = datas.find(|data| serde_json::from_str::<serde_json::Value>(data).is_err());
    assert_eq!(half, None, "{place}");
}

/// Clients of Responses stop listening where an event is about another answer than the one before.
fn assert_is_of_one_answer(reply: &Reply, place: &str) {
    let text = reply.text();
    let datas = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<serde_json::Value> = datas
        .filter_map(|data| serde_json::from_str(data).ok())
        .collect();
    let numbers = events.iter().map(|event| event["sequence_number"].as_u64());
    assert!(numbers.is_sorted_by(|one, next| one < next), "{place}");
    let (kinds, ids): (Vec<_>, Vec<_>) = events
        .iter()
        .filter(|event| event["response"].is_object())
        .map(|event| (event["type"].clone(), event["response"]["id"].clone()))
        .unzip();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.failed",
    ];
    assert_eq!(kinds, expected, "{place}");
    assert!(
        ids.iter().all(|id| *id == ids[0] && id.is_string()),
        "{place}"
    );
}

/// B18: an event that is no JSON passes untouched, or is left out and labelled; the stream goes on.
#[test]
fn b18_a_malformed_event_does_not_end_a_stream() {
    for (caller, target) in pairs() {
        let whole = String::from_utf8(stream_of(target)).expect("text");
        let between = if whole.contains("\r\n") {
            "\r\n\r\n"
        } else {
            "\n\n"
        };
        let (first, rest) = whole.split_once(between).expect("events");
        let broken = format!("{first}{between}data: {{\"this is no{between}{rest}");
        let vendor = FakeVendor::start(Vendor::events(broken.clone())).expect("a vendor");
        let lab = lab(target, &vendor);
        let reply = lab.ask(caller, "m", true);
        let place = format!("{caller} from {target}: {}", reply.text());
        if caller == target {
            assert_eq!(reply.text(), broken, "{place}");
            continue;
        }
        let seen = watched(caller, &reply);
        assert!(seen.complete && seen.error.is_none(), "{place}");
        let receipt = lab.receipt(&reply);
        let ledger = receipt["exchange"]["ledger"].to_string();
        assert!(ledger.contains("malformed_event"), "{place}\n{ledger}");
    }
}

/// B18: lines may end in three ways, have comments, several lines of data, a mark of their order, and
/// characters that some take for line ends. Passed on, they are the same; translated, they mean the same.
#[test]
fn b18_every_form_of_an_event_is_read() {
    let chunk = |text: &str| {
        format!(
            r#"{{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":null}}]}}"#
        )
    };
    let (head, tail) = r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}|"#
        .split_once(',')
        .expect("two lines");
    let tail = tail.trim_end_matches('|');
    for end in ["\n", "\r\n", "\r"] {
        let lines = [
            format!("\u{feff}: a comment{end}"),
            format!("data: {}{end}", chunk("a\u{2028}b é")),
            format!("data:{}{end}id: 7{end}retry: 10", chunk("\u{1f600}")),
            format!("event: message{end}data: {head},{end}data: {tail}"),
            "data: [DONE]".to_owned(),
        ];
        let stream = format!("{}{end}{end}", lines.join(&format!("{end}{end}")));
        for size in [1, 3, 4096] {
            let reply = Vendor::events(stream.clone()).in_chunks(size);
            let vendor = FakeVendor::start(reply).expect("a vendor");
            let lab = lab(Dialect::OpenAi, &vendor);
            let place = format!("{end:?} in parts of {size}");
            let native = lab.ask(Dialect::OpenAi, "m", true);
            assert_eq!(native.text(), stream, "{place}");
            assert_eq!(lab.receipt(&native)["outcome"], "complete", "{place}");
            let mapped = lab.ask(Dialect::Claude, "m", true);
            let seen = watched(Dialect::Claude, &mapped);
            assert!(seen.complete && seen.error.is_none(), "{place}");
            let said: String = mapped
                .text()
                .lines()
                .filter_map(|line| line.strip_prefix("data: "))
                .filter_map(|data| serde_json::from_str::<serde_json::Value>(data).ok())
                .filter_map(|event| Some(event["delta"]["text"].as_str()?.to_owned()))
                .collect();
            assert_eq!(said, "a\u{2028}b é\u{1f600}", "{place}: {}", mapped.text());
        }
    }
}

/// A vendor that has too much to do says so, and the caller hears it in its own words.
#[test]
fn an_overloaded_vendor_keeps_its_status_and_its_patience() {
    for (caller, target) in pairs() {
        let body = match target {
            Dialect::Claude => {
                r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#
            }
            Dialect::Gemini => r#"{"error":{"code":529,"message":"busy","status":"UNAVAILABLE"}}"#,
            _ => r#"{"error":{"message":"busy","type":"server_error","param":null,"code":null}}"#,
        };
        let overloaded = Vendor::json(body).status(529).header("retry-after", "7");
        let vendor = FakeVendor::start(overloaded).expect("a vendor");
        for stream in [false, true] {
            let lab = lab(target, &vendor);
            let reply = lab.ask(caller, "m", stream);
            let place = format!("{caller} from {target}: {} {}", reply.head, reply.text());
            assert_eq!(reply.status, 529, "{place}");
            assert_eq!(reply.header("retry-after"), Some("7"), "{place}");
            let json = reply.json();
            assert!(json["error"]["message"].as_str() == Some("busy"), "{place}");
            let shape = match caller {
                Dialect::Claude => json["type"] == "error",
                Dialect::Gemini => json["error"]["status"].is_string(),
                _ => json["error"].get("type").is_some(),
            };
            assert!(shape, "{place}");
            // The vendor asked for patience, and gets it.
            let again = lab.ask(caller, "m", stream);
            let left_alone = again.header("x-abp-error") == Some("CIRCUIT_BREAKER_OPEN");
            assert!(
                left_alone && again.header("retry-after").is_some(),
                "{place}"
            );
        }
    }
}

/// B15: a caller that goes away ends the exchange with the vendor, and what it used is counted.
#[test]
fn b15_a_caller_that_leaves_is_followed_within_a_second() {
    for (caller, target) in pairs() {
        let whole = stream_of(target);
        let at = whole.len() * 2 / 3;
        let vendor = FakeVendor::start(Vendor::events(whole).stall_at(at)).expect("a vendor");
        let mut stalled = upstream(target, &vendor);
        stalled.idle_timeout_secs = 60;
        let lab = Lab::start(&[("up", stalled)]);
        let mut connection = lab.open(crate::lab::KEY, caller, true);
        let mut first = [0_u8; 4096];
        let read = std::io::Read::read(&mut connection, &mut first).expect("an answer");
        let head = String::from_utf8_lossy(&first[..read]).into_owned();
        let run = head
            .lines()
            .find_map(|line| line.strip_prefix("x-abp-run-id: "))
            .expect("a run id")
            .to_owned();
        drop(connection);
        let left = Instant::now();
        let ended = vendor.wait_until(|requests| {
            requests
                .iter()
                .any(|request| matches!(request.end, ExchangeEnd::Aborted { .. }))
        });
        assert!(ended, "{caller} from {target}: the vendor goes on");
        assert!(
            left.elapsed() < Duration::from_secs(1),
            "{caller} from {target}"
        );
        let found = lab.receipt(&Reply {
            status: 200,
            head: format!("x-abp-run-id: {run}"),
            body: Vec::new(),
            whole: true,
        });
        assert_eq!(found["outcome"], "cancelled", "{caller} from {target}");
        assert_eq!(found["exchange"]["client_closed"], true);
        assert!(
            found["usage"]["output_tokens"].is_u64(),
            "{caller} from {target}: {found}"
        );
        if caller.family() != target.family() {
            let ledger = found["exchange"]["ledger"].to_string();
            let is_told = ledger.contains("\"/answer/");
            assert!(is_told, "{caller} from {target}: {ledger}");
        }
    }
}

/// B19: what is no answer of the vendor ends in an error of the caller's.
#[test]
fn b19_what_is_no_answer_is_an_error() {
    let cases = [
        ("html", Vendor::html()),
        ("no content", Vendor::no_content()),
        ("not JSON", Vendor::json("{\"choices\":")),
        ("redirect", Vendor::redirect("http://127.0.0.1:1/")),
        ("bomb", Vendor::gzip_bomb(64 << 20).expect("a bomb")),
        ("a line without end", Vendor::events(vec![b'x'; 20 << 20])),
    ];
    for (name, vendor_reply) in cases {
        for (caller, target) in [
            (Dialect::Claude, Dialect::OpenAi),
            (Dialect::OpenAi, Dialect::OpenAi),
        ] {
            let vendor = FakeVendor::start(vendor_reply.clone()).expect("a vendor");
            let lab = lab(target, &vendor);
            let stream = name == "a line without end";
            let reply = lab.ask(caller, "m", stream);
            let place = format!("{name}: {caller} from {target}: {}", reply.head);
            if caller == target && matches!(name, "not JSON" | "a line without end") {
                // The caller's own vendor's bytes are not judged.
                assert_eq!(reply.status, 200, "{place}");
                continue;
            }
            if stream {
                assert!(watched(caller, &reply).error.is_some(), "{place}");
            } else {
                assert_eq!(reply.status, 502, "{place}");
                assert!(reply.json()["error"]["message"].is_string(), "{place}");
            }
        }
    }
}

/// B21: each time-out is told under its own code.
#[test]
fn b21_every_timeout_has_its_own_name() {
    let silent = FakeVendor::start(Vendor::silence()).expect("a vendor");
    let stalled = Vendor::events(stream_of(Dialect::OpenAi)).stall_at(40);
    let stalled = FakeVendor::start(stalled).expect("a vendor");
    let nobody = {
        let gone = FakeVendor::start(Vendor::json("{}")).expect("a vendor");
        upstream(Dialect::OpenAi, &gone)
    };
    let mut quick = upstream(Dialect::OpenAi, &silent);
    quick.first_byte_timeout_secs = 1;
    quick.models = vec!["silent".to_owned()];
    let mut pausing = upstream(Dialect::OpenAi, &stalled);
    pausing.models = vec!["stalled".to_owned()];
    let mut gone = nobody;
    gone.models = vec!["gone".to_owned()];
    let lab = Lab::start(&[("silent", quick), ("stalled", pausing), ("gone", gone)]);
    let first_byte = lab.ask(Dialect::OpenAi, "silent", false);
    assert_eq!(first_byte.status, 504, "{}", first_byte.text());
    assert_eq!(
        first_byte.header("x-abp-error"),
        Some("BACKEND_FIRST_BYTE_TIMEOUT")
    );
    let gone = lab.ask(Dialect::OpenAi, "gone", false);
    assert_eq!(
        gone.header("x-abp-error"),
        Some("BACKEND_UNAVAILABLE"),
        "{}",
        gone.text()
    );
    let stalled = lab.ask(Dialect::Claude, "stalled", true);
    assert!(
        watched(Dialect::Claude, &stalled).error.is_some(),
        "{}",
        stalled.text()
    );
    let receipt = lab.receipt(&stalled);
    assert_eq!(receipt["error"]["code"], "BACKEND_STALLED");
}
