//! A vendor that counts what it generates, against a budget that callers try to outwit.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use abp_core::{MicroUsd, ModelPrice};
use abp_dialect::Dialect;
use abp_store::NewApiKey;
use abp_testkit::{Cut, FakeVendor, Reply as Vendor, Script, VendorRequest};
use serde_json::{Value, json};

use crate::lab::{Lab, path, upstream};
use crate::limits::{add, key};

const REQUESTS: u64 = 1_000;
const BUDGET: u64 = 1_500_000;

/// Numbers that are the same in every run (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

/// A vendor of OpenAI's dialect. It reads a token from every byte, says as much as it may, and counts both,
/// whether or not it tells anybody and whether or not anybody still listens.
struct Counting {
    used: AtomicU64,
    asked: AtomicU64,
}

impl Counting {
    fn answer(&self, request: &VendorRequest) -> Vendor {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let mut random = Random(number.wrapping_mul(77));
        let body: Value = serde_json::from_slice(&request.body).expect("JSON");
        let limit = |name: &str| body[name].as_u64();
        let most = limit("max_completion_tokens").or(limit("max_tokens"));
        // Without a limit it would go on for as long as any model does.
        let most = most.unwrap_or(200_000) * body["n"].as_u64().unwrap_or(1);
        let output = match random.below(3) {
            0 => most,
            _ => random.below(most + 1),
        };
        let input = request.body.len() as u64;
        let refuses = random.below(20) == 0;
        if refuses {
            let status = [400, 429, 500, 503][usize::try_from(random.below(4)).unwrap_or(0)];
            return Vendor::json(r#"{"error":{"message":"no"}}"#).status(status);
        }
        self.used.fetch_add(input + output, Ordering::Relaxed);
        let usage = json!({
            "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
        });
        let tells = random.below(4) != 0;
        if body["stream"] == true {
            let asked = body["stream_options"]["include_usage"] == true;
            return stream(&mut random, (tells && asked).then_some(&usage));
        }
        let mut answer = json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{
                "index": 0, "finish_reason": "stop",
                "message": { "role": "assistant", "content": "word ".repeat(20) },
            }],
        });
        match random.below(8) {
            0 => answer["usage"] = json!({ "prompt_tokens": input }),
            1 => answer["usage"] = Value::Null,
            _ if tells => answer["usage"] = usage,
            _ => {}
        }
        let text = answer.to_string();
        let length = text.len();
        match random.below(200) {
            0 => Vendor::silence(),
            1..=10 => Vendor::json(text).cut_at(length / 2, Cut::Reset),
            _ => Vendor::json(text),
        }
    }
}

fn stream(random: &mut Random, usage: Option<&Value>) -> Vendor {
    let chunk = |choices: Value, usage: Option<&Value>| {
        let mut chunk = json!({
            "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": choices,
        });
        if let Some(usage) = usage {
            chunk["usage"] = usage.clone();
        }
        format!("data: {chunk}\n\n")
    };
    let word = json!([{ "index": 0, "delta": { "content": "word " }, "finish_reason": null }]);
    let stop = json!([{ "index": 0, "delta": {}, "finish_reason": "stop" }]);
    let mut text = chunk(word, None).repeat(30) + &chunk(stop, None);
    if let Some(usage) = usage {
        text += &chunk(json!([]), Some(usage));
    }
    text += "data: [DONE]\n\n";
    let length = text.len();
    let whole = Vendor::events(text);
    match random.below(10) {
        0 => whole.cut_at(length / 2, Cut::Eof),
        1 => whole.cut_at(length / 3, Cut::Reset),
        2 => whole.in_chunks(300).every(Duration::from_millis(5)),
        _ => whole,
    }
}

/// A request in one of the shapes that callers send, or try.
fn shape(random: &mut Random) -> (Dialect, bool, String) {
    let dialects = [
        Dialect::OpenAi,
        Dialect::OpenAi,
        Dialect::Claude,
        Dialect::Codex,
        Dialect::Gemini,
    ];
    let dialect = dialects[usize::try_from(random.below(5)).unwrap_or(0)];
    let stream = random.below(2) == 0;
    let text = "!@ 9x".repeat(usize::try_from(random.below(60)).unwrap_or(0));
    let limit = random.below(600) + 1;
    let mut body = match dialect {
        Dialect::Claude => json!({
            "model": "m", "max_tokens": limit, "messages": [{ "role": "user", "content": text }],
        }),
        Dialect::Codex => json!({ "model": "m", "input": text }),
        Dialect::Gemini => json!({ "contents": [{ "role": "user", "parts": [{ "text": text }] }] }),
        _ => json!({ "model": "m", "messages": [{ "role": "user", "content": text }] }),
    };
    if dialect != Dialect::Gemini {
        body["stream"] = stream.into();
    }
    let tricks = match dialect {
        Dialect::OpenAi => random.below(14),
        Dialect::Codex if random.below(2) == 0 => {
            body["max_output_tokens"] = limit.into();
            0
        }
        Dialect::Gemini if random.below(2) == 0 => {
            body["generationConfig"] = json!({ "maxOutputTokens": limit });
            0
        }
        _ => 0,
    };
    match tricks {
        1..=4 => body["max_tokens"] = limit.into(),
        5 => body["max_completion_tokens"] = limit.into(),
        6 => {
            body["max_tokens"] = 1.into();
            body["max_completion_tokens"] = 5_000.into();
        }
        7 => {
            body["max_tokens"] = limit.into();
            body["n"] = random.below(5).into();
        }
        8 => body["Max_Tokens"] = 1.into(),
        9 => body["max_tokens"] = "many".into(),
        10 => body["models"] = json!(["dear"]),
        11 => body["max_output_tokens"] = 1.into(),
        12 => body["stream_options"] = json!({ "include_usage": random.below(2) == 0 }),
        _ => {}
    }
    (dialect, stream, body.to_string())
}

fn send(lab: &Lab, number: u64) {
    let mut random = Random(number);
    let (dialect, stream, body) = shape(&mut random);
    let raw = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer poor\r\n\
         content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        path(dialect, "m", stream),
        body.len()
    );
    let mut connection = lab.connect();
    connection.write_all(raw.as_bytes()).expect("a request");
    match random.below(6) {
        // Gone before the answer, or in the middle of it.
        0 => {}
        1 => drop(connection.read(&mut [0; 700])),
        _ => drop(connection.read_to_end(&mut Vec::new())),
    }
}

/// B24: whatever callers send, however they leave and whatever the vendor keeps to itself, a budget is not
/// overspent by a token.
#[test]
fn b24_no_budget_is_overspent_by_a_token() {
    let counting = Arc::new(Counting {
        used: AtomicU64::new(0),
        asked: AtomicU64::new(0),
    });
    let vendor = Arc::clone(&counting);
    let script = Script::By(Box::new(move |request| vendor.answer(request)));
    let vendor = FakeVendor::start(script).expect("a vendor");
    let mut up = upstream(Dialect::OpenAi, &vendor);
    up.prices = Some("table".to_owned());
    let price = ModelPrice {
        input_usd_per_mtok: 1.0,
        output_usd_per_mtok: 1.0,
        ..ModelPrice::default()
    };
    let lab = Lab::start_with(&[("up", up)], |config, _| {
        config.server.max_attempts = 2;
        let table = [("*".to_owned(), price)].into();
        config.prices = [("table".to_owned(), table)].into();
    });
    add(
        &lab,
        NewApiKey {
            budget: Some(MicroUsd::from_micros(BUDGET)),
            token_budget: Some(BUDGET),
            ..key("poor")
        },
    );
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let lab = &lab;
            scope.spawn(move || {
                let mine = (0..REQUESTS).filter(|number| number % 8 == worker);
                mine.for_each(|number| send(lab, number));
            });
        }
    });
    let deadline = Instant::now() + Duration::from_secs(40);
    let state = loop {
        let state = lab.block_on(lab.gateway.store().budget("poor"));
        let state = state.expect("readable").expect("a budget");
        if state.reserved_tokens == 0 {
            break state;
        }
        assert!(Instant::now() < deadline, "it stays reserved: {state:?}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let used = counting.used.load(Ordering::Relaxed);
    let asked = counting.asked.load(Ordering::Relaxed);
    let told = format!("the vendor was asked {asked} times and used {used}: {state:?}");
    assert!(asked > 300, "{told}");
    assert!(used <= state.spent_tokens, "{told}");
    assert!(state.spent_tokens <= BUDGET, "{told}");
    assert!(state.spent <= MicroUsd::from_micros(BUDGET), "{told}");
    assert!(
        asked < REQUESTS / 2 + 200,
        "the budget was never used up: {told}"
    );
    // Most of what was charged was used: what is reserved is not simply kept.
    assert!(used * 4 > state.spent_tokens, "{told}");
}
