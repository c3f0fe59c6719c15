//! Blocks that a client cannot render, and those it can.

use abp_core::{AgentEvent, AgentEventKind, ClientCapabilities};
use abp_stream::{Packets, Presented, Presenter, TextForm};
use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;

use crate::text::{block, changes, client, delta, event, message, presented, voice};

/// Nothing is copied for a client that takes everything, whatever it is.
#[test]
fn a_standard_client_gets_the_events_themselves() {
    let events = [
        delta("**a**"),
        message("[b](c)\u{202e}"),
        block("chart", json!({"x": 1})),
        block("THOUGHT_TRACE", json!({"thought": "hm"})),
        event(AgentEventKind::ThinkingDelta {
            text: "hm".to_owned(),
        }),
    ];
    let mut presenter = Presenter::new(None, TextForm::Speech);
    for event in &events {
        assert_eq!(presenter.push(event), Presented::Unchanged(event));
    }
    assert_eq!(presenter.finish(), []);
    assert_eq!(presenter.adaptations(), []);
}

#[test]
fn blocks_become_words() {
    let citations = json!({"citations": [
        {"source_id": "1", "uri": "https://a.b/c d", "title": "A [tricky] *title*", "snippet": "two\nlines", "confidence": 0.9},
        {"source_id": "two", "uri": "https://b.c"},
        {"source_id": "<b>evil</b>", "uri": " JavaScript:alert(1)"},
    ]});
    let media = json!({"items": [
        {"url": "https://a.b/i.png", "mime_type": "image/png", "alt_text": "Sales growth"},
        {"url": "data:image/png;base64,AAAA", "mime_type": "image/png", "alt_text": "A chart"},
        {"url": "https://a.b/v.mp4", "mime_type": "video/mp4"},
    ]});
    // The block, what a client with markdown gets, what is spoken.
    let cases = [
        (
            block("citation_block", citations),
            "1. [A \\[tricky\\] \\*title\\*](<https://a.b/c d>): two lines\n2. [two](https://b.c)\n3. \\<b>evil\\</b> (JavaScript:alert(1))",
            "1. A [tricky] *title* (https://a.b/c d): two lines\n2. two (https://b.c)\n3. <b>evil</b> (JavaScript:alert(1))",
        ),
        (
            block("MEDIA_CAROUSEL", media),
            "- Image: [Sales growth](https://a.b/i.png)\n- Image: A chart\n- Video: [without description](https://a.b/v.mp4)",
            "Image: Sales growth (https://a.b/i.png)\nImage: A chart\nVideo: without description (https://a.b/v.mp4)",
        ),
        (
            block("MARKDOWN_BLOCK", json!({"content": "**Hi** there"})),
            "**Hi** there",
            "Hi there",
        ),
        (
            block("chart", json!({"series": [1, 2], "title": "Sales"})),
            "chart: Sales",
            "chart: Sales",
        ),
        (
            block("CITATION_BLOCK", json!({"citations": "many"})),
            "CITATION_BLOCK (without a description)",
            "CITATION_BLOCK (without a description)",
        ),
    ];
    for (block, markdown, spoken) in cases {
        let mut terminal = Presenter::new(Some(client(&[], true, None)), TextForm::Screen);
        for (presenter, said) in [(&mut terminal, markdown), (&mut voice(), spoken)] {
            let text = said.to_owned();
            let kinds = presented(presenter, std::slice::from_ref(&block));
            assert_eq!(kinds, [AgentEventKind::AssistantMessage { text }]);
            assert_eq!(presenter.adaptations().len(), 1);
        }
    }
}

/// In the middle of streamed text a block is said where it stands, and does not replace the message
/// that follows.
#[test]
fn a_block_within_streamed_text_is_said_in_its_place() {
    let events = [
        delta("Sales *gre"),
        block("chart", json!({"title": "Sales"})),
        delta("w*."),
        message("Sales *grew*."),
    ];
    let text = |kinds: Vec<AgentEventKind>| -> Vec<String> {
        let one = |kind| match kind {
            AgentEventKind::AssistantDelta { text } => text,
            AgentEventKind::AssistantMessage { text } => format!("= {text}"),
            other => other.name().to_owned(),
        };
        kinds.into_iter().map(one).collect()
    };
    assert_eq!(
        text(presented(&mut voice(), &events)),
        [
            "Sales ",
            "*gre",
            "\n\nchart: Sales",
            "\n\nw*.",
            "= Sales grew."
        ]
    );
    let mut terminal = Presenter::new(Some(client(&[], true, None)), TextForm::Screen);
    assert_eq!(
        text(presented(&mut terminal, &events)),
        [
            "Sales *gre",
            "\n\nchart: Sales\n\n",
            "w*.",
            "= Sales *grew*."
        ]
    );
}

/// On a screen one line when something begins and one when it ends; spoken, nothing. All is counted.
#[test]
fn progress_is_told_where_it_can_be_read() {
    let step = |status: &str, share: f64| {
        let data = json!({"label": "Build", "status": status, "progress_percent": share});
        block("PROGRESS_INDICATOR", data)
    };
    let events = [
        step("running", 0.0),
        step("running", 0.4),
        step("complete", 1.0),
    ];
    let say = |text: &str| AgentEventKind::AssistantMessage {
        text: text.to_owned(),
    };
    let mut screen = Presenter::new(Some(client(&[], false, None)), TextForm::Screen);
    assert_eq!(
        presented(&mut screen, &events),
        [say("Build: 0 %"), say("Build: done")]
    );
    assert_eq!(
        changes(&screen),
        [("block", "a line", 2), ("block", "nothing", 1)]
    );
    let mut voice = voice();
    assert_eq!(presented(&mut voice, &events), []);
    assert_eq!(changes(&voice), [("block", "nothing", 3)]);
}

#[test]
fn thoughts_are_left_out_and_counted() {
    let think = |text: &str| {
        let text = text.to_owned();
        event(AgentEventKind::ThinkingDelta { text })
    };
    let events = [
        think("a"),
        think("b"),
        block("thought_trace", json!({"thought": "c"})),
    ];
    let mut web = Presenter::new(Some(ClientCapabilities::default()), TextForm::Screen);
    assert_eq!(presented(&mut web, &events), []);
    let count = |event: &str| {
        let records = web.adaptations().iter();
        records
            .filter(|one| one.event == event)
            .map(|one| one.count)
            .sum::<u64>()
    };
    assert_eq!((count("thinking_delta"), count("THOUGHT_TRACE")), (2, 1));
    let mut open = Presenter::new(
        Some(client(&["Thought_Trace"], true, None)),
        TextForm::Screen,
    );
    assert_eq!(presented(&mut open, &events).len(), 3);
}

/// Records are told before the end of the run, and again only what is new.
#[test]
fn changes_are_told_before_the_run_ends() {
    let end = event(AgentEventKind::RunCompleted {
        message: "done".to_owned(),
    });
    let mut presenter = voice();
    presented(&mut presenter, &[]);
    let names = |presented: Presented<'_>| -> Vec<String> {
        let events = presented.events();
        events.map(|event| event.kind.name().to_owned()).collect()
    };
    assert_eq!(names(presenter.push(&delta("**a"))), Vec::<String>::new());
    assert_eq!(
        names(presenter.push(&end)),
        ["assistant_delta", "run_completed"]
    );
    assert_eq!(
        names(presenter.push(&message("`b`"))),
        ["assistant_message"]
    );
    assert_eq!(names(presenter.push(&end)), ["adapted", "run_completed"]);
    assert_eq!(presenter.finish(), []);
    let code = ("markdown code span", "the code alone", 1);
    assert_eq!(changes(&presenter), [code]);
}

/// What a run may say: a name for it, and the event.
fn said() -> impl Strategy<Value = (&'static str, AgentEvent)> {
    const BLOCKS: [&str; 6] = [
        "CITATION_BLOCK",
        "MEDIA_CAROUSEL",
        "PROGRESS_INDICATOR",
        "MARKDOWN_BLOCK",
        "THOUGHT_TRACE",
        "chart",
    ];
    let data = prop_oneof![
        Just(json!({})),
        Just(json!({"label": "Build", "status": "running", "content": "**a**"})),
        Just(json!({"items": [{"url": "https://a.b/c", "title": "T"}], "citations": 7})),
    ];
    let blocks = (prop::sample::select(BLOCKS.to_vec()), data);
    let thought = event(AgentEventKind::ThinkingDelta {
        text: "hm".to_owned(),
    });
    prop_oneof![
        4 => blocks.prop_map(|(name, data)| (name, block(name, data))),
        1 => Just(("thinking_delta", thought)),
        1 => Just(("text", delta("*a"))),
        1 => Just(("text", message("**b**"))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    /// Every block and every thought either reaches the client or is counted.
    #[test]
    fn no_event_disappears_without_a_record(
        run in prop::collection::vec(said(), 0..20),
        listed in prop::sample::subsequence(vec!["CITATION_BLOCK", "PROGRESS_INDICATOR", "THOUGHT_TRACE", "chart"], 0..=4),
        markdown: bool,
    ) {
        let capabilities = client(&listed, markdown, None);
        let mut presenter = Presenter::for_client(Some(capabilities));
        let events: Vec<_> = run.iter().map(|(_, event)| event.clone()).collect();
        let shown = presented(&mut presenter, &events);
        for (name, _) in run.iter().filter(|(name, _)| *name != "text") {
            let passed = shown.iter().filter(|kind| match kind {
                AgentEventKind::ContentBlock { block_type, .. } => block_type == name,
                other => other.name() == *name,
            });
            let changed = presenter.adaptations().iter().filter(|change| {
                change.event == *name && ["block", "thought"].contains(&change.from.as_str())
            });
            let changed: u64 = changed.map(|change| change.count).sum();
            let told = run.iter().filter(|(other, _)| other == name).count();
            prop_assert_eq!(passed.count() as u64 + changed, told as u64, "{}", name);
        }
    }
}

/// A run that was recorded for one client can be presented to another.
#[test]
fn what_was_changed_for_others_is_not_told() {
    let adaptation = abp_core::Adaptation::new("a", "b", "c", "d");
    let told = event(AgentEventKind::Adapted { adaptation });
    let mut presenter = voice();
    assert_eq!(presenter.push(&told), Presented::Changed(Vec::new()));
    assert_eq!(presenter.finish(), []);
}

#[test]
fn packets_are_in_order_and_carry_what_they_should() {
    let mut packets = Packets::new(Uuid::from_u128(7));
    let error = event(AgentEventKind::Error {
        message: "no".to_owned(),
        error_code: None,
    });
    let events = [
        delta("a"),
        message("a"),
        block("citation_block", json!({})),
        error,
    ];
    let mut all: Vec<_> = events.iter().map(|event| packets.packet(event)).collect();
    all.push(packets.close(events[0].ts));
    for (index, packet) in all.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| &all[before]);
        packet.check(before).unwrap();
    }
    let written = serde_json::to_value(&all).unwrap();
    let ops: Vec<_> = all
        .iter()
        .map(|packet| serde_json::to_value(packet.op).unwrap())
        .collect();
    assert_eq!(ops, ["DELTA", "EVENT", "EVENT", "ERROR", "CLOSE"]);
    assert_eq!(written[0]["p"], "a");
    assert_eq!(written[2]["p"]["type"], "CITATION_BLOCK");
    assert_eq!(written[3]["p"]["severity"], "transient");
}
