//! Transcripts against the session, and random ones against a small model of the rules.

use std::time::Duration;

use proptest::prelude::*;

use super::{Due, Expired, Grace, Reaction, Received, Session, Timing, Violation};

const RUN: &str = "run-1";

fn timing() -> Timing {
    Timing {
        hello: secs(10),
        ping_interval: secs(30),
        pong: secs(10),
        max_missed_pongs: 3,
        progress: secs(100),
        run: Some(secs(1_000)),
        cancel: Grace {
            before_term: secs(1),
            before_kill: secs(1),
        },
        exit: Grace {
            before_term: secs(2),
            before_kill: secs(3),
        },
        noise_limit: 64,
        ..Timing::default()
    }
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn running() -> Session {
    let mut session = Session::new(timing(), secs(0));
    session.on_frame(Received::Hello, secs(0)).unwrap();
    assert!(session.start(RUN, secs(0)));
    session
}

/// Lets time pass second by second, answering as `answer` says, and lists what was due.
fn pass(
    session: &mut Session,
    seconds: std::ops::Range<u64>,
    mut answer: impl FnMut(&mut Session, u64, Due),
) -> Vec<(u64, Due)> {
    let mut dues = Vec::new();
    for second in seconds {
        while let Some(due) = session.due(secs(second)) {
            dues.push((second, due));
            answer(session, second, due);
        }
    }
    dues
}

fn pong(session: &mut Session, second: u64, due: Due) {
    if let Due::Ping { seq } = due {
        let action = session.on_frame(Received::Pong { seq }, secs(second));
        assert_eq!(action, Ok(Reaction::Nothing));
    }
}

#[test]
fn c8_hello_has_a_deadline() {
    let mut session = Session::new(timing(), secs(5));
    assert_eq!(session.due(secs(14)), None);
    assert_eq!(
        session.due(secs(15)),
        Some(Due::Expired(Expired::Hello(secs(10))))
    );
    assert_eq!(session.due(secs(99)), None, "an expired session is over");
}

#[test]
fn c16_liveness_and_progress_have_clocks_of_their_own() {
    // Events without pongs: livelocked.
    let mut session = running();
    let dues = pass(&mut session, 0..200, |session, second, due| {
        if matches!(due, Due::Ping { .. }) {
            let event = Received::Event { ref_id: Some(RUN) };
            session.on_frame(event, secs(second)).unwrap();
        }
    });
    assert_eq!(
        dues.last(),
        Some(&(100, Due::Expired(Expired::Pong { missed: 3 })))
    );
    // Pongs without events: stalled.
    let mut session = running();
    let dues = pass(&mut session, 0..200, pong);
    assert_eq!(
        dues.last(),
        Some(&(100, Due::Expired(Expired::Progress(secs(100)))))
    );
    assert_eq!(dues.len(), 4, "{dues:?}");
    // A late pong counts, one to no ping does not.
    let mut session = running();
    let late = pass(&mut session, 0..80, |_, _, _| {});
    assert_eq!(
        late,
        [(30, Due::Ping { seq: 1 }), (60, Due::Ping { seq: 2 })]
    );
    let lie = session.on_frame(Received::Pong { seq: 7 }, secs(80));
    assert_eq!(lie, Ok(Reaction::Warn));
    let late = session.on_frame(Received::Pong { seq: 1 }, secs(80));
    assert_eq!(late, Ok(Reaction::Nothing));
    let after = pass(&mut session, 80..100, |_, _, _| {});
    assert_eq!(after, [(90, Due::Ping { seq: 3 })]);
}

#[test]
fn c18_a_reader_that_is_slow_is_not_the_sidecars_fault() {
    let mut session = running();
    session.hold(secs(10));
    assert_eq!(pass(&mut session, 10..500, pong), []);
    session.release(secs(500));
    let dues = pass(&mut session, 500..700, pong);
    assert_eq!(dues.first(), Some(&(520, Due::Ping { seq: 1 })));
    assert_eq!(
        dues.last(),
        Some(&(590, Due::Expired(Expired::Progress(secs(100)))))
    );
    // The limit on the whole run holds all the same.
    let mut session = running();
    session.hold(secs(0));
    assert_eq!(
        pass(&mut session, 0..2_000, pong),
        [(1_000, Due::Expired(Expired::Run(secs(1_000))))]
    );
}

#[test]
fn c11_c17_the_end_is_by_force_where_it_must_be() {
    let final_frame = Received::Final { ref_id: Some(RUN) };
    let mut session = running();
    session.on_frame(final_frame, secs(10)).unwrap();
    assert_eq!(
        pass(&mut session, 10..60, pong),
        [(12, Due::Terminate), (15, Due::Kill)]
    );
    // A cancelled run has less time, and a final does not give it more.
    for answered in [false, true] {
        let mut session = running();
        assert!(session.cancel(secs(10)));
        assert!(!session.cancel(secs(10)), "cancelled once only");
        if answered {
            assert_eq!(
                session.on_frame(final_frame, secs(10)),
                Ok(Reaction::Finish)
            );
        }
        assert_eq!(
            pass(&mut session, 10..60, pong),
            [(11, Due::Terminate), (12, Due::Kill)]
        );
    }
    // After a final there is nothing left to cancel.
    let mut session = running();
    session.on_frame(final_frame, secs(10)).unwrap();
    assert!(!session.cancel(secs(10)));
}

#[test]
fn every_moment_something_is_due_is_announced() {
    for answers in [true, false] {
        let mut session = running();
        let mut now = secs(0);
        while let Some(next) = session.next_due() {
            assert!(next > now, "nothing changed at the announced {now:?}");
            now = next;
            let due = session.due(now);
            if let (true, Some(Due::Ping { seq })) = (answers, due) {
                session.on_frame(Received::Pong { seq }, now).unwrap();
            }
        }
        assert_eq!(now, secs(100));
    }
}

/// The rules as a table: the next stage, or the kind of breach.
fn model(stage: u8, noise: &mut usize, received: Received<'_>) -> Result<u8, &'static str> {
    use Received::{Event, Fatal, Final, Hello, HostsOnly, Noise, Ping, Pong, Question, Unknown};
    let names_run = |ref_id: Option<&str>| match ref_id {
        Some(RUN) => Ok(()),
        Some(_) => Err("wrong"),
        None => Err("missing"),
    };
    match (stage, received) {
        (_, Unknown) => Ok(stage),
        (_, HostsOnly { .. }) => Err("hosts"),
        (0, Hello) => Ok(1),
        (0, Noise { bytes }) => {
            *noise += bytes;
            if *noise > 64 { Err("noise") } else { Ok(0) }
        }
        (0 | 1, Fatal { ref_id: None }) => Ok(3),
        (0, _) => Err("first"),
        (_, Hello) => Err("hello"),
        (_, Noise { .. }) => Err("noise"),
        (_, Ping { .. } | Pong { .. }) => Ok(stage),
        (1, _) => Err("no run"),
        (2, Event { ref_id } | Question { ref_id }) => names_run(ref_id).map(|()| 2),
        (2, Final { ref_id }) => names_run(ref_id).map(|()| 3),
        (2, Fatal { ref_id }) => ref_id.map_or(Ok(3), |id| names_run(Some(id)).map(|()| 3)),
        (_, Event { .. } | Question { .. } | Final { .. } | Fatal { .. }) => Err("after"),
    }
}

fn breach(violation: &Violation) -> &'static str {
    match violation {
        Violation::NotHello { .. } => "first",
        Violation::SecondHello => "hello",
        Violation::NoRun { .. } => "no run",
        Violation::MissingRefId { .. } => "missing",
        Violation::WrongRefId { .. } => "wrong",
        Violation::AfterEnd { .. } => "after",
        Violation::HostsOnly { .. } => "hosts",
        Violation::Noise | Violation::TooMuchNoise { .. } => "noise",
    }
}

fn received() -> impl Strategy<Value = Received<'static>> {
    let ref_id = || prop_oneof![8 => Just(Some(RUN)), 1 => Just(Some("other")), 1 => Just(None)];
    prop_oneof![
        3 => Just(Received::Hello),
        6 => ref_id().prop_map(|ref_id| Received::Event { ref_id }),
        2 => ref_id().prop_map(|ref_id| Received::Question { ref_id }),
        2 => ref_id().prop_map(|ref_id| Received::Final { ref_id }),
        1 => ref_id().prop_map(|ref_id| Received::Fatal { ref_id }),
        1 => (0u64..3).prop_map(|seq| Received::Ping { seq }),
        2 => (0u64..3).prop_map(|seq| Received::Pong { seq }),
        1 => Just(Received::HostsOnly { kind: "run" }),
        2 => Just(Received::Unknown),
        2 => (0usize..40).prop_map(|bytes| Received::Noise { bytes }),
    ]
}

proptest! {
    #[test]
    fn c9_the_session_keeps_the_rules(
        before in prop::collection::vec(received(), 0..5),
        after in prop::collection::vec(received(), 0..12),
        proper in any::<bool>(),
    ) {
        let mut session = Session::new(timing(), secs(0));
        let (mut stage, mut noise) = (0, 0);
        // Half of the cases begin as they should, or most would end at their first message.
        let before = if proper { vec![Received::Hello] } else { before };
        let run = std::iter::once(None);
        let steps = before.into_iter().map(Some).chain(run).chain(after.into_iter().map(Some));
        for step in steps {
            let Some(received) = step else {
                prop_assert_eq!(session.start(RUN, secs(0)), stage == 1);
                stage = if stage == 1 { 2 } else { stage };
                continue;
            };
            let expected = model(stage, &mut noise, received);
            let got = session.on_frame(received, secs(0));
            prop_assert_eq!(
                expected.err(),
                got.as_ref().err().map(breach),
                "{:?} in stage {}", received, stage
            );
            let Ok(next) = expected else {
                prop_assert_eq!(session.next_due(), None, "a broken session is over");
                return Ok(());
            };
            stage = next;
            prop_assert_eq!(session.is_ready(), stage == 1);
            prop_assert_eq!(session.is_closing(), stage == 3);
        }
    }
}

#[test]
fn silence_counts_from_the_answer_to_the_last_question() {
    let mut session = Session::new(timing(), secs(0));
    session.on_frame(Received::Hello, secs(0)).unwrap();
    assert!(session.start(RUN, secs(0)));
    assert!(!session.answer_question(secs(0)), "nothing was asked");
    let question = Received::Question { ref_id: Some(RUN) };
    assert_eq!(session.on_frame(question, secs(1)), Ok(Reaction::Deliver));
    let quiet = timing().progress;
    let expired = |session: &mut Session, now: Duration| {
        let mut due = std::iter::from_fn(|| match session.due(now)? {
            Due::Ping { seq } => {
                session.on_frame(Received::Pong { seq }, now).unwrap();
                Some(false)
            }
            Due::Expired(Expired::Progress(_)) => Some(true),
            other => panic!("{other:?}"),
        });
        due.any(|expired| expired)
    };
    let mut now = secs(1);
    while now < quiet * 3 {
        now += secs(1);
        assert!(!expired(&mut session, now), "{now:?}");
    }
    assert!(session.answer_question(now));
    while !expired(&mut session, now) {
        now += secs(1);
    }
    assert!(now >= quiet * 4 && now <= quiet * 4 + secs(1), "{now:?}");
}
