//! A vendor's API over HTTP.

use std::error::Error as StdError;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use abp_backend_core::{
    BoxFuture, ModelBody, ModelCall, ModelOperation, ModelReply, Upstream, UpstreamDescriptor,
    UpstreamError,
};
use abp_error::{AbpError, ErrorCode};
use abp_telemetry::redact;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, Uri};
use memchr::memmem;
use secrecy::{ExposeSecret as _, SecretString};

use crate::address::Address;
use crate::body::{AnswerBody, Bound};
use crate::connect::{ConnectTimedOut, Connector};
use crate::deadline::{Deadline, Wait, milliseconds};
use crate::headers::{OwnHeaders, drop_hop_by_hop};
use crate::message::{Head, write_head};
use crate::pool::{Line, LineError, Pool, VendorRequest};
use crate::{HttpUpstreamSpec, Timeouts, tls};

/// A vendor's API over HTTP/1.1, with a pool of connections of its own.
///
/// A request goes to the one address that is configured, with the one credential: no proxy, no
/// redirection, nothing that a caller sent. Answers are handed on as they come, part by part, without
/// being looked into.
pub struct HttpUpstream {
    descriptor: UpstreamDescriptor,
    pub(crate) address: Address,
    headers: OwnHeaders,
    /// What it is asked with.
    key: Option<SecretString>,
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
        let name = spec.name;
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
        let headers = OwnHeaders::new(host, spec.key.as_ref(), spec.wire_version.as_deref())
            .map_err(|error| invalid(error.message()))?;
        let tls = if address.is_https() {
            tls::client_config(spec.ca_file.as_deref())?
        } else {
            tls::no_tls()?
        };
        let connector = Connector::new(tls, address.is_https(), spec.timeouts.connect);
        let origin = Uri::try_from(address.origin())
            .map_err(|_| invalid("base_url names no usable host"))?;
        Ok(Self {
            descriptor: UpstreamDescriptor {
                name,
                dialects: spec.dialects,
                wire_version: spec.wire_version,
                address: Some(address.host_and_port()),
                is_demonstration: false,
            },
            address,
            headers,
            key: spec.key,
            timeouts: spec.timeouts,
            max_answer_bytes: spec.max_answer_bytes,
            pool: Pool::new(connector, origin),
        })
    }

    async fn exchange(&self, call: ModelCall) -> Result<ModelReply, UpstreamError> {
        let request = self.request(call)?;
        // Requests that came together go out together: a vendor on this machine, or the system for it, is
        // woken once for all of them, and not out of the middle of our work for each.
        tokio::task::yield_now().await;
        let mut deadline = Deadline::start(self.timeouts);
        let (head, line) = self.answer(request, &mut deadline).await?;
        self.reply(head, line, deadline)
    }

    fn request(&self, call: ModelCall) -> Result<VendorRequest, UpstreamError> {
        if !self.descriptor.dialects.contains(&call.dialect) {
            let problem = format!("it does not speak {}", call.dialect.label());
            return Err(UpstreamError::NotConfigured(problem));
        }
        let (method, uri) = self.address.route(&call)?;
        let json = HeaderValue::from_static("application/json");
        let content_type = match &call.operation {
            ModelOperation::Other(other) => other.content_type.as_ref(),
            _ => Some(&json),
        };
        let headers = |head: &mut Vec<u8>| {
            let (headers, dialect) = (&call.headers, call.dialect);
            self.headers.write(head, headers, dialect, content_type);
        };
        let head = write_head(&method, &uri, call.body.len(), headers);
        Ok(VendorRequest::new(head, call.body))
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
        let Some(key) = &self.key else { return body };
        if memmem::find(&body, key.expose_secret().as_bytes()).is_none() {
            return body;
        }
        let text = String::from_utf8_lossy(&body);
        Bytes::from(redact(&text, std::slice::from_ref(key)).into_owned())
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
