//! Webhooks: messages of the outbox, signed, sent at least once.
//!
//! A message is claimed for [`CLAIM`], sent, and removed when the receiver answered 2xx. Anything else is
//! tried again, later each time, for a day. The name of a webhook is resolved for every message, and the
//! connection goes to the address that was checked: a name that points elsewhere by then changes nothing.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use abp_config::{Config, WebhookAddresses, WebhookConfig};
use abp_core::Timestamp;
use abp_error::{AbpError, ErrorCode};
use abp_gateway::current_time;
use abp_store::{OutboxMessage, Store};
use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::{Authority, Scheme};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::face::Closing;

/// How long a message is claimed for: longer than sending it may take.
const CLAIM: Duration = Duration::from_secs(60);
/// How long sending a message may take.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);
/// How often the outbox is looked at.
const POLL: Duration = Duration::from_millis(500);
/// How many messages are claimed at once.
const BATCH: u32 = 16;
/// The longest wait between two tries.
const MAX_WAIT: Duration = Duration::from_secs(3_600);
/// After so many tries, about a day, a message is given up.
const MAX_TRIES: u32 = 32;
/// How much of an answer is read.
const MAX_ANSWER: usize = 64 << 10;

/// Sends the messages of the outbox.
#[derive(Debug)]
pub(crate) struct Webhooks {
    destinations: BTreeMap<String, Destination>,
}

#[derive(Debug)]
struct Destination {
    scheme: Scheme,
    authority: Authority,
    path: String,
    secret: Option<SecretString>,
    addresses: WebhookAddresses,
}

impl Webhooks {
    /// The configured webhooks.
    ///
    /// # Errors
    /// Fails where an address or a secret cannot be used.
    pub(crate) fn new(config: &Config) -> Result<Self, AbpError> {
        let destinations = config.webhooks.iter().map(|(name, webhook)| {
            let destination = Destination::new(webhook).map_err(|problem| {
                let message = format!("the webhook {name:?} {problem}");
                AbpError::new(ErrorCode::ConfigInvalid, message)
            })?;
            Ok((name.clone(), destination))
        });
        Ok(Self {
            destinations: destinations.collect::<Result<_, AbpError>>()?,
        })
    }

    /// Whether there is anything to send to.
    pub(crate) fn is_empty(&self) -> bool {
        self.destinations.is_empty()
    }

    /// Sends messages until it is told to end.
    pub(crate) async fn run(self, store: Store, mut closing: Closing) {
        loop {
            let claimed = store.claim_outbox(BATCH, CLAIM).await;
            let messages = claimed.unwrap_or_else(|error| {
                tracing::warn!(target: "abp.webhook", %error, "the outbox cannot be read");
                Vec::new()
            });
            let is_full = messages.len() >= BATCH as usize;
            for message in messages {
                self.deliver(&store, message).await;
                if closing.is_now() {
                    return;
                }
            }
            if is_full {
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(POLL) => {}
                () = closing.wait() => return,
            }
        }
    }

    async fn deliver(&self, store: &Store, message: OutboxMessage) {
        let (id, name) = (message.id, message.destination.clone());
        let sent = match self.destinations.get(&name) {
            Some(destination) => {
                let sending = tokio::time::timeout(SEND_TIMEOUT, destination.send(&message));
                let sent = sending.await;
                sent.unwrap_or_else(|_| Err("it did not answer in time".to_owned()))
            }
            None => Err("it is no longer configured".to_owned()),
        };
        let done = match sent {
            Ok(()) => store.remove_outbox(id).await,
            Err(problem) if message.attempt >= MAX_TRIES => {
                tracing::error!(target: "abp.webhook", id, name, problem, "a message is given up");
                store.remove_outbox(id).await
            }
            Err(problem) => {
                tracing::warn!(target: "abp.webhook", id, name, problem, "a message is sent again later");
                store.retry_outbox(id, next_try(message.attempt)).await
            }
        };
        if let Err(error) = done {
            // Its claim ends by itself, and it is sent again.
            tracing::warn!(target: "abp.webhook", id, %error, "the outbox cannot be written");
        }
    }
}

/// When a message is tried again: a second, two, four, up to an hour.
fn next_try(attempt: u32) -> Timestamp {
    let wait = Duration::from_secs(1) * 2_u32.saturating_pow(attempt.saturating_sub(1).min(20));
    let wait = wait.min(MAX_WAIT).as_millis();
    current_time().plus_millis(u64::try_from(wait).unwrap_or(u64::MAX))
}

impl Destination {
    fn new(webhook: &WebhookConfig) -> Result<Self, String> {
        let uri: Uri = webhook.url.parse().map_err(|_| "has no URL".to_owned())?;
        let scheme = uri.scheme().cloned();
        let scheme = scheme.filter(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
        let scheme = scheme.ok_or("has no URL that begins with https://")?;
        let authority = uri.authority().cloned().ok_or("names no host")?;
        Ok(Self {
            scheme,
            authority,
            path: uri.path().to_owned(),
            secret: secret(webhook)?,
            addresses: webhook.addresses,
        })
    }

    async fn send(&self, message: &OutboxMessage) -> Result<(), String> {
        let stream = self.connect().await?;
        let request = self.request(message)?;
        let status = match self.scheme == Scheme::HTTPS {
            false => exchange(stream, request).await?,
            true => {
                let name = ServerName::try_from(self.authority.host().to_owned());
                let name = name.map_err(|error| error.to_string())?;
                let connector = TlsConnector::from(tls()?);
                let secured = connector.connect(name, stream).await;
                exchange(secured.map_err(|error| error.to_string())?, request).await?
            }
        };
        match (200..300).contains(&status) {
            true => Ok(()),
            // A redirect is no answer: it could lead to any address.
            false => Err(format!("it answered {status}")),
        }
    }

    /// Connects to an address that was checked.
    async fn connect(&self) -> Result<TcpStream, String> {
        let host = self.authority.host();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let usual = if self.scheme == Scheme::HTTPS {
            443
        } else {
            80
        };
        let port = self.authority.port_u16().unwrap_or(usual);
        let found = tokio::net::lookup_host((host, port)).await;
        let found: Vec<SocketAddr> = found.map_err(|error| error.to_string())?.collect();
        let is_allowed = |address: &&SocketAddr| match self.addresses {
            WebhookAddresses::Any => true,
            WebhookAddresses::Public => is_public(address.ip()),
        };
        let Some(address) = found.iter().find(is_allowed) else {
            return Err("its name leads to no public address".to_owned());
        };
        let stream = TcpStream::connect(address).await;
        stream.map_err(|error| error.to_string())
    }

    fn request(&self, message: &OutboxMessage) -> Result<Request<Full<Bytes>>, String> {
        let at = current_time().as_unix_millis() / 1000;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.path)
            .header(HOST, self.authority.as_str())
            .header(CONTENT_TYPE, "application/json")
            .header(
                USER_AGENT,
                concat!("agent-backplane/", env!("CARGO_PKG_VERSION")),
            )
            .header("x-abp-message", message.id)
            .header("x-abp-topic", &message.topic)
            .header("x-abp-run-id", message.run_id.to_string())
            .header("x-abp-attempt", message.attempt)
            .header("x-abp-timestamp", at);
        if let Some(secret) = &self.secret {
            let signature = signature(secret, at, &message.body)?;
            request = request.header("x-abp-signature", format!("v1={signature}"));
        }
        let body = Full::new(Bytes::from(message.body.clone()));
        request.body(body).map_err(|error| error.to_string())
    }
}

/// The HMAC-SHA-256 of `TIMESTAMP.BODY`, in hexadecimal: a receiver checks both.
fn signature(secret: &SecretString, at: i64, body: &str) -> Result<String, String> {
    let key = secret.expose_secret().as_bytes();
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(|error| error.to_string())?;
    mac.update(format!("{at}.").as_bytes());
    mac.update(body.as_bytes());
    Ok(crate::manifest::hex(&mac.finalize().into_bytes()))
}

async fn exchange<I>(stream: I, request: Request<Full<Bytes>>) -> Result<u16, String>
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let answered = sender.send_request(request).await;
    let answer = answered.map_err(|error| error.to_string())?;
    let status = answer.status().as_u16();
    // Read so that the receiver can end in order; what it says does not matter.
    drop(Limited::new(answer.into_body(), MAX_ANSWER).collect().await);
    connection.abort();
    Ok(status)
}

fn tls() -> Result<std::sync::Arc<rustls::ClientConfig>, String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(std::sync::Arc::new(config))
}

fn secret(webhook: &WebhookConfig) -> Result<Option<SecretString>, String> {
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path);
        text.map_err(|error| format!("has a secret file that cannot be read: {error}"))
    };
    let secret = match (&webhook.secret_env, &webhook.secret_file) {
        (Some(name), _) => {
            let value = std::env::var(name);
            value.map_err(|_| format!("has its secret in {name}, which is not set"))?
        }
        (None, Some(path)) => read(path)?,
        (None, None) => return Ok(None),
    };
    let secret = secret.trim();
    match secret.is_empty() {
        true => Err("has an empty secret".to_owned()),
        false => Ok(Some(SecretString::from(secret))),
    }
}

/// Whether the whole internet can reach an address.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [first, second, third, _] = v4.octets();
            let is_shared = first == 100 && (64..128).contains(&second);
            let is_protocol = first == 192 && second == 0 && third == 0;
            let is_benchmark = first == 198 && (18..20).contains(&second);
            let is_reserved = first == 0 || first >= 240;
            !(v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_documentation()
                || v4.is_broadcast()
                || is_shared
                || is_protocol
                || is_benchmark
                || is_reserved)
        }
        IpAddr::V6(v6) => {
            if let Some(v4) = v6.to_ipv4() {
                // Mapped and compatible forms lead to the same machine.
                return is_public(IpAddr::V4(v4)) && v6.to_ipv4_mapped().is_some();
            }
            let [first, second, ..] = v6.segments();
            // Global unicast is 2000::/3; of it, transition and documentation blocks lead elsewhere.
            let is_global = first & 0xe000 == 0x2000;
            let is_transition = first == 0x2002 || (first == 0x2001 && second < 0x0200);
            let is_documentation =
                (first == 0x2001 && second == 0x0db8) || first & 0xfff0 == 0x3ff0;
            is_global && !is_transition && !is_documentation
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B10: addresses that only this machine or its network can reach.
    #[test]
    fn b10_private_addresses_are_not_public() {
        let private = [
            "127.0.0.1",
            "127.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.0.8",
            "198.18.0.1",
            "240.0.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:db8::1",
        ];
        for address in private {
            assert!(
                !is_public(address.parse().expect("an address")),
                "{address}"
            );
        }
        for address in [
            "1.1.1.1",
            "93.184.216.34",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
        ] {
            assert!(is_public(address.parse().expect("an address")), "{address}");
        }
    }

    #[test]
    fn a_signature_covers_the_time_and_the_body() {
        let secret = SecretString::from("key");
        let one = signature(&secret, 1, "{}").expect("a signature");
        // printf '1.{}' | openssl dgst -sha256 -hmac key
        let expected = "1ba6b8171186efc613e8bcc0cbdab2748f24984d7c5a84faa2637afa0e40d224";
        assert_eq!(one, expected);
        assert_ne!(one, signature(&secret, 2, "{}").expect("a signature"));
        assert_ne!(one, signature(&secret, 1, "{ }").expect("a signature"));
        let other = SecretString::from("other");
        assert_ne!(one, signature(&other, 1, "{}").expect("a signature"));
    }
}
