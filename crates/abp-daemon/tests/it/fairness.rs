//! Twenty keys, one of them hostile: the others hardly notice.

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use abp_dialect::Dialect;
use abp_store::NewApiKey;
use abp_testkit::{FakeVendor, Reply as Vendor, Script, fixture};

use crate::lab::{Lab, path, request, upstream};
use crate::limits::{add, key};
use crate::tenants::{begin, initialize, resident};

const GOOD_KEYS: usize = 19;
const MEASURED: Duration = Duration::from_millis(1_500);
/// For a machine on which other tests run at the same time.
const SLACK: Duration = Duration::from_millis(30);
const MEGABYTE: usize = 1 << 20;

/// What the hostile key does, over and over.
#[derive(Debug, Clone, Copy)]
enum Hostility {
    SlowBodies,
    LargeBodies,
    Sessions,
    Failures,
    Floods,
    Disconnects,
}

impl Hostility {
    fn attack(self, lab: &Lab) {
        match self {
            Self::SlowBodies => {
                let framing = format!("content-length: {}", 32 * MEGABYTE);
                let mut held: Vec<_> = (0..13).map(|_| begin(lab, "bad", &framing, b"{")).collect();
                let piece = vec![b' '; MEGABYTE];
                for _ in 0..30 {
                    for connection in &mut held {
                        drop(connection.set_nonblocking(true));
                        drop(connection.write(&piece));
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            Self::LargeBodies => {
                let word = r#"{"role":"user","content":"x"},"#.repeat(100_000);
                let body = format!(r#"{{"model":"m","messages":[{word}{{}}]}}"#);
                drop(lab.post_as("bad", "/v1/chat/completions", &body, ""));
            }
            Self::Sessions => drop(initialize(lab, "bad")),
            Self::Failures => {
                let body = r#"{"model":"m","messages":[{"role":"user","content":"broken"}]}"#;
                drop(lab.post_as("bad", "/v1/chat/completions", body, ""));
            }
            Self::Floods => {
                let body = request(Dialect::OpenAi, "m", false);
                let path = path(Dialect::OpenAi, "m", false);
                drop(lab.post_as("limited", &path, &body, ""));
            }
            Self::Disconnects => {
                let mut connection = lab.open("bad", Dialect::OpenAi, true);
                drop(connection.read(&mut [0; 12]));
            }
        }
    }
}

/// The time within which 99 of 100 requests of the good keys were answered, while something else goes on.
fn p99(lab: &Lab, hostility: Option<Hostility>) -> Duration {
    let over = AtomicBool::new(false);
    let ends = Instant::now() + MEASURED;
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        for _ in 0..2 {
            let over = &over;
            scope.spawn(move || {
                while let Some(hostility) = hostility.filter(|_| !over.load(Ordering::Relaxed)) {
                    hostility.attack(lab);
                }
            });
        }
        let asking: Vec<_> = (0..GOOD_KEYS)
            .map(|number| scope.spawn(move || ask_until(lab, number, ends)))
            .collect();
        let times = asking
            .into_iter()
            .flat_map(|one| one.join().expect("times"));
        let times = times.collect();
        over.store(true, Ordering::Relaxed);
        times
    });
    times.sort();
    times[times.len() * 99 / 100]
}

fn ask_until(lab: &Lab, number: usize, ends: Instant) -> Vec<Duration> {
    let name = format!("good{number}");
    let body = request(Dialect::OpenAi, "m", false);
    let mut times = Vec::new();
    while Instant::now() < ends {
        let began = Instant::now();
        let reply = lab.post_as(&name, "/v1/chat/completions", &body, "");
        times.push(began.elapsed());
        assert_eq!(reply.status, 200, "{name}: {}", reply.text());
        std::thread::sleep(Duration::from_millis(50));
    }
    times
}

fn check(hostilities: &[Hostility]) {
    let whole = fixture("openai/response_text.json").expect("a fixture");
    let stream = fixture("openai/stream_text.sse").expect("a fixture");
    let script = Script::By(Box::new(move |asked| {
        let start = &asked.body[..asked.body.len().min(400)];
        let start = String::from_utf8_lossy(start);
        if start.contains("broken") {
            Vendor::json(r#"{"error":{"message":"no"}}"#).status(500)
        } else if start.contains("\"stream\":true") {
            Vendor::events(stream.clone()).stall_at(300)
        } else {
            Vendor::json(whole.clone())
        }
    }));
    let vendor = FakeVendor::start(script).expect("a vendor");
    let away = "url = \"http://127.0.0.1:9/mcp\"\nopen_timeout_secs = 1";
    let away = toml::from_str(away).expect("a server");
    let lab = Lab::start_with(
        &[("up", upstream(Dialect::OpenAi, &vendor))],
        |config, options| {
            config.mcp.servers.insert("away".to_owned(), away);
            options.body_timeout = Duration::from_secs(5);
        },
    );
    for number in 0..GOOD_KEYS {
        add(&lab, key(&format!("good{number}")));
    }
    add(&lab, key("bad"));
    let requests_per_minute = Some(10);
    add(
        &lab,
        NewApiKey {
            requests_per_minute,
            ..key("limited")
        },
    );
    for hostility in hostilities {
        measure(&lab, *hostility);
    }
}

/// Compares with and without. Another program may take the processor during either, so it may take a few
/// attempts to measure anything; a key that really slows others down does so in each.
fn measure(lab: &Lab, hostility: Hostility) {
    let mut told = Vec::new();
    for _ in 0..4 {
        let (alone, together) = (p99(lab, None), p99(lab, Some(hostility)));
        told.push(format!("{together:?} after {alone:?}"));
        // The vendor of this test remembers every body, so large ones count twice here.
        let memory = resident();
        let most = match hostility {
            Hostility::LargeBodies => u64::MAX,
            _ => 150,
        };
        assert!(memory < most, "{hostility:?}: {memory} MB");
        if together <= alone * 2 + SLACK {
            return;
        }
    }
    panic!("{hostility:?}: {told:?}");
}

/// G6: sessions, failures, floods and disconnects of one key.
#[test]
fn g6_many_small_offences_of_one_key_do_not_slow_others_down() {
    use Hostility::{Disconnects, Failures, Floods, Sessions};
    check(&[Sessions, Failures, Floods, Disconnects]);
}

/// G6: bodies that do not end, and bodies that are much work.
#[test]
fn g6_heavy_bodies_of_one_key_do_not_slow_others_down() {
    check(&[Hostility::SlowBodies, Hostility::LargeBodies]);
}
