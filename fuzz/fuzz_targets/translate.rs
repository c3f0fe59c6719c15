//! Any bytes between any two dialects: an error, or a document with nothing lost in silence.

#![no_main]

use abp_dialect::{Dialect, Exchange};
use abp_translate::{Options, Translation, UNEXPLAINED, translate_request, translate_response};
use libfuzzer_sys::fuzz_target;

fn check(done: &Translation) {
    let silent = |label: Option<&str>| label == Some(UNEXPLAINED);
    let entries = done.ledger.entries();
    assert!(!entries.iter().any(|entry| silent(entry.label.as_deref())));
}

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (from, to, bytes) = input;
    let dialect = |number: u8| Dialect::ALL[usize::from(number) % Dialect::ALL.len()];
    let (from, to, options) = (dialect(from), dialect(to), Options::default());
    if let Ok(done) = translate_request(bytes, from, to, &options) {
        check(&done);
    }
    if let Ok(done) = translate_response(bytes, from, to, &Exchange::default(), &options) {
        check(&done);
    }
});
