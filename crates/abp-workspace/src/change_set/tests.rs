//! Documents are read back exactly, and nothing else is read.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{ChangeSet, ChangedPath};
use crate::Error;
use crate::journal::{ApplyJournal, ApplyPhase, JournalStep, Owner};
use crate::manifest::{Entry, SpecialKind};
use crate::source::{BirthTime, SourceIdentity};

fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => prop::sample::select(b"ab \n\"\\-".to_vec()),
        1 => any::<u8>().prop_filter("name", |byte| !matches!(byte, 0 | b'/' | b'.')),
    ];
    prop::collection::vec(byte, 1..5)
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(name(), 1..4).prop_map(|names| names.join(&b'/'))
}

/// An entry without its path.
fn image() -> impl Strategy<Value = Option<Entry>> {
    let entry = (
        0_u8..4,
        0_u32..0o10000,
        any::<u64>(),
        any::<[u8; 32]>(),
        name(),
    );
    let entry = entry.prop_map(|(kind, mode, size, hash, target)| match kind {
        0 => Entry::file(b"", mode, size, hash),
        1 => Entry::directory(b"", mode),
        2 => Entry::symlink(b"", target),
        _ => Entry::special(b"", SpecialKind::Device),
    });
    prop::option::weighted(0.8, entry)
}

fn placed(path: &[u8], image: Option<Entry>) -> Option<Entry> {
    image.map(|image| image.at(path))
}

prop_compose! {
    fn source()(path in prop::collection::vec(name(), 0..4), device: u64, inode: u64, birth in prop::option::of((any::<i64>(), any::<u32>()))) -> SourceIdentity {
        SourceIdentity {
            path: [b"/".as_slice(), &path.join(&b'/')].concat(),
            device,
            inode,
            birth: birth.map(|(seconds, nanoseconds)| BirthTime { seconds, nanoseconds }),
        }
    }
}

prop_compose! {
    fn change_set()(
        source in source(),
        is_staged: bool,
        directories in prop::collection::btree_map(path(), 0_u32..0o1000, 0..4),
        changes in prop::collection::btree_map(path(), (image(), image(), any::<bool>()), 0..8),
    ) -> ChangeSet {
        let changes = changes.into_iter().map(|(path, (before, after, ignored))| {
            let (before, after) = (placed(&path, before), placed(&path, after));
            let is_ignored = ignored && before.is_none();
            ChangedPath { before, after, is_ignored }
        });
        ChangeSet {
            is_staged,
            source,
            baseline_sha256: Some("0a".repeat(32)),
            final_sha256: Some("ff".repeat(32)),
            directories,
            changes: changes.filter(|change| change.before != change.after).collect(),
            images: BTreeSet::new(),
        }
    }
}

prop_compose! {
    fn journal()(
        source in source(),
        phase in prop::sample::select(vec![ApplyPhase::Preparing, ApplyPhase::Committing, ApplyPhase::Finished]),
        steps in prop::collection::btree_map(path(), (image(), image(), prop::option::of((any::<u32>(), any::<u32>()))), 0..8),
    ) -> ApplyJournal {
        let mut journal = ApplyJournal::new(source);
        journal.phase = phase;
        let steps = steps.into_iter().map(|(path, (before, after, owner))| JournalStep {
            before: placed(&path, before),
            after: placed(&path, after),
            owner: owner.map(|(user, group)| Owner { user, group }),
            path,
        });
        journal.steps = steps.filter(|step| step.operation().is_some()).collect();
        journal
    }
}

/// Cuts, lengthens, flips and reformats a document; none of that may be read.
fn check_strict<T: std::fmt::Debug>(
    document: &[u8],
    read: impl Fn(&[u8]) -> Result<T, Error>,
    cut: prop::sample::Index,
    noise: &[u8],
) -> Result<(), TestCaseError> {
    prop_assert!(read(&document[..cut.index(document.len())]).is_err(), "cut");
    prop_assert!(read(&[document, b"\n"].concat()).is_err(), "white space");
    prop_assert!(read(noise).is_err(), "noise");
    let value: serde_json::Value = serde_json::from_slice(document).expect("JSON");
    let pretty = serde_json::to_vec_pretty(&value).expect("JSON");
    prop_assert!(read(&pretty).is_err(), "another form");
    let mut more = value;
    more["unknown"] = serde_json::Value::Null;
    let more = serde_json::to_vec(&more).expect("JSON");
    prop_assert!(read(&more).is_err(), "an unknown field");
    // A flipped bit is refused, or it makes another value with a document of its own.
    let mut flipped = document.to_vec();
    let at = cut.index(document.len());
    flipped[at] ^= 1;
    if let Ok(value) = read(&flipped) {
        prop_assert!(
            format!("{value:?}") != format!("{:?}", read(document)),
            "one bit"
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_change_set_is_its_document(set in change_set(), cut: prop::sample::Index, noise in prop::collection::vec(any::<u8>(), 0..64)) {
        let document = set.to_document().expect("document");
        prop_assert_eq!(&ChangeSet::from_document(&document).expect("read"), &set);
        prop_assert_eq!(set.sha256().expect("hash").len(), 64);
        check_strict(&document, ChangeSet::from_document, cut, &noise)?;
    }

    #[test]
    fn a_journal_is_its_document(journal in journal(), cut: prop::sample::Index, noise in prop::collection::vec(any::<u8>(), 0..64)) {
        let document = journal.to_document().expect("document");
        prop_assert_eq!(&ApplyJournal::from_document(&document).expect("read"), &journal);
        check_strict(&document, ApplyJournal::from_document, cut, &noise)?;
    }
}

/// A document of one change, with one part replaced.
#[test]
fn impossible_documents_are_refused() {
    let source = SourceIdentity {
        path: b"/source".to_vec(),
        device: 1,
        inode: 2,
        birth: None,
    };
    let change = |path: &[u8]| ChangedPath {
        before: None,
        after: Some(Entry::file(path, 0o644, 1, [7; 32])),
        is_ignored: false,
    };
    let set = ChangeSet {
        is_staged: true,
        source: source.clone(),
        baseline_sha256: Some("00".repeat(32)),
        final_sha256: Some("11".repeat(32)),
        directories: BTreeMap::new(),
        changes: vec![change(b"a"), change(b"b")],
        images: BTreeSet::from([[7; 32]]),
    };
    let document = String::from_utf8(set.to_document().expect("document")).expect("text");
    let hash = "07".repeat(32);
    let changed = [
        ("\"version\":1", "\"version\":2"),
        ("\"path\":\"b\"", "\"path\":\"a\""),
        ("\"path\":\"b\"", "\"path\":\"../b\""),
        ("\"path\":\"b\"", "\"path\":\"/b\""),
        ("\"path\":\"b\"", "\"path\":\"b/\""),
        ("\"path\":\"b\"", "\"path\":\"\""),
        ("\"path\":\"b\"", "\"path\":\"b\",\"path_base64\":\"Yg==\""),
        ("\"path\":\"/source\"", "\"path\":\"source\""),
        ("\"path\":\"/source\"", "\"path\":\"/a/../source\""),
        ("\"kind\":\"file\"", "\"kind\":\"files\""),
        ("\"mode\":\"644\"", "\"mode\":\"0644\""),
        ("\"mode\":\"644\"", "\"mode\":\"10644\""),
        ("\"size\":1", "\"size\":-1"),
        ("\"size\":1,", ""),
        (hash.as_str(), "07"),
        ("\"staged\":true", "\"staged\":true,\"staged\":true"),
    ];
    for (from, to) in changed {
        let wrong = document.replacen(from, to, 1);
        assert_ne!(wrong, document, "{from}");
        let error = ChangeSet::from_document(wrong.as_bytes()).expect_err(to);
        assert!(matches!(error, Error::Document { .. }), "{to}: {error:?}");
    }
    let journal = ApplyJournal::new(source).to_document().expect("document");
    let journal = String::from_utf8(journal).expect("text");
    let holding = journal.find(".abp-apply-").expect("a name");
    for name in [
        "..",
        ".git",
        ".abp-apply-",
        ".abp-apply-../../../../../../../../../../..",
    ] {
        let end = holding + ".abp-apply-".len() + 32;
        let wrong = [&journal[..holding], name, &journal[end..]].concat();
        assert!(
            ApplyJournal::from_document(wrong.as_bytes()).is_err(),
            "{name}"
        );
    }
}
