//! Keys: their texts, what is refused, and what is never shown.

use abp_receipt::{KeyError, KeyId, KeyRing, KeyStanding, LogEntry, SigningKey, VerifyingKey};

use crate::world::{ORIGIN, at, key, named_key, ring};

/// The forms others read; computed by another implementation from the same seed.
#[test]
fn texts_are_stable() {
    let key = key(7);
    assert_eq!(
        key.verifying_key().to_string(),
        "example.org/log+5e2cef00+AepKbGPinFIKvvVQexMuxfmVR3auvr57kkIe6mkURtIs"
    );
    assert_eq!(
        *key.to_secret_text(),
        "PRIVATE+KEY+example.org/log+5e2cef00+AQcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH"
    );
    assert_eq!(
        key.sign(b"text\n").to_string(),
        "vd9mSy6Bpsaao2S5+/7vNKU/PEhEiDENpPBREXhCDvD0KGDYeuH9VjJYpjcaUxzp5+wLn9zEkCmzUen+JunQBg=="
    );
}

#[test]
fn texts_are_read_back() {
    let key = key(7);
    let public: VerifyingKey = key.verifying_key().to_string().parse().expect("its text");
    assert_eq!(public, *key.verifying_key());
    let read = SigningKey::from_secret_text(&key.to_secret_text()).expect("its text");
    assert_eq!(read.sign(b"x"), key.sign(b"x"));
}

/// E18: neither printing a key nor failing to read one shows anything secret.
#[test]
fn e18_secrets_are_not_shown() {
    let text = key(7).to_secret_text();
    let secret = text.rsplit('+').next().expect("a last part");
    assert!(!format!("{:?}", key(7)).contains(secret));
    for end in 0..text.len() {
        let error = SigningKey::from_secret_text(&text[..end]).expect_err("cut short");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(&secret[..8]), "{shown}");
    }
}

#[test]
fn what_is_no_key() {
    let good = key(7).verifying_key().to_string();
    let (start, encoded) = good.rsplit_once('+').expect("three parts");
    let other_id = good.replace(&key(7).verifying_key().id().to_string(), "00000000");
    let other_name = good.replace("log", "dog");
    let upper = start.to_uppercase();
    // The same key, said to be of another algorithm.
    let other_kind = format!("{start}+Au{}", &encoded[2..]);
    let weak = format!("{start}+AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    let cases = [
        "",
        "+",
        "++",
        start,
        encoded,
        &other_id,
        &other_name,
        &format!("{upper}+{encoded}"),
        &format!("{good} "),
        &format!("{good}="),
        &format!(" {good}"),
        &other_kind,
        &weak,
        &key(7).to_secret_text(),
    ];
    for text in cases {
        assert!(text.parse::<VerifyingKey>().is_err(), "{text:?}");
        let as_secret = SigningKey::from_secret_text(text);
        assert_eq!(
            as_secret.is_ok(),
            text.starts_with("PRIVATE+KEY+"),
            "{text:?}"
        );
    }
    for name in [
        "",
        "a b",
        "a+b",
        "a\u{a0}b",
        "a\nb",
        "a\u{7f}",
        &"x".repeat(256),
    ] {
        let made = SigningKey::from_seed(name, &[1; 32]);
        assert_eq!(made.err(), Some(KeyError::Name), "{name:?}");
    }
    // The point of order one signs everything.
    let mut identity = [0; 32];
    identity[0] = 1;
    assert!(VerifyingKey::from_bytes(ORIGIN, &identity).is_err());
}

#[test]
fn signatures_bind_key_and_text() {
    let (key, other) = (key(1), key(2));
    let signature = key.sign(b"text");
    let public = key.verifying_key();
    assert_eq!(public.verify(b"text", &signature), Ok(()));
    assert!(public.verify(b"texT", &signature).is_err());
    assert!(other.verifying_key().verify(b"text", &signature).is_err());
}

fn rotation(seq: u64, old: &SigningKey, new: &SigningKey) -> LogEntry {
    LogEntry::rotation(ORIGIN, seq, at(0), old, new.verifying_key()).expect("keys of this log")
}

/// E18: what a ring makes of rotations, and of keys taken out of use by hand.
#[test]
fn e18_rings() {
    let (a, b, c) = (key(1), key(2), key(3));
    let standing = |ring: &KeyRing, key: &SigningKey, size| {
        let public = key.verifying_key();
        match ring.standing(public.name(), public.id(), size) {
            KeyStanding::Good(_) => "good",
            KeyStanding::OutOfTerm(_) => "out of term",
            KeyStanding::Unknown => "unknown",
        }
    };
    let mut ring = ring(&a);
    let first = rotation(5, &a, &b);
    ring.follow(&first).expect("by a trusted key");
    let followed = ring.clone();
    ring.follow(&first).expect("the same again");
    for (key, size, expected) in [
        (&a, 5, "good"),
        (&a, 6, "out of term"),
        (&b, 5, "out of term"),
        (&b, 6, "good"),
        (&c, 6, "unknown"),
    ] {
        assert_eq!(standing(&ring, key, size), expected, "{key:?} at {size}");
    }
    let mut forged = rotation(9, &c, &a);
    if let abp_receipt::EntryKind::KeyRotated { old_key, .. } = &mut forged.kind {
        **old_key = b.verifying_key().clone();
    }
    let mut moved = rotation(9, &b, &c);
    moved.seq = 8;
    let refused = [
        ("from an old key", rotation(9, &a, &c)),
        ("the same elsewhere", rotation(6, &a, &b)),
        ("before the key was in use", rotation(3, &b, &c)),
        ("back to an old key", rotation(9, &b, &a)),
        ("from an unknown key", rotation(9, &c, &b)),
        ("forged", forged),
        ("moved", moved),
    ];
    for (name, entry) in refused {
        assert!(ring.follow(&entry).is_err(), "{name}");
        assert_eq!(ring, followed, "{name}");
    }
    let id = b.verifying_key().id();
    ring.retire(ORIGIN, id, 20).expect("known");
    assert_eq!(standing(&ring, &b, 20), "good");
    assert_eq!(standing(&ring, &b, 21), "out of term");
    assert!(ring.follow(&rotation(21, &b, &c)).is_err(), "retired");
    ring.follow(&rotation(12, &b, &c))
        .expect("before it was retired");
    assert!(ring.retire(ORIGIN, KeyId::from_bytes([0; 4]), 1).is_err());
    let json = serde_json::to_string(&ring).expect("plain data");
    assert_eq!(
        serde_json::from_str::<KeyRing>(&json).expect("itself"),
        ring
    );
}

#[test]
fn rotations_stay_in_their_log() {
    let (ours, theirs) = (key(1), named_key("example.org/other", 2));
    let across = LogEntry::rotation(ORIGIN, 0, at(0), &ours, theirs.verifying_key());
    assert!(across.is_err());
    let to_itself = LogEntry::rotation(ORIGIN, 0, at(0), &ours, ours.verifying_key());
    assert!(to_itself.is_err());
}
