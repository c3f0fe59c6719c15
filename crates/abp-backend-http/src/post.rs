//! Documents that are sent and not talked about: for collectors of telemetry, which are reached as vendors are.

use std::future::poll_fn;
use std::pin::Pin;

use abp_backend_core::UpstreamError;
use bytes::Bytes;
use futures_core::Stream as _;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};

use crate::HttpUpstream;
use crate::deadline::Deadline;
use crate::message::{write_head, write_header};
use crate::pool::VendorRequest;

impl HttpUpstream {
    /// Posts a JSON document to a path below the configured address, with these headers, and returns the
    /// status of the answer, which is read and thrown away.
    ///
    /// # Errors
    /// Fails where the address cannot be reached or does not answer in time.
    pub async fn post_json(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<StatusCode, UpstreamError> {
        let unusable = |what: &str| UpstreamError::Unaskable(what.to_owned());
        let uri = format!("{}{path}", self.address.path());
        let uri = Uri::try_from(uri).map_err(|_| unusable("the address cannot be written"))?;
        let host = self.address.host();
        let host = host.map_err(|_| unusable("the host cannot be written"))?;
        let own = [
            (HOST, host),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (ACCEPT_ENCODING, HeaderValue::from_static("identity")),
            (
                USER_AGENT,
                HeaderValue::from_static(concat!("agent-backplane/", env!("CARGO_PKG_VERSION"))),
            ),
        ];
        let head = write_head(&Method::POST, &self.absolute, &uri, body.len(), |head| {
            for (name, value) in &own {
                write_header(head, name, value);
            }
            for (name, value) in headers {
                write_header(head, name, value);
            }
        });
        let mut deadline = Deadline::start(self.timeouts);
        let request = VendorRequest::new(head, body);
        let (head, line) = self.answer(request, &mut deadline).await?;
        let mut reply = self.reply(head, line, deadline)?;
        // Read to its end, so that the connection can be used again.
        while let Some(part) = poll_fn(|context| Pin::new(&mut reply.body).poll_next(context)).await
        {
            part?;
        }
        Ok(reply.status)
    }
}
