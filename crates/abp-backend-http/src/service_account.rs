//! Tokens of a Google service account (RFC 7523).
//!
//! The account's private key signs a statement that says who asks and for what; Google gives a token for
//! it that is good for an hour.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use abp_error::{AbpError, ErrorCode};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;

use crate::address::Address;
use crate::connect::Connector;
use crate::credential::Credential;
use crate::message::{write_head, write_header};
use crate::pool::{Pool, VendorRequest};

/// The right to use everything that the account may use.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const GRANT: &str = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer";
/// The time that a statement is valid. Google takes no more than an hour.
const STATEMENT_SECS: i64 = 3600;
/// The longest answer that is read.
const LONGEST_ANSWER: usize = 64 * 1024;
/// A token is made anew so long before it expires.
const MARGIN: u64 = 60;

/// A service account, by its JSON file.
pub(crate) struct ServiceAccount {
    email: String,
    key_id: Option<String>,
    key: RsaKeyPair,
    token_uri: String,
    host: HeaderValue,
    target: Uri,
    pool: Arc<Pool>,
}

/// As far as the file matters.
#[derive(Deserialize)]
struct AccountFile {
    client_email: String,
    private_key: String,
    private_key_id: Option<String>,
    token_uri: String,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    expires_in: u64,
}

impl ServiceAccount {
    /// Reads the JSON file of an account. `connector` is made for TLS or without.
    ///
    /// # Errors
    /// Fails where the text is no such file, or its key cannot be used.
    pub(crate) fn read(
        text: &SecretString,
        connector: impl FnOnce(bool) -> Result<Connector, AbpError>,
    ) -> Result<Self, AbpError> {
        let invalid = |problem: &str| {
            let message = format!("the service account: {problem}");
            AbpError::new(ErrorCode::ConfigInvalid, message)
        };
        let file: AccountFile = serde_json::from_str(text.expose_secret()).map_err(|_| {
            invalid("not the JSON file of one (client_email, private_key, token_uri)")
        })?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(file.private_key.as_bytes())
            .map_err(|_| invalid("private_key is no PEM of PKCS #8"))?;
        let key = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der())
            .map_err(|_| invalid("private_key is no usable RSA key"))?;
        let address = Address::parse(&file.token_uri)
            .map_err(|problem| invalid(&format!("token_uri {problem}")))?;
        if !address.is_https() && !address.is_loopback() {
            return Err(invalid("token_uri is not https"));
        }
        let unusable = |_| invalid("token_uri cannot be asked");
        Ok(Self {
            email: file.client_email,
            key_id: file.private_key_id,
            key,
            host: address
                .host()
                .map_err(|_| invalid("token_uri cannot be asked"))?,
            target: address.request_path().parse().map_err(unusable)?,
            pool: Pool::new(
                connector(address.is_https())?,
                address.origin().parse().map_err(unusable)?,
            ),
            token_uri: file.token_uri,
        })
    }

    /// Asks for a token, which is good for the time that comes with it.
    ///
    /// # Errors
    /// Says what went wrong, without anything that was sent or received.
    pub(crate) async fn fetch_token(&self) -> Result<(Credential, Duration), String> {
        let body = format!(
            "grant_type={GRANT}&assertion={}",
            self.statement(Timestamp::now())?
        );
        let (status, answer) = self.ask(body.into()).await?;
        let place = self.host.to_str().unwrap_or_default();
        if status != StatusCode::OK {
            return Err(format!("{place} answers {status} to the service account"));
        }
        let answer: TokenAnswer = serde_json::from_slice(&answer)
            .map_err(|_| format!("the answer of {place} holds no token"))?;
        let lifetime = answer.expires_in.saturating_sub(MARGIN);
        let credential = Credential::new(&answer.access_token)?;
        Ok((credential, Duration::from_secs(lifetime)))
    }

    /// The signed statement (a JSON Web Token).
    fn statement(&self, now: Timestamp) -> Result<String, String> {
        let mut header = json!({"alg": "RS256", "typ": "JWT"});
        if let (Some(header), Some(id)) = (header.as_object_mut(), &self.key_id) {
            header.insert("kid".to_owned(), json!(id));
        }
        let claims = json!({
            "iss": self.email,
            "scope": SCOPE,
            "aud": self.token_uri,
            "iat": now.as_second(),
            "exp": now.as_second() + STATEMENT_SECS,
        });
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let text = format!(
            "{}.{}",
            encode(header.to_string().as_bytes()),
            encode(claims.to_string().as_bytes())
        );
        let mut signature = vec![0; self.key.public().modulus_len()];
        let random = SystemRandom::new();
        self.key
            .sign(&RSA_PKCS1_SHA256, &random, text.as_bytes(), &mut signature)
            .map_err(|_| "the service account's key does not sign".to_owned())?;
        Ok(format!("{text}.{}", encode(&signature)))
    }

    async fn ask(&self, body: Bytes) -> Result<(StatusCode, Vec<u8>), String> {
        let headers = |head: &mut Vec<u8>| {
            let fixed = [
                ("accept", "application/json"),
                ("accept-encoding", "identity"),
                ("connection", "close"),
                ("content-type", "application/x-www-form-urlencoded"),
            ];
            write_header(head, &http::header::HOST, &self.host);
            for (name, value) in fixed {
                let (name, value) = (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                );
                write_header(head, &name, &value);
            }
        };
        let head = write_head(&Method::POST, "", &self.target, body.len(), headers);
        let line = self.pool.connect().await;
        let mut line = line.map_err(|error| format!("no connection: {error}"))?;
        let sent = line.send(VendorRequest::new(head, body)).await;
        let head = sent.map_err(|error| format!("no answer: {error}"))?;
        let mut answer = Vec::new();
        loop {
            let part = poll_fn(|context| line.poll_part(context)).await;
            let Some(part) = part.map_err(|error| error.to_string())? else {
                return Ok((head.status, answer));
            };
            if answer.len() + part.len() > LONGEST_ANSWER {
                return Err(format!("the answer is longer than {LONGEST_ANSWER} bytes"));
            }
            answer.extend_from_slice(&part);
        }
    }
}
