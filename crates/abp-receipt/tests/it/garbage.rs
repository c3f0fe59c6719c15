//! Every reader against bytes that were not written for it: no panic, and one spelling for
//! everything that is accepted.

use abp_receipt::{
    ExportedReceipt, Frontier, Hash, KeyId, KeyRing, LogEntry, ReceiptChain, Signature,
    SignedCheckpoint, SigningKey, VerifyingKey, diff_documents,
};
use proptest::prelude::*;

use crate::world::{World, document, key};

/// Texts that the readers accept.
fn accepted() -> Vec<String> {
    let mut world = World::four_runs();
    let utf8 = |bytes| String::from_utf8(bytes).expect("text");
    let bundle = world.export(2, &key(1)).to_json().expect("plain data");
    let mut texts = vec![
        utf8(bundle),
        utf8(document(1)),
        world.checkpoints[0].to_string(),
        key(1).verifying_key().to_string(),
        key(1).to_secret_text().to_string(),
        key(1).sign(b"").to_string(),
        Hash::of(b"").to_string(),
        serde_json::to_string(&world.keys).expect("plain data"),
        serde_json::to_string(world.head.frontier()).expect("plain data"),
    ];
    world.rotate(&key(1), &key(2));
    texts.extend(world.stored.into_iter().map(|leaf| utf8(leaf.bytes)));
    texts
}

fn read_all(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(entry) = LogEntry::from_leaf_bytes(bytes) {
        prop_assert_eq!(entry.leaf_bytes().expect("it was read"), bytes);
    }
    if let Ok(bundle) = ExportedReceipt::from_json(bytes) {
        prop_assert!(bundle.verify(&KeyRing::default()).is_err());
    }
    if let Ok(mut frontier) = serde_json::from_slice::<Frontier>(bytes) {
        frontier.push(Hash::of(b""));
        prop_assert_eq!(
            frontier.peaks().len(),
            frontier.size().count_ones() as usize
        );
    }
    drop(diff_documents(bytes, b"{}"));
    drop(ReceiptChain::default().push_document(bytes));
    drop(serde_json::from_slice::<KeyRing>(bytes));
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Ok(());
    };
    let spellings = [
        text.parse::<Hash>().ok().map(|read| read.to_string()),
        text.parse::<KeyId>().ok().map(|read| read.to_string()),
        text.parse::<Signature>().ok().map(|read| read.to_string()),
        text.parse::<VerifyingKey>()
            .ok()
            .map(|read| read.to_string()),
        text.parse::<SignedCheckpoint>()
            .ok()
            .map(|read| read.to_string()),
        text.parse::<SigningKey>()
            .ok()
            .map(|read| read.to_secret_text().to_string()),
    ];
    for spelling in spellings.into_iter().flatten() {
        prop_assert_eq!(spelling, text);
    }
    Ok(())
}

proptest! {
    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_all(&bytes)?;
    }

    #[test]
    fn arbitrary_text(text in "[-+—=0-9a-fA-F \\n\\r\\t\"{}\\[\\]:,./\u{a0}]{0,200}") {
        read_all(text.as_bytes())?;
    }

    /// What is accepted, with a piece of it replaced by another.
    #[test]
    fn almost_accepted(
        text in prop::sample::select(accepted()),
        cut in any::<[prop::sample::Index; 2]>(),
        with in prop::collection::vec(any::<u8>(), 0..6),
    ) {
        let bytes = text.into_bytes();
        let [a, b] = cut.map(|index| index.index(bytes.len()));
        let end = if b % 3 == 0 { b.max(a) } else { a + 1 };
        let changed = [&bytes[..a], &with, &bytes[end..]].concat();
        read_all(&changed)?;
    }
}

#[test]
fn accepted_texts() {
    for text in accepted() {
        read_all(text.as_bytes()).expect("one spelling");
    }
}
