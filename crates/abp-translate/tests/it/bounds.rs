//! What nobody does in good faith is refused, however much of it there is.

use abp_dialect::{Dialect, Exchange, MAX_OPEN_BLOCKS};
use abp_translate::{FidelityLevel, Options, StreamTranslator, translate_request};

#[test]
fn an_answer_is_not_searched_for_any_number_of_stop_sequences() {
    let options = Options {
        cut_stops: true,
        ..Options::default()
    };
    let stopping_at = |sequences: Vec<String>| {
        let request = serde_json::json!({
            "model": "m", "max_tokens": 9, "stop_sequences": sequences,
            "messages": [{ "role": "user", "content": "x" }],
        });
        let request = request.to_string();
        let done = translate_request(
            request.as_bytes(),
            Dialect::Claude,
            Dialect::Codex,
            &options,
        );
        let done = done.expect("a request");
        (done.exchange.stop_at.len(), done.ledger)
    };
    let numbered = |count: u32| (0..count).map(|number| format!("stop {number}")).collect();
    let (cut_at, ledger) = stopping_at(numbered(64));
    assert_eq!(cut_at, 64);
    assert_ne!(ledger.fidelity(), FidelityLevel::Unsupported);
    for (too_much, kept) in [(numbered(65), 64), (vec!["x".repeat(4097)], 0)] {
        let (cut_at, ledger) = stopping_at(too_much);
        assert_eq!(cut_at, kept);
        assert_eq!(ledger.fidelity(), FidelityLevel::Unsupported);
        let named = |label: &str| {
            ledger
                .entries()
                .iter()
                .any(|entry| entry.label.as_deref() == Some(label))
        };
        assert!(named("too_many_stop_sequences"));
    }
}

#[test]
fn a_stream_may_not_open_any_number_of_blocks() {
    let openai = |number: usize| {
        format!(
            r#"{{"id":"x","choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":{number},"id":"c{number}","function":{{"name":"f","arguments":"{{}}"}}}}]}}}}]}}"#
        )
    };
    let nameless = |number: usize| {
        format!(
            r#"{{"id":"x","choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":{number},"function":{{"arguments":"{{"}}}}]}}}}]}}"#
        )
    };
    let claude = |number: usize| {
        format!(
            r#"{{"type":"content_block_start","index":{number},"content_block":{{"type":"text","text":""}}}}"#
        )
    };
    let codex = |number: usize| {
        format!(
            r#"{{"type":"response.output_text.delta","output_index":0,"content_index":{number},"item_id":"i","delta":"x"}}"#
        )
    };
    let sources: [(Dialect, &dyn Fn(usize) -> String); 4] = [
        (Dialect::OpenAi, &openai),
        (Dialect::OpenAi, &nameless),
        (Dialect::Claude, &claude),
        (Dialect::Codex, &codex),
    ];
    for (from, event) in sources {
        for to in Dialect::ALL.into_iter().filter(|to| *to != from) {
            let (exchange, options) = (Exchange::default(), Options::default());
            let mut stream = StreamTranslator::new(from, to, &exchange, &options).expect("codecs");
            for number in 0..MAX_OPEN_BLOCKS {
                stream.event(None, &event(number));
                assert!(!stream.is_over(), "{from} to {to}: {number}");
            }
            let last = stream.event(None, &event(MAX_OPEN_BLOCKS));
            assert!(stream.is_over(), "{from} to {to}");
            let told = last.iter().any(|event| event.data.contains("open at once"));
            assert!(told, "{from} to {to}: {last:?}");
            assert!(!stream.summary().complete, "{from} to {to}");
        }
    }
}
