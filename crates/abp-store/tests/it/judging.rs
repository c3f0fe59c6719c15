//! Files that claim to be receipts, judged by the log of a state directory.

use std::path::Path;

use abp_receipt::{KeyRing, ProofMissing, ReceiptProvenBy, ReceiptVerdict};
use abp_store::ReceiptJudge;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::damage::{change, copy};
use crate::lab::{accepted, finish, open, receipt};

async fn judge(state_dir: Option<&Path>, keys: Option<KeyRing>, file: &[u8]) -> ReceiptVerdict {
    let judge = ReceiptJudge::open(state_dir, keys).await;
    let verdict = judge.judge(file).await;
    judge.close().await;
    verdict
}

/// A receipt with other content whose hash was made right again.
fn forged(document: &[u8]) -> Vec<u8> {
    let mut forged: Value = serde_json::from_slice(document).expect("JSON");
    forged["usage_raw"] = json!({"note": "nothing happened"});
    forged["member_sha256"] = json!({});
    let receipt: abp_core::Receipt = serde_json::from_value(forged).expect("a receipt");
    let receipt = receipt.with_hash().expect("a hash");
    receipt.to_document().expect("a document")
}

/// E2: a receipt is proven by the log that has it; a forged one is wrong where the log has the run,
/// and nothing more than consistent anywhere else.
#[tokio::test]
async fn e2_the_log_tells_a_receipt_from_a_forgery() {
    let dir = crate::lab::directory();
    let state = dir.path().join("state");
    let store = open(&state).await;
    let run = accepted(&store).await;
    finish(&store, run).await.expect("ended");
    store.rotate_key().await.expect("rotated");
    let running = accepted(&store).await;
    let first = store.first_key().await.expect("a key");
    let exported = store.export(run).await.expect("readable").expect("ended");
    let exported = exported.to_json().expect("plain data");
    let (real, _) = receipt(run, "done");
    let (early, _) = receipt(running, "done");
    let (foreign, _) = receipt(Uuid::now_v7(), "done");
    let by_log = ReceiptProvenBy::Log {
        origin: "example.org/log".to_owned(),
        seq: 1,
    };
    for is_open in [true, false] {
        let judge = async |file: &[u8]| judge(Some(&state), None, file).await;
        for file in [&real, &exported] {
            let verdict = judge(file).await;
            let proven = matches!(&verdict, ReceiptVerdict::Proven { by, .. } if *by == by_log);
            assert!(proven, "{verdict:?}");
        }
        for file in [&forged(&real), &early, &b"{}".to_vec()] {
            let verdict = judge(file).await;
            assert_eq!(verdict.name(), "wrong", "{verdict:?}");
        }
        let verdict = judge(&foreign).await;
        let because = ProofMissing::UnknownRun;
        let alone = matches!(&verdict, ReceiptVerdict::SelfConsistent { because: found, .. } if *found == because);
        assert!(alone, "{verdict:?}");
        if is_open {
            store.clone().close().await;
        }
    }
    for place in [None, Some(dir.path())] {
        for file in [&real, &forged(&real), &exported] {
            let verdict = judge(place, None, file).await;
            assert_eq!(verdict.name(), "self_consistent", "{verdict:?}");
        }
        let keys = Some(KeyRing::of(first.clone()));
        let verdict = judge(place, keys.clone(), &exported).await;
        let proven = matches!(
            &verdict,
            ReceiptVerdict::Proven {
                by: ReceiptProvenBy::Proof { .. },
                ..
            }
        );
        assert!(proven, "{verdict:?}");
        let verdict = judge(place, keys, &real).await;
        assert_eq!(verdict.name(), "self_consistent", "{verdict:?}");
    }
    let stranger = abp_receipt::SigningKey::from_seed("example.org/log", &[9; 32]);
    let stranger = KeyRing::of(stranger.expect("a key").verifying_key().clone());
    let verdict = judge(Some(&state), Some(stranger.clone()), &real).await;
    assert_eq!(verdict.name(), "self_consistent", "{verdict:?}");
    let verdict = judge(Some(&state), Some(stranger), &exported).await;
    assert_eq!(verdict.name(), "wrong", "{verdict:?}");
}

/// A log that is not the one that was signed vouches for nothing.
#[tokio::test]
async fn a_changed_log_vouches_for_nothing() {
    let dir = crate::lab::directory();
    let state = dir.path().join("state");
    let store = open(&state).await;
    let run = accepted(&store).await;
    finish(&store, run).await.expect("ended");
    accepted(&store).await;
    store.close().await;
    let (real, _) = receipt(run, "done");
    let forged = forged(&real);
    let hashes = [&real, &forged].map(|file| abp_core::document_hash(file).expect("a hash"));
    let rewritten = format!(
        "UPDATE log SET entry = replace(entry, '{}', '{}') WHERE seq = 1",
        hashes[0], hashes[1]
    );
    let edits: [&'static str; 6] = [
        Box::leak(rewritten.into_boxed_str()),
        "UPDATE log SET leaf = zeroblob(32) WHERE seq = 2",
        "DELETE FROM log WHERE seq = 0",
        "DELETE FROM log WHERE seq = 2",
        "DELETE FROM checkpoints",
        "UPDATE checkpoints SET note = replace(note, 'example.org/log
3', 'example.org/log
2')",
    ];
    for (place, edit) in edits.into_iter().enumerate() {
        let edited = dir.path().join(place.to_string());
        copy(&state, &edited);
        change(&edited.join("store.db"), edit).await;
        for file in [&real, &forged] {
            let verdict = judge(Some(&edited), None, file).await;
            let unusable = matches!(
                &verdict,
                ReceiptVerdict::SelfConsistent {
                    because: ProofMissing::UnusableLog { .. },
                    ..
                }
            );
            assert!(unusable, "{edit}: {verdict:?}");
        }
    }
    std::fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("changed");
    let verdict = judge(Some(&state), None, &real).await;
    assert_eq!(verdict.name(), "self_consistent", "{verdict:?}");
}
