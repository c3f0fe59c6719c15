//! Ed25519 keys, named as signed notes name them.
//!
//! A key has a name (that of the log it signs for) and an id of four bytes made of name and public
//! key. The text forms are one line each:
//!
//! ```text
//! public   <name>+<id>+<base64(0x01 || public key)>
//! secret   PRIVATE+KEY+<name>+<id>+<base64(0x01 || seed)>
//! ```
//!
//! Seeds are handed in: nothing here makes randomness or reads a file.

use std::fmt;
use std::str::FromStr;

use abp_error::ErrorCode;
use ed25519_dalek::Signer as _;
use zeroize::{Zeroize as _, Zeroizing};

use crate::{Hash, encoding};

/// The byte that says Ed25519 in a key's text and id.
const ED25519: u8 = 1;
/// The longest name of a key or a log, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// The longest text of a key.
const MAX_KEY_BYTES: usize = 512;
const SECRET_PREFIX: &str = "PRIVATE+KEY+";

/// Why a key cannot be used.
///
/// No variant carries a part of a key's text: it may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is not the text of a key.
    #[error("not a key of the expected form: {problem}")]
    Malformed {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The name cannot be written in a signature.
    #[error(
        "a key's name needs 1 to {MAX_NAME_BYTES} bytes without spaces, plus signs and control characters"
    )]
    Name,
    /// A key of that name and id is trusted already, and it is another one.
    #[error("another key is trusted as {name}+{id}")]
    Collision {
        /// The name.
        name: String,
        /// The id.
        id: KeyId,
    },
    /// The key is not in the ring.
    #[error("the key {name}+{id} is not known")]
    Unknown {
        /// The name.
        name: String,
        /// The id.
        id: KeyId,
    },
    /// The signature is not by this key over this text.
    #[error("the signature by {name}+{id} is wrong")]
    BadSignature {
        /// The key's name.
        name: String,
        /// The key's id.
        id: KeyId,
    },
    /// The rotation is not one that can be followed.
    #[error("the rotation of {name}+{id} cannot be followed: {problem}")]
    Rotation {
        /// The old key's name.
        name: String,
        /// The old key's id.
        id: KeyId,
        /// Why.
        problem: &'static str,
    },
}

impl KeyError {
    /// The error's code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Malformed { .. } | Self::Name | Self::Collision { .. } => {
                ErrorCode::ValidationFailed
            }
            Self::Unknown { .. } | Self::BadSignature { .. } | Self::Rotation { .. } => {
                ErrorCode::ReceiptChainBroken
            }
        }
    }
}

/// The short id of a key: tells apart the keys of one name, and proves nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; 4]);

impl KeyId {
    /// The id with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 4]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 4] {
        &self.0
    }

    fn of(name: &str, public: &[u8; 32]) -> Self {
        let hash = Hash::of_parts(&[name.as_bytes(), b"\n", &[ED25519], public]);
        let [a, b, c, d, ..] = *hash.as_bytes();
        Self([a, b, c, d])
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encoding::to_hex(&self.0))
    }
}

impl FromStr for KeyId {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let problem = "the id is not eight hexadecimal digits";
        encoding::array_from_hex(text)
            .map(Self)
            .ok_or(KeyError::Malformed { problem })
    }
}

/// An Ed25519 signature; base64 in text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature([u8; 64]);

impl Signature {
    /// The signature with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encoding::to_base64(&self.0))
    }
}

impl FromStr for Signature {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let problem = "the signature is not 64 bytes of base64";
        encoding::array_from_base64(text)
            .map(Self)
            .ok_or(KeyError::Malformed { problem })
    }
}

/// A public key with its name.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifyingKey {
    name: String,
    id: KeyId,
    key: ed25519_dalek::VerifyingKey,
}

impl VerifyingKey {
    /// The key with this name and these bytes.
    ///
    /// # Errors
    /// Refuses a name that cannot be written, and bytes under which signatures prove nothing.
    pub fn from_bytes(name: &str, bytes: &[u8; 32]) -> Result<Self, KeyError> {
        check_name(name)?;
        let key = ed25519_dalek::VerifyingKey::from_bytes(bytes)
            .ok()
            .filter(|key| !key.is_weak())
            .ok_or(KeyError::Malformed {
                problem: "not a point that can be a public key",
            })?;
        Ok(Self::from_dalek(name, key))
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The public key itself.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.key.as_bytes()
    }

    /// Checks a signature over some bytes.
    ///
    /// # Errors
    /// Fails where it is not this key's signature over exactly these bytes.
    pub fn verify(&self, message: &[u8], signature: &Signature) -> Result<(), KeyError> {
        let signature = ed25519_dalek::Signature::from_bytes(signature.as_bytes());
        self.key
            .verify_strict(message, &signature)
            .map_err(|_| KeyError::BadSignature {
                name: self.name.clone(),
                id: self.id,
            })
    }

    fn from_dalek(name: &str, key: ed25519_dalek::VerifyingKey) -> Self {
        Self {
            name: name.to_owned(),
            id: KeyId::of(name, key.as_bytes()),
            key,
        }
    }
}

impl fmt::Display for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![ED25519];
        bytes.extend_from_slice(self.as_bytes());
        let (name, id) = (&self.name, self.id);
        write!(f, "{name}+{id}+{}", encoding::to_base64(&bytes))
    }
}

impl FromStr for VerifyingKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let (name, id, bytes) = split_key(text)?;
        let key = Self::from_bytes(name, &bytes)?;
        check_id(id, key.id)?;
        Ok(key)
    }
}

/// A secret key with its name. Overwritten when dropped, and never printed.
pub struct SigningKey {
    secret: ed25519_dalek::SigningKey,
    public: VerifyingKey,
}

impl SigningKey {
    /// The key made of a seed, which must come from a source of randomness fit for secrets.
    ///
    /// # Errors
    /// Refuses a name that cannot be written.
    pub fn from_seed(name: &str, seed: &[u8; 32]) -> Result<Self, KeyError> {
        check_name(name)?;
        let secret = ed25519_dalek::SigningKey::from_bytes(seed);
        let public = VerifyingKey::from_dalek(name, secret.verifying_key());
        Ok(Self { secret, public })
    }

    /// Reads the text of a secret key.
    ///
    /// # Errors
    /// Fails where it is not the text of one. The error repeats nothing of it.
    pub fn from_secret_text(text: &str) -> Result<Self, KeyError> {
        let problem = "not a secret key";
        let text = text
            .strip_prefix(SECRET_PREFIX)
            .ok_or(KeyError::Malformed { problem })?;
        let (name, id, seed) = split_key(text)?;
        let key = Self::from_seed(name, &Zeroizing::new(seed))?;
        check_id(id, key.public.id)?;
        Ok(key)
    }

    /// The text of the secret key, for a file that only its owner can read.
    #[must_use]
    pub fn to_secret_text(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new([ED25519; 33]);
        for (to, from) in bytes.iter_mut().skip(1).zip(self.secret.as_bytes()) {
            *to = *from;
        }
        let secret = Zeroizing::new(encoding::to_base64(bytes.as_slice()));
        let VerifyingKey { name, id, .. } = &self.public;
        let id = id.to_string();
        // Built at its final size: a growing string would leave copies of the secret behind.
        let parts = [SECRET_PREFIX, name, "+", &id, "+", &secret];
        Zeroizing::new(parts.concat())
    }

    /// The public key.
    #[must_use]
    pub fn verifying_key(&self) -> &VerifyingKey {
        &self.public
    }

    /// Signs some bytes.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Signature {
        Signature(self.secret.sign(message).to_bytes())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VerifyingKey { name, id, .. } = &self.public;
        write!(f, "SigningKey({name}+{id})")
    }
}

impl FromStr for SigningKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::from_secret_text(text)
    }
}

encoding::as_text!(KeyId, Signature, VerifyingKey);

/// Whether a text can be the name of a key or a log: it stands in signature lines between spaces.
pub(crate) fn check_name(name: &str) -> Result<(), KeyError> {
    let forbidden = |c: char| c.is_whitespace() || c.is_control() || c == '+';
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(forbidden) {
        return Err(KeyError::Name);
    }
    Ok(())
}

/// Divides `<name>+<id>+<base64(0x01 || 32 bytes)>`.
fn split_key(text: &str) -> Result<(&str, KeyId, [u8; 32]), KeyError> {
    let malformed = |problem| KeyError::Malformed { problem };
    if text.len() > MAX_KEY_BYTES {
        return Err(malformed("the text is too long"));
    }
    let mut parts = text.splitn(3, '+');
    let (Some(name), Some(id), Some(encoded)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(malformed("expected <name>+<id>+<base64>"));
    };
    let mut bytes = Zeroizing::new(
        encoding::array_from_base64::<33>(encoded)
            .ok_or_else(|| malformed("the key is not 33 bytes of base64"))?,
    );
    let [algorithm, key @ ..] = *bytes;
    bytes.zeroize();
    if algorithm != ED25519 {
        return Err(malformed("not an Ed25519 key"));
    }
    Ok((name, id.parse()?, key))
}

fn check_id(written: KeyId, computed: KeyId) -> Result<(), KeyError> {
    if written == computed {
        return Ok(());
    }
    let problem = "the id is not that of this name and key";
    Err(KeyError::Malformed { problem })
}
