//! Any bytes as a stream between any two dialects: an orderly end.

#![no_main]

use abp_dialect::{Dialect, Exchange};
use abp_translate::{Options, translate_stream};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (from, to, bytes) = input;
    let dialect = |number: u8| Dialect::ALL[usize::from(number) % Dialect::ALL.len()];
    let (from, to) = (dialect(from), dialect(to));
    let done = translate_stream(bytes, from, to, &Exchange::default(), &Options::default());
    assert!(done.is_ok());
});
