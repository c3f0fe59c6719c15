//! What a verifier finds in a log: every attack under the promise it breaks.

use abp_receipt::{
    Checkpoint, EntryKind, Hash, LogEntry, LogHead, LogProblem, Promise, StoredReceipt,
    consistency_proof,
};
use proptest::prelude::*;

use crate::world::{ORIGIN, World, at, key, named_key, ring, run};

/// Verifies a changed log and compares what is found.
fn check(name: &str, expected: &[&str], change: impl FnOnce(&mut World)) {
    let mut world = World::four_runs();
    change(&mut world);
    assert_eq!(world.problems(), expected, "{name}");
}

fn other_order(kind: &mut EntryKind) {
    let (EntryKind::RunStarted {
        work_order_sha256: hash,
        ..
    }
    | EntryKind::RunEnded {
        receipt_sha256: hash,
        ..
    }) = kind
    else {
        return;
    };
    *hash = Hash::of(b"something else");
}

#[test]
fn an_honest_log_is_ok() {
    let world = World::four_runs();
    let report = world.verify();
    assert!(report.is_ok(), "{:?}", report.problems);
    assert_eq!((report.size, report.signed_size), (7, 7));
    assert_eq!(report.root, world.head.root());
    assert_eq!(report.open_runs, [run(4)]);
}

/// What is stored and signed must not change its form.
#[test]
fn forms_are_stable() {
    let mut world = World::new();
    world.start(1);
    world.rotate(&key(1), &key(2));
    let hash = Hash::of(b"order");
    world.append(EntryKind::ExchangesSealed {
        count: 7,
        root: hash,
    });
    let stored = world.stored.clone();
    let text = |index: usize| String::from_utf8(stored[index].bytes.clone()).expect("JSON");
    let started = format!(
        r#"{{"at":"2023-11-14T22:13:20.000Z","kind":{{"run_id":"00000000-0000-0000-0000-000000000001","type":"run_started","work_order_sha256":"{hash}"}},"origin":"example.org/log","seq":0}}"#
    );
    assert_eq!(text(0), started);
    for other in [
        started.replace(':', ": "),
        started.replace(".000Z", "Z"),
        started.replace("\"seq\":0", "\"seq\":0,\"more\":1"),
        started.replace("\"seq\":0", "\"seq\":0,\"seq\":0"),
        started.replace("example.org/log", "two words"),
        started.replace("\"seq\":0", "\"seq\":9007199254740992"),
    ] {
        let read = LogEntry::from_leaf_bytes(other.as_bytes());
        assert!(read.is_err(), "{other}");
    }
    let [old, new] = [1, 2].map(|seed| key(seed).verifying_key().to_string());
    let statement = format!(
        r#"{{"at":"2023-11-14T22:13:20.000Z","new_key":"{new}","old_key":"{old}","origin":"example.org/log","seq":1}}"#
    );
    let signed = format!(
        "DSSEv1 37 application/vnd.abp.key-rotation+json {} {statement}",
        statement.len()
    );
    let signature = key(1).sign(signed.as_bytes());
    let rotated = format!(
        r#"{{"at":"2023-11-14T22:13:20.000Z","kind":{{"new_key":"{new}","old_key":"{old}","signature":"{signature}","type":"key_rotated"}},"origin":"example.org/log","seq":1}}"#
    );
    assert_eq!(text(1), rotated);
    let sealed = format!(
        r#"{{"at":"2023-11-14T22:13:22.000Z","kind":{{"count":7,"root":"{hash}","type":"exchanges_sealed"}},"origin":"example.org/log","seq":2}}"#
    );
    assert_eq!(text(2), sealed);
    world.sign(&key(2));
    world.running.insert(run(1));
    assert!(world.problems().is_empty());
}

/// With the hash of each leaf stored, what rots is named by its place; the rest stays good.
#[test]
fn e1_e16_changed_entries_and_receipts() {
    let rot = |world: &mut World| {
        let bytes = &mut world.stored[1].bytes;
        let text = String::from_utf8(bytes.clone()).expect("JSON");
        *bytes = text.replace("2023", "2024").into_bytes();
    };
    check("rot, hashes stored", &["edit 1 entry"], |world| {
        world.with_hashes = true;
        rot(world);
    });
    check("rot, no hashes stored", &["rewrite 3 0"], rot);
    check("unreadable", &["edit 5 entry", "missing_end 4"], |world| {
        world.with_hashes = true;
        world.stored[5].bytes.truncate(20);
    });
    check("receipt edited", &["edit 3 receipt"], |world| {
        let edited = StoredReceipt::Present(Hash::of(b"edited"));
        world.receipts.insert(run(2), edited);
    });
    check("receipt unreadable", &["edit 1 receipt"], |world| {
        world.receipts.insert(run(1), StoredReceipt::Unreadable);
    });
    check("receipt deleted", &["missing_receipt 5"], |world| {
        world.receipts.remove(&run(3));
    });
    check("nobody looked", &[], |world| {
        world.receipts.insert(run(3), StoredReceipt::Unchecked);
    });
}

/// E3: one kept checkpoint is enough, however much of the end is dropped.
#[test]
fn e3_truncation() {
    for dropped in 1..=7 {
        let mut world = World::four_runs();
        world.checkpoints.remove(0);
        world.stored.truncate(7 - dropped);
        let found = world.problems();
        let expected = format!("truncation {} 7", 7 - dropped);
        assert!(found.contains(&expected), "{dropped}: {found:?}");
    }
    check("what no checkpoint covers is not known", &[], |world| {
        world.checkpoints.pop();
        world.stored.truncate(3);
        world.running.insert(run(2));
    });
}

/// E4: the owner of the key writes another history from some entry on.
#[test]
fn e4_fork() {
    for fork in 0..6_u64 {
        let kept = World::four_runs();
        let mut other = World::new();
        for leaf in &kept.stored[..usize::try_from(fork).expect("small")] {
            other.head.replay(leaf.hash).expect("room");
            other.stored.push(leaf.clone());
        }
        for number in 10..15 {
            other.start(number);
            other.running.insert(run(number));
        }
        other.sign(&key(1));
        let signed = other.checkpoints[0].checkpoint();
        let older = kept.checkpoints[1].checkpoint();
        let leaves: Vec<Hash> = other.stored.iter().map(|leaf| leaf.hash).collect();
        if let Ok(proof) = consistency_proof(&leaves, older.size()) {
            assert!(signed.continues(older, &proof).is_err(), "fork at {fork}");
        }
        other.checkpoints = kept.checkpoints;
        let rewrites = |problem: &LogProblem| {
            matches!(
                problem,
                LogProblem::Rewrite { .. } | LogProblem::Truncation { .. }
            )
        };
        let report = other.verify();
        assert!(report.problems.iter().any(rewrites), "fork at {fork}");
        assert!(report.signed_size <= fork, "fork at {fork}");
    }
    check("an entry and all its hashes", &["rewrite 7 3"], |world| {
        world.with_hashes = true;
        world.rewrite(4, other_order);
    });
}

#[test]
fn e6_reorder_duplicate_replay() {
    check(
        "swapped",
        &[
            "reorder 4 4 5",
            "missing_start 4",
            "reorder 5 6 4",
            "reorder 6 5 6",
            "rewrite 7 3",
        ],
        |world| world.stored.swap(4, 5),
    );
    check(
        "removed",
        &["reorder 4 4 5", "missing_start 4", "truncation 6 7"],
        |world| {
            world.stored.remove(4);
        },
    );
    check(
        "repeated",
        &["reorder 7 7 3", "duplicate_end 7 3"],
        |world| {
            let again = world.stored[3].clone();
            world.stored.push(again);
        },
    );
    check(
        "a start, appended again",
        &["duplicate_start 7 0"],
        |world| world.start(1),
    );
    check("an end, appended again", &["duplicate_end 7 1"], |world| {
        world.end(1);
    });
    check("an end that never started", &["missing_start 7"], |world| {
        world.end(9);
    });
    check(
        "replayed from another log",
        &["wrong_origin {entry:7}", "duplicate_start 7 6"],
        |world| {
            let mut elsewhere = LogHead::new("example.org/other").expect("a good name");
            for leaf in &world.stored {
                elsewhere.replay(leaf.hash).expect("room");
            }
            let kind = EntryKind::RunStarted {
                run_id: run(4),
                work_order_sha256: Hash::of(b"order"),
                record: None,
            };
            world
                .stored
                .push(elsewhere.append(kind, at(9)).expect("room"));
        },
    );
}

#[test]
fn missing_ends_and_open_runs() {
    check("not known to run", &["missing_end 6"], |world| {
        world.running.clear();
    });
    check("known to run, and ended", &[], |world| {
        world.running.insert(run(1));
    });
}

#[test]
fn e2_checkpoints_that_prove_nothing() {
    let forge = |seed: u8, name: &str| {
        let mut world = World::four_runs();
        world.head = LogHead::new(name).expect("a good name");
        world.start(1);
        world.sign(&named_key(name, seed));
        world.checkpoints.pop()
    };
    check("another key", &["unknown_key {checkpoint:1}"], |world| {
        world.checkpoints.extend(forge(9, ORIGIN));
    });
    check("another log", &["wrong_origin {checkpoint:1}"], |world| {
        world.checkpoints.extend(forge(1, "example.org/other"));
    });
    check(
        "an edited checkpoint",
        &["bad_signature {checkpoint:6}"],
        |world| {
            let text = world.checkpoints[1]
                .to_string()
                .replacen("\n7\n", "\n6\n", 1);
            world.checkpoints[1] = text.parse().expect("still a checkpoint");
        },
    );
    check(
        "no trust",
        &["unknown_key {checkpoint:3}", "unknown_key {checkpoint:7}"],
        |world| world.keys = ring(&key(2)),
    );
}

/// E17: order is by place. A clock that goes back is counted and nothing else.
#[test]
fn e17_clock_inversion() {
    let mut world = World::new();
    world.start(1);
    let kind = EntryKind::RunStarted {
        run_id: run(2),
        work_order_sha256: Hash::of(b"order"),
        record: None,
    };
    let earlier = world.head.append(kind, at(-100)).expect("room");
    world.stored.push(earlier);
    let again = EntryKind::RunStarted {
        run_id: run(3),
        work_order_sha256: Hash::of(b"order"),
        record: None,
    };
    let at_once = world.head.append(again, at(-100)).expect("room");
    world.stored.push(at_once);
    world.running.extend([run(1), run(2), run(3)]);
    let report = world.verify();
    assert!(report.is_ok());
    assert_eq!(report.clock_inversions, 1);
}

/// E18: old checkpoints stay good under the old key, new ones need the new key.
#[test]
fn e18_rotation() {
    let (old, new, third) = (key(1), key(2), key(3));
    let rotated = |then: &dyn Fn(&mut World)| {
        let mut world = World::four_runs();
        world.rotate(&old, &new);
        then(&mut world);
        world.problems()
    };
    let none: [&str; 0] = [];
    assert_eq!(rotated(&|world| world.sign(&new)), none);
    assert_eq!(
        rotated(&|world| world.sign(&old)),
        ["bad_signature {checkpoint:8}"]
    );
    assert_eq!(
        rotated(&|world| world.sign(&third)),
        ["unknown_key {checkpoint:8}"]
    );
    let twice = rotated(&|world| {
        world.rotate(&new, &third);
        world.sign(&third);
    });
    assert_eq!(twice, none);
    let by_a_retired_key = rotated(&|world| {
        world.rotate(&old, &third);
        world.sign(&new);
    });
    assert_eq!(by_a_retired_key, ["bad_signature {entry:8}"]);
    let trust_begins_later = rotated(&|world| {
        world.checkpoints.clear();
        world.keys = ring(&new);
        world.sign(&new);
    });
    assert_eq!(trust_begins_later, none);
    let from_and_to_strangers = rotated(&|world| {
        world.checkpoints.clear();
        world.keys = ring(&third);
    });
    assert_eq!(from_and_to_strangers, ["unknown_key {entry:7}"]);
}

#[test]
fn a_head_resumes_only_where_it_was() {
    let mut world = World::four_runs();
    let signed = world.head.checkpoint();
    let frontier = world.head.frontier().clone();
    world.start(5);
    let mut resumed = LogHead::resume(&signed, frontier.clone()).expect("the same tree");
    resumed.replay(world.stored[7].hash).expect("room");
    assert_eq!(resumed, world.head);
    let earlier = world.checkpoints[0].checkpoint();
    assert!(LogHead::resume(earlier, frontier.clone()).is_err());
    let other_root = Checkpoint::new(ORIGIN, 7, Hash::of(b"other")).expect("a good name");
    assert!(LogHead::resume(&other_root, frontier).is_err());
    assert!(LogHead::new("two words").is_err());
    // A rotation is signed for one place.
    world.rotate(&key(1), &key(2));
    let rotated = world.stored[8].entry.kind.clone();
    let before = world.head.clone();
    assert!(world.head.append(rotated, at(0)).is_err());
    assert_eq!(world.head, before);
}

/// A thousand problems are listed, all are counted.
#[test]
fn problems_are_bounded() {
    let mut world = World::new();
    for number in 0..1_500 {
        world.start(number);
    }
    let report = world.verify();
    assert_eq!(
        (report.problems.len(), report.problem_count),
        (1_000, 1_500)
    );
    let promises = report.problems.iter().map(LogProblem::promise);
    assert!(promises.eq(std::iter::repeat_n(Promise::Completeness, 1_000)));
}

proptest! {
    /// Whatever is done to what the checkpoint covers, something is found.
    #[test]
    fn any_change_below_a_checkpoint_is_found(
        what in 0..5_u8, first in 0..7_usize, second in 0..7_usize, byte in any::<usize>(),
    ) {
        let mut world = World::four_runs();
        world.checkpoints.remove(0);
        let before = world.stored.clone();
        match what {
            0 => world.stored.swap(first, second),
            1 => drop(world.stored.remove(first)),
            2 => world.stored.insert(first, before[second].clone()),
            3 => world.rewrite(first, other_order),
            _ => {
                let bytes = &mut world.stored[first].bytes;
                let place = byte % bytes.len();
                bytes[place] ^= 1 << (byte % 7);
            }
        }
        prop_assert_eq!(world.stored == before, world.verify().is_ok());
    }

    /// A leaf is read in one spelling only, and what is read is what was written.
    #[test]
    fn leaves_have_one_spelling(index in 0..7_usize, place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let leaf = World::four_runs().stored.swap_remove(index);
        prop_assert_eq!(LogEntry::from_leaf_bytes(&leaf.bytes), Ok(leaf.entry.clone()));
        let mut changed = leaf.bytes.clone();
        changed.insert(place.index(leaf.bytes.len()), byte);
        if let Ok(entry) = LogEntry::from_leaf_bytes(&changed) {
            prop_assert_ne!(&entry, &leaf.entry);
            prop_assert_eq!(entry.leaf_bytes(), Ok(changed));
        }
    }
}
