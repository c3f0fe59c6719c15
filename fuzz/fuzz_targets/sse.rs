//! Any bytes, whole and byte by byte: the same events.

#![no_main]

use abp_dialect::sse::{SseDecoder, SseEvent, SseLimits};
use libfuzzer_sys::fuzz_target;

fn messages(bytes: &[u8], piece: usize) -> Vec<(Option<String>, String)> {
    let mut decoder = SseDecoder::new(SseLimits::default());
    let mut found = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        let mut fed = decoder.feed(piece);
        while let Ok(Some(event)) = fed.next_event() {
            if let SseEvent::Message { name, data, .. } = event {
                found.push((name.map(str::to_owned), data.to_owned()));
            }
        }
    }
    found
}

fuzz_target!(|bytes: &[u8]| {
    assert_eq!(messages(bytes, bytes.len()), messages(bytes, 1));
});
