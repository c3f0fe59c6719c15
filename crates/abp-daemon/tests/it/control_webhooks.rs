//! Webhooks: signed, at least once, and not to private addresses unless that is allowed.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use abp_config::{WebhookAddresses, WebhookConfig};
use serde_json::Value;

use crate::lab::{KEY, Lab};

const SECRET: &str = "a secret of the receiver";

/// A receiver that answers with these statuses, one after the other, and hands over what it got.
fn receiver(statuses: &'static [u16]) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        for status in statuses {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            loop {
                let count = stream.read(&mut buffer).unwrap_or(0);
                request.extend_from_slice(&buffer[..count]);
                let text = String::from_utf8_lossy(&request);
                let length = text.lines().find_map(|line| {
                    let (name, value) = line.split_once(':')?;
                    name.eq_ignore_ascii_case("content-length")
                        .then(|| value.trim().parse::<usize>().ok())?
                });
                let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
                if count == 0 || (body.is_some() && body >= length) {
                    break;
                }
            }
            let answer =
                format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nlocation: /x\r\n\r\n");
            drop(stream.write_all(answer.as_bytes()));
            drop(sender.send(String::from_utf8_lossy(&request).into_owned()));
        }
    });
    (url, received)
}

fn lab(url: &str, addresses: WebhookAddresses, dir: &std::path::Path) -> Lab {
    let secret = dir.join("secret");
    std::fs::write(&secret, format!("{SECRET}\n")).expect("a secret");
    let webhook = WebhookConfig {
        url: url.to_owned(),
        secret_env: None,
        secret_file: Some(secret),
        addresses,
    };
    Lab::start_with(&[], move |config, _| {
        config.webhooks.insert("chat".to_owned(), webhook);
    })
}

fn header<'r>(request: &'r str, name: &str) -> &'r str {
    let found = request.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    });
    found.unwrap_or_else(|| panic!("no {name}: {request}"))
}

fn submit(lab: &Lab) -> String {
    lab.submit(
        KEY,
        r#"{"order":{"task":"say hello"},"options":{"notify":["chat"]}}"#,
    )
}

#[test]
fn the_end_of_a_run_is_told_until_it_is_taken_and_is_signed() {
    let (url, received) = receiver(&[500, 302, 204]);
    let dir = tempfile::tempdir().expect("a directory");
    let lab = lab(&url, WebhookAddresses::Any, dir.path());
    let run = submit(&lab);
    let mut messages = Vec::new();
    for _ in 0..3 {
        let request = received
            .recv_timeout(Duration::from_secs(30))
            .expect("a message");
        let (_, body) = request.split_once("\r\n\r\n").expect("a body");
        assert_eq!(header(&request, "x-abp-run-id"), run);
        assert_eq!(header(&request, "x-abp-topic"), "run.ended");
        let told: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(told["run_id"], run.as_str(), "{told}");
        let signed = format!("{}.{body}", header(&request, "x-abp-timestamp"));
        let expected = format!("v1={}", hmac(SECRET.as_bytes(), signed.as_bytes()));
        assert_eq!(header(&request, "x-abp-signature"), expected);
        assert!(!request.contains(SECRET));
        messages.push(header(&request, "x-abp-message").to_owned());
    }
    // Sent again, it is the same message; taken, it is not sent again.
    assert!(
        messages.windows(2).all(|two| two[0] == two[1]),
        "{messages:?}"
    );
    assert!(received.recv_timeout(Duration::from_secs(3)).is_err());
}

/// B10: a webhook whose name leads to this machine is not told unless the operator says so.
#[test]
fn b10_private_addresses_are_not_told() {
    let (url, received) = receiver(&[204]);
    let dir = tempfile::tempdir().expect("a directory");
    let lab = lab(&url, WebhookAddresses::Public, dir.path());
    let run = submit(&lab);
    lab.wait_for_end(KEY, &run);
    assert!(received.recv_timeout(Duration::from_secs(3)).is_err());
}

/// HMAC-SHA-256 by its definition (RFC 2104), apart from the code that signs.
fn hmac(key: &[u8], message: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    let pad = |byte: u8| -> Vec<u8> {
        let mut block = vec![byte; 64];
        block.iter_mut().zip(key).for_each(|(pad, key)| *pad ^= key);
        block
    };
    let inner = Sha256::digest([pad(0x36), message.to_vec()].concat());
    let outer = Sha256::digest([pad(0x5c), inner.to_vec()].concat());
    outer.iter().map(|byte| format!("{byte:02x}")).collect()
}
