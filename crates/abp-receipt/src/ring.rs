//! The keys a verifier trusts, and for which sizes of a log.

use serde::{Deserialize, Serialize};

use crate::log::{EntryKind, LogEntry};
use crate::{KeyError, KeyId, VerifyingKey};

/// The keys a verifier trusts.
///
/// A key that was rotated out stays good for the checkpoints from before: those whose size does not
/// reach the rotation's entry. The key that replaced it is good from that entry on. A verifier that
/// keeps a checkpoint keeps the ring beside it, so that the ring knows the key that signed it.
///
/// Rotation replaces a key that is still the owner's. Where a key was stolen, a rotation signed by
/// it proves nothing: [`retire`](Self::retire) the key and trust the new one by hand. A ring that
/// has followed a rotation refuses every other one of the same key; a ring that only knows the old
/// key believes the first it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyRing {
    keys: Vec<Trusted>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trusted {
    key: VerifyingKey,
    /// The smallest tree the key may sign.
    #[serde(default)]
    from: u64,
    /// The largest, where the verifier retired the key.
    #[serde(default)]
    until: Option<u64>,
    /// The key that replaced it.
    #[serde(default)]
    successor: Option<Successor>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Successor {
    key: VerifyingKey,
    /// The place of the rotation, and the largest tree the old key may sign.
    seq: u64,
}

/// What a ring knows of a key, for a tree of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStanding<'r> {
    /// The key may sign a tree of that size.
    Good(&'r VerifyingKey),
    /// The key is known, but for other sizes.
    OutOfTerm(&'r VerifyingKey),
    /// The key is not known.
    Unknown,
}

impl KeyRing {
    /// Trusts a key for trees of every size.
    ///
    /// # Errors
    /// Fails where another key has the same name and id.
    pub fn trust(&mut self, key: VerifyingKey) -> Result<(), KeyError> {
        self.add(key, 0)
    }

    /// A ring with one key.
    #[must_use]
    pub fn of(key: VerifyingKey) -> Self {
        Self {
            keys: vec![Trusted::new(key, 0)],
        }
    }

    /// The keys, in the order in which they were trusted.
    pub fn keys(&self) -> impl Iterator<Item = &VerifyingKey> {
        self.keys.iter().map(|trusted| &trusted.key)
    }

    /// What is known of a key, for a tree of that size.
    #[must_use]
    pub fn standing(&self, name: &str, id: KeyId, size: u64) -> KeyStanding<'_> {
        match self.find(name, id) {
            None => KeyStanding::Unknown,
            Some(trusted) if trusted.may_sign(size) => KeyStanding::Good(&trusted.key),
            Some(trusted) => KeyStanding::OutOfTerm(&trusted.key),
        }
    }

    /// Stops trusting a key for trees larger than `size`.
    ///
    /// # Errors
    /// Fails where the key is not in the ring.
    pub fn retire(&mut self, name: &str, id: KeyId, size: u64) -> Result<(), KeyError> {
        let Some(trusted) = self.find_mut(name, id) else {
            let name = name.to_owned();
            return Err(KeyError::Unknown { name, id });
        };
        trusted.until = Some(trusted.until.map_or(size, |until| until.min(size)));
        Ok(())
    }

    /// Follows a rotation: the old key ends where the entry stands, the new key begins there.
    ///
    /// Following the same rotation again changes nothing.
    ///
    /// # Errors
    /// Fails where the entry is no rotation, where its signature is wrong, where the old key is not
    /// known or not in its term, or where it was rotated differently before. The ring is then as it
    /// was.
    pub fn follow(&mut self, entry: &LogEntry) -> Result<(), KeyError> {
        let EntryKind::KeyRotated {
            old_key, new_key, ..
        } = &entry.kind
        else {
            let problem = "the entry is not a rotation";
            return Err(KeyError::Malformed { problem });
        };
        entry.verify_rotation()?;
        let (name, id) = (old_key.name(), old_key.id());
        let fails = |problem| {
            let name = name.to_owned();
            KeyError::Rotation { name, id, problem }
        };
        let Some(old) = self.find(name, id).filter(|old| old.key == **old_key) else {
            let name = name.to_owned();
            return Err(KeyError::Unknown { name, id });
        };
        match &old.successor {
            Some(known) if known.seq == entry.seq && known.key == **new_key => return Ok(()),
            Some(_) => return Err(fails("the old key was rotated differently before")),
            None if !old.may_sign(entry.seq) => {
                return Err(fails("the old key is not in use there"));
            }
            None => {}
        }
        let replaced = |known: &Trusted| known.key == **new_key && known.successor.is_some();
        if self.keys.iter().any(replaced) {
            return Err(fails("the new key was replaced before"));
        }
        let key = VerifyingKey::clone(new_key);
        self.add(key.clone(), entry.seq.saturating_add(1))?;
        if let Some(old) = self.find_mut(name, id) {
            let seq = entry.seq;
            old.successor = Some(Successor { key, seq });
        }
        Ok(())
    }

    /// Follows a rotation, unless the ring's trust begins with the key it leads to.
    pub(crate) fn follow_from_here(&mut self, entry: &LogEntry) -> Result<(), KeyError> {
        let known = match &entry.kind {
            EntryKind::KeyRotated { new_key, .. } => self.knows(new_key),
            _ => false,
        };
        match self.follow(entry) {
            Err(KeyError::Unknown { .. }) if known => Ok(()),
            followed => followed,
        }
    }

    fn knows(&self, key: &VerifyingKey) -> bool {
        self.keys().any(|known| known == key)
    }

    fn add(&mut self, key: VerifyingKey, from: u64) -> Result<(), KeyError> {
        match self.find(key.name(), key.id()) {
            Some(known) if known.key == key => Ok(()),
            Some(_) => Err(KeyError::Collision {
                name: key.name().to_owned(),
                id: key.id(),
            }),
            None => {
                self.keys.push(Trusted::new(key, from));
                Ok(())
            }
        }
    }

    fn find(&self, name: &str, id: KeyId) -> Option<&Trusted> {
        self.keys
            .iter()
            .find(|trusted| trusted.key.id() == id && trusted.key.name() == name)
    }

    fn find_mut(&mut self, name: &str, id: KeyId) -> Option<&mut Trusted> {
        self.keys
            .iter_mut()
            .find(|trusted| trusted.key.id() == id && trusted.key.name() == name)
    }
}

impl Trusted {
    fn new(key: VerifyingKey, from: u64) -> Self {
        Self {
            key,
            from,
            until: None,
            successor: None,
        }
    }

    fn may_sign(&self, size: u64) -> bool {
        let until = self.until.iter();
        let replaced = self.successor.iter().map(|successor| &successor.seq);
        self.from <= size && until.chain(replaced).all(|last| size <= *last)
    }
}
