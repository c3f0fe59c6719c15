//! One request of a vendor's API, in the terms of the gateway and in those of HTTP.

use abp_backend_core::ModelOperation;
use abp_dialect::Dialect;
use bytes::Bytes;
use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

/// Everything but RFC 3986's unreserved characters.
const OUTSIDE_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// One request of a vendor's API.
#[derive(Debug, Clone)]
pub struct ApiCall {
    /// The dialect of the documents.
    pub dialect: Dialect,
    /// What is asked for.
    pub operation: ModelOperation,
    /// The model, where it is part of the address.
    pub model: Option<String>,
    /// The method.
    pub method: Method,
    /// The path after the version.
    pub path: String,
    /// The query.
    pub query: Option<&'static str>,
    /// The body.
    pub body: Bytes,
}

impl ApiCall {
    /// A request with a document.
    ///
    /// # Errors
    /// Fails where the document cannot be written as JSON.
    pub fn post(
        dialect: Dialect,
        operation: ModelOperation,
        path: impl Into<String>,
        document: &impl Serialize,
    ) -> Result<Self, serde_json::Error> {
        let body = Bytes::from(serde_json::to_vec(document)?);
        Ok(Self {
            body,
            ..Self::without_document(Method::POST, dialect, operation, path)
        })
    }

    /// A request that its address says all of.
    pub fn without_document(
        method: Method,
        dialect: Dialect,
        operation: ModelOperation,
        path: impl Into<String>,
    ) -> Self {
        Self {
            dialect,
            operation,
            model: None,
            method,
            path: path.into(),
            query: None,
            body: Bytes::new(),
        }
    }
}

/// A name as one segment of a path, whatever it holds.
#[must_use]
pub fn segment(name: &str) -> String {
    utf8_percent_encode(name, OUTSIDE_SEGMENT).to_string()
}
