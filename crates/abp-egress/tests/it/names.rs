//! Names and the addresses behind them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use abp_egress::{EgressKind, EgressOptions, EgressOutcome, EgressRule, EgressVerdict, Resolver};

use crate::support::{Proxy, Server, options, resolver, rules};

fn request(host: &str) -> Vec<u8> {
    format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").into_bytes()
}

#[tokio::test]
async fn names_that_lead_inside_are_denied() {
    let allow = ["*.example".to_owned(), "10.9.9.9".to_owned()];
    for address in [
        "127.0.0.1",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "fd00::1",
        "fe80::1",
        "ff02::1",
    ] {
        for names in [
            vec![("a.example", address)],
            // One address of several is enough.
            vec![("a.example", "93.184.216.34"), ("a.example", address)],
        ] {
            let mut proxy = Proxy::start(EgressOptions {
                resolver: resolver(&names),
                ..EgressOptions::new(rules(&allow, &[]))
            });
            let answer = proxy.send(&request("a.example")).await;
            assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
            let event = proxy.next_event().await;
            assert_eq!(event.verdict, EgressVerdict::Denied);
            assert_eq!(event.address, None);
            let EgressRule::SpecialAddress { address: found, .. } = event.rule else {
                panic!("{event:?}");
            };
            assert_eq!(found.to_string(), address);
        }
    }
}

#[tokio::test]
async fn an_address_may_be_denied_whatever_its_name_is() {
    let mut proxy = Proxy::start(EgressOptions {
        resolver: resolver(&[("a.example", "93.184.216.34")]),
        ..EgressOptions::new(rules(
            &["a.example".to_owned()],
            &["93.184.216.34".to_owned()],
        ))
    });
    let (_, line) = proxy.tunnel("a.example:443").await;
    assert!(line.contains("403"), "{line}");
    let event = proxy.next_event().await;
    assert_eq!(event.rule.to_string(), "deny_network[0] \"93.184.216.34\"");
}

/// The first answer is allowed, any later one leads elsewhere: only one is asked for, and it is dialed.
#[tokio::test]
async fn a_name_is_resolved_once_and_that_address_is_dialed() {
    let server = Server::named("right").await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let flipping = Resolver::new(move |_, port| {
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            let address = if first {
                [127, 0, 0, 1]
            } else {
                [127, 0, 0, 2]
            };
            // A resolver that names another port is not followed either.
            let port = if first { 1 } else { port };
            Ok(vec![SocketAddr::from((address, port))])
        }
    });
    let mut proxy = Proxy::start(EgressOptions {
        resolver: flipping,
        ..options(server.port())
    });
    let host = format!("good.example:{}", server.port());
    let answer = proxy.send(&request(&host)).await;
    assert!(answer.ends_with("\r\n\r\nright"), "{answer}");
    let event = proxy.next_event().await;
    assert_eq!(event.address, Some([127, 0, 0, 1].into()));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    // The second request resolves anew, and what it gets is judged anew.
    let answer = proxy.send(&request(&host)).await;
    assert!(answer.contains("127.0.0.2 (loopback)"), "{answer}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_listed_address_needs_no_name() {
    let server = Server::named("plain").await;
    let mut proxy = Proxy::start(options(server.port()));
    for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "GOOD.example."] {
        let host = format!("{host}:{}", server.port());
        let answer = proxy.send(&request(&host)).await;
        assert!(answer.ends_with("\r\n\r\nplain"), "{host} {answer}");
        let event = proxy.next_event().await;
        assert_eq!(event.verdict, EgressVerdict::Allowed, "{event:?}");
        assert_eq!(event.kind, EgressKind::Http);
    }
    // Every spelling reaches the server in the normal one.
    let hosts: Vec<String> = server.requests().iter().map(|text| host_of(text)).collect();
    let port = server.port();
    let address = format!("127.0.0.1:{port}");
    assert_eq!(
        hosts,
        [address.clone(), address, format!("good.example:{port}")]
    );
}

fn host_of(request: &str) -> String {
    let mut lines = request.lines();
    let host = lines.find_map(|line| line.strip_prefix("host: "));
    host.unwrap_or_default().to_owned()
}

#[tokio::test]
async fn an_unreachable_target_is_told_from_a_denied_one() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let mut proxy = Proxy::start(options(port));
    for host in ["good.example", "other.example"] {
        let answer = proxy.send(&request(&format!("{host}:{port}"))).await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        let event = proxy.next_event().await;
        assert_eq!(event.verdict, EgressVerdict::Allowed);
        assert_eq!(event.outcome, EgressOutcome::Unreachable);
    }
}
