//! A small log with its receipts and keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use abp_core::{AgentEvent, AgentEventKind, BackendIdentity, Outcome, Receipt, Timestamp};
use abp_receipt::{
    EntryKind, ExportedReceipt, Hash, KeyRing, LogCheck, LogHead, LogLeaf, LogReport,
    ReceiptBuilder, ReceiptProof, SignedCheckpoint, SigningKey, StoredEntry, StoredReceipt,
    inclusion_proof, verify_log,
};
use uuid::Uuid;

pub(crate) const ORIGIN: &str = "example.org/log";

pub(crate) fn key(seed: u8) -> SigningKey {
    named_key(ORIGIN, seed)
}

pub(crate) fn named_key(name: &str, seed: u8) -> SigningKey {
    SigningKey::from_seed(name, &[seed; 32]).expect("a good name")
}

pub(crate) fn ring(key: &SigningKey) -> KeyRing {
    KeyRing::of(key.verifying_key().clone())
}

pub(crate) fn run(number: u64) -> Uuid {
    Uuid::from_u128(u128::from(number))
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000 + second * 1000)
}

pub(crate) fn builder(number: u64) -> ReceiptBuilder {
    let backend = BackendIdentity {
        id: "mock".to_owned(),
        backend_version: None,
        adapter_version: None,
    };
    let text = format!("run {number}");
    let event = AgentEvent {
        ts: at(1),
        origin: None,
        kind: AgentEventKind::AssistantMessage { text },
        ext: None,
    };
    ReceiptBuilder::new(run(number), run(900), backend, at(0), 5, Outcome::Complete)
        .trace(vec![event])
}

pub(crate) fn receipt(number: u64) -> Receipt {
    builder(number).build_hashed().expect("a plain receipt")
}

pub(crate) fn document(number: u64) -> Vec<u8> {
    receipt(number).to_document().expect("a plain receipt")
}

/// The hash of a document, as a log compares it.
pub(crate) fn hash_of(document: &[u8]) -> Hash {
    let hash = abp_core::document_hash(document).expect("a document");
    hash.parse().expect("a hash")
}

/// A log as it is stored, and what a verifier holds of it.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) head: LogHead,
    pub(crate) stored: Vec<LogLeaf>,
    pub(crate) receipts: BTreeMap<Uuid, StoredReceipt>,
    pub(crate) checkpoints: Vec<SignedCheckpoint>,
    pub(crate) keys: KeyRing,
    pub(crate) running: BTreeSet<Uuid>,
    /// Whether the hash of each leaf is stored beside it.
    pub(crate) with_hashes: bool,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            head: LogHead::new(ORIGIN).expect("a good name"),
            stored: Vec::new(),
            receipts: BTreeMap::new(),
            checkpoints: Vec::new(),
            keys: ring(&key(1)),
            running: BTreeSet::new(),
            with_hashes: false,
        }
    }

    /// Four runs, of which the last is under way, and checkpoints of 3 and 7 entries.
    pub(crate) fn four_runs() -> Self {
        static FOUR_RUNS: LazyLock<World> = LazyLock::new(World::make_four_runs);
        FOUR_RUNS.clone()
    }

    fn make_four_runs() -> Self {
        let mut world = Self::new();
        for number in 1..=4 {
            world.start(number);
            if number == 2 {
                world.sign(&key(1));
            }
            if number < 4 {
                world.end(number);
            }
        }
        world.running.insert(run(4));
        world.sign(&key(1));
        world
    }

    pub(crate) fn append(&mut self, kind: EntryKind) {
        let second = i64::try_from(self.stored.len()).expect("a small log");
        self.stored
            .push(self.head.append(kind, at(second)).expect("room"));
    }

    pub(crate) fn start(&mut self, number: u64) {
        self.append(EntryKind::RunStarted {
            run_id: run(number),
            work_order_sha256: Hash::of(b"order"),
            record: None,
        });
    }

    pub(crate) fn end(&mut self, number: u64) {
        let receipt_sha256 = hash_of(&document(number));
        let run_id = run(number);
        let present = StoredReceipt::Present(receipt_sha256);
        self.receipts.insert(run_id, present);
        self.append(EntryKind::RunEnded {
            run_id,
            receipt_sha256,
        });
    }

    pub(crate) fn rotate(&mut self, old: &SigningKey, new: &SigningKey) {
        let rotated = self.head.rotate(old, new.verifying_key(), at(0));
        self.stored.push(rotated.expect("keys of this log"));
    }

    pub(crate) fn sign(&mut self, key: &SigningKey) {
        let signed = self.head.checkpoint().sign(key);
        self.checkpoints.push(signed.expect("a key of this log"));
    }

    /// Changes an entry and what is computed from it, as somebody would who knows how.
    pub(crate) fn rewrite(&mut self, index: usize, change: impl FnOnce(&mut EntryKind)) {
        let leaf = &mut self.stored[index];
        change(&mut leaf.entry.kind);
        leaf.bytes = leaf.entry.leaf_bytes().expect("a good entry");
        leaf.hash = leaf.entry.leaf_hash().expect("a good entry");
    }

    pub(crate) fn verify(&self) -> LogReport {
        let entries = self.stored.iter().map(|leaf| {
            let recorded = self.with_hashes.then_some(leaf.hash);
            StoredEntry::read(&leaf.bytes, recorded)
        });
        let receipts = |run_id| {
            let found = self.receipts.get(&run_id);
            found.copied().unwrap_or(StoredReceipt::Missing)
        };
        let check = LogCheck {
            origin: ORIGIN,
            checkpoints: &self.checkpoints,
            keys: &self.keys,
            running: &self.running,
        };
        verify_log(entries, receipts, &check)
    }

    /// What is wrong, in a line each: the name of the problem and its numbers.
    pub(crate) fn problems(&self) -> Vec<String> {
        let report = self.verify();
        assert_eq!(report.is_ok(), report.problems.is_empty());
        let describe = |problem: &abp_receipt::LogProblem| {
            let json = serde_json::to_value(problem).expect("plain data");
            let numbers = [
                "index",
                "expected",
                "found",
                "first",
                "size",
                "checkpoint_size",
                "intact",
            ];
            let mut line = json["problem"].as_str().expect("a tag").to_owned();
            for number in numbers.iter().filter_map(|name| json[*name].as_u64()) {
                line += &format!(" {number}");
            }
            for word in ["what", "place"] {
                if !json[word].is_null() {
                    line += &format!(" {}", json[word].to_string().replace('"', ""));
                }
            }
            line
        };
        report.problems.iter().map(describe).collect()
    }

    /// The receipt of a run, exported with the last checkpoint.
    pub(crate) fn export(&self, number: u64, key: &SigningKey) -> ExportedReceipt {
        let ended = |leaf: &&LogLeaf| matches!(leaf.entry.kind, EntryKind::RunEnded { run_id, .. } if run_id == run(number));
        let entry = &self.stored.iter().find(ended).expect("it ended").entry;
        let checkpoint = self.checkpoints.last().expect("signed").clone();
        let size = usize::try_from(checkpoint.checkpoint().size()).expect("a small log");
        let leaves: Vec<Hash> = self.stored[..size].iter().map(|leaf| leaf.hash).collect();
        let proof = ReceiptProof {
            entry: entry.clone(),
            checkpoint,
            path: inclusion_proof(&leaves, entry.seq).expect("it is covered"),
        };
        ExportedReceipt::sign(document(number), proof, key)
    }
}
