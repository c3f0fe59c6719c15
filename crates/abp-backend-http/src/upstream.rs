//! A vendor's API over HTTP.

use std::error::Error as StdError;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use abp_backend_core::{
    BoxFuture, ModelBody, ModelCall, ModelOperation, ModelReply, Upstream, UpstreamDescriptor,
    UpstreamError,
};
use abp_dialect::Dialect;
use abp_error::{AbpError, ErrorCode};
use abp_telemetry::redact;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use jiff::Timestamp;
use memchr::memmem;
use percent_encoding::utf8_percent_encode;
use secrecy::{ExposeSecret as _, SecretString};

use crate::address::{Address, OUTSIDE_SEGMENT};
use crate::body::{AnswerBody, Bound};
use crate::connect::{ConnectTimedOut, Connector};
use crate::credential::{Authenticator, Credential};
use crate::deadline::{Deadline, Wait, milliseconds};
use crate::headers::{OwnHeaders, drop_hop_by_hop, key_header};
use crate::message::{Head, write_head, write_header};
use crate::pool::{Line, LineError, Pool, VendorRequest};
use crate::sigv4::{SignedRequest, sign};
use crate::{HttpUpstreamSpec, ProxyAddress, Timeouts, UpstreamAuth, tls};

/// A vendor's API over HTTP/1.1, with a pool of connections of its own.
///
/// A request goes to the one address that is configured, through the one proxy where there is one, with
/// the one credential: no redirection, nothing that a caller sent. Answers are handed on as they come, part by part, without
/// being looked into.
pub struct HttpUpstream {
    descriptor: UpstreamDescriptor,
    pub(crate) address: Address,
    headers: OwnHeaders,
    authenticator: Authenticator,
    /// Parameters of every address.
    query: Option<String>,
    /// In front of the path where a proxy is given the request itself, otherwise empty.
    pub(crate) absolute: String,
    pub(crate) timeouts: Timeouts,
    max_answer_bytes: usize,
    pool: Arc<Pool>,
}

impl HttpUpstream {
    /// An upstream as configured. Nothing is connected yet.
    ///
    /// # Errors
    /// Fails where the address, the key, the version or the certificates cannot be used, or where no
    /// dialect is named.
    pub fn new(spec: HttpUpstreamSpec) -> Result<Self, AbpError> {
        let name = spec.name.clone();
        let invalid = |problem: &str| {
            let message = format!("upstream {name}: {problem}");
            AbpError::new(ErrorCode::ConfigInvalid, message)
        };
        if spec.dialects.is_empty() {
            return Err(invalid("it speaks no dialect"));
        }
        let address = Address::parse(&spec.base_url)
            .map_err(|problem| invalid(&format!("base_url {problem}")))?;
        let host = address
            .host()
            .map_err(|_| invalid("base_url names no usable host"))?;
        // Over TLS the proxy is asked for a tunnel, and sees nothing of the request.
        let given = spec.proxy.as_ref().filter(|_| !address.is_https());
        let headers = OwnHeaders::new(
            host,
            spec.wire_version.as_deref(),
            spec.headers.clone(),
            given.and_then(|proxy| proxy.authorization.clone()),
        )
        .map_err(|error| invalid(error.message()))?;
        let connector = |https: bool, proxy: Option<ProxyAddress>| {
            let tls = if https {
                tls::client_config(spec.ca_file.as_deref())?
            } else {
                tls::no_tls()?
            };
            Ok::<_, AbpError>(Connector::new(tls, https, proxy, spec.timeouts.connect))
        };
        // The token's address is another one than the vendor's, but as far away.
        let of_token = |https: bool| connector(https, spec.proxy.clone().filter(|_| https));
        let authenticator =
            Authenticator::new(&spec, of_token).map_err(|error| invalid(error.message()))?;
        let origin = Uri::try_from(address.origin())
            .map_err(|_| invalid("base_url names no usable host"))?;
        let pool = Pool::new(connector(address.is_https(), spec.proxy.clone())?, origin);
        Ok(Self {
            descriptor: UpstreamDescriptor {
                name: spec.name,
                dialects: spec.dialects,
                wire_version: spec.wire_version,
                address: Some(address.host_and_port()),
                is_demonstration: false,
            },
            absolute: given.map_or_else(String::new, |_| address.origin()),
            address,
            headers,
            authenticator,
            query: spec.query,
            timeouts: spec.timeouts,
            max_answer_bytes: spec.max_answer_bytes,
            pool,
        })
    }

    async fn exchange(&self, call: ModelCall) -> Result<ModelReply, UpstreamError> {
        let credential = self.authenticator.credential().await?;
        let request = self.request(call, credential.as_deref())?;
        // Requests that came together go out together: a vendor on this machine, or the system for it, is
        // woken once for all of them, and not out of the middle of our work for each.
        tokio::task::yield_now().await;
        let mut deadline = Deadline::start(self.timeouts);
        let (head, line) = self.answer(request, &mut deadline).await?;
        if head.status == StatusCode::UNAUTHORIZED {
            self.authenticator.refused(credential.as_ref());
        }
        self.reply(head, line, deadline)
    }

    fn request(
        &self,
        call: ModelCall,
        credential: Option<&Credential>,
    ) -> Result<VendorRequest, UpstreamError> {
        if !self.descriptor.dialects.contains(&call.dialect) {
            let problem = format!("it does not speak {}", call.dialect.label());
            return Err(UpstreamError::NotConfigured(problem));
        }
        let query = self.query_of(&call, credential);
        let (method, uri) = self.address.route(&call, query.as_deref())?;
        let signed = self.signed(&method, &uri, &call, credential)?;
        let json = HeaderValue::from_static("application/json");
        let content_type = match &call.operation {
            ModelOperation::Other(other) => other.content_type.as_ref(),
            _ => Some(&json),
        };
        let headers = |head: &mut Vec<u8>| {
            let (headers, dialect) = (&call.headers, call.dialect);
            self.headers.write(head, headers, dialect, content_type);
            for (name, value) in &signed {
                write_header(head, name, value);
            }
            let shown = credential.and_then(|one| self.shown(dialect, one));
            if let Some((name, value)) = shown {
                write_header(head, &name, value);
            }
        };
        let head = write_head(&method, &self.absolute, &uri, call.body.len(), headers);
        Ok(VendorRequest::new(head, call.body))
    }

    /// The header that shows a credential, where that is how it is used.
    fn shown<'c>(
        &self,
        dialect: Dialect,
        credential: &'c Credential,
    ) -> Option<(HeaderName, &'c HeaderValue)> {
        match &self.authenticator.kind {
            UpstreamAuth::Dialect => Some(key_header(dialect, credential)),
            UpstreamAuth::Bearer | UpstreamAuth::Vertex => {
                Some((AUTHORIZATION, &credential.bearer))
            }
            UpstreamAuth::Header(name) => Some((name.clone(), &credential.plain)),
            UpstreamAuth::Query(_) | UpstreamAuth::Bedrock { .. } => None,
        }
    }

    /// The headers of a signature, where requests are signed.
    fn signed(
        &self,
        method: &Method,
        uri: &Uri,
        call: &ModelCall,
        credential: Option<&Credential>,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, UpstreamError> {
        let keys = credential.and_then(|one| one.aws.as_ref());
        let (Some(keys), Some(scope)) = (keys, self.authenticator.signing_scope()) else {
            return Ok(Vec::new());
        };
        let request = SignedRequest {
            method,
            path: uri.path(),
            query: uri.query().unwrap_or_default(),
            host: &self.headers.host,
            body: &call.body,
        };
        sign(&request, keys, &scope, Timestamp::now()).map_err(|problem| {
            UpstreamError::NotConfigured(format!("the credentials cannot be used: {problem}"))
        })
    }

    /// The caller's query, the configured one, and the key where that is a parameter. A name that is set
    /// here is not the caller's to set.
    fn query_of(&self, call: &ModelCall, credential: Option<&Credential>) -> Option<String> {
        let key = match (&self.authenticator.kind, credential) {
            (UpstreamAuth::Query(name), Some(credential)) => {
                let value = utf8_percent_encode(credential.exposed(), OUTSIDE_SEGMENT);
                Some(format!("{name}={value}"))
            }
            _ => None,
        };
        if key.is_none() && self.query.is_none() {
            return call.query.clone();
        }
        let own: Vec<&str> = self
            .query
            .as_deref()
            .into_iter()
            .chain(key.as_deref())
            .collect();
        let own = own.join("&");
        let name = |pair: &str| pair.split('=').next().unwrap_or_default().to_owned();
        let set: Vec<String> = own.split('&').map(name).collect();
        let asked = call.query.as_deref().unwrap_or_default().split('&');
        let asked = asked.filter(|pair| !pair.is_empty() && !set.contains(&name(pair)));
        let all: Vec<&str> = asked.chain([own.as_str()]).collect();
        Some(all.join("&"))
    }

    /// Sends a request and waits for the head of its answer. Connecting has its own limit, in the
    /// connector; the wait for the answer begins when the connection stands.
    pub(crate) async fn answer(
        &self,
        mut request: VendorRequest,
        deadline: &mut Deadline,
    ) -> Result<(Head, Box<Line>), UpstreamError> {
        loop {
            let kept = self.pool.take();
            let was_kept = kept.is_some();
            let mut line = match kept {
                Some(line) => line,
                None => self.connected(deadline).await?,
            };
            deadline.wait_for(Wait::Answer);
            let answered = tokio::select! {
                biased;
                answered = line.send(request) => answered,
                error = poll_fn(|context| deadline.poll(context)) => return Err(error),
            };
            deadline.came()?;
            request = match answered {
                Ok(head) => return Ok((head, line)),
                // The vendor closed it while nobody used it, and has seen nothing of the request.
                Err(LineError::Unsent(unsent)) if was_kept => unsent,
                Err(error) => return Err(UpstreamError::Broken(innermost(&error))),
            };
        }
    }

    async fn connected(&self, deadline: &mut Deadline) -> Result<Box<Line>, UpstreamError> {
        let connected = tokio::select! {
            biased;
            connected = self.pool.connect() => connected,
            error = poll_fn(|context| deadline.poll(context)) => return Err(error),
        };
        connected.map_err(|error| {
            if causes(&*error).any(<dyn StdError>::is::<ConnectTimedOut>) {
                let limit_ms = milliseconds(self.timeouts.connect);
                return UpstreamError::ConnectTimeout { limit_ms };
            }
            UpstreamError::Unreachable(innermost(&*error))
        })
    }

    pub(crate) fn reply(
        &self,
        head: Head,
        line: Box<Line>,
        deadline: Deadline,
    ) -> Result<ModelReply, UpstreamError> {
        let (status, mut headers) = (head.status, head.headers);
        if status.is_redirection() && headers.contains_key(LOCATION) {
            return Err(UpstreamError::Redirected);
        }
        if is_compressed(&headers) {
            let problem = "it is compressed, which was not asked for";
            return Err(UpstreamError::Broken(problem.to_owned()));
        }
        let limit = self.max_answer_bytes;
        let bound = (!is_event_stream(&headers)).then(|| Bound::new(limit));
        if bound.is_some() && told_length(&headers).is_some_and(|length| length > limit) {
            return Err(UpstreamError::TooLong { limit });
        }
        drop_hop_by_hop(&mut headers);
        let pool = Arc::clone(&self.pool);
        Ok(ModelReply {
            status,
            headers,
            body: ModelBody::stream(AnswerBody::new(line, pool, deadline, bound)),
        })
    }
}

impl Upstream for HttpUpstream {
    fn descriptor(&self) -> &UpstreamDescriptor {
        &self.descriptor
    }

    fn send(&self, call: ModelCall) -> BoxFuture<'_, Result<ModelReply, UpstreamError>> {
        Box::pin(self.exchange(call))
    }

    fn without_key(&self, body: Bytes) -> Bytes {
        let secrets = self.authenticator.secrets();
        let is_shown = |secret: &SecretString| {
            memmem::find(&body, secret.expose_secret().as_bytes()).is_some()
        };
        if !secrets.iter().any(is_shown) {
            return body;
        }
        let text = String::from_utf8_lossy(&body);
        Bytes::from(redact(&text, &secrets).into_owned())
    }
}

impl fmt::Debug for HttpUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpUpstream")
            .field("name", &self.descriptor.name)
            .field("dialects", &self.descriptor.dialects)
            .field("origin", &self.address.origin())
            .finish_non_exhaustive()
    }
}

/// What brought an error about, from the outside in.
fn causes<'e>(
    error: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&cause| cause.source())
}

/// The innermost cause says what happened; the others only where.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    causes(error)
        .last()
        .map_or_else(String::new, ToString::to_string)
}

fn is_compressed(headers: &HeaderMap) -> bool {
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    encodings.any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Whether an answer is a stream of server-sent events.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|kind| kind.eq_ignore_ascii_case("text/event-stream"))
}

/// The type of an answer, without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    text.split(';').next().map(str::trim)
}

fn told_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
