//! Every breach of the protocol and every way to end badly: one typed error, and nothing left.

use std::time::Duration;

use abp_core::AgentEventKind;
use abp_error::{AbpError, ErrorCode};
use abp_host::{Exit, SidecarClient, SidecarSpec};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::support::{failure, order, run, shell, sidecar};

struct Case {
    row: &'static str,
    script: &'static str,
    code: ErrorCode,
    says: &'static str,
    events: usize,
    exit: Option<Exit>,
    setup: fn(&mut SidecarSpec),
}

const BASE: Case = Case {
    row: "",
    script: "",
    code: ErrorCode::ProtocolUnexpectedMessage,
    says: "",
    events: 0,
    exit: None,
    setup: |_| {},
};

/// `exit` is checked where the sidecar ends by itself; otherwise it was killed.
const CASES: &[Case] = &[
    Case {
        row: "C1 endless line",
        script: "hello; run; event a; head -c 3000000 /dev/zero | tr '\\0' x; sleep 60",
        code: ErrorCode::ProtocolInvalidEnvelope,
        says: "line 3 is longer than 1000000 bytes",
        events: 1,
        setup: |spec| spec.max_line = 1_000_000,
        ..BASE
    },
    Case {
        row: "C3 invalid UTF-8",
        script: r"hello; run; event a; printf 'x\377y\n'; sleep 60",
        code: ErrorCode::ProtocolInvalidEnvelope,
        says: "line 3 is not UTF-8: byte 0xff at offset 1",
        events: 1,
        ..BASE
    },
    Case {
        row: "C4 too much noise before hello",
        script: "head -c 70000 /dev/zero | tr '\\0' x | fold -w 100; hello; sleep 60",
        code: ErrorCode::ProtocolHandshakeFailed,
        says: "more than 65536 bytes came before hello",
        ..BASE
    },
    Case {
        row: "C4 noise after hello",
        script: "hello; run; event a; echo npm WARN deprecated; sleep 60",
        code: ErrorCode::ProtocolInvalidEnvelope,
        says: "line 3: a line after hello is not a message: \"npm WARN deprecated\"",
        events: 1,
        ..BASE
    },
    Case {
        row: "C4 invalid JSON",
        script: r#"hello; run; say '{"t":"event",'; sleep 60"#,
        code: ErrorCode::ProtocolInvalidEnvelope,
        says: "line 2: a line after hello is not a message",
        ..BASE
    },
    Case {
        row: "C5 byte order mark",
        script: r"printf '\357\273\277'; hello; sleep 60",
        code: ErrorCode::ProtocolInvalidEnvelope,
        says: "line 1 begins with a byte order mark",
        ..BASE
    },
    Case {
        row: "C5 NUL",
        script: r"hello; run; printf 'a\000b\n'; sleep 60",
        code: ErrorCode::ProtocolInvalidEnvelope,
        says: "line 2 has a NUL byte at offset 1",
        ..BASE
    },
    Case {
        row: "C5 partial line",
        script: r#"hello; run; event a; printf '{"t":"final"'"#,
        code: ErrorCode::ProtocolInvalidEnvelope,
        says: "ended after 12 bytes of line 3",
        events: 1,
        ..BASE
    },
    Case {
        row: "C7 input never read",
        script: "hello; sleep 60",
        code: ErrorCode::BackendTimeout,
        says: "did not read its input for 300ms",
        setup: |spec| spec.timing.write = Duration::from_millis(300),
        ..BASE
    },
    Case {
        row: "C8 no hello",
        script: "sleep 60",
        code: ErrorCode::ProtocolHandshakeFailed,
        says: "no hello within 300ms",
        setup: |spec| spec.timing.hello = Duration::from_millis(300),
        ..BASE
    },
    Case {
        row: "C8 late hello",
        script: "sleep 2; hello; sleep 60",
        code: ErrorCode::ProtocolHandshakeFailed,
        says: "no hello within 300ms",
        setup: |spec| spec.timing.hello = Duration::from_millis(300),
        ..BASE
    },
    Case {
        row: "C8 wrong version",
        script: r#"say '{"t":"hello","contract_version":"abp/v1.0","backend":{"id":"x"}}'; cat"#,
        code: ErrorCode::ProtocolVersionMismatch,
        says: "speaks \"abp/v1.0\"",
        ..BASE
    },
    Case {
        row: "C8 hello without identity",
        script: r#"say '{"t":"hello","contract_version":"abp/v0.1","backend":{"id":""}}'; cat"#,
        code: ErrorCode::ProtocolHandshakeFailed,
        says: "backend.id is empty",
        ..BASE
    },
    Case {
        row: "C8 hello twice",
        script: "hello; run; hello; sleep 60",
        says: "line 2: hello came twice",
        ..BASE
    },
    Case {
        row: "C9 event before hello",
        script: "id=x; event a; sleep 60",
        says: "line 1: the first message is event, not hello",
        ..BASE
    },
    Case {
        row: "C9 wrong ref_id",
        script: "hello; run; event a; id=other; event b; sleep 60",
        says: "line 3: event has the ref_id \"other\"",
        events: 1,
        ..BASE
    },
    Case {
        row: "C9 missing ref_id",
        script: r#"hello; run; say '{"t":"event","event":{}}'; sleep 60"#,
        code: ErrorCode::ProtocolMissingRefId,
        says: "line 2: event has no ref_id",
        ..BASE
    },
    Case {
        row: "C9 event after final",
        script: "hello; run; event a; final; event b; sleep 60",
        says: "line 4: event came after the end of the run",
        events: 1,
        ..BASE
    },
    Case {
        row: "C9 two finals",
        script: "hello; run; final; final; sleep 60",
        says: "line 3: final came after the end of the run",
        ..BASE
    },
    Case {
        row: "C9 a host's message",
        script: r#"hello; run; say '{"t":"run","id":"x","work_order":{}}'; sleep 60"#,
        says: "line 2: run is a message of hosts",
        ..BASE
    },
    Case {
        row: "C9 a known event with wrong content",
        script: r#"hello; run; event a; say "{\"t\":\"event\",\"ref_id\":\"$id\",\"event\":{\"ts\":\"2026-01-01T00:00:00Z\",\"type\":\"assistant_delta\"}}"; sleep 60"#,
        code: ErrorCode::ProtocolInvalidEnvelope,
        says: "missing field `text`",
        events: 1,
        ..BASE
    },
    Case {
        row: "C10 exit before hello",
        script: "echo no module named x >&2; exit 3",
        code: ErrorCode::BackendCrashed,
        exit: Some(Exit::Code(3)),
        ..BASE
    },
    Case {
        row: "C10 exit before final",
        script: "hello; run; event a; echo why >&2; exit 7",
        code: ErrorCode::BackendCrashed,
        says: "ended before its work did",
        events: 1,
        exit: Some(Exit::Code(7)),
        ..BASE
    },
    Case {
        row: "C10 exit 0 without final",
        script: "hello; run; exit 0",
        code: ErrorCode::BackendCrashed,
        exit: Some(Exit::Code(0)),
        ..BASE
    },
    Case {
        row: "C10 killed by a signal",
        script: "hello; run; event a; kill -SEGV $$",
        code: ErrorCode::BackendCrashed,
        events: 1,
        exit: Some(Exit::Signal(11)),
        ..BASE
    },
    Case {
        row: "C10 fatal",
        script: r#"hello; run; say "{\"t\":\"fatal\",\"ref_id\":\"$id\",\"error\":\"no key\",\"error_code\":\"BACKEND_AUTH_FAILED\"}"; exit 1"#,
        code: ErrorCode::BackendAuthFailed,
        says: "gave up: no key",
        exit: Some(Exit::Code(1)),
        ..BASE
    },
    Case {
        row: "C10 fatal as an object, before hello",
        script: r#"say '{"t":"fatal","error":{"code":"backend_rate_limited","message":"slow down"}}'"#,
        code: ErrorCode::BackendRateLimited,
        says: "gave up: slow down",
        ..BASE
    },
    Case {
        row: "C11 final and no exit",
        script: "trap '' TERM; hello; run; event a; final; while :; do sleep 1; done",
        code: ErrorCode::BackendTimeout,
        says: "did not exit within 300ms",
        events: 1,
        exit: Some(Exit::Signal(9)),
        setup: |spec| spec.timing.exit.before_term = Duration::from_millis(300),
    },
    Case {
        row: "C16 no pongs",
        script: "hello; run; while :; do event a; sleep 0.05; done",
        code: ErrorCode::BackendTimeout,
        says: "3 pings in a row were not answered",
        events: usize::MAX,
        setup: |spec| {
            spec.timing.ping_interval = Duration::from_millis(100);
            spec.timing.pong = Duration::from_millis(100);
        },
        ..BASE
    },
    Case {
        row: "C16 stalled but answering",
        script: r#"hello; run; while read -r line; do n=${line#*'"seq":'}; n=${n%%'}'*}; say "{\"t\":\"pong\",\"seq\":$n}"; done"#,
        code: ErrorCode::BackendTimeout,
        says: "no event for 1.5s",
        setup: |spec| {
            spec.timing.ping_interval = Duration::from_millis(200);
            spec.timing.pong = Duration::from_secs(5);
            spec.timing.progress = Duration::from_millis(1_500);
        },
        ..BASE
    },
    Case {
        row: "C16 too long",
        script: "hello; run; while :; do event a; sleep 0.05; done",
        code: ErrorCode::BackendTimeout,
        says: "the run took longer than 400ms",
        events: usize::MAX,
        setup: |spec| spec.timing.run = Some(Duration::from_millis(400)),
        ..BASE
    },
    Case {
        row: "C23 a tool name with a control character",
        script: r#"hello; run; say "{\"t\":\"event\",\"ref_id\":\"$id\",\"event\":{\"ts\":\"2026-01-01T00:00:00Z\",\"type\":\"tool_call\",\"tool_name\":\"a\\u001b[2J\",\"input\":{}}}"; sleep 60"#,
        code: ErrorCode::ProtocolInvalidEnvelope,
        says: "tool_name has a control character",
        ..BASE
    },
    Case {
        row: "C23 an id of a megabyte",
        script: r#"hello; run; long=$(head -c 1000000 /dev/zero | tr '\0' x); say "{\"t\":\"event\",\"ref_id\":\"$id\",\"event\":{\"ts\":\"2026-01-01T00:00:00Z\",\"type\":\"session_started\",\"session_id\":\"$long\"}}"; sleep 60"#,
        code: ErrorCode::ProtocolInvalidEnvelope,
        says: "session_id has 1000000 bytes",
        ..BASE
    },
];

/// A work order larger than a pipe holds, for those who do not read it.
async fn check(case: &'static Case) {
    let (mut spec, mark) = shell(case.script);
    (case.setup)(&mut spec);
    let failed = if case.row.starts_with("C7") {
        let mut large = order();
        large.task = "x".repeat(1_000_000);
        let client = SidecarClient::spawn(spec).await.unwrap();
        let mut run = client.run(Uuid::new_v4(), &large).unwrap();
        assert!(run.next_events().await.is_none());
        (Vec::new(), run.finish().await.result.unwrap_err())
    } else {
        failure(spec).await
    };
    assert_eq!(mark.processes(), [], "{}: left behind", case.row);
    let (events, failed) = failed;
    if case.events != usize::MAX {
        assert_eq!(events.len(), case.events, "{}: {events:?}", case.row);
    }
    let (exit, tail) = (failed.exit, failed.stderr_tail.clone());
    if let Some(expected) = case.exit {
        assert_eq!(exit, Some(expected), "{}", case.row);
    }
    let error = AbpError::from(failed);
    assert_eq!(error.code(), case.code, "{}: {error}", case.row);
    assert!(
        error.to_string().contains(case.says),
        "{}: {error}",
        case.row
    );
    // The receipt carries what the process left: its end, and its last words.
    match exit {
        Some(Exit::Code(code)) => assert_eq!(error.context()["exit_code"], code),
        Some(Exit::Signal(signal)) => assert_eq!(error.context()["signal"], signal),
        Some(Exit::Unknown) | None => panic!("{}: the end was not seen", case.row),
    }
    if case.script.contains(">&2") {
        assert_eq!(error.context()["stderr_tail"], tail);
        assert!(!tail.is_empty(), "{}", case.row);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_to_c23_every_fault_is_one_typed_error() {
    let mut checks: JoinSet<()> = CASES.iter().map(check).collect();
    while let Some(done) = checks.join_next().await {
        if let Err(error) = done {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// Kinds of events that are the host's own statements. Nothing after one counts.
#[tokio::test]
async fn c9_c21_a_sidecar_cannot_speak_for_the_host() {
    let action = r#""tool_name":"Bash","reason":"r""#;
    let resolved = format!(r#"{action},"outcome":"approved","decided_by":"somebody""#);
    let adapted = r#""adaptation":{"event":"a","from":"b","to":"c","reason":"d"}"#;
    for (kind, members) in [
        ("run_started", r#""message":"m""#),
        ("run_completed", r#""message":"m""#),
        ("permission_requested", action),
        ("permission_resolved", &resolved),
        ("adapted", adapted),
        ("permission_resolved", r#""incomplete":1"#),
    ] {
        // In the same write as its neighbours, and in writes of its own.
        for pause in ["", "sleep 0.1;"] {
            let script = format!(
                "hello; run; event a; {pause} kind {kind} '{members}'; {pause} event b; event c; final; exit 0"
            );
            let (spec, mark) = shell(&script);
            let (events, failed) = failure(spec).await;
            assert_eq!(events.len(), 1, "{kind}: {events:?}");
            let code = failed.error.code();
            assert_eq!(
                code,
                ErrorCode::ProtocolUnexpectedMessage,
                "{kind}: {failed}"
            );
            let says = format!("an event of the kind {kind:?}, which only the host sends");
            assert!(failed.to_string().contains(&says), "{failed}");
            assert_eq!(mark.processes(), []);
        }
    }
    // Events that wait for a slow reader are not recorded either.
    let started = r#"kind run_started '"message":"m"'"#;
    let script = format!("hello; run; {started}; sleep 0.1; event late; sleep 60");
    let (spec, _) = shell(&script);
    let client = SidecarClient::spawn(spec).await.unwrap();
    let mut slow = client.run(Uuid::new_v4(), &order()).unwrap();
    tokio::time::sleep(Duration::from_millis(600)).await;
    while let Some(events) = slow.next_events().await {
        assert!(events.is_empty(), "{events:?}");
    }
    assert!(slow.finish().await.result.is_err());
    // Usage is a claim that a backend may make.
    let usage = r#"kind usage_updated '"usage":{"input_tokens":1}'"#;
    let (spec, _) = shell(&format!("hello; run; {usage}; final; exit 0"));
    let (events, ended) = run(spec).await.unwrap();
    assert_eq!((events.len(), ended.result.is_ok()), (1, true));
}

/// The exit and the end of standard error are in the error, without secrets.
#[tokio::test]
async fn c10_an_error_tells_how_the_process_ended_and_what_it_said() {
    let say = "echo \"lost with $MY_KEY\" >&2";
    for (script, exit) in [
        (format!("{say}; exit 3"), "exit code 3"),
        (format!("hello; run; {say}; exit 42"), "exit code 42"),
        (
            format!("hello; run; {say}; kill -9 $$"),
            "signal 9 (SIGKILL)",
        ),
        (
            format!("hello; run; {say}; echo noise; sleep 60"),
            "signal 9 (SIGKILL)",
        ),
        (
            format!(
                r#"hello; run; {say}; say "{{\"t\":\"fatal\",\"ref_id\":\"$id\",\"error\":\"no\"}}"; exit 5"#
            ),
            "exit code 5",
        ),
    ] {
        let (mut spec, _) = shell(&script);
        spec.env
            .insert("MY_KEY".to_owned(), "canary-0123456789".to_owned());
        spec.secrets = vec!["canary-0123456789".into()];
        let (_, failed) = failure(spec).await;
        let error = AbpError::from(failed);
        let context = error.context();
        assert_eq!(context["exit"], exit, "{script}");
        assert_eq!(context["stderr_tail"], "lost with [redacted]\n", "{script}");
    }
}

#[tokio::test]
async fn c10_a_program_that_is_not_there_is_a_spawn_failure() {
    let (spec, mark) = sidecar("no-such-program-anywhere", &[]);
    let (_, failed) = failure(spec).await;
    let error = AbpError::from(failed);
    assert_eq!(error.code(), ErrorCode::SidecarSpawnFailed);
    let cause = error.cause_chain().unwrap();
    assert!(cause.contains("no-such-program-anywhere"), "{cause}");
    mark.gone_within(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn c4_c5_c9_what_is_odd_but_allowed_is_told_and_goes_on() {
    let script = r#"echo "starting up"; printf '\r\n\n'; hello; run; printf '%s\r\n' '{"t":"progress_v9","x":1}';
        say '{"t":"ping","seq":4}'; read -r pong; case $pong in *pong*4*) event pong;; esac; event a; final; cat >/dev/null"#;
    let (spec, mark) = shell(script);
    let (events, ended) = run(spec).await.unwrap();
    let texts: Vec<_> = events
        .iter()
        .map(|event| match &event.kind {
            AgentEventKind::AssistantDelta { text } => text.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(texts, ["pong", "a"]);
    assert_eq!(
        ended.result.unwrap().usage_raw,
        serde_json::json!({"tokens": 7})
    );
    let warnings = ended.warnings.join("\n");
    assert!(warnings.contains("starting up"), "{warnings}");
    assert!(warnings.contains("progress_v9"), "{warnings}");
    assert_eq!(mark.processes(), []);
}

#[tokio::test]
async fn c24_a_sidecar_has_one_run() {
    // The client is used up by its run, so a second one cannot even be written; what a sidecar gets
    // is one `run` line, and then the end of its input.
    let script = "hello; run; final; n=0; while read -r line; do n=$((n+1)); done; exit $n";
    let (spec, _) = shell(script);
    let (_, ended) = run(spec).await.unwrap();
    assert!(ended.result.is_ok(), "{ended:?}");
}

#[tokio::test]
async fn c17_cancel_and_final_race_to_one_end() {
    // The sidecar ends at once or on cancel, whichever comes first; over many rounds both win.
    let script = "hello; run; event a; [ $RACE = now ] && final && exit 0; read -r cancel; event b; final; exit 0";
    let mut rounds = JoinSet::new();
    for round in 0..40 {
        let (mut spec, mark) = shell(script);
        let race = if round % 2 == 0 { "now" } else { "later" };
        spec.env.insert("RACE".to_owned(), race.to_owned());
        // Forty sidecars at once may be slow to answer; being killed is not what is looked at here.
        spec.timing.cancel.before_term = Duration::from_secs(20);
        rounds.spawn(async move {
            let client = SidecarClient::spawn(spec).await.unwrap();
            let mut run = client.run(Uuid::new_v4(), &order()).unwrap();
            let cancel = run.cancel_token();
            let mut events = 0;
            while let Some(batch) = run.next_events().await {
                events += batch.len();
                cancel.cancel("user");
            }
            let ended = run.finish().await;
            assert!(ended.result.is_ok(), "{race}: {ended:?}");
            assert_eq!(events, if race == "now" { 1 } else { 2 });
            assert_eq!(mark.processes(), []);
        });
    }
    rounds.join_all().await;
}
