//! Addresses that a program serves besides the vendors' endpoints.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use abp_gateway::{Principal, Refusal};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method};

use crate::body::HttpReply;
use crate::route::decoded;
use crate::upload::UploadBody;

/// The answer to an extra call, in the making.
pub type ExtraFuture = Pin<Box<dyn Future<Output = Result<HttpReply, Refusal>> + Send>>;

type Handler = dyn Fn(ExtraCall) -> ExtraFuture + Send + Sync;
type OpenHandler = dyn Fn(HeaderMap) -> ExtraFuture + Send + Sync;

/// One row: an address, its methods, and what answers there.
#[derive(Clone)]
pub struct ExtraRoute {
    pub(crate) path: &'static str,
    pub(crate) methods: &'static [Method],
    pub(crate) body: BodyRule,
    pub(crate) answer: RouteAnswer,
}

/// What answers at an address.
#[derive(Clone)]
pub(crate) enum RouteAnswer {
    /// A function, for callers with a key.
    Handler(Arc<Handler>),
    /// A function, for everybody. A caller that it does not recognise is slowed down like one with a
    /// wrong key.
    Open(Arc<OpenHandler>),
    /// A fixed text, for everybody.
    Page {
        media_type: &'static str,
        text: Bytes,
    },
    /// The file that the path's `{file}` names, for everybody.
    Files {
        policy: &'static str,
        files: Vec<StaticFile>,
    },
}

/// A file that is part of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaticFile {
    /// The value of the path's `{file}`; empty where the path has none.
    pub name: &'static str,
    /// Its media type.
    pub media_type: &'static str,
    /// Its content.
    pub bytes: &'static [u8],
}

/// The body that a route takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyRule {
    /// None; bytes that come nevertheless are not read.
    Nothing,
    /// JSON, as long as the server's limit allows.
    Json,
    /// JSON of a POST, at most so many bytes; other methods have none.
    JsonOfPost(usize),
    /// Bytes of any kind, at most so many, which the handler reads as they arrive.
    Upload(u64),
    /// None: the connection becomes a WebSocket. A browser, which cannot set headers there, may show its
    /// key as the subprotocol `abp.key.KEY`.
    Upgrade,
}

/// A request that passed every check: its caller is known, and its body was read where it is JSON.
#[derive(Debug)]
pub struct ExtraCall {
    /// The caller.
    pub principal: Arc<Principal>,
    /// The head.
    pub parts: Parts,
    /// The values of the `{names}` of the route's path.
    pub params: PathParams,
    /// The query, without a key that it may have contained.
    pub query: Option<String>,
    /// The whole body; empty for routes that take none or an upload.
    pub body: Bytes,
    /// The body of a route that takes an upload.
    pub upload: Option<UploadBody>,
}

/// The values of the named segments of a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathParams(Vec<(&'static str, String)>);

impl PathParams {
    /// The value of a segment; empty where the route has none of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }
}

impl ExtraRoute {
    /// A row. `path` is written without version prefix: `/runs/{run_id}` is found as `/v1/runs/X` too.
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
            answer: RouteAnswer::Handler(Arc::new(handler)),
        }
    }

    /// A row that answers callers without a key, by their headers alone. A refusal as unauthenticated counts
    /// as a wrong key of the caller's address.
    #[must_use]
    pub fn open(
        path: &'static str,
        methods: &'static [Method],
        handler: impl Fn(HeaderMap) -> ExtraFuture + Send + Sync + 'static,
    ) -> Self {
        Self {
            path,
            methods,
            body: BodyRule::Nothing,
            answer: RouteAnswer::Open(Arc::new(handler)),
        }
    }

    /// A row that answers everybody with a fixed text.
    #[must_use]
    pub fn page(path: &'static str, media_type: &'static str, text: String) -> Self {
        let text = Bytes::from(text);
        Self {
            path,
            methods: &[Method::GET],
            body: BodyRule::Nothing,
            answer: RouteAnswer::Page { media_type, text },
        }
    }

    /// A row that answers everybody with files of the program, under a content security policy of their own.
    #[must_use]
    pub fn files(path: &'static str, policy: &'static str, files: Vec<StaticFile>) -> Self {
        Self {
            path,
            methods: &[Method::GET],
            body: BodyRule::Nothing,
            answer: RouteAnswer::Files { policy, files },
        }
    }

    /// The values of the path's names where an address, without its version, fits the row.
    pub(crate) fn matches(&self, path: &str) -> Option<PathParams> {
        let mut asked = path.split('/');
        let mut params = Vec::new();
        for wanted in self.path.split('/') {
            let segment = asked.next()?;
            let name = wanted
                .strip_prefix('{')
                .and_then(|rest| rest.strip_suffix('}'));
            match name {
                Some(name) => params.push((name, decoded(segment)?)),
                None if wanted == segment => {}
                None => return None,
            }
        }
        asked.next().is_none().then_some(PathParams(params))
    }

    /// Whether the row answers this method.
    pub(crate) fn takes(&self, method: &Method) -> bool {
        self.methods.contains(method)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_take_exactly_one_decoded_segment() {
        type Case = (
            &'static str,
            &'static str,
            Option<&'static [(&'static str, &'static str)]>,
        );
        let cases: [Case; 9] = [
            ("/runs", "/runs", Some(&[])),
            ("/runs", "/runs/x", None),
            ("/runs/{run_id}", "/runs/7", Some(&[("run_id", "7")])),
            ("/runs/{run_id}", "/runs/a%2Fb", Some(&[("run_id", "a/b")])),
            ("/runs/{run_id}", "/runs/", None),
            ("/runs/{run_id}", "/runs/%00", None),
            ("/runs/{run_id}", "/runs/%zz", None),
            ("/runs/{run_id}", "/runs/7/events", None),
            (
                "/runs/{run_id}/blobs/{sha256}",
                "/runs/7/blobs/ab",
                Some(&[("run_id", "7"), ("sha256", "ab")]),
            ),
        ];
        for (pattern, path, expected) in cases {
            let row = ExtraRoute::page(pattern, "text/plain", String::new());
            let expected = expected.map(|pairs| {
                let pairs = pairs.iter();
                PathParams(
                    pairs
                        .map(|(name, value)| (*name, (*value).to_owned()))
                        .collect(),
                )
            });
            assert_eq!(row.matches(path), expected, "{pattern} {path}");
        }
    }
}
