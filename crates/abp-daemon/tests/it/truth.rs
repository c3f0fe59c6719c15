//! What callers hear of how true their answers are.

use std::time::Duration;

use abp_dialect::{Dialect, DocumentKind};
use abp_testkit::{FakeVendor, Reply as Vendor, fixture};
use abp_translate::LedgerEntry;

use crate::lab::{Lab, upstream};

/// The headers of a stream are sent before its answer is known. Where the answer is translated, the last
/// line says what the headers could not, and the receipt agrees; what passes as it is gets no line.
#[test]
fn a_translated_stream_ends_in_how_true_it_is() {
    let cases = [
        (Dialect::OpenAi, "claude/stream_text.sse"),
        (Dialect::OpenAi, "claude/stream_server_tools.sse"),
        (Dialect::Claude, "gemini/stream_grounding.sse"),
        (Dialect::Codex, "gemini/stream_tool_calls.sse"),
        (Dialect::Claude, "claude/stream_server_tools.sse"),
        (Dialect::Gemini, "claude/stream_server_tools.sse"),
    ];
    let mut more_than_the_header = 0;
    for (caller, file) in cases {
        let (target, _) = file.split_once('/').expect("a directory");
        let target: Dialect = target.parse().expect("a dialect");
        let vendor = Vendor::events(fixture(file).expect("a stream"));
        let vendor = FakeVendor::start(vendor).expect("a vendor");
        let lab = Lab::start(&[("up", upstream(target, &vendor))]);
        let reply = lab.ask(caller, "m", true);
        let text = reply.text();
        let place = format!("{caller} from {file}: {text}");
        let last = text.trim_end().lines().next_back().unwrap_or_default();
        let told = last.strip_prefix(": x-abp-fidelity: ");
        let ledger = lab.receipt(&reply)["exchange"]["ledger"].take();
        let ledger: Option<Vec<LedgerEntry>> = serde_json::from_value(ledger).expect("a ledger");
        let entries = || ledger.iter().flatten();
        let losses = entries().filter(|entry| entry.is_loss()).count();
        let is_bookkeeping = |entry: &&LedgerEntry| {
            let of_request =
                |at: &Option<String>| at.as_ref().is_some_and(|at| at.starts_with("/request"));
            let kind = match of_request(&entry.source) || of_request(&entry.target) {
                true => DocumentKind::Request,
                false => DocumentKind::Response,
            };
            entry.is_bookkeeping(kind)
        };
        let meaning = losses - entries().filter(is_bookkeeping).count();
        let expected = match losses {
            // Not all clients of Gemini know comments.
            _ if caller == target || caller == Dialect::Gemini => None,
            0 => Some("lossless".to_owned()),
            losses => Some(format!("lossy;n={losses};meaning={meaning}")),
        };
        assert_eq!(told, expected.as_deref(), "{place}");
        let header = reply.header("x-abp-fidelity");
        more_than_the_header += usize::from(told.is_some() && told != header);
    }
    assert!(more_than_the_header > 0, "no answer lost anything");
}

/// While a model is silent its caller hears something that is no part of the answer; what that may be
/// depends on what the caller's clients pass over.
#[test]
fn silence_is_filled_with_what_the_callers_clients_pass_over() {
    let stream = fixture("claude/stream_text.sse").expect("a stream");
    let half = stream.len() / 2 + 1;
    let vendor = Vendor::events(stream)
        .in_chunks(half)
        .every(Duration::from_secs(2));
    let vendor = FakeVendor::start(vendor).expect("a vendor");
    let mut patient = upstream(Dialect::Claude, &vendor);
    patient.idle_timeout_secs = 30;
    let lab = Lab::start_with(&[("up", patient)], |config, _| {
        config.server.keepalive_secs = 1;
    });
    let openai = lab.ask(Dialect::OpenAi, "m", true);
    assert!(
        openai.text().contains("\n\n: keep-alive\n\n"),
        "{}",
        openai.text()
    );
    let gemini = lab.ask(Dialect::Gemini, "m", true);
    let text = gemini.text();
    assert!(text.contains("\n\n\n"), "{text}");
    let is_data = |line: &str| line.trim().is_empty() || line.starts_with("data: ");
    assert!(text.lines().all(is_data), "{text}");
}
