//! DSSE envelopes: bytes with a type and detached Ed25519 signatures over both.
//!
//! Only the standard base64 alphabet is read. A signature whose `keyid` names no known key is passed
//! over; one whose `keyid` names a known key must be right.

use std::fmt;
use std::str::FromStr;

use abp_error::ErrorCode;
use serde::{Deserialize, Serialize};

use crate::{KeyError, KeyId, KeyRing, KeyStanding, Signature, SigningKey, encoding};

/// The type of an envelope that carries a receipt document.
pub const RECEIPT_PAYLOAD_TYPE: &str = "application/vnd.abp.receipt+json";
/// The most signatures of an envelope that are looked at.
const MAX_SIGNATURES: usize = 64;

/// Why an envelope cannot be believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// The envelope carries something else.
    #[error("the envelope carries {found:?}, expected {expected:?}")]
    PayloadType {
        /// What it says it carries.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
    /// There are too many signatures.
    #[error("the envelope has {count} signatures, more than {MAX_SIGNATURES}")]
    TooManySignatures {
        /// How many.
        count: usize,
    },
    /// A signature by a known key is wrong: type or payload was changed, or another key signed.
    #[error(transparent)]
    BadSignature(KeyError),
    /// No signature is by a known key.
    #[error("no signature of the envelope is by a known key of {name:?}")]
    UnknownKey {
        /// The name the key should have.
        name: String,
    },
    /// The signature is by a key that was not in use.
    #[error("the key {name}+{id} was not in use when the log had {size} entries")]
    OutOfTerm {
        /// The key's name.
        name: String,
        /// The key's id.
        id: KeyId,
        /// The size of the log.
        size: u64,
    },
}

impl EnvelopeError {
    /// The error's code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::PayloadType { .. } | Self::TooManySignatures { .. } => {
                ErrorCode::ContractInvalidReceipt
            }
            Self::BadSignature(_) => ErrorCode::ReceiptHashMismatch,
            Self::UnknownKey { .. } | Self::OutOfTerm { .. } => ErrorCode::ReceiptChainBroken,
        }
    }
}

/// A signed document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DsseEnvelope {
    payload_type: String,
    payload: Base64,
    signatures: Vec<EnvelopeSignature>,
}

/// One signature of an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct EnvelopeSignature {
    /// `<name>+<id>` of the key: a hint, and not signed.
    #[serde(default)]
    keyid: String,
    sig: Base64,
}

/// Bytes that are base64 in JSON.
#[derive(Clone, PartialEq, Eq)]
struct Base64(Vec<u8>);

impl DsseEnvelope {
    /// Signs a document.
    #[must_use]
    pub fn sign(payload_type: &str, payload: Vec<u8>, key: &SigningKey) -> Self {
        let signature = key.sign(&pre_authentication_encoding(payload_type, &payload));
        let public = key.verifying_key();
        Self {
            payload_type: payload_type.to_owned(),
            payload: Base64(payload),
            signatures: vec![EnvelopeSignature {
                keyid: format!("{}+{}", public.name(), public.id()),
                sig: Base64(signature.as_bytes().to_vec()),
            }],
        }
    }

    /// The document. Means nothing before [`verify`](Self::verify).
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload.0
    }

    /// Refuses a document of another type.
    pub(crate) fn require_type(&self, expected: &'static str) -> Result<(), EnvelopeError> {
        if self.payload_type == expected {
            return Ok(());
        }
        Err(EnvelopeError::PayloadType {
            found: self.payload_type.clone(),
            expected,
        })
    }

    /// Returns the document where a key of that name signed it that was in use when its log had
    /// `size` entries.
    ///
    /// # Errors
    /// Says what is wrong with the signatures.
    pub fn verify(
        &self,
        payload_type: &'static str,
        keys: &KeyRing,
        name: &str,
        size: u64,
    ) -> Result<&[u8], EnvelopeError> {
        self.require_type(payload_type)?;
        let count = self.signatures.len();
        if count > MAX_SIGNATURES {
            return Err(EnvelopeError::TooManySignatures { count });
        }
        let signed = pre_authentication_encoding(payload_type, &self.payload.0);
        let mut verdict = Err(EnvelopeError::UnknownKey {
            name: name.to_owned(),
        });
        for signature in &self.signatures {
            let Some(id) = signature.id_of(name) else {
                continue;
            };
            let standing = keys.standing(name, id, size);
            let (KeyStanding::Good(key) | KeyStanding::OutOfTerm(key)) = standing else {
                continue;
            };
            let wrong = || KeyError::BadSignature {
                name: name.to_owned(),
                id,
            };
            let bytes: [u8; 64] = signature
                .sig
                .0
                .as_slice()
                .try_into()
                .map_err(|_| EnvelopeError::BadSignature(wrong()))?;
            key.verify(&signed, &Signature::from_bytes(bytes))
                .map_err(EnvelopeError::BadSignature)?;
            if let KeyStanding::Good(_) = standing {
                verdict = Ok(self.payload.0.as_slice());
            } else if verdict.is_err() {
                let name = name.to_owned();
                verdict = Err(EnvelopeError::OutOfTerm { name, id, size });
            }
        }
        verdict
    }
}

impl EnvelopeSignature {
    /// The id of the key, where it has that name.
    fn id_of(&self, name: &str) -> Option<KeyId> {
        let id = self.keyid.strip_prefix(name)?.strip_prefix('+')?;
        id.parse().ok()
    }
}

/// What an envelope's signature is made over: type and payload, neither of which can be taken for
/// a part of the other.
pub(crate) fn pre_authentication_encoding(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!(
        "DSSEv1 {} {payload_type} {} ",
        payload_type.len(),
        payload.len()
    );
    [head.as_bytes(), payload].concat()
}

encoding::as_text!(Base64);

impl fmt::Display for Base64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encoding::to_base64(&self.0))
    }
}

impl FromStr for Base64 {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        encoding::from_base64(text).map(Self).ok_or("not base64")
    }
}
