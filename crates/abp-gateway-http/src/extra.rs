//! Addresses that a program serves besides the vendors' endpoints.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use abp_gateway::{Principal, Refusal};
use bytes::Bytes;
use http::Method;
use http::request::Parts;

use crate::body::HttpReply;

/// The answer to an extra call, in the making.
pub type ExtraFuture = Pin<Box<dyn Future<Output = Result<HttpReply, Refusal>> + Send>>;

type Handler = dyn Fn(ExtraCall) -> ExtraFuture + Send + Sync;

/// One row: an address, its methods, and the function that answers.
#[derive(Clone)]
pub struct ExtraRoute {
    pub(crate) path: &'static str,
    pub(crate) methods: &'static [Method],
    pub(crate) body: BodyRule,
    pub(crate) handler: Arc<Handler>,
}

/// The body that a route takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyRule {
    /// JSON, as long as the server's limit allows.
    Json,
    /// JSON of a POST, at most so many bytes; other methods have none.
    JsonOfPost(usize),
}

/// A request that passed every check: its caller is known and its body was read.
#[derive(Debug)]
pub struct ExtraCall {
    /// The caller.
    pub principal: Arc<Principal>,
    /// The head.
    pub parts: Parts,
    /// The whole body.
    pub body: Bytes,
}

impl ExtraRoute {
    /// A row. `path` is written without version prefix: `/assist` is found as `/v1/assist` too.
    #[must_use]
    pub fn new(
        path: &'static str,
        methods: &'static [Method],
        body: BodyRule,
        handler: impl Fn(ExtraCall) -> ExtraFuture + Send + Sync + 'static,
    ) -> Self {
        Self {
            path,
            methods,
            body,
            handler: Arc::new(handler),
        }
    }
}

impl fmt::Debug for ExtraRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtraRoute")
            .field("path", &self.path)
            .field("methods", &self.methods)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}
