//! The examples, in process and as programs. All three shims have the same ones.

use crate::api::in_process;
use crate::daemon::Daemon;
use crate::programs::{BASE_URL, KEY, PREFIX, chat, streaming, tools};

const CHAT: &str = "You said: Why is the sky blue?";
const TOOLS: &str = "The tool said: It snows.";
const STREAMING: &str = "You said: Tell me a story of three words.\n";

#[tokio::test]
async fn in_process_examples_say_what_they_should() {
    let daemon = Daemon::start().await;
    let client = in_process(&daemon);
    assert_eq!(chat::chat(&client).await.expect("an answer"), CHAT);
    assert_eq!(tools::ask(&client).await.expect("an answer"), TOOLS);
    let mut out = Vec::new();
    let followed = streaming::follow(&client, &mut out).await;
    followed.expect("an answer");
    check_streamed(&String::from_utf8(out).expect("text"));
}

#[tokio::test(flavor = "multi_thread")]
async fn example_programs_say_what_they_should() {
    let daemon = Daemon::start().await;
    let run = |name: &str| daemon.run_example(&format!("{PREFIX}_{name}"), BASE_URL, KEY);
    assert_eq!(run("chat").trim_end(), CHAT);
    assert_eq!(run("tools").trim_end(), TOOLS);
    check_streamed(&run("streaming"));
}

fn check_streamed(out: &str) {
    let tokens = out
        .strip_prefix(STREAMING)
        .and_then(|rest| rest.strip_suffix(" tokens\n"));
    let tokens: Option<u64> = tokens.and_then(|count| count.parse().ok());
    assert!(tokens > Some(0), "{out:?}");
}
