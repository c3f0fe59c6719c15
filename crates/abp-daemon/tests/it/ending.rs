//! The end of the server, while answers are under way.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use abp_core::Outcome;
use abp_dialect::Dialect;
use abp_testkit::{ExchangeEnd, FakeVendor, Reply as Vendor, fixture};

use crate::lab::{KEY, Lab, Reply, path, request, upstream};

/// An answer that ends in time is given to its end. One that goes on is cut off, so that its caller sees
/// it and its vendor stops, and is recorded as what it is.
#[test]
fn answers_under_way_end_in_order_or_are_cut_off() {
    let events = fixture("openai/stream_text.sse").expect("a stream");
    let slow = Vendor::events(events.clone())
        .in_chunks(events.len() / 8)
        .every(Duration::from_millis(50));
    let endless = Vendor::events(events)
        .in_chunks(4)
        .every(Duration::from_millis(100));
    let cases = [
        (slow, true, Outcome::Complete),
        (endless, false, Outcome::Cancelled),
    ];
    for (vendor, is_whole, outcome) in cases {
        let vendor = FakeVendor::start(vendor).expect("a vendor");
        let upstreams = [("up", upstream(Dialect::OpenAi, &vendor))];
        let lab = Lab::start_with(&upstreams, |_, options| {
            options.drain_timeout = Duration::from_secs(2);
        });
        let body = request(Dialect::OpenAi, "m", true);
        let mut caller = lab.connect();
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            path(Dialect::OpenAi, "m", true),
            body.len()
        );
        caller.write_all((head + &body).as_bytes()).expect("sent");
        let mut read = vec![0; 16];
        caller.read_exact(&mut read).expect("the beginning");
        let began = Instant::now();
        let reading = std::thread::spawn(move || {
            drop(caller.read_to_end(&mut read));
            Reply::parse(&read)
        });
        let records = lab.end();
        assert!(began.elapsed() < Duration::from_secs(4), "it ends");
        let reply = reading.join().expect("an answer");
        assert_eq!(
            (reply.status, reply.whole),
            (200, is_whole),
            "{}",
            reply.text()
        );
        assert_eq!(reply.text().contains("[DONE]"), is_whole);
        let outcomes: Vec<_> = records.iter().map(|record| record.outcome).collect();
        assert_eq!(outcomes, [outcome]);
        let aborted = matches!(vendor.requests()[0].end, ExchangeEnd::Aborted { .. });
        assert_eq!(aborted, !is_whole, "the vendor hears of it");
    }
}
