//! How often a request is sent: at most as often as configured, however many upstreams there are, and
//! never beyond what is allowed for all requests together.

use abp_config::UpstreamConfig;
use abp_dialect::Dialect;
use abp_testkit::{FakeVendor, Reply as Vendor};

use crate::lab::{Lab, upstream};

const BUSY: &str = r#"{"error":{"message":"busy","type":"server_error","param":null,"code":null}}"#;

/// What every upstream does with a request.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Says that it is busy, and not for how long.
    Busy,
    /// Says that it is busy for longer than anybody waits.
    BusyForLong,
    /// Takes the request and never answers; that takes two seconds each time.
    Silent,
}

impl Fault {
    fn reply(self) -> Vendor {
        let busy = Vendor::json(BUSY).status(503);
        match self {
            Self::Busy => busy,
            Self::BusyForLong => busy.header("retry-after", "30"),
            Self::Silent => Vendor::silence(),
        }
    }
}

/// Upstreams that all fail, the second and later ones as fallbacks of the first.
fn failing(count: usize, fault: Fault) -> (Vec<FakeVendor>, Vec<(String, UpstreamConfig)>) {
    let vendors: Vec<_> = (0..count)
        .map(|_| FakeVendor::start(fault.reply()).expect("a vendor"))
        .collect();
    let name = |number: usize| format!("up{number}");
    let upstreams = vendors.iter().enumerate().map(|(number, vendor)| {
        let mut config = upstream(Dialect::OpenAi, vendor);
        if number == 0 {
            config.fallback = (1..count).map(name).collect();
        } else {
            config.weight = 0;
        }
        (name(number), config)
    });
    let upstreams = upstreams.collect();
    (vendors, upstreams)
}

fn lab(upstreams: &[(String, UpstreamConfig)], max_attempts: u32) -> Lab {
    let named: Vec<_> = upstreams
        .iter()
        .map(|(name, config)| (name.as_str(), config.clone()))
        .collect();
    Lab::start_with(&named, |config, _| {
        config.server.max_attempts = max_attempts;
    })
}

fn asked(vendors: &[FakeVendor]) -> Vec<usize> {
    vendors
        .iter()
        .map(|vendor| vendor.requests().len())
        .collect()
}

#[test]
fn a_request_is_sent_no_oftener_than_configured() {
    let cases: &[(u32, Fault, &[usize])] = &[
        (1, Fault::Busy, &[1, 0, 0, 0, 0]),
        (2, Fault::Busy, &[1, 1, 0, 0, 0]),
        (2, Fault::BusyForLong, &[1, 1, 0, 0, 0]),
        (2, Fault::Silent, &[1, 1, 0, 0, 0]),
        (3, Fault::Busy, &[1, 1, 1, 0, 0]),
        (4, Fault::Busy, &[1, 1, 1, 1, 0]),
        (5, Fault::Busy, &[1, 1, 1, 1, 1]),
        // More attempts than upstreams: those that may be asked again are.
        (3, Fault::Busy, &[2, 1]),
        (3, Fault::BusyForLong, &[1, 1]),
        (2, Fault::Busy, &[2]),
        (1, Fault::Silent, &[1]),
    ];
    for (max_attempts, fault, expected) in cases {
        let (vendors, upstreams) = failing(expected.len(), *fault);
        let lab = lab(&upstreams, *max_attempts);
        let reply = lab.ask(Dialect::OpenAi, "m", false);
        let place = format!("{max_attempts} attempts, {fault:?}: {}", reply.head);
        assert!(reply.status >= 500, "{place}");
        assert_eq!(asked(&vendors), *expected, "{place}");
        let told = lab.receipt(&reply)["exchange"]["attempts"].as_u64();
        assert_eq!(told, Some(expected.iter().sum::<usize>() as u64), "{place}");
    }
}

/// Ten requests may be sent again without further ado, and then a tenth of all: with eight upstreams,
/// the first request takes seven of them and the second the rest.
#[test]
fn all_requests_together_are_sent_again_within_a_budget() {
    let (vendors, upstreams) = failing(8, Fault::Busy);
    let lab = lab(&upstreams, 8);
    let mut before = 0;
    let mut sent = Vec::new();
    for _ in 0..3 {
        let reply = lab.ask(Dialect::OpenAi, "m", false);
        assert!(reply.status >= 500, "{}", reply.head);
        let all = asked(&vendors).iter().sum::<usize>();
        sent.push(all - before);
        before = all;
    }
    assert_eq!(sent, [8, 4, 1]);
}
