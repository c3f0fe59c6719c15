//! The state a client carries between two rounds of a request, sealed.
//!
//! Since 2026-07-28 a server that needs input answers with a `requestState` and forgets. The client
//! brings it back with the input, and could bring back anything. A seal is an HMAC over the state, its
//! end, who it was given to and the request it was given for. It keeps the state from being changed or
//! used elsewhere, not from being read.

use std::fmt;
use std::time::Duration;

use abp_json::View;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::digest;
use crate::meta::META;
use crate::method::Method;

/// The members of parameters that differ between two rounds of one request.
const CHANGING: [&str; 3] = [META, "inputResponses", "requestState"];
/// The length of the end of a state, and of its seal.
const END_BYTES: usize = 8;
const SEAL_BYTES: usize = 32;
const BLOCK_BYTES: usize = 64;

/// The key of the seals. Whoever serves the next round needs the same.
#[derive(Clone)]
pub struct StateKey([u8; BLOCK_BYTES]);

/// Who a state is given to, and for which request.
#[derive(Clone, Copy, Debug)]
pub struct Binding<'a> {
    /// Whoever is authenticated; empty where nobody is.
    pub principal: &'a str,
    /// The method of the request.
    pub method: Method,
    /// Its parameters. What changes between rounds does not count.
    pub params: View<'a>,
}

/// Why a state is not taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateFault {
    /// It has not the form of a state.
    #[error("is malformed")]
    Malformed,
    /// It was not sealed here, or was changed, or belongs to another principal or request.
    #[error("was not given for this request")]
    Forged,
    /// Its time is over.
    #[error("has expired")]
    Expired,
}

impl StateKey {
    /// A key of 32 random bytes.
    #[must_use]
    pub fn new(secret: [u8; 32]) -> Self {
        let mut block = [0; BLOCK_BYTES];
        // HMAC itself fills a short key with zeros.
        for (byte, secret) in block.iter_mut().zip(secret) {
            *byte = secret;
        }
        Self(block)
    }

    /// A key that only this process has.
    ///
    /// # Errors
    /// Fails where the system gives no random bytes.
    pub fn random() -> std::io::Result<Self> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(std::io::Error::other)?;
        Ok(Self::new(secret))
    }

    /// Seals a state until an end, counted from the Unix epoch.
    #[must_use]
    pub fn seal(&self, binding: &Binding<'_>, state: &str, end: Duration) -> String {
        let mut bytes = millis(end).to_be_bytes().to_vec();
        bytes.extend_from_slice(state.as_bytes());
        let seal = self.mac(binding, &bytes).finalize().into_bytes();
        bytes.extend_from_slice(&seal);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Opens a state at a time counted from the Unix epoch.
    ///
    /// # Errors
    /// Says why it is not taken back.
    pub fn open(
        &self,
        binding: &Binding<'_>,
        sealed: &str,
        now: Duration,
    ) -> Result<String, StateFault> {
        let bytes = URL_SAFE_NO_PAD
            .decode(sealed)
            .map_err(|_| StateFault::Malformed)?;
        let (signed, seal) = bytes
            .split_last_chunk::<SEAL_BYTES>()
            .ok_or(StateFault::Malformed)?;
        let (end, state) = signed
            .split_first_chunk::<END_BYTES>()
            .ok_or(StateFault::Malformed)?;
        // In constant time, and before anything is believed.
        self.mac(binding, signed)
            .verify_slice(seal)
            .map_err(|_| StateFault::Forged)?;
        if millis(now) >= u64::from_be_bytes(*end) {
            return Err(StateFault::Expired);
        }
        String::from_utf8(state.to_vec()).map_err(|_| StateFault::Malformed)
    }

    fn mac(&self, binding: &Binding<'_>, signed: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new(&self.0.into());
        let params = digest_of(binding.params);
        let parts = [
            binding.principal.as_bytes(),
            binding.method.as_str().as_bytes(),
            &params,
            signed,
        ];
        for part in parts {
            mac.update(&digest::length(part));
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateKey(..)")
    }
}

/// The digest of what stays the same between rounds.
fn digest_of(params: View<'_>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for (key, value) in digest::members(params) {
        if !CHANGING.contains(&&*key) {
            digest::add(&mut hash, &[key.as_bytes(), &value]);
        }
    }
    hash.finalize().into()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
