//! Receipts that prove themselves, and everything that can be wrong with one.

use std::sync::LazyLock;

use abp_receipt::{
    DsseEnvelope, EnvelopeError, ExportError, ExportedReceipt, RECEIPT_PAYLOAD_TYPE, SigningKey,
};
use proptest::prelude::*;

use crate::world::{World, document, key, named_key, receipt, ring};

/// What kind of error it is.
fn kind(error: &ExportError) -> &'static str {
    match error {
        ExportError::Malformed { .. } => "malformed",
        ExportError::Envelope(EnvelopeError::PayloadType { .. }) => "payload type",
        ExportError::Envelope(EnvelopeError::BadSignature(_)) => "envelope signature",
        ExportError::Envelope(EnvelopeError::UnknownKey { .. }) => "envelope key",
        ExportError::Envelope(_) => "envelope",
        ExportError::Checkpoint(_) => "checkpoint",
        ExportError::Rotation(_) => "rotation",
        ExportError::Receipt(_) => "receipt",
        ExportError::NotAnEnd => "not an end",
        ExportError::WrongRun { .. } => "wrong run",
        ExportError::WrongReceipt { .. } => "wrong receipt",
        ExportError::WrongOrigin { .. } => "wrong origin",
        ExportError::Proof(_) => "proof",
        _ => "other",
    }
}

/// E19: the public key is all it takes.
#[test]
fn e19_verifies_offline() {
    let bundle = World::four_runs()
        .export(2, &key(1))
        .to_json()
        .expect("plain data");
    let read = ExportedReceipt::from_json(&bundle).expect("its own form");
    assert_eq!(read.verify(&ring(&key(1))).expect("good"), receipt(2));
    let twice = String::from_utf8(bundle.clone()).expect("JSON");
    let twice = twice.replacen('{', r#"{"x":1,"x":2,"#, 1);
    assert!(ExportedReceipt::from_json(twice.as_bytes()).is_err());
    let envelope: serde_json::Value = serde_json::from_slice(&bundle).expect("JSON");
    let envelope = &envelope["envelope"];
    assert_eq!(envelope["payloadType"], RECEIPT_PAYLOAD_TYPE);
    let public = key(1).verifying_key().clone();
    let keyid = format!("{}+{}", public.name(), public.id());
    assert_eq!(envelope["signatures"][0]["keyid"], keyid);
    let document = document(2);
    let head = format!("DSSEv1 32 {RECEIPT_PAYLOAD_TYPE} {} ", document.len());
    let signed = [head.as_bytes(), &document].concat();
    let signature = key(1).sign(&signed).to_string();
    assert_eq!(envelope["signatures"][0]["sig"], signature);
}

/// The receipt of run 2 with its content edited and its hashes made right again.
fn edited() -> Vec<u8> {
    let mut edited = receipt(2);
    edited.backend.id = "another".to_owned();
    let edited = edited.with_hash().expect("a plain receipt");
    edited.to_document().expect("a plain receipt")
}

/// E2, E6: every part of the bundle replaced by something that is good in itself.
#[test]
fn e2_e6_each_part_has_its_error() {
    let world = World::four_runs();
    let envelope =
        |document, key: &SigningKey| DsseEnvelope::sign(RECEIPT_PAYLOAD_TYPE, document, key);
    let check = |name: &str, expected: &str, change: &dyn Fn(&mut ExportedReceipt)| {
        let mut bundle = world.export(2, &key(1));
        change(&mut bundle);
        let error = bundle.verify(&ring(&key(1))).expect_err(name);
        assert_eq!(kind(&error), expected, "{name}: {error}");
    };
    check(
        "edited, rehashed, signed by nobody",
        "envelope signature",
        &|bundle| {
            let mut json = serde_json::to_value(&bundle.envelope).expect("plain data");
            let forged = envelope(edited(), &key(1));
            json["payload"] = serde_json::to_value(forged).expect("plain data")["payload"].take();
            bundle.envelope = serde_json::from_value(json).expect("an envelope");
        },
    );
    check(
        "edited, rehashed, signed by another key",
        "envelope key",
        &|bundle| {
            bundle.envelope = envelope(edited(), &key(9));
        },
    );
    check(
        "signed by a key of another log",
        "envelope key",
        &|bundle| {
            bundle.envelope = envelope(document(2), &named_key("example.org/other", 1));
        },
    );
    check(
        "edited, rehashed, signed by the owner",
        "wrong receipt",
        &|bundle| {
            bundle.envelope = envelope(edited(), &key(1));
        },
    );
    check("the receipt of another run", "wrong run", &|bundle| {
        bundle.envelope = envelope(document(1), &key(1));
    });
    check("not rehashed", "receipt", &|bundle| {
        let document = String::from_utf8(document(2)).expect("JSON");
        let document = document.replace("\"mock\"", "\"mocc\"");
        bundle.envelope = envelope(document.into_bytes(), &key(1));
    });
    check("something else", "payload type", &|bundle| {
        bundle.envelope = DsseEnvelope::sign("text/plain", document(2), &key(1));
    });
    check("a start", "not an end", &|bundle| {
        bundle.proof.entry = world.stored[2].entry.clone();
    });
    check("an entry of another log", "wrong origin", &|bundle| {
        bundle.proof.entry.origin = "example.org/other".to_owned();
    });
    check("another place", "proof", &|bundle| {
        bundle.proof.entry.seq += 1;
    });
    check("another time", "proof", &|bundle| {
        bundle.proof.entry.at = bundle.proof.entry.at.plus_millis(1);
    });
    check("a path too short", "proof", &|bundle| {
        bundle.proof.path.truncate(1);
    });
    check("a checkpoint from before", "proof", &|bundle| {
        bundle.proof.checkpoint = world.checkpoints[0].clone();
    });
    check("another key's checkpoint", "checkpoint", &|bundle| {
        let unsigned = bundle.proof.checkpoint.checkpoint().clone();
        bundle.proof.checkpoint = unsigned.sign(&key(9)).expect("of that name");
    });
    check("an entry that is no rotation", "rotation", &|bundle| {
        bundle.rotations.push(world.stored[0].entry.clone());
    });
    check("too many rotations", "malformed", &|bundle| {
        bundle.rotations = vec![world.stored[0].entry.clone(); 1_001];
    });
}

/// E18: who trusts the first key follows the rotations that come with the receipt.
#[test]
fn e18_rotations_travel_with_the_receipt() {
    let (old, new) = (key(1), key(2));
    let mut world = World::four_runs();
    world.rotate(&old, &new);
    world.sign(&new);
    let mut bundle = world.export(2, &new);
    let error = bundle.verify(&ring(&old)).expect_err("not followed");
    assert_eq!(kind(&error), "checkpoint");
    bundle.rotations.push(world.stored[7].entry.clone());
    for trusted in [&old, &new] {
        assert!(bundle.verify(&ring(trusted)).is_ok(), "{trusted:?}");
    }
    let mut by_the_old_key = world.export(2, &old);
    by_the_old_key.rotations = bundle.rotations;
    let error = by_the_old_key.verify(&ring(&old)).expect_err("retired");
    assert_eq!(kind(&error), "envelope");
}

static BUNDLE: LazyLock<ExportedReceipt> = LazyLock::new(|| World::four_runs().export(2, &key(1)));

proptest! {
    /// E1: a bundle with any byte changed is refused, unless it still says the same.
    #[test]
    fn e1_any_byte(place in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let bundle = &*BUNDLE;
        let mut bytes = bundle.to_json().expect("plain data");
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        if let Ok(read) = ExportedReceipt::from_json(&bytes)
            && read.verify(&ring(&key(1))).is_ok()
        {
            prop_assert_eq!(&read, bundle);
        }
    }
}
