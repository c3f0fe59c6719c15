//! Any bytes: a tape whose every node has its place, or an error.

#![no_main]

use abp_json::{Limits, Tape};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(tape) = Tape::parse(bytes, &Limits::default()) {
        for view in tape.nodes() {
            assert!(tape.starting_at(view.span().start).is_some());
        }
    }
});
