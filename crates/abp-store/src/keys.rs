//! The private keys of the log, a file each, named by key id.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use abp_receipt::{KeyId, SigningKey, VerifyingKey};
use zeroize::Zeroizing;

use crate::StoreError;
use crate::layout::{create_private, require_private, sync_directory};

/// Longer than any key file.
const MAX_KEY_BYTES: u64 = 4096;

/// The directory with the private keys.
#[derive(Debug, Clone)]
pub(crate) struct KeyDir {
    path: PathBuf,
    /// Whether processes share the keys without sharing the directory, so that none may make one.
    is_operators: bool,
}

impl KeyDir {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            is_operators: false,
        }
    }

    /// Keys that every node is given by its operator.
    pub(crate) fn of_operator(path: PathBuf) -> Self {
        Self {
            path,
            is_operators: true,
        }
    }

    /// Whether a process may replace the key that signs.
    pub(crate) fn is_operators(&self) -> bool {
        self.is_operators
    }

    /// Makes a key for a log. Its file is durable and private before this returns.
    pub(crate) fn create(&self, origin: &str) -> Result<SigningKey, StoreError> {
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(seed.as_mut_slice()).map_err(|error| {
            StoreError::io("make a key in", &self.path)(io::Error::other(error))
        })?;
        let key = SigningKey::from_seed(origin, &seed).map_err(|error| StoreError::Origin {
            origin: origin.to_owned(),
            problem: error.to_string(),
        })?;
        let path = self.file(key.verifying_key().id());
        let written = create_private(&path).and_then(|mut file| {
            file.write_all(key.to_secret_text().as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()
        });
        written.map_err(StoreError::io("write", &path))?;
        sync_directory(&self.path)?;
        Ok(key)
    }

    /// Reads a key, and refuses it where others could have read it too.
    pub(crate) fn load(&self, public: &VerifyingKey) -> Result<Arc<SigningKey>, StoreError> {
        let path = self.file(public.id());
        let key_id = public.id().to_string();
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::KeyMissing { path, key_id });
            }
            Err(error) => return Err(StoreError::io("open", &path)(error)),
        };
        require_private(&file, &path)?;
        let mut text = Zeroizing::new(String::new());
        file.take(MAX_KEY_BYTES)
            .read_to_string(&mut text)
            .map_err(StoreError::io("read", &path))?;
        SigningKey::from_secret_text(text.trim_end())
            .ok()
            .filter(|key| key.verifying_key() == public)
            .map(Arc::new)
            .ok_or(StoreError::KeyUnusable { path, key_id })
    }

    /// Removes a key that was replaced. Where that fails, the key is only no longer used.
    pub(crate) fn remove(&self, id: KeyId) {
        if let Err(error) = fs::remove_file(self.file(id)) {
            tracing::warn!(target: "abp.store", %id, %error, "the replaced key is still there");
        }
    }

    fn file(&self, id: KeyId) -> PathBuf {
        self.path.join(format!("{id}.key"))
    }
}
