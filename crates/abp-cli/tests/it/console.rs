//! The console as `abp serve` and `abp ui` offer it, and the questions its pages ask.

use serde_json::Value;

use crate::desk::Desk;
use crate::served::{Served, exchange, get};

#[test]
fn a_code_of_abp_ui_is_good_for_the_key_once() {
    let desk = Desk::new();
    let served = Served::start(&desk, &[]);
    let ran = desk.abp(&["ui", "--print", "--listen", served.address()]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let address = ran.stdout.lines().next().unwrap();
    let (page, code) = address.split_once("#code=").unwrap();
    assert_eq!(page, format!("{}/console", served.base));
    assert!(!ran.stdout.contains(&served.key), "{}", ran.stdout);
    let redeem = |code: &str| {
        let head = format!("POST /v1/codes/redeem HTTP/1.1\r\nx-abp-code: {code}\r\n");
        exchange(&served.base, "none", &head, "")
    };
    assert_eq!(redeem("abp_wrong").0, 401);
    let (status, body) = redeem(code);
    assert_eq!(
        (status, body["key"].as_str()),
        (200, Some(served.key.as_str()))
    );
    assert_eq!(redeem(code).0, 401, "used before");
}

#[test]
fn without_a_server_abp_ui_says_how_to_start_one() {
    let desk = Desk::new();
    let before = desk.abp(&["ui", "--print"]);
    assert_eq!(before.status, 2);
    let served = Served::start(&desk, &[]);
    let address = served.address().to_owned();
    drop(served);
    let after = desk.abp(&["ui", "--print", "--listen", &address]);
    assert_eq!(after.status, 6, "{}", after.stderr);
    for said in [before.stderr, after.stderr] {
        assert!(said.contains("abp serve"), "{said}");
    }
}

#[test]
fn exchanges_are_filtered_and_counted_over_time() {
    let desk = Desk::new();
    let served = Served::start(&desk, &[]);
    for words in ["one", "two", "three"] {
        assert_eq!(served.say(&served.key, words).0, 200);
    }
    let ask = |path: &str| {
        let (status, body) = get(&served.base, &served.key, path);
        assert_eq!(status, 200, "{path}: {body}");
        body
    };
    let count = |query: &str| {
        let page = ask(&format!("/v1/exchanges?{query}"));
        page["exchanges"].as_array().unwrap().len()
    };
    let cases = [
        ("", 3),
        ("limit=2", 2),
        ("dialect=openai&succeeded=true&lossy=false&hours=1", 3),
        ("dialect=claude", 0),
        ("upstream=mock&model=mock&principal=operator", 3),
        ("succeeded=false", 0),
        ("lossy=true", 0),
    ];
    for (query, expected) in cases {
        assert_eq!(count(query), expected, "{query}");
    }
    let first = ask("/v1/exchanges?limit=2");
    let next = first["next"].as_str().unwrap();
    let rest = ask(&format!("/v1/exchanges?limit=2&cursor={next}"));
    assert_eq!(rest["exchanges"].as_array().unwrap().len(), 1);
    assert_eq!(rest["next"], Value::Null);

    let series = ask("/v1/usage/series?by=model&hours=1&points=6");
    assert_eq!(series["series"][0]["name"], "mock");
    assert_eq!(series["series"][0]["total"]["requests"], 3);
    let points = series["series"][0]["points"].as_array().unwrap();
    let counted: u64 = points
        .iter()
        .map(|point| point["requests"].as_u64().unwrap())
        .sum();
    assert_eq!((points.len(), counted), (6, 3));
    assert_eq!(series["is_complete"], true);
    assert_eq!(ask("/v1/exchanges/losses")["counted"], 3);
    assert_eq!(ask("/v1/upstreams")["upstreams"][0]["circuit"], "closed");
}
