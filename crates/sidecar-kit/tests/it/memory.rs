//! Transcripts against the client, in one piece and torn into many.

use proptest::prelude::*;
use serde_json::json;
use sidecar_kit::{BatchItem, Connection, Fault, Frame, HelloFrame, Settings, SidecarClient};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

const RUN: &str = "run-1";

fn hello() -> Frame {
    Frame::Hello(HelloFrame {
        contract_version: "abp/v0.1".to_owned(),
        backend: json!({ "id": "memory" }),
        capabilities: json!({}),
        mode: None,
    })
}

fn answer() -> impl Strategy<Value = Frame> {
    let ref_id = || prop_oneof![9 => Just(Some(RUN.to_owned())), 1 => Just(None)];
    prop_oneof![
        8 => (ref_id(), ".{0,20}").prop_map(|(ref_id, text)| Frame::Event {
            ref_id,
            event: json!({ "text": text }),
        }),
        1 => ref_id().prop_map(|ref_id| Frame::Final { ref_id, receipt: json!({ "n": 1 }) }),
        1 => Just(Frame::Fatal { ref_id: None, error: json!("no"), error_code: None }),
        1 => Just(Frame::Pong { seq: 9 }),
        1 => Just(Frame::Unknown(json!({ "t": "later" }))),
        1 => Just(hello()),
    ]
}

/// What a client makes of answers that come in these pieces: the events, and how it ended.
async fn play(pieces: Vec<Vec<u8>>) -> (Vec<String>, String) {
    let (connection, peer) = Connection::memory();
    let sidecar = tokio::spawn(async move {
        let (input, mut output) = tokio::io::split(peer);
        output
            .write_all(hello().to_line().unwrap().as_bytes())
            .await
            .unwrap();
        let mut run = String::new();
        BufReader::new(input).read_line(&mut run).await.unwrap();
        assert!(run.contains(RUN), "{run}");
        for piece in pieces {
            // The client may have seen enough.
            if output.write_all(&piece).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    });
    let client = SidecarClient::connect(connection, &Settings::default())
        .await
        .unwrap();
    assert_eq!(client.hello().backend, json!({ "id": "memory" }));
    let mut run = client.run(RUN, json!({ "task": "t" }));
    let mut events = Vec::new();
    while let Some(batch) = run.events.recv().await {
        events.extend(batch.iter().map(|item| event_text(&item)));
    }
    let report = run.report.await.unwrap();
    sidecar.await.unwrap();
    (events, format!("{:?} {:?}", report.result, report.warnings))
}

fn event_text(item: &BatchItem<'_>) -> String {
    match item {
        BatchItem::Event(text) => (*text).to_owned(),
        BatchItem::Question(request) => panic!("a question: {request:?}"),
    }
}

/// The same by the rules: the events up to the end or the first breach, and whether it ended well.
fn expected(answers: &[Frame]) -> (Vec<String>, bool) {
    let (mut events, mut done) = (Vec::new(), None);
    for answer in answers {
        match (answer, done) {
            (
                Frame::Event {
                    ref_id: Some(_),
                    event,
                },
                None,
            ) => events.push(event.to_string()),
            (
                Frame::Final {
                    ref_id: Some(_), ..
                },
                None,
            ) => done = Some(true),
            (Frame::Fatal { .. }, None) => done = Some(false),
            (Frame::Pong { .. } | Frame::Unknown(_), _) => {}
            _ => return (events, false),
        }
    }
    (events, done == Some(true))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn c9_a_transcript_means_the_same_however_it_is_torn(
        answers in prop::collection::vec(answer(), 0..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let stream: Vec<u8> = answers
            .iter()
            .flat_map(|frame| frame.to_line().unwrap().into_bytes())
            .collect();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let torn = cuts.windows(2).map(|cut| stream[cut[0]..cut[1]].to_vec()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let whole = runtime.block_on(play(vec![stream]));
        let torn = runtime.block_on(play(torn));
        prop_assert_eq!(&whole, &torn);
        let (events, well) = expected(&answers);
        prop_assert_eq!(&whole.0, &events);
        prop_assert_eq!(whole.1.starts_with("Ok"), well, "{}", whole.1);
    }
}

#[tokio::test(start_paused = true)]
async fn c8_c16_clocks_run_without_a_process_too() {
    let (connection, _peer) = Connection::memory();
    let late = SidecarClient::connect(connection, &Settings::default())
        .await
        .unwrap_err();
    assert!(matches!(late.result, Err(Fault::Expired(_))), "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c17_cancel_and_final_race_to_one_end() {
    const ROUNDS: usize = 10_000;
    let (mut finals, mut told) = (0, 0);
    for _ in 0..ROUNDS {
        let (ended_well, was_told) = race().await;
        finals += usize::from(ended_well);
        told += usize::from(was_told);
    }
    // A sidecar that said its last word is never overruled, whether it was told to stop or not.
    assert_eq!(finals, ROUNDS);
    assert!(
        told > 0 && told < ROUNDS,
        "cancel came first {told} times of {ROUNDS}: there was no race"
    );
}

/// A sidecar that says its last word at the moment the run is cancelled: whether that word counted,
/// and whether the sidecar was told of the cancellation before its input ended.
async fn race() -> (bool, bool) {
    let (connection, peer) = Connection::memory();
    let sidecar = tokio::spawn(async move {
        let (input, mut output) = tokio::io::split(peer);
        let mut lines = BufReader::new(input).lines();
        let last = Frame::Final {
            ref_id: Some(RUN.to_owned()),
            receipt: json!({ "n": 1 }),
        };
        let [hello, last] = [hello(), last].map(|frame| frame.to_line().unwrap());
        output.write_all(hello.as_bytes()).await.unwrap();
        lines.next_line().await.unwrap().unwrap();
        output.write_all(last.as_bytes()).await.unwrap();
        output.shutdown().await.unwrap();
        lines.next_line().await.unwrap().is_some()
    });
    let client = SidecarClient::connect(connection, &Settings::default())
        .await
        .unwrap();
    let mut run = client.run(RUN, json!({ "task": "t" }));
    tokio::task::yield_now().await;
    run.cancel.cancel("user");
    assert!(run.events.recv().await.is_none());
    let report = run.report.await.unwrap();
    (report.result.is_ok(), sidecar.await.unwrap())
}
