//! Reasoning that a caller does not carry is found again, also where the vendor's calls have no ids.

use abp_dialect::sse::SseForm;
use abp_dialect::{Dialect, Exchange};
use abp_translate::{
    ByteTranslator, KeptReasoning, Options, kept_reasoning, translate_response_with,
};

/// Two calls of which the first carries the vendor's proof, and none an id.
const ANSWER: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"now","args":{}},"thoughtSignature":"c2ln"},{"functionCall":{"name":"now","args":{}}}]},"finishReason":"STOP"}],"responseId":"r-1"}"#;

fn expected() -> Vec<(String, KeptReasoning)> {
    let kept = KeptReasoning {
        blocks: Vec::new(),
        signature: Some("c2ln".to_owned()),
    };
    vec![("call_r-1_0".to_owned(), kept)]
}

#[test]
fn proofs_are_kept_under_the_ids_that_callers_see() {
    let mut kept = Vec::new();
    let (exchange, options) = (Exchange::default(), Options::default());
    let (from, to) = (Dialect::Gemini, Dialect::Claude);
    let look = |answer: &_| kept = kept_reasoning(answer);
    let done = translate_response_with(ANSWER.as_bytes(), from, to, &exchange, &options, look);
    assert!(
        done.expect("an answer")
            .output
            .contains(r#""id":"call_r-1_0""#)
    );
    assert_eq!(kept, expected());

    let mut translator =
        ByteTranslator::new(from, to, &exchange, SseForm::Events, &options).expect("codecs");
    translator.events_mut().gather();
    let mut out = Vec::new();
    translator.push(format!("data: {ANSWER}\n\n").as_bytes(), &mut out);
    translator.finish(&mut out);
    let gathered = translator.events_mut().take_gathered().expect("gathered");
    let answer = gathered.finish().expect("an answer");
    assert_eq!(kept_reasoning(&answer), expected());
}
