//! Signed statements of a log's size and root, as text.
//!
//! The form is that of transparency-log checkpoints: a signed note whose text is the log's origin,
//! its size and its root, a line each, then an empty line and the signatures.
//!
//! ```text
//! <origin>
//! <size>
//! <base64 root>
//!
//! — <key name> <base64(key id || signature)>
//! ```
//!
//! Reading is strict: what was read is written again byte for byte. Extension lines, which the form
//! allows and no log of ours writes, are refused.

use std::fmt;
use std::str::FromStr;

use abp_error::ErrorCode;

use crate::merkle::{MAX_TREE_SIZE, ProofError, empty_root, verify_consistency};
use crate::sign::check_name;
use crate::{Hash, KeyError, KeyId, KeyRing, KeyStanding, Signature, SigningKey, encoding};

/// The longest checkpoint that is read: room for sixteen cosignatures of any known kind.
const MAX_BYTES: usize = 256 * 1024;
/// The most signatures that are read.
const MAX_SIGNATURES: usize = 64;
const SIGNATURE_PREFIX: &str = "— ";

/// Why a checkpoint cannot be read or believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The text is not a checkpoint.
    #[error("not a checkpoint: {problem}")]
    Malformed {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The origin or a key's name cannot be written.
    #[error(transparent)]
    Name(KeyError),
    /// The checkpoint is of another log than expected, or the key of another log than signed for.
    #[error("the checkpoint is of the log {found:?}, expected {expected:?}")]
    WrongOrigin {
        /// The log of the checkpoint.
        found: String,
        /// The log that was expected.
        expected: String,
    },
    /// A signature by a known key is wrong.
    #[error(transparent)]
    BadSignature(KeyError),
    /// No signature is by a known key of the log.
    #[error("no signature is by a known key; signed by {}", signers.join(", "))]
    UnknownKey {
        /// Whose signatures there are, as `name+id`.
        signers: Vec<String>,
    },
    /// The log does not begin with what it was at an older checkpoint.
    #[error("the checkpoint does not continue the older one: {0}")]
    Inconsistent(ProofError),
    /// The signature is by a key that was not in use at that size.
    #[error("the key {name}+{id} may not sign a log of {size} entries")]
    OutOfTerm {
        /// The key's name.
        name: String,
        /// The key's id.
        id: KeyId,
        /// The size.
        size: u64,
    },
}

impl CheckpointError {
    /// The error's code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Malformed { .. } | Self::Name(_) => ErrorCode::ValidationFailed,
            Self::WrongOrigin { .. }
            | Self::BadSignature(_)
            | Self::UnknownKey { .. }
            | Self::Inconsistent(_)
            | Self::OutOfTerm { .. } => ErrorCode::ReceiptChainBroken,
        }
    }
}

/// What a log was at one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    origin: String,
    size: u64,
    root: Hash,
}

impl Checkpoint {
    /// The checkpoint of a log.
    ///
    /// # Errors
    /// Refuses an origin or a size that cannot be written.
    pub fn new(origin: &str, size: u64, root: Hash) -> Result<Self, CheckpointError> {
        check_name(origin).map_err(CheckpointError::Name)?;
        if size > MAX_TREE_SIZE {
            return Err(malformed("the size is too large"));
        }
        let origin = origin.to_owned();
        Ok(Self { origin, size, root })
    }

    /// The checkpoint of a head, which has checked its origin and counts its own size.
    pub(crate) fn of_head(origin: String, size: u64, root: Hash) -> Self {
        Self { origin, size, root }
    }

    /// The log.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// How many entries it had.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The root of its tree.
    #[must_use]
    pub fn root(&self) -> &Hash {
        &self.root
    }

    /// The text that is signed.
    #[must_use]
    pub fn to_text(&self) -> String {
        let Self { origin, size, root } = self;
        format!("{origin}\n{size}\n{}\n", root.to_base64())
    }

    /// Signs the checkpoint.
    ///
    /// The caller makes sure that it is consistent with every checkpoint it signed before;
    /// [`LogHead`](crate::LogHead) is how.
    ///
    /// # Errors
    /// Refuses a key that has another name than the log.
    pub fn sign(self, key: &SigningKey) -> Result<SignedCheckpoint, CheckpointError> {
        let mut signed = SignedCheckpoint {
            checkpoint: self,
            signatures: Vec::new(),
        };
        if key.verifying_key().name() != signed.checkpoint.origin {
            return Err(CheckpointError::WrongOrigin {
                found: signed.checkpoint.origin,
                expected: key.verifying_key().name().to_owned(),
            });
        }
        signed.cosign(key);
        Ok(signed)
    }

    /// Checks that the log of an older checkpoint is the beginning of this one, by a
    /// [`consistency_proof`](crate::consistency_proof). Between equal sizes, and from the empty log,
    /// the proof is empty.
    ///
    /// # Errors
    /// Fails where the log was cut or rewritten since, or is another one.
    pub fn continues(&self, older: &Self, proof: &[Hash]) -> Result<(), CheckpointError> {
        if self.origin != older.origin {
            return Err(CheckpointError::WrongOrigin {
                found: self.origin.clone(),
                expected: older.origin.clone(),
            });
        }
        // Every log begins empty; the proofs themselves start from a log of one entry.
        let trivial = older.size == 0 && older.root == empty_root() && proof.is_empty();
        if trivial && (self.size > 0 || self.root == older.root) {
            return Ok(());
        }
        verify_consistency(older.size, self.size, proof, &older.root, &self.root)
            .map_err(CheckpointError::Inconsistent)
    }

    fn parse(text: &str) -> Result<Self, CheckpointError> {
        let mut lines = text.split('\n');
        let (Some(origin), Some(size), Some(root), Some(""), None) = (
            lines.next(),
            lines.next(),
            lines.next(),
            lines.next(),
            lines.next(),
        ) else {
            return Err(malformed("expected the lines origin, size and root"));
        };
        let root =
            Hash::from_base64(root).map_err(|_| malformed("the root is not 32 bytes of base64"))?;
        Self::new(origin, parse_size(size)?, root)
    }
}

/// A checkpoint with its signatures.
///
/// Written and read as text, also inside JSON.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedCheckpoint {
    checkpoint: Checkpoint,
    signatures: Vec<NoteSignature>,
}

/// One signature line. It may be of a kind and by a key that nobody here knows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NoteSignature {
    name: String,
    id: KeyId,
    signature: Vec<u8>,
}

impl SignedCheckpoint {
    /// What is signed. Means nothing before [`verify`](Self::verify).
    #[must_use]
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Who signed, by their own account.
    pub fn signers(&self) -> impl Iterator<Item = (&str, KeyId)> {
        let signatures = self.signatures.iter();
        signatures.map(|signature| (signature.name.as_str(), signature.id))
    }

    /// Adds a signature, such as that of a witness or of the key a rotation ends with. A key signs
    /// once.
    pub fn cosign(&mut self, key: &SigningKey) {
        let public = key.verifying_key();
        if self.signers().any(|by| by == (public.name(), public.id())) {
            return;
        }
        let signature = key.sign(self.checkpoint.to_text().as_bytes());
        self.signatures.push(NoteSignature {
            name: public.name().to_owned(),
            id: public.id(),
            signature: signature.as_bytes().to_vec(),
        });
    }

    /// Checks that a key of the log signed the checkpoint while it was in use.
    ///
    /// Signatures by unknown keys are passed over; every signature by a known key must be right.
    ///
    /// # Errors
    /// Says what is wrong with the signatures.
    pub fn verify(&self, keys: &KeyRing) -> Result<KeyId, CheckpointError> {
        let text = self.checkpoint.to_text();
        let size = self.checkpoint.size;
        let mut good = None;
        let mut out_of_term = None;
        for NoteSignature {
            name,
            id,
            signature,
        } in &self.signatures
        {
            let standing = keys.standing(name, *id, size);
            let (KeyStanding::Good(key) | KeyStanding::OutOfTerm(key)) = standing else {
                continue;
            };
            let wrong = || KeyError::BadSignature {
                name: name.clone(),
                id: *id,
            };
            let bytes: [u8; 64] = signature
                .as_slice()
                .try_into()
                .map_err(|_| CheckpointError::BadSignature(wrong()))?;
            key.verify(text.as_bytes(), &Signature::from_bytes(bytes))
                .map_err(CheckpointError::BadSignature)?;
            // A key of another log is at most a witness.
            if *name == self.checkpoint.origin {
                match standing {
                    KeyStanding::Good(_) => good = good.or(Some(*id)),
                    _ => out_of_term = Some(*id),
                }
            }
        }
        match (good, out_of_term) {
            (Some(id), _) => Ok(id),
            (None, Some(id)) => Err(CheckpointError::OutOfTerm {
                name: self.checkpoint.origin.clone(),
                id,
                size,
            }),
            (None, None) => Err(CheckpointError::UnknownKey {
                signers: self
                    .signers()
                    .map(|(name, id)| format!("{name}+{id}"))
                    .collect(),
            }),
        }
    }
}

impl fmt::Display for SignedCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.checkpoint.to_text())?;
        for signature in &self.signatures {
            let mut bytes = signature.id.as_bytes().to_vec();
            bytes.extend_from_slice(&signature.signature);
            let name = &signature.name;
            let encoded = encoding::to_base64(&bytes);
            writeln!(f, "{SIGNATURE_PREFIX}{name} {encoded}")?;
        }
        Ok(())
    }
}

impl FromStr for SignedCheckpoint {
    type Err = CheckpointError;

    fn from_str(text: &str) -> Result<Self, CheckpointError> {
        if text.len() > MAX_BYTES {
            return Err(malformed("the text is too long"));
        }
        let (body, signatures) = text
            .split_once("\n\n")
            .ok_or_else(|| malformed("no empty line before the signatures"))?;
        let checkpoint = Checkpoint::parse(&format!("{body}\n"))?;
        let lines = signatures
            .strip_suffix('\n')
            .ok_or_else(|| malformed("the last line does not end"))?;
        let mut read: Vec<NoteSignature> = Vec::new();
        for line in lines.split('\n') {
            let signature = parse_signature(line)?;
            let same =
                |other: &NoteSignature| (other.id, &other.name) == (signature.id, &signature.name);
            if read.iter().any(same) {
                return Err(malformed("a key signs twice"));
            }
            if read.len() == MAX_SIGNATURES {
                return Err(malformed("too many signatures"));
            }
            read.push(signature);
        }
        Ok(Self {
            checkpoint,
            signatures: read,
        })
    }
}

encoding::as_text!(SignedCheckpoint);

fn parse_signature(line: &str) -> Result<NoteSignature, CheckpointError> {
    let (name, encoded) = line
        .strip_prefix(SIGNATURE_PREFIX)
        .and_then(|rest| rest.split_once(' '))
        .ok_or_else(|| malformed("a signature line has another form"))?;
    check_name(name).map_err(CheckpointError::Name)?;
    let bytes =
        encoding::from_base64(encoded).ok_or_else(|| malformed("a signature is not base64"))?;
    match bytes.split_first_chunk::<4>() {
        Some((id, signature)) if !signature.is_empty() => Ok(NoteSignature {
            name: name.to_owned(),
            id: KeyId::from_bytes(*id),
            signature: signature.to_vec(),
        }),
        _ => Err(malformed("a signature is too short")),
    }
}

/// Reads a decimal number in its one spelling.
fn parse_size(text: &str) -> Result<u64, CheckpointError> {
    let size: Option<u64> = text.parse().ok();
    size.filter(|size| size.to_string() == text)
        .ok_or_else(|| malformed("the size is not a plain number"))
}

fn malformed(problem: &'static str) -> CheckpointError {
    CheckpointError::Malformed { problem }
}
