//! Checkpoints as text: one spelling, and signatures that count.

use abp_receipt::merkle::empty_root;
use abp_receipt::{Checkpoint, CheckpointError, Hash, KeyRing, SignedCheckpoint};

use crate::world::{ORIGIN, World, key, named_key, ring};

fn signed() -> SignedCheckpoint {
    signed_at(7)
}

fn signed_at(size: u64) -> SignedCheckpoint {
    let root = Hash::of(b"root");
    let checkpoint = Checkpoint::new(ORIGIN, size, root).expect("a good name");
    checkpoint.sign(&key(7)).expect("a key of this log")
}

/// The form others read; the signature was computed by another implementation.
#[test]
fn the_text_is_stable() {
    let expected = "\
example.org/log
7
SBNJTRN+FjG7owHVrKtue7eqdM4RhdRWVl71HXN2d7I=

— example.org/log XizvAK7rfwE6Di9A6dhQowXdLY0uqD62DM0iPt7zLctyEDEsh1auIrxOcKvmT/xl8IqGR6tnpDgdS/LYQzpFU2XpZgs=
";
    assert_eq!(signed().to_string(), expected);
}

#[test]
fn what_is_no_checkpoint() {
    let good = signed().to_string();
    assert_eq!(
        good.parse::<SignedCheckpoint>().expect("its text"),
        signed()
    );
    let line = good.lines().last().expect("a signature").to_owned();
    let (_, sig) = line.rsplit_once(' ').expect("three parts");
    let root = good.lines().nth(2).expect("a root").to_owned();
    let replace = |from: &str, to: &str| good.replacen(from, to, 1);
    let cases = [
        String::new(),
        "\n\n".to_owned(),
        good.trim_end().to_owned(),
        format!("{good}\n"),
        format!("\n{good}"),
        good.replace('\n', "\r\n"),
        format!("{good}{line}\n"),
        format!("{good}— x\n"),
        format!("{good}— x y z\n"),
        format!("{good}— x AAAAAA==\n"),
        format!("{good}- example.org/x {sig}\n"),
        replace("— ", "—"),
        replace("\n7\n", "\n07\n"),
        replace("\n7\n", "\n+7\n"),
        replace("\n7\n", "\n-7\n"),
        replace("\n7\n", "\n7 \n"),
        replace("\n7\n", "\n9007199254740992\n"),
        replace("\n7\n", "\n18446744073709551616\n"),
        replace("\n7\n", "\n\n"),
        replace(&root, &format!("{root}\nextension")),
        replace(&root, root.trim_end_matches('=')),
        replace(&root, &root.replace('=', "==")),
        replace(ORIGIN, "two words"),
        replace(ORIGIN, ""),
        good.repeat(2),
        format!("{good}{}", "— x AAAAAAAA\n".repeat(2)),
        (0..70).fold(good.clone(), |text, n| format!("{text}— x{n} AAAAAAAA\n")),
        format!("{good}— x {}\n", "AAAA".repeat(70_000)),
    ];
    for text in cases {
        let read = text.parse::<SignedCheckpoint>();
        assert!(read.is_err(), "{:?}", text.get(..200).unwrap_or(&text));
    }
}

#[test]
fn e2_e5_whose_signature_counts() {
    let witness = named_key("witness.example", 3);
    let trusted = ring(&key(7));
    let mut with_witness = trusted.clone();
    with_witness
        .trust(witness.verifying_key().clone())
        .expect("another name");
    let check = |signed: &SignedCheckpoint, keys: &KeyRing, expected: Result<(), &str>| {
        let verdict = signed
            .verify(keys)
            .map(|_| ())
            .map_err(|error| match error {
                CheckpointError::BadSignature(_) => "bad",
                CheckpointError::UnknownKey { .. } => "unknown",
                CheckpointError::OutOfTerm { .. } => "out of term",
                _ => "other",
            });
        assert_eq!(verdict, expected, "{signed}");
    };
    check(&signed(), &trusted, Ok(()));
    check(&signed(), &KeyRing::default(), Err("unknown"));
    check(&signed(), &ring(&key(8)), Err("unknown"));
    let mut cosigned = signed();
    cosigned.cosign(&witness);
    let same = cosigned.clone();
    cosigned.cosign(&witness);
    assert_eq!(cosigned, same);
    check(&cosigned, &with_witness, Ok(()));
    check(&cosigned, &trusted, Ok(()));
    check(&cosigned, &ring(&witness), Err("unknown"));
    // A witness that is known and did not sign this text spoils it, whoever else signed.
    let text = cosigned.to_string();
    let of_witness = text.lines().last().expect("its line");
    let moved = format!("{}{of_witness}\n", signed_at(8));
    let moved: SignedCheckpoint = moved.parse().expect("a checkpoint");
    check(&moved, &with_witness, Err("bad"));
    check(&moved, &trusted, Ok(()));
    let mut retired = trusted;
    retired
        .retire(ORIGIN, key(7).verifying_key().id(), 6)
        .expect("known");
    check(&signed(), &retired, Err("out of term"));
    let elsewhere = Checkpoint::new("example.org/other", 1, empty_root()).expect("a good name");
    assert!(elsewhere.sign(&key(7)).is_err());
}

#[test]
fn e3_e4_an_older_checkpoint_is_continued() {
    let world = World::four_runs();
    let (older, newer) = (
        world.checkpoints[0].checkpoint(),
        world.checkpoints[1].checkpoint(),
    );
    let leaves: Vec<Hash> = world.stored.iter().map(|leaf| leaf.hash).collect();
    let proof = abp_receipt::consistency_proof(&leaves, 3).expect("a beginning");
    let empty = Checkpoint::new(ORIGIN, 0, empty_root()).expect("a good name");
    let not_empty = Checkpoint::new(ORIGIN, 0, Hash::of(b"x")).expect("a good name");
    let elsewhere = Checkpoint::new("example.org/other", 3, *older.root()).expect("a good name");
    let cases = [
        ("forward", newer, older, proof.as_slice(), true),
        ("back", older, newer, &proof, false),
        ("itself", newer, newer, &[], true),
        ("no proof", newer, older, &[], false),
        ("from nothing", newer, &empty, &[], true),
        ("nothing from nothing", &empty, &empty, &[], true),
        ("from nothing, with a proof", newer, &empty, &proof, false),
        ("from a false nothing", newer, &not_empty, &[], false),
        ("to a false nothing", &not_empty, &empty, &[], false),
        ("from another log", newer, &elsewhere, &proof, false),
    ];
    for (name, newer, older, proof, expected) in cases {
        assert_eq!(newer.continues(older, proof).is_ok(), expected, "{name}");
    }
}
