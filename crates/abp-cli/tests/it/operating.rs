//! Operating a gateway: changed settings, new keys, and what went through it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use abp_testkit::{FakeVendor, Reply};
use serde_json::{Value, json};

use crate::desk::Desk;
use crate::keys::create;
use crate::served::{Served, get, post, within_a_second};

fn vendor(words: &str) -> FakeVendor {
    let answer = json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": words}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    });
    FakeVendor::start(Reply::json(answer.to_string())).unwrap()
}

fn upstream(name: &str, vendor: &FakeVendor, model: &str) -> String {
    let url = vendor.url("/v1");
    format!(
        "[upstreams.{name}]\ndialect = \"openai\"\nbase_url = \"{url}\"\nmodels = [\"{model}\"]\n"
    )
}

/// A request as it stands in a connection that stays open.
fn request(key: &str, model: &str) -> String {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}).to_string();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Reads until what was read ends like this.
fn read_to(stream: &mut TcpStream, end: &[u8]) -> String {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        read.push(byte[0]);
    }
    String::from_utf8(read).unwrap()
}

/// The status of one answer of a connection that stays open.
fn answered(stream: &mut TcpStream, request: &str) -> u16 {
    stream.write_all(request.as_bytes()).unwrap();
    let head = read_to(stream, b"\r\n\r\n").to_lowercase();
    match head.split("content-length: ").nth(1) {
        Some(length) => {
            let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
            stream.read_exact(&mut vec![0; length]).unwrap();
        }
        None => drop(read_to(stream, b"\r\n0\r\n\r\n")),
    }
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

fn ask(served: &Served, model: &str) -> (u16, Value) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
    post(&served.base, &served.key, &body)
}

fn signal(served: &Served, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(served.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn settings_change_while_connections_stay() {
    let desk = Desk::new();
    let (first, second) = (vendor("first"), vendor("second"));
    let errors = desk.path("serve.log");
    desk.write("g.toml", upstream("one", &first, "m1"));
    let arguments = [
        "serve", "--listen", ":0", "--json", "--watch", "--config", "g.toml",
    ];
    let mut command = desk.command(&arguments);
    command.stderr(Stdio::from(File::create(&errors).unwrap()));
    let served = Served::spawn(&mut command);
    let log = || std::fs::read_to_string(&errors).unwrap();
    let mut open = TcpStream::connect(served.address()).unwrap();
    open.set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    assert_eq!(answered(&mut open, &request(&served.key, "m1")), 200);
    assert_eq!(ask(&served, "m2").0, 404);

    // Another upstream is there within a second, and the connection still is.
    let both = [
        upstream("one", &first, "m1"),
        upstream("two", &second, "m2"),
    ]
    .concat();
    desk.write("g.toml", &both);
    let answer = within_a_second(|| match ask(&served, "m2") {
        (200, answer) => Some(answer),
        _ => None,
    });
    assert_eq!(answer["choices"][0]["message"]["content"], "second");
    assert_eq!(answered(&mut open, &request(&served.key, "m2")), 200);
    within_a_second(|| log().contains("added two").then_some(()));

    // A file that is wrong changes nothing, and is told of with its line.
    desk.write(
        "g.toml",
        both.replace("dialect = \"openai\"", "dialect = \"klingon\""),
    );
    within_a_second(|| log().contains("goes on with those it has").then_some(()));
    assert!(log().contains("g.toml:2"), "{}", log());
    assert_eq!(answered(&mut open, &request(&served.key, "m1")), 200);

    // A setting that needs another start is named, and the rest is taken over.
    desk.write(
        "g.toml",
        format!(
            "[server]\nmax_attempts = 2\n{}",
            upstream("two", &second, "m2")
        ),
    );
    signal(&served, rustix::process::Signal::HUP);
    within_a_second(|| {
        log()
            .contains("another start: server.max_attempts")
            .then_some(())
    });
    assert!(log().contains("removed one"), "{}", log());
    assert_eq!(answered(&mut open, &request(&served.key, "m1")), 404);
    assert_eq!(answered(&mut open, &request(&served.key, "m2")), 200);
    // Standard error is a file, so that it holds a line for each exchange, and no key.
    assert!(log().contains("\"model\":\"m2\""), "{}", log());
    assert!(!log().contains(&served.key));
}

/// A hangup takes settings over without `--watch`, and does not end the server.
#[test]
fn a_hangup_takes_settings_over() {
    let desk = Desk::new();
    let (first, second) = (vendor("first"), vendor("second"));
    desk.write("g.toml", upstream("one", &first, "m1"));
    let served = Served::start(&desk, &["--config", "g.toml"]);
    desk.write("g.toml", upstream("one", &second, "m1"));
    assert_eq!(
        ask(&served, "m1").1["choices"][0]["message"]["content"],
        "first"
    );
    signal(&served, rustix::process::Signal::HUP);
    within_a_second(|| {
        let (_, answer) = ask(&served, "m1");
        (answer["choices"][0]["message"]["content"] == "second").then_some(())
    });
}

/// The first request with a key that was made a moment ago is answered.
#[test]
fn a_new_key_is_good_at_once() {
    let desk = Desk::new();
    let served = Served::start(&desk, &[]);
    for _ in 0..3 {
        let (_, key) = create(&desk, &[]);
        let (status, answer) = served.say(&key, "hello");
        assert_eq!(status, 200, "{answer:#}");
    }
    // Keys that never were do not become good, and do not stop others.
    for _ in 0..5 {
        assert_eq!(served.say("abp_never", "hello").0, 401);
    }
    assert_eq!(served.say(&served.key, "hello").0, 200);
}

#[test]
fn exchanges_are_listed_shown_and_counted() {
    let desk = Desk::new();
    let vendor = vendor("hello");
    desk.write("g.toml", upstream("one", &vendor, "m1"));
    let served = Served::start(&desk, &["--config", "g.toml"]);
    let (id, key) = create(&desk, &[]);
    for model in ["m1", "m1", "nobody"] {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "a secret"}]});
        post(&served.base, &key, &body);
    }
    assert_eq!(ask(&served, "mock").0, 200);
    let rows = within_a_second(|| {
        let (_, told) = desk.json(&["exchanges", "list"]);
        let rows = told["exchanges"].as_array().unwrap().clone();
        (rows.len() == 4).then_some(rows)
    });
    assert_eq!(rows[0]["model"], "mock");
    let row = rows.iter().find(|row| row["model"] == "m1").unwrap();
    assert_eq!((&row["key"], &row["input_tokens"]), (&json!(id), &json!(7)));
    let count = |more: &[&str]| {
        let (_, told) = desk.json(&[&["exchanges", "list"], more].concat());
        told["exchanges"].as_array().unwrap().len()
    };
    assert_eq!(count(&["--failed", "--since", "1h"]), 1);
    assert_eq!(count(&["--limit", "2"]), 2);
    assert_eq!(count(&["--key", &id, "--upstream", "one"]), 2);
    assert_eq!(count(&["--model", "mock"]), 1);

    let (_, stats) = desk.json(&["exchanges", "stats", "--by", "key", "--since", "30d"]);
    let group = &stats["groups"][id.as_str()];
    assert_eq!(
        (&group["exchanges"], &group["failed"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(group["output_tokens"], 6);
    assert_eq!(stats["total"]["exchanges"], 4);

    // The same receipt, wherever it is asked for.
    let run_id = row["run_id"].as_str().unwrap();
    let (_, shown) = desk.json(&["exchanges", "show", run_id]);
    let served_receipt = get(&served.base, &served.key, &format!("/v1/receipts/{run_id}")).1;
    assert_eq!(shown["receipt"], served_receipt);
    for command in [["runs", "show", run_id], ["receipt", "export", run_id]] {
        let (status, told) = desk.json(&command);
        assert_eq!(
            (status, &told["receipt"]),
            (0, &served_receipt),
            "{command:?}"
        );
    }
    let (_, last) = desk.json(&["exchanges", "show", "last"]);
    assert_eq!(last["receipt"]["exchange"]["model_asked"], "mock");
    for command in [
        &["exchanges", "list"][..],
        &["exchanges", "show", "last"],
        &["exchanges", "stats"],
        &["runs", "show", run_id],
    ] {
        let ran = desk.abp(command);
        assert_eq!(ran.status, 0, "{command:?}: {}", ran.stderr);
        assert!(!ran.stdout.contains("a secret"), "{}", ran.stdout);
    }
    assert_eq!(desk.abp(&["exchanges", "show", "ffff"]).status, 2);
}

/// What is printed into a file holds no key; a person finds it with the command that stands there.
#[test]
fn the_key_is_not_written_into_files() {
    let desk = Desk::new();
    let out = desk.path("out.log");
    let mut command = desk.command(&["serve", "--port", "0"]);
    let mut child = command.stdout(File::create(&out).unwrap()).spawn().unwrap();
    let text = within_a_second(|| {
        let text = std::fs::read_to_string(&out).unwrap();
        text.contains("curl ").then_some(text)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let key = std::fs::read_to_string(desk.state("gateway.key")).unwrap();
    assert!(!text.contains(key.trim()), "{text}");
    assert!(text.contains("ABP_KEY=$(abp keys show operator)"), "{text}");
}
