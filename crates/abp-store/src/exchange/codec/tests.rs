//! Records as bytes and back.

use proptest::prelude::*;

use super::*;

/// A plain record.
pub(crate) fn record(run_id: u128) -> ExchangeRecord {
    ExchangeRecord {
        run_id: Uuid::from_u128(run_id),
        principal: "k_0123456789".to_owned(),
        started_at: Timestamp::from_unix_millis(1_700_000_000_000),
        duration_us: 1_234_567,
        first_byte_us: Some(345_678),
        caller_dialect: "openai".to_owned(),
        upstream: "anthropic".to_owned(),
        upstream_dialect: "claude".to_owned(),
        model_asked: "gpt".to_owned(),
        model_sent: "claude".to_owned(),
        operation: "generate".to_owned(),
        streamed: true,
        mode: ExecutionMode::Mapped,
        status: 200,
        outcome: Outcome::Complete,
        error_code: None,
        attempts: 1,
        request_sha256: [1; 32],
        sent_sha256: [2; 32],
        received_sha256: [3; 32],
        delivered_sha256: [4; 32],
        request_bytes: 1000,
        response_bytes: 2000,
        usage: ExchangeUsage {
            input_tokens: Some(10),
            output_tokens: Some(20),
            ..ExchangeUsage::default()
        },
        cost: Some(MicroUsd::from_micros(30)),
        cost_is_estimate: true,
        ledger: Some([5; 32]),
        emulated: vec!["stop_sequences".to_owned()],
        client_closed: false,
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z0-9_.-]{0,20}",
        1 => "\\PC{0,120}",
        1 => (0..40_usize).prop_map(|n| "é".repeat(90 + n)),
    ]
}

prop_compose! {
    fn records()(
        texts in prop::array::uniform7(text()),
        hashes in prop::array::uniform4(any::<[u8; 32]>()),
        numbers in any::<[u64; 3]>(),
        optional in any::<[Option<u64>; 7]>(),
        switches in any::<[bool; 4]>(),
        (run_id, millis, status, attempts, outcome) in
            (any::<u128>(), any::<i64>(), any::<u16>(), any::<u8>(), 0..4_u8),
        (ledger, error, emulated) in (
            any::<Option<[u8; 32]>>(),
            prop::option::of(text()),
            prop_oneof![
                9 => prop::collection::vec(text(), 0..6),
                1 => prop::collection::vec(text(), 0..400),
            ],
        ),
    ) -> ExchangeRecord {
        let [principal, caller_dialect, upstream, upstream_dialect, model_asked, model_sent, operation] = texts;
        let [request_sha256, sent_sha256, received_sha256, delivered_sha256] = hashes;
        let [duration_us, request_bytes, response_bytes] = numbers;
        let [first_byte_us, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, request_units, cost] = optional;
        let [streamed, mapped, cost_is_estimate, client_closed] = switches;
        ExchangeRecord {
            run_id: Uuid::from_u128(run_id), principal,
            started_at: Timestamp::from_unix_millis(millis), duration_us, first_byte_us,
            caller_dialect, upstream, upstream_dialect, model_asked, model_sent, operation, streamed,
            mode: if mapped { ExecutionMode::Mapped } else { ExecutionMode::Passthrough },
            status, outcome: outcome_of(outcome).expect("an outcome"), error_code: error, attempts,
            request_sha256, sent_sha256, received_sha256, delivered_sha256, request_bytes, response_bytes,
            usage: ExchangeUsage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, request_units },
            cost: cost.map(MicroUsd::from_micros), cost_is_estimate, ledger, emulated, client_closed,
        }
    }
}

/// What a record should look like when it is read.
fn as_kept(record: &ExchangeRecord) -> ExchangeRecord {
    let mut kept = record.clone();
    for text in [
        &mut kept.principal,
        &mut kept.caller_dialect,
        &mut kept.upstream,
        &mut kept.upstream_dialect,
        &mut kept.model_asked,
        &mut kept.model_sent,
        &mut kept.operation,
    ]
    .into_iter()
    .chain(&mut kept.error_code)
    .chain(&mut kept.emulated)
    {
        while text.len() > 200 {
            text.pop();
        }
    }
    kept
}

proptest! {
    #[test]
    fn a_record_is_read_as_it_was_written(record in records()) {
        let bytes = encode(&record);
        prop_assert!(bytes.len() <= MAX_RECORD_BYTES);
        prop_assert_eq!(run_id_of(&bytes), Some(record.run_id));
        let read = decode(&bytes).expect("readable");
        prop_assert_eq!(&encode(&read), &bytes, "one spelling");
        let mut expected = as_kept(&record);
        if read.emulated.len() != expected.emulated.len()
            || read.emulated.last() != expected.emulated.last()
        {
            let kept = read.emulated.len() - 1;
            let more = format!("+{} more", expected.emulated.len() - kept);
            expected.emulated.truncate(kept);
            expected.emulated.push(more);
        }
        prop_assert_eq!(read, expected);
    }

    /// Whatever can be read has the one spelling that is written; nothing makes it panic.
    #[test]
    fn any_other_bytes_are_refused(
        record in records(), place in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let mut bytes = encode(&record);
        let place = place.index(bytes.len());
        if cut {
            bytes.truncate(place);
            prop_assert!(decode(&bytes).is_err());
        } else {
            bytes[place] = byte;
            if let Ok(read) = decode(&bytes) {
                prop_assert_eq!(encode(&read), bytes);
            }
        }
    }
}

#[test]
fn what_is_not_a_record_is_named() {
    let plain = encode(&record(1));
    let changed = |place: usize, byte: u8| {
        let mut bytes = plain.clone();
        bytes[place] = byte;
        bytes
    };
    let last = plain.len() - 1;
    for (bytes, expected) in [
        (Vec::new(), RecordProblem::Short),
        (changed(0, 2), RecordProblem::Version(2)),
        (changed(0, 0), RecordProblem::Version(0)),
        (changed(24, 0x7f), RecordProblem::Value("the time")),
        (changed(26, 0x80), RecordProblem::Value("a flag")),
        (changed(29, 4), RecordProblem::Value("the outcome")),
        (changed(FIXED + 4, 0), RecordProblem::Value("a number")),
        (changed(last, 0xff), RecordProblem::Value("a text")),
        ([plain.as_slice(), &[0]].concat(), RecordProblem::Long),
    ] {
        assert_eq!(decode(&bytes), Err(expected), "{bytes:?}");
    }
}

/// The form in which records are stored and sealed must not change.
#[test]
fn the_form_is_stable() {
    let bytes = encode(&record(7));
    assert_eq!(
        abp_receipt::Hash::of(&bytes).to_string(),
        "10155c9c809ca0e9a8d885eb7b407017743f91733e123e0ac706b16c68b10ec5",
        "a new form is a new version"
    );
}
