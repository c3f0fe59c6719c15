//! Sealing submissions: what a run was asked for, secrets included, is stored so that only who has the
//! key file can read it.
//!
//! A sealed value is a random nonce of 24 bytes and the ciphertext of XChaCha20-Poly1305, bound to its run:
//! a value that is moved to another run does not open.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::StoreError;
use crate::layout::{create_private, require_private, sync_directory};

/// The name of the key file, beside the keys that sign the log.
const KEY_FILE: &str = "submissions.seal";
const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;

/// Seals and opens submissions. Its key is read, or made, when it is first needed.
#[derive(Debug, Clone)]
pub(crate) struct Sealer {
    path: PathBuf,
    /// Whether the key is the operator's, so that no process makes one.
    is_operators: bool,
}

impl Sealer {
    /// A sealer with the key file in this directory.
    pub(crate) fn new(keys: &Path) -> Self {
        Self {
            path: keys.join(KEY_FILE),
            is_operators: false,
        }
    }

    /// A sealer with the key that every node is given by its operator.
    pub(crate) fn of_operator(keys: &Path) -> Self {
        Self {
            path: keys.join(KEY_FILE),
            is_operators: true,
        }
    }

    /// Fails where the key is missing or may be read by others.
    pub(crate) fn require_key(&self) -> Result<(), StoreError> {
        self.load()?.map(drop).ok_or_else(|| self.missing())
    }

    /// Makes the key where it is missing.
    pub(crate) fn ensure_key(&self) -> Result<(), StoreError> {
        match self.load()? {
            Some(_) => Ok(()),
            None => self.create().map(drop),
        }
    }

    fn missing(&self) -> StoreError {
        StoreError::KeyMissing {
            path: self.path.clone(),
            key_id: "of submissions".to_owned(),
        }
    }

    /// Seals a value for a run.
    pub(crate) fn seal(&self, run_id: Uuid, plain: &[u8]) -> Result<Vec<u8>, StoreError> {
        let key = match self.load()? {
            Some(key) => key,
            None if self.is_operators => return Err(self.missing()),
            None => self.create()?,
        };
        let mut nonce = [0; NONCE_BYTES];
        self.fill(&mut nonce)?;
        let payload = Payload {
            msg: plain,
            aad: run_id.as_bytes(),
        };
        let cipher = XChaCha20Poly1305::new((&*key).into());
        let sealed = cipher.encrypt(&XNonce::from(nonce), payload);
        let sealed = sealed.map_err(|_| StoreError::TooLarge {
            what: "the submission",
        })?;
        let mut all = nonce.to_vec();
        all.extend(sealed);
        Ok(all)
    }

    /// Opens a value that was sealed for this run.
    pub(crate) fn open(
        &self,
        run_id: Uuid,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let refused = || StoreError::SealBroken {
            run_id,
            path: self.path.clone(),
        };
        let key = self.load()?.ok_or_else(refused)?;
        let (nonce, sealed) = sealed
            .split_first_chunk::<NONCE_BYTES>()
            .ok_or_else(refused)?;
        let payload = Payload {
            msg: sealed,
            aad: run_id.as_bytes(),
        };
        let cipher = XChaCha20Poly1305::new((&*key).into());
        let plain = cipher.decrypt(&XNonce::from(*nonce), payload);
        plain.map(Zeroizing::new).map_err(|_| refused())
    }

    fn load(&self) -> Result<Option<Zeroizing<[u8; KEY_BYTES]>>, StoreError> {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&self.path);
        let mut file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io("open", &self.path)(error)),
        };
        require_private(&file, &self.path)?;
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        file.read_exact(key.as_mut_slice())
            .map_err(StoreError::io("read", &self.path))?;
        Ok(Some(key))
    }

    /// Makes the key. Of several processes that try at once, one makes it, and all use that one: it gets
    /// its name only when it is whole.
    fn create(&self) -> Result<Zeroizing<[u8; KEY_BYTES]>, StoreError> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        self.fill(key.as_mut_slice())?;
        let partial = self
            .path
            .with_extension(format!("{}", Uuid::new_v4().simple()));
        let written = create_private(&partial).and_then(|mut file| {
            file.write_all(key.as_slice())?;
            file.sync_all()
        });
        let linked = written.and_then(|()| std::fs::hard_link(&partial, &self.path));
        // The error that counts is the one before; a partial file is never read.
        drop(std::fs::remove_file(&partial));
        match linked {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(StoreError::io("write", &self.path)(error)),
        }
        if let Some(directory) = self.path.parent() {
            sync_directory(directory)?;
        }
        let missing = || StoreError::io("read", &self.path)(io::ErrorKind::NotFound.into());
        self.load()?.ok_or_else(missing)
    }

    fn fill(&self, bytes: &mut [u8]) -> Result<(), StoreError> {
        getrandom::fill(bytes)
            .map_err(|error| StoreError::io("make a key in", &self.path)(io::Error::other(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sealed value opens for its run alone, with the key it was sealed with, and whole.
    #[test]
    fn a_sealed_value_opens_for_its_run_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let sealer = Sealer::new(dir.path());
        let run = Uuid::from_u128(7);
        let sealed = sealer.seal(run, b"secret").expect("sealed");
        assert!(!sealed.windows(6).any(|part| part == b"secret"));
        assert_ne!(sealed, sealer.seal(run, b"secret").expect("sealed"));
        let opened = sealer.open(run, &sealed).expect("opened");
        assert_eq!(opened.as_slice(), b"secret");
        assert!(sealer.open(Uuid::from_u128(8), &sealed).is_err());
        for place in 0..sealed.len() {
            let mut bent = sealed.clone();
            bent[place] ^= 1;
            assert!(sealer.open(run, &bent).is_err(), "byte {place}");
            assert!(
                sealer.open(run, &sealed[..place]).is_err(),
                "cut at {place}"
            );
        }
        let key = dir.path().join(KEY_FILE);
        std::fs::remove_file(&key).expect("removed");
        assert!(sealer.open(run, &sealed).is_err());
        sealer.seal(run, b"another key").expect("sealed");
        assert!(sealer.open(run, &sealed).is_err());
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&key, mode).expect("changed");
        let refused = sealer.seal(run, b"x").expect_err("others could read it");
        assert!(matches!(refused, StoreError::Permissions { .. }));
    }
}
